"""A page for each file that readers may copy: highlighted, with an address for each line.

`published` puts the file itself beside it. Both leave out the markers by which pages name parts of
a file. A "View" link of a page leads to the page of the file, and its address ends in `.html` where
the file's ends in `.py`.
"""

import functools
import re
from pathlib import Path

from jinja2 import Environment
from mkdocs.commands.build import get_context
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

from snippets._site import html_fixes

MARKER = re.compile(r"^[ \t]*# --8<-- \[(?:start|end):[^\]\n]*\][ \t]*\n", re.MULTILINE)
VIEW = re.compile(r'(<a href="[^"]*\bsnippets/\w+/\w+)\.py(">View</a>)')
# Of the build under way.
_nav: list[Navigation] = []
_drawn_with: list[tuple[Environment, Files]] = []
FILE = re.compile(r"snippets/(\w+)/\w+\.py$")


def without_markers(source: str) -> str:
    """A file's text without the lines that name its parts."""
    return re.sub(r"\n{4,}", "\n\n\n", MARKER.sub("", source))


def viewed(content: str) -> str:
    """A page's HTML, its "View" links leading to the pages of files."""
    return VIEW.sub(r"\1.html\2", content)


@functools.cache  # live reload asks again for every file
def lines(source: str) -> str:
    """Highlighted code, each line with its number and an address."""
    marked = highlight(source, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    return "\n".join(
        f'<span id="L{number}" class="am-line">'
        f'<a href="#L{number}" data-line="{number}" aria-label="Line {number}"></a>{line}</span>'
        for number, line in enumerate(marked.rstrip("\n").split("\n"), start=1)
    )


def colored(source: str) -> list[tuple[str, str]]:
    """Code in pieces: the class of each, for its color, and its text."""
    pieces: list[tuple[str, str]] = []
    for kind, text in PythonLexer(stripnl=False).get_tokens(source):
        name = STANDARD_TYPES.get(kind, "")
        name = "" if name in ("n", "p", "w") else name  # these have the color of text
        if pieces and pieces[-1][0] == name:
            text = pieces.pop()[1] + text
        pieces.append((name, text))
    return pieces


def remember(nav: Navigation) -> None:
    """Keep the pages of the site: a file's page leads back to its post."""
    _nav[:] = [nav]


def draw(env: Environment, files: Files) -> None:
    """Keep what the pages are drawn with, until all other pages have their titles."""
    _drawn_with[:] = [(env, files)]


def write(config: MkDocsConfig) -> None:
    """Write the page of each published file."""
    ((_, files),) = _drawn_with
    for file in files:
        match = FILE.match(file.src_uri)
        if not match:
            continue
        listing = {
            "path": file.src_uri,
            "name": file.src_uri.rpartition("/")[2],
            "code": html_fixes.fixed(lines(file.content_string)),
            "lines": file.content_string.count("\n"),
        }
        post = next((page for page in pages() if page.file.name == match[1]), None)
        path = file.src_uri.removesuffix(".py") + ".html"
        write_page(config, path, "listing.html", post, listing=listing)


def pages() -> list[Page]:
    """The pages of the navigation, for what is written beside them."""
    return [page for nav in _nav for page in nav.pages]


def write_page(
    config: MkDocsConfig, path: str, template: str, beside: Page | None, **shown: object
) -> None:
    """Write a page that MkDocs does not know, with the navigation of the page that it is beside."""
    (nav,), ((env, files),) = _nav, _drawn_with
    context = get_context(nav, files, config, base_url="/".join([".."] * path.count("/")))
    context |= {"beside": beside, **shown}
    if beside:
        beside.active = True
    text = html_fixes.fixed_template(env.get_template(template).render(context))
    if beside:
        beside.active = False
    written = Path(config.site_dir) / path
    written.parent.mkdir(parents=True, exist_ok=True)
    written.write_text(text, "utf-8")
