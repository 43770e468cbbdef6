"""The simulation with a clock, and at which line of kernel.py each part is: for the scene.

timed.py says when something happens. The lines come from the run of the kernel that also writes
down what its parts ask for, so a line is lit when the part comes to it.
"""

import ast
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

from snippets._lab.probe.listing import Listing

from . import parts, timed
from .gluon import KERNEL
from .parts import Arrive, Copy, Trace, Work, trace

SHOWN = ("_producer", "_step_overlapped")  # functions of kernel.py


class Stays(NamedTuple):
    """A part stands at a statement: it waits there, or works."""

    stays: str  # which part
    lines: tuple[int, int]  # the first and the last in the listing
    since: int
    works_from: int  # until then it waits
    until: int


class Sent(NamedTuple):
    """An arrival at a barrier, whether somebody waits for it or not."""

    sent_to: str
    sender: str
    time: int


class Fetched(NamedTuple):
    """What a copy brings, in the order in which copies are started."""

    fetched: str  # the buffer
    start: int  # the first row
    bytes: int


class _Lined(parts.Tracer):
    """A tracer that also notes the line of each operation."""

    def note(self, op: Any) -> None:
        super().note(op)
        self.__dict__.setdefault("lines", {}).setdefault(id(self.ops), []).append(_line())


def _line() -> tuple[str, int] | None:
    """The innermost line of a function that is shown."""
    frame = sys._getframe(2)
    while frame := frame.f_back:  # type: ignore[assignment]
        code = frame.f_code
        if code.co_filename == KERNEL.name and code.co_name in SHOWN:
            return code.co_name, frame.f_lineno
    return None


class _Lit(timed._Clock):
    """The clock, which writes down where parts stand and what they send."""

    def __init__(self, program: Trace, product: int, lines: dict[str, list[Any]]) -> None:
        super().__init__(program, product)
        self.lines = lines
        self.came = dict.fromkeys(program.parts, 0)  # when to the operation that is next
        self.stays: list[Stays] = []
        self.sends: list[Sent] = []

    def _go_on(self, part: str) -> None:
        number = self.at[part]
        if isinstance(op := self.program.parts[part][number], Arrive):
            self.sends.append(Sent(op.barrier, part, self.now))
        super()._go_on(part)
        until = max(self.now, self.busy[part])
        if (place := self.lines[part][number]) and until > self.came[part]:
            self.stays.append(Stays(part, place, self.came[part], self.now, until))
        self.came[part] = until


class _Code:
    """The functions that are shown, cut from kernel.py, as one listing."""

    def __init__(self) -> None:
        source = KERNEL.read_text("utf-8")
        lines = source.splitlines(keepends=True)
        functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
        self.lines: list[str] = []
        self._parts: dict[str, tuple[int, Listing]] = {}
        for name in SHOWN:
            node = functions[name]
            one = Listing("".join(lines[node.lineno - 1 : node.end_lineno]), node.lineno)
            self.lines.append(f"def {name}(…):")
            self._parts[name] = len(self.lines), one
            self.lines += [f"    {line}" for line in one.lines]

    def statement(self, place: tuple[str, int] | None) -> tuple[int, int] | None:
        """A function and a line of the file, as lines of the listing."""
        if place is None:
            return None
        begin, listing = self._parts[place[0]]
        ((first, last),) = listing.statements([place[1]])
        return begin + first, begin + last


def rows(variant: Any, tiles: int, D: int = 128) -> Iterator[dict[str, Any]]:
    """All that a program does with one tile of queries and so many of keys, and where it stands."""
    made = []

    def tracer(*arguments: Any) -> _Lined:
        made.append(_Lined(*arguments))
        return made[-1]

    work = Work(M=64 * variant.CONSUMERS, N=tiles * variant.BLOCK_N)
    with patch.object(parts, "Tracer", tracer):
        program = trace.__wrapped__(variant, work, D=D)
    code = _Code()
    lines = {
        part: [code.statement(place) for place in made[-1].lines[id(ops)]]
        for part, ops in program.parts.items()
    }
    clock = _Lit(program, D // 64, lines)
    spans, signals = clock.play()
    yield from (x._asdict() for x in (*spans, *signals, *clock.sends, *clock.stays))
    copies = [op for op in program.parts["producer"] if isinstance(op, Copy)]
    yield from (Fetched(op.buffer, int(op.block[2]), op.bytes)._asdict() for op in copies)
    yield {
        "queries": work.M,
        "keys": work.N,
        "D": D,
        "tile": variant.BLOCK_N,
        "consumers": variant.CONSUMERS,
        "stages": variant.STAGES,
        "listing": code.lines,
    }
