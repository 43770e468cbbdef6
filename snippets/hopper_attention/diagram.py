"""Pictures of the protocol as SVG, from rows of timeline.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from snippets._lab.draw import timelines
from snippets._lab.draw.drawings import INK, MUTED, PHONE, svg, words
from snippets._lab.draw.identity import identity
from snippets._lab.draw.timelines import Timeline
from snippets._lab.draw.units import count


class Span(NamedTuple):
    """Something that takes time."""

    part: str  # for whom
    kind: str  # "scores", "values", "softmax", "out", "k", or "start k" of the producer
    tile: int  # how many of this kind its part had before
    start: int
    end: int


def timeline_svg(rows: Sequence[dict[str, Any]], tick: int) -> str:
    """Cycles to the right: of each consumer its products above, its softmaxes and its store below.

    What is in `.am-now` begins at cycle 0, and its width is the time: scene.js moves it.
    """
    kinds = "scores", "values", "softmax", "out"
    spans = [Span(*(r[name] for name in Span._fields)) for r in rows if r["kind"] in kinds]
    consumers = sorted({s.part for s in spans})
    lanes = [f"{what} {i}" for i in range(len(consumers)) for what in ("products", "softmax")]
    over = Timeline(lanes, max(s.end for s in spans), left=72, wide=PHONE - 20, tall=20, gap=6)
    shown = []
    for s in spans:
        i = consumers.index(s.part)
        lane = lanes[2 * i + (s.kind in ("softmax", "out"))]
        strong = 60 if s.kind == "scores" else 22
        color, said = identity(f"consumer {i}").color, str(s.tile)
        if s.kind == "out":
            color, said = MUTED, ""
        shown.append(timelines.Span(lane, s.start, s.end, color, said, strong))
    foot = over.down + 14
    axis = [
        words(over.at(t), foot, count(t), 11, color=MUTED) for t in range(0, int(over.end), tick)
    ]
    told = "Strong: q·kᵀ. Pale: p·v, softmax. Gray: rows are stored."
    axis += [
        words(0, foot, "cycles", 11, color=MUTED, anchor="start"),
        words(0, foot + 16, told, 11, color=MUTED, anchor="start"),
    ]
    wide = over.at(over.end) - over.at(0)
    now = f'<rect x="{over.at(0):g}" y="-1" width="{wide:g}" height="{over.down + 2:g}"/>'
    now += f'<path d="M{over.at(0):g} -1v{over.down + 2:g}" style="stroke:{INK}"/>'
    about = f"The products and softmaxes of {len(consumers)} consumers over time."
    drawn = [timelines.timeline(over, shown, 11), *axis, f'<g class="am-now" fill="none">{now}</g>']
    return svg(PHONE, foot + 22, about, drawn)
