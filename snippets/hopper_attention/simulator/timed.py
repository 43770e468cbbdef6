"""The simulation with a clock: what parts.py has found in kernel.py, with times made up.

A product of 64 queries and a tile of 128 keys takes two units of time at D 128 and one at D 64, for
it is half the arithmetic; the tensor cores take products in the order in which they were started. A
softmax takes five units, a copy two, and to start a copy one. These are round numbers and no
measurements. What waits for what is the kernel's.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from .parts import Arrive, Copy, Product, Softmax, Store, Trace, Wait, Work, trace
from .protocol import Simulation

SOFTMAX, COPY, STARTED = 5, 2, 1


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
    """The same as rows of a result, from which diagram.py draws."""
    return [x._asdict() for played in play(variant, tiles, D) for x in played]


def from_rows(rows: Sequence[dict[str, Any]]) -> tuple[list[Span], list[Signal]]:
    """What `play` returned, from its rows."""
    signals = [Signal(**r) for r in rows if "barrier" in r]
    return [Span(**r) for r in rows if "barrier" not in r], signals
