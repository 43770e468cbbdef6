"""A program over time: as clocks.py has read it on a GPU, and as the simulation plays it.

The simulation is given how long things take; what waits for what is the kernel's, and so are the
lines at which its roles stand. The tensor cores take products in the order in which they were
started, and copies come one after the other. So a kernel that lacks a piece of its
protocol can be played with the times of the one that was measured.
"""

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from snippets._lab.judge.mutants import variant
from snippets._lab.probe.listing import Listing
from snippets._warps.gluon import FILE, Program
from snippets._warps.launch import traced
from snippets._warps.role_traces import Arrive, Copy, Fault, Product, Softmax, Store
from snippets._warps.simulation import Simulation

from . import kernel
from .channel import NO_BYTES
from .clocks import (
    ADDED,
    ASKED,
    CAME,
    FREE,
    SCORED,
    SCORES,
    STARTED,
    STORED,
    STORES,
    TILES,
    VALUES,
    WAITS,
    WEIGHED,
    WHOLE,
)
from .diagram import Span
from .protocol import NO_WAIT, Work

# What a reader can take out of the protocol.
TAKEN_OUT = {
    "wait for empty": NO_WAIT,
    "announced bytes": NO_BYTES,
    "release": ("mbarrier.arrive(channel.empty.index(stage.index), count=1)", "pass"),
    "second arrival": ("_barriers(n, readers)", "_barriers(n, readers - 1)"),
}
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


class Took(NamedTuple):
    """How long things take."""

    product: int  # of 64 queries and a tile of keys
    softmax: int
    copy: int
    start: int = 1  # to start a copy
    store: int = 2


class _Clock(Simulation):
    """The simulation with time: whoever can go on does so, and time passes when nobody can."""

    def __init__(self, program: _Lined, took: Took) -> None:
        super().__init__(program.trace)
        self.lines, self.took = program.lines, took
        self.now = 0
        self.busy = dict.fromkeys(self.at, 0)  # until then
        self.came = dict.fromkeys(self.at, 0)  # when to the request that is next
        self.free: dict[str, int] = {}  # from then on: one at a time, first come
        self.due: list[tuple[int, tuple[Any, ...]]] = []  # when an event that takes time happens
        self.tiles: Counter[tuple[str, str]] = Counter()
        self.spans: list[Span] = []
        self.sends: list[dict[str, Any]] = []  # arrivals
        self.stays: list[dict[str, Any]] = []  # where a role waits, and then works
        self.fetches: list[dict[str, Any]] = []  # copies, in the order in which they are started
        self.ends = ""  # with what trouble
        try:
            self._play()
        except Fault as fault:
            self.ends = f"{fault}."
        else:
            waits = (f"{role} waits for {op.barrier}" for role, op in self.stuck().items())
            if told := ", ".join(waits):
                self.ends = f"Deadlock: {told}."
        until = self.now if self.ends else max(s.end for s in self.spans)
        cut = (s._replace(end=min(s.end, until)) for s in self.spans)
        self.spans = [s for s in cut if s.end > s.start]

    def _play(self) -> None:
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
                buffer = op.regions[0].buffer
                self.busy[role] = self.now + self.took.start
                self._span(role, f"start {buffer[0]}", self.now, self.took.start)
                self._take("copies", "copies", buffer[0], self.took.copy, ("copied", op))
                self.fetches.append({"fetched": buffer, "start": op.block[2], "bytes": op.bytes})
            case Product(regions):
                kind = "scores" if regions[-1].buffer.startswith("k") else "values"
                self._take("products", role, kind, self.took.product, ("multiplied", role))
            case Softmax():
                self.busy[role] = self.now + self.took.softmax
                self._span(role, "softmax", self.now, self.took.softmax)
            case Store():
                self._take("stores", role, "out", self.took.store, ("stored", role))
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
    chosen: kernel.Variant,
    tiles: int,
    D: int = 128,
    launcher: Any = kernel.hopper_attention,
    took: Took | None = None,
) -> _Clock:
    """What a program does with one tile of queries and so many tiles of keys, and when."""
    work = Work(M=64 * chosen.CONSUMERS, N=tiles * kernel.BLOCK_N.value, D=D)
    made: list[_Lined] = []

    def program(*how: Any) -> _Lined:
        made.append(_Lined(*how))
        return made[-1]

    with traced(launcher, made=program, **work.assumed(launcher, chosen)):
        launcher(*work.qkv())
    return _Clock(made[0], took or Took(product=D // 64, softmax=5, copy=2))


class _Listing:
    """The functions that are shown, cut from a launcher's file."""

    def __init__(self, launcher: Any) -> None:
        self.source = Path(launcher.__globals__["__file__"]).read_text("utf-8").splitlines(True)
        functions = {
            n.name: n
            for n in ast.parse("".join(self.source)).body
            if isinstance(n, ast.FunctionDef)
        }
        self.lines: list[str] = []
        self._shown = {}
        for name in SHOWN:
            node = functions[name]
            one = Listing("".join(self.source[node.lineno - 1 : node.end_lineno]), node.lineno)
            self.lines.append(f"def {name}(…):")
            self._shown[name] = len(self.lines), one, node
            self.lines += [f"    {line}" for line in one.lines]

    def statement(self, function: str, line: int | str) -> tuple[int, int]:
        """First and last line, in the listing, of the statement at a line of the file.

        Or of the one that begins with this text.
        """
        begin, one, node = self._shown[function]
        if isinstance(line, str):
            numbers = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            (line,) = (n for n in numbers if self.source[n - 1].lstrip().startswith(line))
        ((first, last),) = one.statements([line])
        return begin + first, begin + last


def scene(
    chosen: kernel.Variant,
    tiles: int,
    D: int = 128,
    launcher: Any = kernel.hopper_attention,
    took: Took | None = None,
) -> Iterator[dict[str, Any]]:
    """All that a program does with one tile of queries and so many of keys, and where it stands."""
    clock = play(chosen, tiles, D, launcher, took)
    listing = _Listing(launcher)
    yield from (x._asdict() for x in clock.spans)
    yield from clock.sends
    for stay in clock.stays:
        yield stay | {"lines": listing.statement(*stay["lines"])}
    yield from clock.fetches
    yield {**_whole(chosen, tiles, D), "ends": clock.ends, "listing": listing.lines}


def _whole(chosen: kernel.Variant, tiles: int, D: int) -> dict[str, Any]:
    return {
        "queries": 64 * chosen.CONSUMERS,
        "keys": tiles * kernel.BLOCK_N.value,
        "D": D,
        "tile": kernel.BLOCK_N.value,
        "consumers": chosen.CONSUMERS,
        "stages": chosen.STAGES,
    }


def measured(marks: Any, chosen: kernel.Variant, D: int = 128) -> Iterator[dict[str, Any]]:
    """The same from marks of clocks.py, [parts, tiles, marks]: what was seen, when it was seen.

    A product runs at the latest from the mark after it was started to the mark at which its
    consumer has waited for it, a copy until the first consumer has come past its barrier.
    """
    listing = _Listing(kernel.hopper_attention)
    consumers = range(chosen.CONSUMERS)
    producer = marks[-1]
    spans, stays, sends, fetches = [], [], [], []

    def stay(who: str, where: tuple[str, str], since: int, works_from: int, until: int) -> None:
        if until > since:
            times = {"since": since, "works_from": works_from, "until": until}
            stays.append({"stays": who, "lines": listing.statement(*where), **times})

    def copy(kind: str, buffer: str, tile: int, at: Any, full: int, start: int, rows: int) -> None:
        spans.append(Span("producer", f"start {kind}", tile, at[FREE], at[STARTED]))
        spans.append(Span("copies", kind, tile, at[STARTED], full))
        stay("producer", ("_producer", f"_fill({kind}_desc"), at[WAITS], at[FREE], at[STARTED])
        fetches.append({"fetched": buffer, "start": start, "bytes": 2 * rows * D})

    for i in consumers:
        copy("q", f"q[{i}]", i, producer[WHOLE][3 * i :], marks[i][WHOLE][CAME], 64 * i, 64)
    for tile in range(TILES):
        stage, start = tile % chosen.STAGES, (TILES - 1 - tile) * kernel.BLOCK_N.value
        for first, kind, seen in ((0, "k", SCORES), (3, "v", VALUES)):
            full = min(marks[i][tile][seen] for i in consumers)
            at = producer[tile][first:]
            copy(kind, f"{kind}[{stage}]", tile, at, full, start, kernel.BLOCK_N.value)
    for i in consumers:
        who = f"consumer {i}"
        for tile, at in enumerate(marks[i][:TILES]):
            stage = tile % chosen.STAGES
            spans.append(Span(who, "scores", tile, at[SCORES], at[SCORED]))
            spans.append(Span(who, "softmax", tile, at[SCORED], at[WEIGHED]))
            spans.append(Span(who, "values", tile, at[VALUES], at[ADDED]))
            sends.append({"sent_to": f"k.empty[{stage}]", "sender": who, "time": at[SCORED]})
            sends.append({"sent_to": f"v.empty[{stage}]", "sender": who, "time": at[ADDED]})
            if tile:  # the first has no step: there are no values before it
                before = marks[i][tile - 1]
                step = "_step_overlapped"
                stay(who, (step, "scores = _issue_qk("), at[ASKED], at[SCORES], at[SCORES])
                stay(who, (step, "acc = _issue_pv("), at[SCORES], before[VALUES], before[VALUES])
                stay(who, (step, "s = warpgroup"), before[VALUES], at[SCORED], at[SCORED])
                stay(who, (step, "p_next, alpha"), at[SCORED], at[SCORED], at[WEIGHED])
                stay(who, (step, "acc, _ = warp"), at[WEIGHED], before[ADDED], before[ADDED])
        last, whole = marks[i][TILES - 1], marks[i][WHOLE]
        sends.append({"sent_to": f"q.empty[{i}]", "sender": who, "time": last[SCORED]})
        spans.append(Span(who, "out", 0, whole[STORES], whole[STORED]))
    yield from (x._asdict() for x in sorted(spans, key=lambda x: x.start))
    yield from [*sends, *stays, *fetches]
    yield {**_whole(chosen, TILES, D), "ends": "", "listing": listing.lines}


def examples(marks: Any, chosen: kernel.Variant, D: int = 128) -> Iterator[dict[str, Any]]:
    """What was measured; then, with its times, the kernel without a piece of its protocol."""
    times = took(marks, chosen.CONSUMERS)
    whole = play(chosen, TILES, D, took=times)
    for row in measured(marks, chosen, D):
        told = {"took": times._asdict(), "played": whole.now} if "listing" in row else {}
        yield {"example": "nothing", **row, **told}
    for name, change in TAKEN_OUT.items():
        for row in scene(chosen, TILES, D, variant("hopper_attention", [change]), times):
            yield {"example": name, **row}


def took(marks: Any, consumers: int) -> Took:
    """How long things took, for the simulation: of what overlaps, the shortest."""
    own = [at for part in marks[:consumers] for at in part[:TILES]]
    keys = [(marks[-1][tile], [part[tile] for part in marks[:consumers]]) for tile in range(TILES)]
    starts = [at[n + STARTED] - at[n + FREE] for at in marks[-1][:TILES] for n in (0, 3)]
    return Took(
        product=min(at[SCORED] - at[SCORES] for at in own),
        softmax=round(statistics.median(at[WEIGHED] - at[SCORED] for at in own)),
        copy=min(min(x[SCORES] for x in seen) - at[STARTED] for at, seen in keys),
        start=round(statistics.median(starts)),
        store=round(
            statistics.median(x[WHOLE][STORED] - x[WHOLE][STORES] for x in marks[:consumers])
        ),
    )
