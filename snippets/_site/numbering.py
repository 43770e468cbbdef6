"""Figure numbers, and for each page with measured figures a page of the numbers behind them.

A figure is numbered by its place on the page, and its number is its permalink. What is folded away
counts as a part of the figure before it: 5, 5a, 5b, 6. A caption ends with a link to the figure's
data: table, raw results, where they come from. The data of a page's figures stand together on a
page below it, which is in neither the navigation nor the search; with them those of the room's
figures that no page shows. The address of a figure that a post does not show leads to where it is.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from snippets._lab.rooms import FIGURES
from snippets._site.export import title

INCLUDED = re.compile(r'--8<-- "docs/figures/(\w+)/(\w+)\.md"')
PART = re.compile(
    r'<div class="am-figure\b[^"]*"[^>]*\bid="figure-(?P<room>\w+)-(?P<name>\w+)"'
    r"|(?P<fold></?details\b)|(?P<begin><figcaption>(?:\s*<p>)?)|(?P<end>(?:</p>\s*)?</figcaption>)"
)

_shown_on: dict[tuple[str, str], list[str]] = {}  # of this build: a figure → the pages with it


class Shown(NamedTuple):
    """A figure on a page: its number, "5" or "5a", and where its caption begins and ends."""

    room: str
    name: str
    number: str
    begin: int
    end: int


def add(files: Files, config: MkDocsConfig) -> None:
    """Add a page of numbers, still empty, for each page with a figure that has some."""
    _shown_on.clear()
    pages = list(files.documentation_pages())
    for file in pages:
        for found in INCLUDED.findall(file.content_string):
            _shown_on.setdefault(found, []).append(file.src_uri)
    for file in pages:
        shown = INCLUDED.findall(file.content_string)
        if any(_has_data(*found) for found in [*shown, *_on_no_page(file)]):
            hidden = InclusionLevel.NOT_IN_NAV
            files.append(File.generated(config, _path(file), content="", inclusion=hidden))


def moved(page: Page) -> dict[str, list[str]]:
    """What the page's front matter says as `moved`, and where the figures are that it lacks."""
    found = dict(page.meta.get("moved", {}))
    named = {name for names in found.values() for name in names}
    for room, name in _missing(page.file):
        itself = f"figure-{room}-{name}"
        pages = _shown_on.get((room, name))
        target = f"/{pages[0]}#{itself}" if pages else f"/{_path(page.file)}#{room}-{name}"
        if itself not in named and (pages or _has_data(room, name)):
            found[target] = [*found.get(target, ()), itself]
    return found


def numbered(content: str, page: Page, files: Files) -> str:
    """A page's HTML with links around each caption: "Figure 3" to itself, "data" to its numbers.

    Writes the page of numbers, which is read after all that stand in docs/.
    """
    numbers = files.get_file_from_path(_path(page.file))
    parts, at = [], 0
    sections = {}
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
            back = f"[Back to the figure](/{page.file.src_uri}#{itself})\n"
            sections[itself] = _section(f"Figure {number}: ", room, name) + back
    if numbers:
        for room, name in _on_no_page(page.file):
            sections[f"figure-{room}-{name}"] = _section("", room, name)
        old: dict[str, list[str]] = {}
        for target, names in page.meta.get("moved", {}).items():
            target = target if target[0] == "/" else f"/{page.file.src_uri}#{target}"
            gone = [name for name in names if name.startswith("figure-") and name not in sections]
            old |= {target: [name.removeprefix("figure-") for name in gone]} if gone else {}
        front = (
            f"---\ntitle: {json.dumps(f'Numbers: {title(page)}')}\n"
            f"moved: {json.dumps(old)}\nsearch:\n  exclude: true\n---\n"
        )
        lead = f"What the figures of [{title(page)}](/{page.file.src_uri}) are drawn from.\n"
        text = [front, f"# Numbers: {title(page)}\n", lead, *sections.values()]
        numbers.content_string = "\n".join(text)
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


def _section(numbered: str, room: str, name: str) -> str:
    """A figure's data under a heading with an address."""
    heading = f"## {numbered}{name.replace('_', ' ')} {{ #{room}-{name} }}"
    return f'{heading}\n\n--8<-- "docs/figures/{room}/{name}_data.md"\n\n'


def _missing(file: File) -> list[tuple[str, str]]:
    """The figures of a page's room that the page does not show; of a report it shows a part."""
    room = file.name
    if file.src_uri not in (f"posts/{room}.md", f"lab/{room}.md"):
        return []
    names = {path.stem.removesuffix("_data") for path in (FIGURES / room).glob("*_data.md")}
    for path in (FIGURES / room).glob("*.md"):
        if f'id="figure-{room}-{path.stem}"' in path.read_text("utf-8"):
            names.add(path.stem)
    return [
        (room, name)
        for name in sorted(names - {"report"})
        if file.src_uri not in _shown_on.get((room, name), [])
    ]


def _on_no_page(file: File) -> list[tuple[str, str]]:
    """Those of them that no other page shows, and that have data."""
    return [found for found in _missing(file) if found not in _shown_on and _has_data(*found)]


def _path(file: File) -> str:
    return str(file.src_uri).removesuffix(".md") + "/numbers.md"


def _has_data(room: str, name: str) -> bool:
    return (FIGURES / room / f"{name}_data.md").is_file()
