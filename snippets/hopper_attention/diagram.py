"""Pictures of the protocol as SVG, from rows of timeline.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from snippets._lab.draw import timelines
from snippets._lab.draw.drawings import MUTED, PHONE, svg, words
from snippets._lab.draw.identity import identity
from snippets._lab.draw.timelines import Timeline


class Span(NamedTuple):
    """Something that takes time."""

    part: str  # for whom
    kind: str  # "scores", "values", "softmax", "out", "k", or "start k" of the producer
    tile: int  # how many of this kind its part had before
    start: int
    end: int


def timeline_svg(rows: Sequence[dict[str, Any]]) -> str:
    """Time to the right: of each consumer its products above, its softmaxes below."""
    kinds = "scores", "values", "softmax"
    spans = [Span(*(r[name] for name in Span._fields)) for r in rows if r["kind"] in kinds]
    consumers = sorted({s.part for s in spans})
    lanes = [f"{who}{what}" for who in consumers for what in (": products", ": softmax")]
    over = Timeline(lanes, max(s.end for s in spans), left=124, wide=PHONE, tall=20, gap=6)
    shown = []
    for s in spans:
        softmax = s.kind == "softmax"
        color = identity(f"consumer {consumers.index(s.part)}").color
        lane = lanes[2 * consumers.index(s.part) + softmax]
        strong = 60 if s.kind == "scores" else 22
        shown.append(timelines.Span(lane, s.start, s.end, color, str(s.tile), strong))
    told = "Strong: q·kᵀ. Pale: p·v, and in the lanes below softmaxes. The number is the tile."
    foot = [words(0, over.down + 18, told, 10, color=MUTED, anchor="start")]
    about = f"The products and softmaxes of {len(consumers)} consumers over time."
    return svg(PHONE, over.down + 26, about, [timelines.timeline(over, shown), *foot])
