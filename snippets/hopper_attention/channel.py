"""Every state that the channel of keys can get into, as it is and with a barrier misused.

protocol.py draws orders at random for the whole kernel. This walks through all orders of a part of
it that is small enough: the producer, two consumers and the channel of keys of one tile of queries.
The page lets its readers walk through the same states.
"""

import copy
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from snippets._lab.judge.mutants import MutantError, variant
from snippets._warps.role_traces import (
    Arrive,
    Copy,
    Expect,
    Fault,
    Finish,
    Product,
    Softmax,
    Trace,
    Wait,
)
from snippets._warps.simulation import Simulation

from .kernel import BLOCK_N, CONSUMER_M, Variant
from .protocol import NO_WAIT, RELEASED_EARLY, SAME_PARITY, Mistake, Work, traces

TILES = 5  # the first buffer is used three times
CHOSEN = Variant(CONSUMERS=2, STAGES=2)
WHOLE = "nothing: the kernel as it is"
NO_BYTES = ("mbarrier.expect(full, desc.block_type.nbytes)", "pass")
NO_FULL = ("mbarrier.wait(channel.full.index(stage.index), stage.phase)", "pass")
# What a reader can take out.
REMOVED = [
    Mistake(
        "the producer's wait for an empty buffer",
        [NO_WAIT],
        "Nothing holds the producer back: it starts a copy into a buffer that is still being read.",
    ),
    Mistake(
        "the opposite parity in that wait",
        [SAME_PARITY],
        "The first wait of the producer names phase 0, which ends only after a release, and nobody "
        "can release a buffer that was never filled.",
    ),
    Mistake(
        "the producer's announcement of bytes",
        [NO_BYTES],
        "The producer's arrival is part of the announcement. Without it the phase of full never "
        "ends, although every byte has come.",
    ),
    Mistake(
        "the consumers' wait for a full buffer",
        [NO_FULL],
        "A consumer multiplies what happens to lie in the buffer before its tile has arrived.",
    ),
    Mistake(
        "the wait for the product before the release",
        [RELEASED_EARLY],
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
    """The simulation of the channel of keys alone, of so many tiles.

    A step of a role begins where it has to ask for something, a barrier or the tensor cores, and
    takes along what follows. With single=True each request is a step of its own; a test holds that
    both come to the same verdict.
    """

    def __init__(self, trace: Trace, tiles: int = TILES, single: bool = False) -> None:
        super().__init__(trace)
        self.tiles, self.single = tiles, single
        self.holds = {f"q[{i}]": () for i in range(CHOSEN.CONSUMERS)}
        self.multiplied: dict[str, int] = {}  # role → the tile of its last product

    def twin(self) -> "Keys":
        """A copy to go another way with."""
        twin = copy.copy(self)
        for name, x in vars(self).items():
            if isinstance(x, dict | list | set):
                setattr(twin, name, copy.copy(x))
        twin.barriers = {name: copy.copy(barrier) for name, barrier in self.barriers.items()}
        twin.products = {role: list(products) for role, products in self.products.items()}
        return twin

    def happen(self, event: tuple[Any, ...]) -> None:
        """Let one event happen, the whole of it where it is a step."""
        super().happen(event)
        if event[0] == "step" and not self.single:
            ops = self.trace.roles[event[1]]
            while self.at[event[1]] < len(ops) and not _begins(ops, self.at[event[1]]):
                super().happen(event)

    def key(self) -> tuple[Any, ...]:
        """All that decides what can happen next."""
        return (
            *self.at.values(),
            *((b.pending, b.bytes, b.over) for b in self.barriers.values()),
            frozenset(self.copies),
            *(tuple(products) for products in self.products.values()),
            frozenset(self.holds.items()),
            frozenset(self.seen.items()),
        )

    def tile(self, row: int) -> int:
        """Which tile begins with a row of keys, in the order in which they come: the last first."""
        return self.tiles - 1 - row // BLOCK_N.value

    def _apply(self, role: str, op: Any) -> None:
        super()._apply(role, op)
        if isinstance(op, Product):
            self.multiplied[role] = self.tile(self.holds[_keys(op)][2])
        elif isinstance(op, Softmax) and self.multiplied[role] != self.tile(op.start):
            wanted = self.tile(op.start)
            raise Fault(f"{role} used tile {self.multiplied[role]} instead of tile {wanted}")


def _keys(product: Product) -> str:
    """The buffer of keys that a product reads."""
    return product.regions[-1].buffer


def _begins(ops: Sequence[Any], i: int) -> bool:
    """Whether a step begins with this request."""
    if isinstance(ops[i], Wait | Finish):
        return True
    asked = i > 0 and isinstance(ops[i - 1], Wait | Expect)
    return isinstance(ops[i], Expect | Copy | Product) and not asked


def channel_of_keys(changes: Sequence[tuple[str, str]] = (), tiles: int = TILES) -> Trace:
    """What a kernel with changes asks for, without queries, values and the use of the scores."""
    work = Work(M=CONSUMER_M.value * CHOSEN.CONSUMERS, N=tiles * BLOCK_N.value, D=128)
    launcher = [variant("hopper_attention", changes)] if changes else []
    (whole,) = traces(CHOSEN, work, *launcher)
    names = sorted(whole.roles, key=lambda name: (name != "producer", name))
    roles = {name: list(_of_keys(whole.roles[name])) for name in names}
    barriers = {name: n for name, n in whole.barriers.items() if name.startswith("k.")}
    return Trace(barriers, [], roles)


def _of_keys(ops: Iterable[Any]) -> Iterator[Any]:
    with_keys = False  # whether the product started last is one with keys
    for op in ops:
        match op:
            case Wait(barrier=name) | Arrive(barrier=name) | Expect(barrier=name):
                kept = name.startswith("k.")
            case Copy():
                kept = op.regions[0].buffer.startswith("k[")
            case Product():
                kept = with_keys = _keys(op).startswith("k[")
            case Finish():
                kept = with_keys
            case _:
                kept = isinstance(op, Softmax)
        if kept:
            yield op


class Walked(NamedTuple):
    """All states, the first one first; a way is (event, number of the next state or a fault)."""

    states: list[Keys]
    ways: list[list[tuple[tuple[Any, ...], int | str]]]

    def trouble(self) -> list[int] | None:
        """The shortest way into a fault or to where nobody can go on: which way in each state."""
        taken: dict[int, list[int]] = {0: []}
        for at, ways in enumerate(self.ways):  # found in this order, the nearest first
            if not ways and self.states[at].stuck():
                return taken[at]
            for i, (_, to) in enumerate(ways):
                if isinstance(to, str):
                    return [*taken[at], i]
                taken.setdefault(to, [*taken[at], i])
        return None


def walk(first: Keys) -> Walked:
    """All that can happen, in every order. After a fault nothing does."""
    numbers, found = {first.key(): 0}, Walked([first], [])
    for state in found.states:  # which grows
        ways: list[tuple[tuple[Any, ...], int | str]] = []
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
    mistakes = {m.name: m for m in (Mistake(WHOLE, [], ""), *REMOVED)}
    for case in lab.each(removed=list(mistakes)):
        mistake = mistakes[case["removed"]]
        first = Keys(channel_of_keys(mistake.changes))
        walked = walk(first)
        trouble = walked.trouble()
        if (trouble is None) == bool(mistake.changes):
            raise MutantError(f"{mistake.name}: way into trouble {trouble}")
        faults = sorted({to for ways in walked.ways for _, to in ways if isinstance(to, str)})
        events = sorted({_event(event) for ways in walked.ways for event, _ in ways})
        yield {
            **case,
            "diagnosis": mistake.diagnosis,
            "change": [textwrap.dedent(x).strip() for change in mistake.changes for x in change],
            "arrivals": first.trace.barriers,
            "steps": {role: _steps(first, role) for role in first.trace.roles},
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


def _event(event: tuple[Any, ...]) -> str:
    """The name of an event: a role, "k[0]" for a copy into it, "consumer 0 product"."""
    match event:
        case ("copied", copied):
            return str(copied.regions[0].buffer)
        case ("multiplied", role):
            return f"{role} product"
    return str(event[1])


def _steps(state: Keys, role: str) -> list[dict[str, Any]]:
    """What each step of a role asks for and does, in words."""
    ops = state.trace.roles[role]
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
            case Copy():
                buffer = op.regions[0].buffer
                does.append(f"starts the copy of tile {state.tile(op.block[2])} into {buffer}")
            case Product():
                does.append(f"starts its product with {_keys(op)}")
            case Arrive(barrier):
                does.append(f"arrives at {barrier}")
            case Softmax(_, start):
                does.append(f"does the softmax of tile {state.tile(start)}")
    return steps


def _numbers(state: Keys) -> list[int]:
    """A state as numbers.

    Of each role its step; of each buffer the tile in it and the one on its way, or -1; of each
    consumer the buffer that its product reads, or -1; of each barrier its phases that are over,
    the arrivals it waits for and whether it waits for bytes.
    """
    begun = [
        sum(_begins(ops, i) for i in range(state.at[role]))
        for role, ops in state.trace.roles.items()
    ]
    buffers = []
    for name in (f"k[{i}]" for i in range(CHOSEN.STAGES)):
        coming = [copied.block for copied in state.copies if copied.regions[0].buffer == name]
        held = [state.holds[name]] if name in state.holds else []
        buffers += [state.tile(x[0][2]) if x else -1 for x in (held, coming)]
    reading = [
        int(_keys(products[0])[2:-1]) if products else -1
        for role, products in state.products.items()
        if role != "producer"
    ]
    barriers = [x for b in state.barriers.values() for x in (b.over, b.pending, int(b.bytes > 0))]
    return [*begun, *buffers, *reading, *barriers]
