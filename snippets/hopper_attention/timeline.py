"""The simulation with a clock, from what the roles of kernel.py ask for, with times made up.

A product of 64 queries and a tile of 128 keys takes two units of time at D 128 and one at D 64, for
it is half the arithmetic; the tensor cores take products in the order in which they were started. A
softmax takes five units, a copy two, and to start a copy one. These are round numbers and no
measurements. What waits for what is the kernel's, and so are the lines at which its roles stand.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snippets._lab.probe.listing import Listing
from snippets._warps.gluon import FILE, Program
from snippets._warps.launch import traced
from snippets._warps.role_traces import Arrive, Copy, Product, Softmax, Store
from snippets._warps.simulation import Simulation

from . import kernel
from .diagram import Span
from .protocol import Work

SOFTMAX, COPY, STARTED = 5, 2, 1
SHOWN = ("_producer", "_step_overlapped")  # functions of kernel.py


class _Lined(Program):
    """A program that also notes the line of each request."""

    def note(self, op: Any) -> None:
        super().note(op)
        if self.role:
            lines = self.__dict__.setdefault("lines", {})
            lines.setdefault(self.role, []).append(_line())


def _line() -> tuple[str, int] | None:
    """The innermost line of a function that is shown."""
    frame = sys._getframe(2)
    while frame := frame.f_back:  # type: ignore[assignment]
        code = frame.f_code
        if code.co_filename == FILE and code.co_name in SHOWN:
            return code.co_name, frame.f_lineno
    return None


class _Clock(Simulation):
    """The simulation with time: whoever can go on does so, and time passes when nobody can."""

    def __init__(self, program: _Lined, product: int) -> None:
        super().__init__(program.trace)
        self.lines, self.product = program.lines, product
        self.now = 0
        self.busy = dict.fromkeys(self.at, 0)  # until then
        self.came = dict.fromkeys(self.at, 0)  # when to the request that is next
        self.free: dict[str, int] = {}  # from then on: one at a time, first come
        self.due: list[tuple[int, tuple[Any, ...]]] = []  # when an event that takes time happens
        self.tiles: Counter[tuple[str, str]] = Counter()
        self.spans: list[Span] = []
        self.sends: list[dict[str, Any]] = []  # arrivals
        self.stays: list[dict[str, Any]] = []  # where a role waits, and then works
        while True:
            while self._round():
                continue
            times = (*(when for when, _ in self.due), *self.busy.values())
            later = [t for t in times if t > self.now]
            if not later:
                break
            self.now = min(later)
            for due in [x for x in self.due if x[0] == self.now]:
                self.due.remove(due)
                self.happen(due[1])

    def _round(self) -> bool:
        """One step of each role that can go on; whether there was one."""
        steps = [event[1] for event in self.ready() if event[0] == "step"]
        free = [role for role in steps if self.busy[role] <= self.now]
        for role in free:
            self._go_on(role)
        return bool(free)

    def _go_on(self, role: str) -> None:
        number = self.at[role]
        op = self.trace.roles[role][number]
        if isinstance(op, Arrive):
            self.sends.append({"sent_to": op.barrier, "sender": role, "time": self.now})
        self.happen(("step", role))
        match op:
            case Copy():
                buffer = op.regions[0].buffer[0]
                self.busy[role] = self.now + STARTED
                self._span(role, f"start {buffer}", self.now, STARTED)
                self._take("copies", "copies", buffer, COPY, ("copied", op))
            case Product(regions):
                kind = "scores" if regions[-1].buffer.startswith("k") else "values"
                self._take("products", role, kind, self.product, ("multiplied", role))
            case Softmax():
                self.busy[role] = self.now + SOFTMAX
                self._span(role, "softmax", self.now, SOFTMAX)
            case Store():
                self._take("stores", role, "out", COPY, ("stored", role))
        until = max(self.now, self.busy[role])
        if (place := self.lines[role][number]) and until > self.came[role]:
            times = {"since": self.came[role], "works_from": self.now, "until": until}
            self.stays.append({"stays": role, "lines": place, **times})
        self.came[role] = until

    def _take(self, unit: str, role: str, kind: str, takes: int, event: tuple[Any, ...]) -> None:
        start = max(self.now, self.free.get(unit, 0))
        self.free[unit] = start + takes
        self.due.append((start + takes, event))
        self._span(role, kind, start, takes)

    def _span(self, role: str, kind: str, start: int, takes: int) -> None:
        self.spans.append(Span(role, kind, self.tiles[role, kind], start, start + takes))
        self.tiles[role, kind] += 1


def play(
    chosen: kernel.Variant, tiles: int, D: int = 128, launcher: Any = kernel.hopper_attention
) -> _Clock:
    """What a program does with one tile of queries and so many tiles of keys, and when."""
    work = Work(M=64 * chosen.CONSUMERS, N=tiles * kernel.BLOCK_N.value, D=D)
    made: list[_Lined] = []

    def program(*how: Any) -> _Lined:
        made.append(_Lined(*how))
        return made[-1]

    with traced(launcher, made=program, **work.assumed(launcher, chosen)):
        launcher(*work.qkv())
    return _Clock(made[0], D // 64)


def _listing(launcher: Any) -> tuple[list[str], dict[str, tuple[int, Listing]]]:
    """The functions that are shown, cut from the launcher's file, and where each begins."""
    source = Path(launcher.__globals__["__file__"]).read_text("utf-8")
    lines = source.splitlines(keepends=True)
    functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    listing: list[str] = []
    begins = {}
    for name in SHOWN:
        node = functions[name]
        one = Listing("".join(lines[node.lineno - 1 : node.end_lineno]), node.lineno)
        listing.append(f"def {name}(…):")
        begins[name] = len(listing), one
        listing += [f"    {line}" for line in one.lines]
    return listing, begins


def scene(
    chosen: kernel.Variant, tiles: int, D: int = 128, launcher: Any = kernel.hopper_attention
) -> Iterator[dict[str, Any]]:
    """All that a program does with one tile of queries and so many of keys, and where it stands."""
    clock = play(chosen, tiles, D, launcher)
    listing, begins = _listing(launcher)
    yield from (x._asdict() for x in clock.spans)
    yield from clock.sends
    for stay in clock.stays:
        function, line = stay["lines"]
        begin, one = begins[function]
        ((first, last),) = one.statements([line])
        yield stay | {"lines": (begin + first, begin + last)}
    for op in clock.trace.roles["producer"]:
        if isinstance(op, Copy):  # in the order in which they are started
            buffer = op.regions[0].buffer
            yield {"fetched": buffer, "start": op.block[2], "bytes": op.bytes}
    yield {
        "queries": 64 * chosen.CONSUMERS,
        "keys": tiles * kernel.BLOCK_N.value,
        "D": D,
        "tile": kernel.BLOCK_N.value,
        "consumers": chosen.CONSUMERS,
        "stages": chosen.STAGES,
        "listing": listing,
    }
