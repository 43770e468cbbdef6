"""How a room's drawing comes to its page: a function of drawings.py, marked `picture`.

It returns a Picture, which the page includes as docs/figures/<room>/<name>.md. Unlike the chart of
a result it needs no data file of its own: it draws what follows from shapes, or what its room has
measured, and is marked with the results that it draws: `@picture_of("latency")`.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from snippets._lab.draw.fragment import (
    NUMBERS,
    check_text,
    data_of,
    made_by,
    numbers_of,
    path_of,
    stale_mark,
)
from snippets._lab.results.store import DataError, Result


@dataclass(frozen=True)
class Picture:
    """What a drawing function returns. `sees` and `caption` are Markdown."""

    sees: str  # what to see in it, in a sentence: "Q stays, K and V slide past."
    caption: str  # what is drawn: what colors and sizes mean
    svg: str
    table: Sequence[Mapping[str, Any]] = ()  # the numbers in it, where they were measured
    sources: Sequence[Result] = field(default=())  # the results that hold them
    numbers: Mapping[str, str | int] = field(default_factory=dict)  # as of a Figure


Pictured = Callable[..., Picture | None]


def picture(function: Pictured) -> Pictured:
    """Mark a drawing of a page that takes nothing: it follows from shapes."""
    function.picture = True  # type: ignore[attr-defined]
    return function


def picture_of(*names: str) -> Callable[[Pictured], Pictured]:
    """Mark a drawing of a page that takes these results of its room, and has them as its sources.

    It is not drawn where one of them has not been measured yet; of several devices a GPU is taken.
    """

    def marked(function: Pictured) -> Pictured:
        room = function.__module__.split(".")[-2]

        @functools.wraps(function)
        def drawn(results: Sequence[Result]) -> Picture | None:
            gpus_first = sorted(results, key=lambda r: r.place != "gpu")
            found = {r.result: r for r in reversed(gpus_first) if r.post == room}
            if not found.keys() >= {*names}:
                return None
            sources = [found[name] for name in names]
            made = function(*sources)
            return made and replace(made, sources=sources)

        return picture(drawn)

    return marked


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
    check_text(f"picture {name} of {room}", (made.sees, made.caption))
    source = made_by(path_of(function))
    lines = [
        source,
        "",
        f'<div class="am-figure am-picture" id="figure-{room}-{name}" markdown>',
        "<figure markdown>",
        "",
        made.svg,
        "",
        "<figcaption markdown>",
        f"**{made.sees}** {made.caption}{stale_mark(*made.sources)}".strip(),
        "</figcaption>",
        "</figure>",
        "</div>",
    ]
    files = {f"{name}.md": "\n".join(lines) + "\n"}
    if made.table or made.sources:
        files[f"{name}_data.md"] = data_of(source, made.sees, made.table, made.sources)
    if made.numbers:
        files[NUMBERS] = numbers_of(name, path_of(function), made.numbers, made.sources)
    return files
