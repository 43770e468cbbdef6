"""Pictures of the protocol as SVG, from rows of timeline.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from snippets._lab.draw import timelines
from snippets._lab.draw.drawings import MUTED, PHONE, svg, words
from snippets._lab.draw.identity import identity
from snippets._lab.draw.timelines import Timeline

WINDOW = 72  # units of time that a timeline shows


class Span(NamedTuple):
    """Something that takes time."""

    part: str  # for whom
    kind: str  # "scores", "values", "softmax", "out", "k", or "start k" of the producer
    tile: int  # how many of this kind its part had before
    start: int
    end: int


def timeline_svg(rows: Sequence[dict[str, Any]]) -> str:
    """Time to the right from the first product on: tensor cores above, softmaxes below."""
    spans = [Span(**r) for r in rows if r.get("kind") in ("scores", "values", "softmax")]
    begin = min(s.start for s in spans)
    consumers = sorted({s.part for s in spans})
    over = Timeline(["tensor cores", *consumers], WINDOW, wide=PHONE, tall=24, gap=10)
    shown = []
    for s in spans:
        lane = s.part if s.kind == "softmax" else over.lanes[0]
        color = identity(f"consumer {consumers.index(s.part)}").color
        strong = 60 if s.kind == "scores" else 22
        times = s.start - begin, s.end - begin
        shown.append(timelines.Span(lane, *times, color, str(s.tile), strong))
    told = "Strong: q·kᵀ. Pale: p·v, and below the softmaxes.", "The number is the tile of keys."
    foot = [
        words(0, over.down + 18 + 14 * i, said, 10, color=MUTED, anchor="start")
        for i, said in enumerate(told)
    ]
    about = (
        f"{len(consumers)} consumers and the tensor cores over time, drawn to the protocol, "
        "not measured."
    )
    return svg(PHONE, over.down + 38, about, [timelines.timeline(over, shown), *foot])
