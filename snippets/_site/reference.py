"""The reference of launchers: linked from each kernel's row, and plainer than mkdocstrings' own."""

import re

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

PAGE = "reference/launchers.md"
IDENTIFIER = re.compile(r"^::: (?P<identifier>[\w.]+)$", re.MULTILINE)
FILE_ROW = re.compile(r"\[Download\]\(/snippets/(?P<room>\w+)/kernel\.py\)\{ download \}")


def linked(markdown: str, page: Page, files: Files) -> str:
    """A post's Markdown with a link from a kernel's row to its launcher's reference."""
    launchers = files.get_file_from_path(PAGE)
    if not page.file.src_uri.startswith("posts/") or launchers is None:
        return markdown
    anchors = {name.split(".")[-1]: name for name in IDENTIFIER.findall(launchers.content_string)}

    def with_reference(row: re.Match[str]) -> str:
        anchor = anchors.get(row["room"])
        return f"{row[0]} [Reference](../{PAGE}#{anchor})" if anchor else row[0]

    return FILE_ROW.sub(with_reference, markdown)


def plainer(content: str) -> str:
    """Returns without a dash in place of a name; errors without a tuple's parentheses."""
    content = re.sub(r'(<li class="doc-section-item[^>]*>)\s*–\s*', r"\1", content)
    return re.sub(
        r"<code>\(((?:<span[^>]*>\w+</span>(?:, )?)+)\)</code>", r"<code>\1</code>", content
    )
