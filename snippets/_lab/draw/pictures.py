"""How a room's drawing comes to its page: a function of drawings.py, marked `picture`.

It returns a Picture, which the page includes as docs/figures/<room>/<name>.md. Unlike the chart of
a result it needs no data file of its own: it draws what follows from shapes, or what it finds in
the results of all posts, and then names those in `sources`.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snippets._lab.draw.fragment import (
    check_sentences,
    folded,
    provenance_table,
    raw_results,
)
from snippets._lab.draw.tables import table
from snippets._lab.results.store import DataError, Result


@dataclass(frozen=True)
class Picture:
    """What a drawing function returns. `sees` and `caption` are Markdown."""

    sees: str  # what to see in it, in a sentence: "Q stays, K and V slide past."
    caption: str  # what is drawn: what colors and sizes mean
    svg: str
    table: Sequence[Mapping[str, Any]] = ()  # the numbers in it, where they were measured
    sources: Sequence[Result] = field(default=())  # the results that hold them


Pictured = Callable[..., Picture | None]


def picture(function: Pictured) -> Pictured:
    """Mark a drawing of a page. It takes the results of all posts, or nothing at all.

    It returns None where what it draws has not been measured yet.
    """
    function.picture = True  # type: ignore[attr-defined]
    return function


def picture_fragment(
    room: str, name: str, function: Pictured, results: list[Result]
) -> dict[str, str]:
    """The file of one picture: name → text. None where it waits for a measurement."""
    try:
        made = function(results) if inspect.signature(function).parameters else function()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise DataError(f"picture {name} of {room} cannot be drawn: {text}") from error
    if made is None:
        return {}
    check_sentences(f"picture {name} of {room}", (made.sees, made.caption))
    sources = list(made.sources)
    raw = f" Raw results: {raw_results(sources, own=False)}." if sources else ""
    lines = [
        f'<div class="am-figure am-picture" id="figure-{room}-{name}" markdown>',
        "<figure markdown>",
        "",
        made.svg,
        "",
        "<figcaption markdown>",
        f"**{made.sees}** {made.caption}{raw}".strip(),
        "</figcaption>",
        "</figure>",
    ]
    if made.table:
        rows = [dict(row) for row in made.table]
        lines += folded("am-data", "The numbers as a table", table(rows))
    if sources:
        shown = provenance_table(sources)
        lines += folded("am-data am-provenance", "Where these numbers come from", shown)
    lines.append("</div>")
    return {f"{name}.md": "\n".join(lines) + "\n"}
