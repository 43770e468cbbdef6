"""Figure numbers, and for each page with measured figures a page of the numbers behind them.

A figure is numbered by its place on the page, and its number is its permalink. What is folded away
counts as a part of the figure before it: 5, 5a, 5b, 6. A caption ends with a link to the figure's
data: table, raw results, where they come from. The data of a page's figures stand together on a
page below it, which is in neither the navigation nor the search.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from snippets._lab.rooms import FIGURES

INCLUDED = re.compile(r'--8<-- "docs/figures/(\w+)/(\w+)\.md"')
PART = re.compile(
    r'<div class="am-figure\b[^"]*"[^>]*\bid="figure-(?P<room>\w+)-(?P<name>\w+)"'
    r"|(?P<fold></?details\b)|(?P<begin><figcaption>(?:\s*<p>)?)|(?P<end>(?:</p>\s*)?</figcaption>)"
)


class Shown(NamedTuple):
    """A figure on a page: its number, "5" or "5a", and where its caption begins and ends."""

    room: str
    name: str
    number: str
    begin: int
    end: int


def add(files: Files, config: MkDocsConfig) -> None:
    """Add a page of numbers, still empty, for each page with a figure that has some."""
    for file in list(files.documentation_pages()):
        if any(_has_data(*found) for found in INCLUDED.findall(file.content_string)):
            hidden = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _path(file), content="", inclusion=hidden))


def numbered(content: str, page: Page, files: Files) -> str:
    """A page's HTML with links around each caption: "Figure 3" to itself, "data" to its numbers.

    Writes the page of numbers, which is read after all that stand in docs/.
    """
    numbers = files.get_file_from_path(_path(page.file))
    parts, at = [], 0
    sections = []
    for room, name, number, begin, end in figures(content):
        itself = f"figure-{room}-{name}"
        parts.append(
            f'{content[at:begin]}<a class="am-number" href="#{itself}">Figure {number}</a> '
        )
        parts.append(content[begin:end])
        at = end
        if numbers and _has_data(room, name):
            link = f"{numbers.url_relative_to(page.file)}#{room}-{name}"
            parts.append(
                f' <a class="am-data" href="{link}" aria-label="data of figure {number}">data</a>'
            )
            sections.append(
                f"## Figure {number}: {name.replace('_', ' ')} {{ #{room}-{name} }}\n\n"
                f'--8<-- "docs/figures/{room}/{name}_data.md"\n\n'
                f"[Back to the figure](/{page.file.src_uri}#{itself})\n"
            )
    if numbers:
        front = (
            f"---\ntitle: {json.dumps(f'Numbers: {page.title}')}\nsearch:\n  exclude: true\n---\n"
        )
        lead = f"What the figures of [{page.title}](/{page.file.src_uri}) are drawn from.\n"
        numbers.content_string = "\n".join([front, f"# Numbers: {page.title}\n", lead, *sections])
    return "".join([*parts, content[at:]])


def figures(content: str) -> Iterator[Shown]:
    """The figures in a page's HTML that have a caption, in their order."""
    figure, folds, number, folded, begin = None, 0, 0, 0, 0
    for part in PART.finditer(content):
        if part["fold"]:
            folds += -1 if part["fold"].startswith("</") else 1
        elif part["room"]:
            figure = part
        elif part["begin"]:
            begin = part.end()
        elif figure:
            number, folded = (number, folded + 1) if folds else (number + 1, 0)
            named = str(number) + "abcdefghijklmnopqrstuvwxyz"[folded - 1] * bool(folded)
            yield Shown(figure["room"], figure["name"], named, begin, part.start())
            figure = None


def _path(file: File) -> str:
    return str(file.src_uri).removesuffix(".md") + "/numbers.md"


def _has_data(room: str, name: str) -> bool:
    return (FIGURES / room / f"{name}_data.md").is_file()
