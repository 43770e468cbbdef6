"""What a figure function returns.

For each result of a room, `figures.py` of the room has a function of the same name. It returns a
Figure and names what it needs of these two: `results`, of every device that has data, the reference
device first; and `rows`, those of the first.

A page writes its sentences by hand and names a number where it stands:
`{{ room.figure.name }}`. Words that other data would make wrong, "ahead in every case", are a claim
of the figure: while it does not hold, `make figures` fails and names the page and the words.
"""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from snippets._lab.draw.chart import Chart
from snippets._lab.results.store import Result


@dataclass(frozen=True)
class Figure:
    """What a figure function returns. Finding and caption are Markdown."""

    finding: str  # the title: one sentence that the chart shows
    caption: str = ""  # what is drawn, and how; without one it is on no page, its numbers may be
    table: Sequence[Mapping[str, Any]] = ()  # a row a dict, where it is not what the chart draws
    plot: Chart | None = None  # None where a table says it better
    open_table: bool = False  # show the table unfolded: it is the figure
    numbers: Mapping[str, str | int] = field(default_factory=dict)  # what a page may name, as text
    claims: Mapping[str, bool] = field(default_factory=dict)  # "docs/….md: its words" → they hold
    widget: str = ""  # HTML instead of a chart, for what Plotly does not draw
    pieces: Mapping[str, str] = field(default_factory=dict)  # name → Markdown, to show elsewhere
    extra_files: Mapping[str, Any] = field(default_factory=dict)  # file name → JSON for a widget
    sources: Sequence[Result] = ()  # of a from_all figure: the results that it used


Drawn = Callable[[list[Result]], Figure | None]


def of_results(function: Callable[..., Figure | None]) -> Drawn:
    """A room's function as one of results alone: `rows` is found where it is named."""
    named = inspect.signature(function).parameters
    if "rows" not in named:
        return function

    @functools.wraps(function)
    def drawn(results: list[Result]) -> Figure | None:
        known = {"results": results, "rows": results[0].rows}
        return function(**{name: known[name] for name in named})

    return drawn


def from_all(function: Drawn) -> Drawn:
    """Mark a figure that is drawn from the results of all posts, and has none of its own.

    It returns None where what it draws has not been measured yet.
    """
    function.from_all = True  # type: ignore[attr-defined]
    return function
