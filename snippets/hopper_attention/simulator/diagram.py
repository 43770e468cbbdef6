"""Pictures of the protocol: what parts.py has found in kernel.py, with times made up to be drawn.

A product of 64 queries and a tile of 128 keys takes two units of time at D 128 and one at D 64, for
it is half the arithmetic; the tensor cores take products in the order in which they were started. A
softmax takes five units, a copy two, and to start a copy one. These are round numbers and no
measurements. What waits for what is the kernel's.
"""

import html
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .parts import Arrive, Copy, Product, Softmax, Store, Trace, Wait, Work, defined, trace
from .protocol import Simulation

SOFTMAX, COPY, STARTED = 5, 2, 1
WINDOW = 72  # units of time that a timeline shows
COLOURS = {
    "q": "#808a94",
    "k": "#2b84c6",
    "v": "#c77d1e",
    "order_barriers": "#a45fb0",
    "scores": "#2b84c6",
    "values": "#c77d1e",
    "softmax": "#1d9a78",
    "out": "#808a94",
}
SHADES = ["#2b84c6", "#c77d1e", "#9b6dc4"]  # of the consumers
WORDS = {"scores": "q·kᵀ", "values": "p·v", "out": "store"}


class Span(NamedTuple):
    """Something that takes time."""

    part: str  # for whom
    kind: str  # a key of COLOURS, "start k" of the producer
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


class _Clock(Simulation):
    """The simulation with time: whoever can go on does so, and time passes when nobody can."""

    def __init__(self, program: Trace, product: int) -> None:
        super().__init__(program)
        self.product = product
        self.now = 0
        self.busy = dict.fromkeys(program.parts, 0)  # until then
        self.free = {"copies": 0, "products": 0}  # from then on: one at a time, first come
        self.due: list[tuple[int, tuple]] = []  # when an event that takes time happens
        self.sent: dict[tuple[str, int], list[tuple[str, int]]] = {}  # phase → its arrivals
        self.tiles: Counter[tuple[str, str]] = Counter()
        self.spans: list[Span] = []
        self.signals: list[Signal] = []

    def play(self) -> tuple[list[Span], list[Signal]]:
        """All that takes time, and the arrivals that were waited for."""
        while True:
            while self._round():
                continue
            times = (*(when for when, _ in self.due), *self.busy.values())
            later = [t for t in times if t > self.now]
            if not later:
                return self.spans, self.signals
            self.now = min(later)
            for due in [x for x in self.due if x[0] == self.now]:
                self.due.remove(due)
                _, event = due
                if event[0] == "copied":
                    self._send(event[1].barrier, "copies")
                self.happen(event)

    def _round(self) -> bool:
        """One step of each part that can go on; whether there was one."""
        steps = [event[1] for event in self.ready() if event[0] == "step"]
        free = [part for part in steps if self.busy[part] <= self.now]
        for part in free:
            self._go_on(part)
        return bool(free)

    def _go_on(self, part: str) -> None:
        op = self.program.parts[part][self.at[part]]
        match op:
            case Wait(barrier, _):
                if self.barriers[barrier].over - 1 != self.seen.get((part, barrier), -1):
                    for sender, sent in self.sent.get(
                        (barrier, self.barriers[barrier].over - 1), ()
                    ):
                        self.signals.append(Signal(barrier, sender, sent, part, self.now))
            case Arrive(barrier):
                self._send(barrier, part)
        self.happen(("step", part))
        match op:
            case Copy(_, _, buffer, _):
                self.busy[part] = self.now + STARTED
                self._span(part, f"start {buffer[0]}", self.now, STARTED)
                self._take("copies", "copies", buffer[0], COPY, ("copied", op))
            case Product(number, _, _):
                kind = "scores" if number in self.read[part] else "values"
                self._take("products", part, kind, self.product, ("multiplied", part))
            case Softmax():
                self.busy[part] = self.now + SOFTMAX
                self._span(part, "softmax", self.now, SOFTMAX)
            case Store():
                self._take("stores", part, "out", COPY, ("stored", part, op))

    def _take(self, unit: str, part: str, kind: str, takes: int, event: tuple) -> None:
        start = max(self.now, self.free.get(unit, 0))
        self.free[unit] = start + takes
        self.due.append((start + takes, event))
        self._span(part, kind, start, takes)

    def _span(self, part: str, kind: str, start: int, takes: int) -> None:
        self.spans.append(Span(part, kind, self.tiles[part, kind], start, start + takes))
        self.tiles[part, kind] += 1

    def _send(self, barrier: str, sender: str) -> None:
        phase = barrier, self.barriers[barrier].over
        self.sent.setdefault(phase, []).append((sender, self.now))


def play(variant: Any, tiles: int, D: int = 128) -> tuple[list[Span], list[Signal]]:
    """What a program does with one tile of queries and so many tiles of keys, and when."""
    work = Work(M=64 * variant.CONSUMERS, N=tiles * variant.BLOCK_N)
    return _Clock(trace(variant, work), D // 64).play()


def rows(variant: Any, tiles: int = 16, D: int = 128) -> list[dict[str, Any]]:
    """The same as rows of a result, from which the pictures below can be drawn."""
    return [x._asdict() for played in play(variant, tiles, D) for x in played]


def from_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[Span], list[Signal]]:
    """What `play` returned, from its rows."""
    signals = [Signal(**r) for r in rows if "barrier" in r]
    return [Span(**r) for r in rows if "barrier" not in r], signals


def protocol_svg(rows: Sequence[dict[str, Any]] = ()) -> str:
    """Lanes side by side, time downwards, an arrow for each signal that somebody waited for.

    Drawn from rows of `rows`, or from three tiles of two consumers that take turns.
    """
    variant = defined("Variant")(CONSUMERS=2, STAGES=2, OVERLAP=True, PING_PONG=True)
    spans, signals = from_rows(rows) if rows else play(variant, 3)
    unit, top, wide = 15, 40, 74
    # A consumer has two lanes: what the tensor cores do for it, and what its threads do.
    consumers = sorted({s.part for s in spans if s.part.startswith("consumer")})
    lanes = {"producer": 0, "copies": 92}
    lanes |= {part: 206 + i * 176 for i, part in enumerate(consumers)}
    width = max(lanes.values()) + 2 * wide + 6
    height = top + max(s.end for s in spans) * unit + 8
    drawn = []
    for part, x in lanes.items():
        halves = ("tensor cores", "threads") if part in consumers else ("",)
        over = len(halves) * (wide + 4) - 4
        drawn.append(_text(x + over / 2, 12, "TMA" if part == "copies" else part, 12, 600))
        for i, half in enumerate(halves):
            left = x + i * (wide + 4)
            drawn.append(_text(left + wide / 2, 27, half, 9.5, colour="var(--am-muted)"))
            drawn.append(_box(left, top - 6, wide, height - top + 2, "var(--am-axis)", 8))
    drawn += [_arrow(g, lanes, wide, top, unit) for g in signals]
    for s in spans:
        x = lanes[s.part] + (wide + 4) * (s.kind in ("softmax", "out"))
        said = WORDS.get(s.kind, s.kind) + (f" {s.tile}" if s.kind != "out" else "")
        y, tall = top + s.start * unit, (s.end - s.start) * unit
        drawn.append(_box(x + 2, y + 1, wide - 4, tall - 2, COLOURS[s.kind.split()[-1]], 24, 1))
        drawn.append(_text(x + wide / 2, y + tall / 2 + 3.5, said, 10))
    about = (
        "The traffic of the first tiles, time downwards: the producer starts copies, TMA signals "
        "full buffers to the consumers, they signal empty ones to the producer and pass the turn "
        "to each other."
    )
    return _svg(width, height, about, drawn)


def _arrow(g: Signal, lanes: dict[str, int], wide: int, top: int, unit: int) -> str:
    """Drawn through where somebody was waiting, dashed where the signal came before."""
    y, to_y = top + g.sent * unit, top + g.received * unit
    start, end = lanes[g.sender], lanes[g.receiver]
    threads = wide + 4
    if start < end:
        x, to = start + wide + (threads if g.sender.startswith("consumer") else 0), end
    else:
        x, to = start, end + wide + (threads if g.receiver.startswith("consumer") else 0)
    colour = COLOURS[g.barrier.split("[")[0].split(".")[0]]
    late = g.received > g.sent
    bend = (to - x) / 3
    dash = ' stroke-dasharray="3 3"' if late else ""
    sharp = 5 if to > x else -5
    return (
        f'<g fill="none" stroke="{colour}" stroke-width="1.4" opacity="{0.55 if late else 1}">'
        f'<path d="M{x} {y}C{x + bend:g} {y} {to - bend:g} {to_y} {to} {to_y}"{dash}/>'
        f'<path d="M{to - sharp} {to_y - 3}L{to} {to_y}l{-sharp} 3"/></g>'
    )


def timeline_svg(variant: Any = None, D: int = 128, rows: Sequence[dict[str, Any]] = ()) -> str:
    """Time to the right from the first product on: tensor cores above, softmaxes below.

    Drawn from rows of `rows`, or for a variant and a head dimension.
    """
    spans, _ = from_rows(rows) if rows else play(variant, 16, D)
    unit, left, top, tall, pitch = 8, 128, 4, 26, 34
    spans = [s for s in spans if s.kind in ("scores", "values", "softmax")]
    begin = min(s.start for s in spans)
    consumers = sorted({s.part for s in spans})
    lanes = ["tensor cores", *(f"{part}, softmax" for part in consumers)]
    width, height = left + WINDOW * unit + 4, top + pitch * len(lanes) + 18
    drawn = []
    for i, lane in enumerate(lanes):
        y = top + i * pitch
        drawn.append(_text(0, y + tall / 2 + 4, lane, 11, anchor="start"))
        drawn.append(_box(left, y, WINDOW * unit, tall, "var(--am-axis)", 8))
    for s in spans:
        start, end = s.start - begin, min(s.end - begin, WINDOW)
        if start >= end:
            continue
        consumer = consumers.index(s.part)
        y = top + (consumer + 1) * pitch * (s.kind == "softmax")
        x, wide = left + start * unit, (end - start) * unit
        drawn.append(
            _box(x + 0.5, y, wide - 1, tall, SHADES[consumer], 50 if s.kind == "scores" else 22, 1)
        )
        if wide >= 14:
            drawn.append(_text(x + wide / 2, y + tall / 2 + 4, str(s.tile), 10))
    said = "Strong: q·kᵀ. Pale: p·v. The number is the tile of keys, the colour the consumer."
    drawn.append(_text(left, height - 4, said, 10, colour="var(--am-muted)", anchor="start"))
    about = (
        f"{len(consumers)} consumers and the tensor cores over time, drawn to the protocol, "
        "not measured."
    )
    return _svg(width, height, about, drawn)


def _box(
    x: float, y: float, wide: float, tall: float, colour: str, percent: int, line: int = 0
) -> str:
    """Filled with so much of a colour and paper for the rest, so that no arrow crosses a word."""
    stroke = f' stroke="{colour}" stroke-width="{line}"' if line else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="3" style="fill:'
        f'color-mix(in srgb,{colour} {percent}%,var(--am-paper))"{stroke}/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    size: float,
    weight: int = 400,
    *,
    colour: str = "var(--am-ink)",
    anchor: str = "middle",
) -> str:
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{colour}">{text}</text>'
    )


def _svg(width: float, height: float, about: str, drawn: list[str]) -> str:
    """A picture that keeps its size on a phone and scrolls in its box there."""
    about = html.escape(about, quote=True)
    return (
        f'<div style="overflow-x:auto" tabindex="0" role="group" aria-label="{about}">'
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{about}" '
        f'style="display:block;width:100%;min-width:{width * 0.9:.0f}px;max-width:{width:g}px;'
        'margin:0 auto;font-family:var(--am-sans)">' + "".join(drawn) + "</svg></div>"
    )
