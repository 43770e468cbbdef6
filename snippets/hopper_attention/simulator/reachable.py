"""Every state that the channel of keys can get into, as it is and with a barrier misused.

protocol.py draws orders at random for the whole kernel. This walks through all orders of a part of
it that is small enough: the producer, two consumers and the channel of keys of one tile of queries.
What each of them does are the lines of kernel.py, as parts.py finds them; what a barrier, TMA and
the tensor cores do is protocol.py's. The page lets its readers walk through the same states.
"""

import copy
import textwrap
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from snippets._lab.judge.mutants import MutantError

from .gluon import KERNEL
from .mistakes import Mistake, with_mistake
from .parts import (
    Arrive,
    Copy,
    Expect,
    Fault,
    Finish,
    Product,
    Softmax,
    Trace,
    Wait,
    Work,
    defined,
    trace,
)
from .protocol import Simulation

STAGES, CONSUMERS, TILES = 2, 2, 5  # the first buffer is used three times
WHOLE = "nothing: the kernel as it is"
# What a reader can take out. Each is a change of kernel.py's own text, like those of mistakes.py.
REMOVED = [
    Mistake(
        "the producer's wait for an empty buffer",
        [("mbarrier.wait(channel.empty.index(stage.index), stage.phase ^ 1)", "pass")],
        "Nothing holds the producer back: it starts a copy into a buffer that is still being read.",
    ),
    Mistake(
        "the opposite parity in that wait",
        [("stage.phase ^ 1", "stage.phase")],
        "The first wait of the producer names phase 0, which ends only after a release, and nobody "
        "can release a buffer that was never filled.",
    ),
    Mistake(
        "the producer's announcement of bytes",
        [("mbarrier.expect(full, desc.block_type.nbytes)", "pass")],
        "The producer's arrival is part of the announcement. Without it the phase of full never "
        "ends, although every byte has come.",
    ),
    Mistake(
        "the consumers' wait for a full buffer",
        [("mbarrier.wait(channel.full.index(stage.index), stage.phase)", "pass")],
        "A consumer multiplies what happens to lie in the buffer before its tile has arrived.",
    ),
    Mistake(
        "the wait for the product before the release",
        [
            (
                """\
    s = warpgroup_mma_wait(0, deps=[scores])
    _release_in_passing(channels.k, stage)
    p, alpha, m_i, l_i = _online_softmax(
""",
                """\
    _release_in_passing(channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
    p, alpha, m_i, l_i = _online_softmax(
""",
            )
        ],
        "The tensor cores still read the buffer after their product was started, so a release "
        "before its end lets the next tile overwrite it.",
    ),
    Mistake(
        "the release by the consumers",
        [("mbarrier.expect(channel.empty.index(stage.index), 0)", "pass")],
        "The first round needs no release. In the second the producer waits for a buffer that "
        "nobody hands back, and the consumers wait for the producer.",
    ),
    Mistake(
        "one of the two arrivals that make a buffer empty",
        [("_barriers(n, readers)", "_barriers(n, readers - 1)")],
        "The faster consumer alone makes the buffer empty, while the slower one has yet to read.",
    ),
]


class Keys(Simulation):
    """The simulation of the channel of keys alone.

    A step of a part begins where it has to ask for something, a barrier or the tensor cores, and
    takes along what follows. With single=True each operation is a step of its own; a test holds
    that both come to the same verdict.
    """

    def __init__(self, program: Trace, single: bool = False) -> None:
        super().__init__(program)
        self.single = single
        self.holds = {f"q[{i}]": (0, 0, program.rows * i, 0) for i in range(CONSUMERS)}

    def twin(self) -> "Keys":
        """A copy to go another way with."""
        twin = copy.copy(self)
        twin.barriers = {name: copy.copy(barrier) for name, barrier in self.barriers.items()}
        twin.at, twin.seen, twin.holds = dict(self.at), dict(self.seen), dict(self.holds)
        twin.copies = list(self.copies)
        twin.products = {part: list(products) for part, products in self.products.items()}
        twin.read = {part: dict(read) for part, read in self.read.items()}
        twin.steps = {part: [] for part in self.steps}
        return twin

    def happen(self, event: tuple) -> None:
        """Let one event happen, the whole of it where it is a step."""
        super().happen(event)
        if event[0] == "step" and not self.single:
            ops = self.program.parts[event[1]]
            while self.at[event[1]] < len(ops) and not _begins(ops, self.at[event[1]]):
                super().happen(event)

    def key(self) -> tuple:
        """All that decides what can happen next."""
        return (
            *self.at.values(),
            *((b.pending, b.bytes, b.over) for b in self.barriers.values()),
            tuple(sorted(self.copies)),
            *(tuple(products) for products in self.products.values()),
            tuple(sorted(self.holds.items())),
            tuple(sorted(self.seen.items())),
        )

    def tile(self, block: tuple) -> int:
        """Which tile a block of keys is, in the order in which they come: the last keys first."""
        width = self.program.variant.BLOCK_N
        return self.program.work.N // width - 1 - block[2] // width

    def stuck(self) -> list[str]:
        """The parts that are not at their end."""
        return [part for part, ops in self.program.parts.items() if self.at[part] < len(ops)]

    def _passes(self, part: str, op: Any) -> bool:
        try:
            return super()._passes(part, op)
        except Fault:
            missed = f"{part} missed a phase of {op.barrier}"
            raise Fault(f"{missed}: two phases later the parity is the same again") from None

    def _apply(self, part: str, op: Any) -> None:
        super()._apply(part, op)
        if isinstance(op, Softmax):
            _, (_, block) = self.read[part][op.number]
            if block[2] != op.start:
                found, wanted = (self.tile((0, 0, row, 0)) for row in (block[2], op.start))
                raise Fault(f"{part} used tile {found} instead of tile {wanted}")
            self.steps[part].clear()


def _begins(ops: Sequence[Any], i: int) -> bool:
    """Whether a step begins with this operation."""
    if isinstance(ops[i], Wait | Finish):
        return True
    asked = i > 0 and isinstance(ops[i - 1], Wait | Expect)
    return isinstance(ops[i], Expect | Copy | Product) and not asked


def channel_of_keys(source: str, tiles: int = TILES) -> Trace:
    """What a kernel's text asks for, without queries, values and what becomes of the scores."""
    variant = defined("Variant")(CONSUMERS=CONSUMERS, STAGES=STAGES)
    work = Work(M=defined("CONSUMER_M") * CONSUMERS, N=tiles * variant.BLOCK_N)
    whole = trace(variant, work, 0, source)
    names = sorted(whole.parts, key=lambda name: (name != "producer", name))
    parts = {name: list(_of_keys(whole.parts[name])) for name in names}
    barriers = {name: n for name, n in whole.barriers.items() if name.startswith("k.")}
    return whole._replace(barriers=barriers, setup=[], parts=parts)


def _of_keys(ops: Iterable[Any]) -> Iterator[Any]:
    with_keys = False  # whether the product started last is one with keys
    for op in ops:
        match op:
            case Wait(barrier=name) | Arrive(barrier=name) | Expect(barrier=name):
                kept = name.startswith("k.")
            case Copy(buffer=name):
                kept = name.startswith("k[")
            case Product(b=name):
                kept = with_keys = str(name).startswith("k[")
            case Finish():
                kept = with_keys
            case _:
                kept = isinstance(op, Softmax)
        if kept:
            yield op


class Walked(NamedTuple):
    """All states, the first one first; a way is (event, number of the next state or a fault)."""

    states: list[Keys]
    ways: list[list[tuple[tuple, int | str]]]

    def trouble(self) -> list[int] | None:
        """The shortest way into a fault or to where nobody can go on: which way in each state."""
        left: deque[tuple[int, list[int]]] = deque([(0, [])])
        seen = {0}
        while left:
            at, taken = left.popleft()
            if not self.ways[at] and self.states[at].stuck():
                return taken
            for i, (_, to) in enumerate(self.ways[at]):
                if isinstance(to, str):
                    return [*taken, i]
                if to not in seen:
                    seen.add(to)
                    left.append((to, [*taken, i]))
        return None


def walk(program: Trace, single: bool = False) -> Walked:
    """All that can happen, in every order. After a fault nothing does."""
    first = Keys(program, single)
    numbers, found = {first.key(): 0}, Walked([first], [])
    for state in found.states:  # which grows
        ways: list[tuple[tuple, int | str]] = []
        for event in state.ready():
            after = state.twin()
            try:
                after.happen(event)
                after.ready()
            except Fault as fault:
                ways.append((event, str(fault)))
                continue
            number = numbers.setdefault(after.key(), len(numbers))
            if number == len(found.states):
                found.states.append(after)
            ways.append((event, number))
        found.ways.append(ways)
    return found


def rows(lab: Any) -> Iterator[dict[str, Any]]:
    """All states of the kernel and of each of REMOVED, in numbers that a page can show."""
    source = KERNEL.read_text("utf-8")
    mistakes = {m.name: m for m in (Mistake(WHOLE, [], ""), *REMOVED)}
    for case in lab.each(removed=list(mistakes)):
        mistake = mistakes[case["removed"]]
        program = channel_of_keys(with_mistake(mistake, source))
        walked = walk(program)
        trouble = walked.trouble()
        if (trouble is None) == bool(mistake.changes):
            raise MutantError(f"{mistake.name}: way into trouble {trouble}")
        faults = sorted({to for ways in walked.ways for _, to in ways if isinstance(to, str)})
        events = sorted({_event(event) for ways in walked.ways for event, _ in ways})
        yield {
            **case,
            "diagnosis": mistake.diagnosis,
            "change": [text for change in mistake.changes for text in _differing(*change)],
            "arrivals": program.barriers,
            "steps": {part: _steps(walked.states[0], part) for part in program.parts},
            "states": [_numbers(state) for state in walked.states],
            "ways": [  # of each state; where one leads: a state, or ~i for faults[i]
                [
                    [events.index(_event(e)), ~faults.index(to) if isinstance(to, str) else to]
                    for e, to in ways
                ]
                for ways in walked.ways
            ],
            "events": events,
            "faults": faults,
            "trouble": trouble,
        }


def _differing(old: str, new: str) -> tuple[str, str]:
    """Two pieces of code without the lines that both end with."""
    was, now = (textwrap.dedent(text).strip().splitlines() for text in (old, new))
    while was and now and was[-1] == now[-1]:
        was.pop()
        now.pop()
    return "\n".join(was), "\n".join(now)


def _event(event: tuple) -> str:
    """The name of an event: a part, "k[0]" for a copy into it, "consumer 0 product"."""
    match event:
        case ("copied", copied):
            return str(copied.buffer)
        case ("multiplied", part):
            return f"{part} product"
    return str(event[1])


def _steps(state: Keys, part: str) -> list[dict[str, Any]]:
    """What each step of a part asks for and does, in words."""
    ops = state.program.parts[part]
    steps: list[dict[str, Any]] = []
    for i, op in enumerate(ops):
        if _begins(ops, i):
            steps.append({"asks": "", "does": []})
        does = steps[-1]["does"]
        match op:
            case Wait(barrier, parity):
                steps[-1]["asks"] = f"{barrier}, parity {parity}"
            case Finish():
                steps[-1]["asks"] = "its product"
            case Copy(block, _, buffer, _):
                does.append(f"starts the copy of tile {state.tile(block)} into {buffer}")
            case Product(_, _, buffer):
                does.append(f"starts its product with {buffer}")
            case Arrive(barrier):
                does.append(f"arrives at {barrier}")
            case Softmax(_, start, _):
                does.append(f"does the softmax of tile {state.tile((0, 0, start, 0))}")
    return steps


def _numbers(state: Keys) -> list[int]:
    """A state as numbers.

    Of each part its step; of each buffer the tile in it and the one on its way, or -1; of each
    consumer the buffer that its product reads, or -1; of each barrier its phases that are over,
    the arrivals it waits for and whether it waits for bytes.
    """
    begun = [
        sum(_begins(ops, i) for i in range(state.at[part]))
        for part, ops in state.program.parts.items()
    ]
    buffers = []
    for name in (f"k[{i}]" for i in range(STAGES)):
        coming = [copied.block for copied in state.copies if copied.buffer == name]
        held = state.holds.get(name)
        buffers += [state.tile(held) if held else -1, state.tile(coming[0]) if coming else -1]
    reading = [
        int(str(products[0].b)[2:-1]) if products else -1
        for part, products in state.products.items()
        if part != "producer"
    ]
    barriers = [x for b in state.barriers.values() for x in (b.over, b.pending, int(b.bytes > 0))]
    return [*begun, *buffers, *reading, *barriers]
