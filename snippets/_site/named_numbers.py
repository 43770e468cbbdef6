"""The numbers that a page names where they stand: `{{ flash_attention.forward.cudnn }}`.

`make figures` writes them to docs/figures/<room>/numbers.json, each with the results it came from.
A page's own text is filled in before anything else is done with it, so its Markdown version and the
search index hold the numbers too. A name that no file has stops the build.

This is a pattern and no template language (mkdocs-macros-plugin, which is Jinja): in one, the
braces of formulas, the `{#` of anchors and the listings of a page would all need escapes, and a
page could hold branches again. What is not of this form is left alone: only `{{`, a space and a
name, dotted or not, is taken for a number.
"""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snippets._lab.rooms import on_a_gpu, places_of, rooms
from snippets._site.unmeasured import BADGE

NAMED = re.compile(r"\{\{ +(?P<name>[\w.]+) +\}\}")


class UnknownNumber(ValueError):
    """A page names a number that no figure has; the message lists those that there are."""


def filled(markdown: str, docs: Path) -> str:
    """A page's Markdown with its numbers. Raises UnknownNumber for a name that no file has.

    The number of a figure that waits for a GPU is a badge that says so.
    """
    read = functools.cache(functools.partial(_figures, docs))  # a page names many of one room
    return NAMED.sub(lambda match: _number(match["name"], docs, read), markdown)


def _figures(docs: Path, room: str) -> dict[str, Any]:
    """What a room's numbers.json has; nothing if there is none."""
    path = docs / "figures" / room / "numbers.json"
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def _number(name: str, docs: Path, read: Callable[[str], dict[str, Any]]) -> str:
    room, _, rest = name.partition(".")
    figure, _, number = rest.partition(".")
    figures = read(room)
    if figure in figures and number in figures[figure]["numbers"]:
        text = str(figures[figure]["numbers"][number])
        return re.sub(r"(?<=\d) (?=\D+$)", "\u00a0", text)  # no line ends between it and its unit
    if figure not in figures and room in rooms():
        only_a_gpu = places_of(room).get(figure) == ("gpu",)
        if only_a_gpu and not on_a_gpu(docs / "data", room, figure):
            return BADGE
    there = [f"{room}.{one}.{known}" for one in figures for known in figures[one]["numbers"]]
    raise UnknownNumber(f"no number is called {name}; there are: {', '.join(there) or 'none'}")
