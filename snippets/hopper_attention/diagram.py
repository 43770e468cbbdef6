"""Pictures of the protocol as SVG, from rows of timeline.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from snippets._lab.draw import timelines
from snippets._lab.draw.drawings import LINES, MUTED, PHONE, arrow, box, labeled, svg, words
from snippets._lab.draw.identity import identity
from snippets._lab.draw.timelines import Timeline

WINDOW = 72  # units of time that a timeline shows
HALVES = 2  # between the lanes of one consumer
LOOKS = {  # what is not called as a tensor: like what it makes
    "values": "output",
    "softmax": "weights",
    "out": "output",
    "order_barriers": "context",
}
WORDS = {"scores": "q·kᵀ", "values": "p·v", "out": "store"}


class Span(NamedTuple):
    """Something that takes time."""

    part: str  # for whom
    kind: str  # "scores", "values", "softmax", "out", "k", or "start k" of the producer
    tile: int  # how many of this kind its part had before
    start: int
    end: int


class Signal(NamedTuple):
    """An arrival at a barrier that somebody waited for, in the phase it ended."""

    barrier: str
    sender: str  # a part, or "copies"
    sent: int
    receiver: str
    received: int


def from_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[Span], list[Signal]]:
    """What rows of a result say."""
    signals = [Signal(**r) for r in rows if "barrier" in r]
    return [Span(**r) for r in rows if "barrier" not in r], signals


def _color(kind: str) -> str:
    return identity(LOOKS.get(kind, kind)).color


def protocol_svg(rows: Sequence[dict[str, Any]]) -> str:
    """Lanes side by side, time downwards, an arrow for each signal that somebody waited for."""
    spans, signals = from_rows(rows)
    unit, top, wide = 17, 40, 51
    # A consumer has two lanes: what the tensor cores do for it, and what its threads do.
    consumers = sorted({s.part for s in spans if s.part.startswith("consumer")})
    lanes = {"producer": 0, "copies": wide + 7}
    lanes |= {part: 2 * wide + 18 + i * (2 * wide + 13) for i, part in enumerate(consumers)}
    width = max(lanes.values()) + 2 * wide + 2
    height = top + max(s.end for s in spans) * unit + 8
    drawn = []
    for part, x in lanes.items():
        halves = ("products", "threads") if part in consumers else ("",)
        over = len(halves) * (wide + HALVES) - HALVES
        drawn.append(words(x + over / 2, 12, "TMA" if part == "copies" else part, 12, 600))
        for i, half in enumerate(halves):
            left = x + i * (wide + HALVES)
            drawn.append(words(left + wide / 2, 27, half, 9.6, color=MUTED))
            drawn.append(box(left, top - 6, wide, height - top + 2, LINES, 8))
    drawn += [_arrow(g, lanes, wide, top, unit) for g in signals]
    for s in spans:
        x = lanes[s.part] + (wide + HALVES) * (s.kind in ("softmax", "out"))
        said = WORDS.get(s.kind, s.kind) + (f" {s.tile}" if s.kind != "out" else "")
        y, tall = top + s.start * unit, (s.end - s.start) * unit
        color = _color(s.kind.split()[-1])
        drawn.append(labeled(x, y + 1, wide, tall - 2, color, said, 9.6))
    about = (
        "The traffic of the first tiles, time downwards: the producer starts copies, TMA signals "
        "full buffers to the consumers, they signal empty ones to the producer and pass the turn "
        "to each other."
    )
    return svg(width, height, about, drawn)


def _arrow(g: Signal, lanes: dict[str, int], wide: int, top: int, unit: int) -> str:
    """Drawn through where somebody was waiting, dashed where the signal came before."""
    y, to_y = top + g.sent * unit, top + g.received * unit
    start, end = lanes[g.sender], lanes[g.receiver]
    threads = wide + HALVES
    if start < end:
        x, to = start + wide + (threads if g.sender.startswith("consumer") else 0), end
    else:
        x, to = start, end + wide + (threads if g.receiver.startswith("consumer") else 0)
    color = _color(g.barrier.split("[")[0].split(".")[0])
    late = g.received > g.sent
    bend = (to - x) / 3
    path = f"M{x} {y}C{x + bend:g} {y} {to - bend:g} {to_y} {to} {to_y}"
    look = {"stroke_dasharray": "3 3", "opacity": 0.55} if late else {}
    return arrow(path, (to, to_y), "right" if to > x else "left", color, **look)


def timeline_svg(rows: Sequence[dict[str, Any]]) -> str:
    """Time to the right from the first product on: tensor cores above, softmaxes below."""
    spans = [s for s in from_rows(rows)[0] if s.kind in ("scores", "values", "softmax")]
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
