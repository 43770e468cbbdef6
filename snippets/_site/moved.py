"""Old addresses of sections keep working: a page's front matter says what a section was called.

    moved:
      kernel: [how-is-it-launched, which-query-am-i]
      /how_to/masks.md#conventions: [three-masks]

A heading whose id is `kernel` then answers to the two old ids as well. What moved to another page,
named from the root of docs/, becomes a link with the old id at the end of this one: site/moved.js
follows it, and a reader without scripts who asks for that id sees it. MkDocs says where such a link
leads to nothing.

    replaces: [lab/coverage]

A whole page that became a part of this one: at its address, and at that of its numbers, a page
leads here, with whatever anchor was asked for.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig

from snippets._site import listings

HEADING = re.compile(r'<h[2-6] id="(?P<id>[^"]+)"[^>]*>')
Moved = Mapping[str, Sequence[str]]


class MovedError(ValueError):
    """A page's list of old addresses does not fit the page."""


def linked(markdown: str, moved: Moved) -> str:
    """A page's Markdown with a link for each old id whose section is on another page now."""
    links = [
        f"[{Path(target.partition('#')[0]).stem.replace('_', ' ')}]({target}){{ #{name} }}"
        for target, names in moved.items()
        for name in names
        if target.startswith("/")
    ]
    line = '<p class="am-moved" data-search-exclude markdown>Moved to: {}</p>'
    return "\n\n".join([markdown, *([line.format("\n".join(links))] if links else [])])


def anchored(content: str, moved: Moved) -> str:
    """A page's HTML with an anchor for each old id, at the start of the section that it became.

    Raises:
        MovedError: for a section that the page lacks, and for an old id that the page still has.
    """
    here = {target: names for target, names in moved.items() if not target.startswith("/")}
    missing = set(here) - {match["id"] for match in HEADING.finditer(content)}
    if missing:
        raise MovedError(f"moved: the page has no section {', '.join(sorted(missing))}")

    def with_anchors(match: re.Match[str]) -> str:
        names = here.get(match["id"], ())
        return match[0] + "".join(f'<a id="{name}"></a>' for name in names)

    content = HEADING.sub(with_anchors, content)
    old = {name for names in moved.values() for name in names}
    taken = sorted(name for name in old if content.count(f'id="{name}"') > 1)
    if taken:
        raise MovedError(f"moved: more than one place would be {', '.join(taken)}")
    return content


def write(config: MkDocsConfig) -> None:
    """Write a page at each address that a page `replaces`."""
    for page in listings.pages():
        for old in page.meta.get("replaces", ()):
            file = old.endswith(".html")  # a file's view, which has no page of numbers
            for part in ("",) if file else ("", "numbers/"):
                path = old if file else f"{old}/{part}index.html"
                listings.write_page(config, path, "replaced.html", page, address=page.url + part)
