"""Random orders of the events of kernel.py: does any deadlock, or lose what somebody still reads?

`Simulation` plays what parts.py has found against TMA and the tensor cores, one event at a time in
an order drawn at random, and raises Fault at the first thing that must not be.

Not modeled: numbers, and the warps of one consumer among themselves, which Triton keeps together.
"""

import itertools
import random
from collections import Counter
from typing import Any

from .parts import (
    Arrive,
    Copy,
    Expect,
    Fault,
    Fence,
    Finish,
    Load,
    Product,
    Softmax,
    Store,
    StoreWait,
    Trace,
    Wait,
    Work,
    Write,
    defined,
    trace,
)


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all bytes they announced are there."""

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.pending = arrivals
        self.bytes = 0
        self.over = 0  # phases

    def change(self, arrivals: int, bytes: int) -> None:
        self.pending -= arrivals
        self.bytes += bytes
        if self.pending == 0 and self.bytes == 0:
            self.pending = self.arrivals
            self.over += 1


class Simulation:
    """The parts of a program against each other, with TMA and the tensor cores.

    `ready` lists what can happen next and `happen` lets one of it happen; raises Fault. An event
    is ("step", part), ("copied", copy), ("multiplied", part) or ("stored", part, store).
    """

    def __init__(self, program: Trace) -> None:
        self.program = program
        self.barriers = {name: Barrier(n) for name, n in program.barriers.items()}
        self.at = dict.fromkeys(program.parts, 0)
        self.seen: dict[tuple[str, str], int] = {}  # phase that a part waited for last
        self.holds: dict[str, tuple] = {}  # buffer → block
        self.copies: list[Copy] = []  # on their way
        self.products: dict[str, list[Product]] = {part: [] for part in program.parts}
        self.stores: dict[str, list[Store]] = {part: [] for part in program.parts}
        self.read: dict[str, dict[int, tuple]] = {part: {} for part in program.parts}
        self.steps: dict[str, list[Softmax]] = {part: [] for part in program.parts}
        self.used: dict[str, dict[int, tuple]] = {part: {} for part in program.parts}
        self.loads: dict[int, str] = {}  # buffers that may not have been read yet
        self.lost: set[int] = set()  # loads from buffers that were then overwritten
        self.fenced: dict[str, bool] = {}  # out buffer → visible to TMA
        self.stored: list[tuple] = []
        self.turn: str | None = None  # whose turn it is to issue
        self.issued: str | None = None  # who issued scores last
        for op in program.setup:
            self._apply("", op)

    def ready(self) -> list[tuple]:
        found: list[tuple] = [("copied", copy) for copy in self.copies]
        for part, ops in self.program.parts.items():
            if self.at[part] < len(ops) and self._passes(part, ops[self.at[part]]):
                found.append(("step", part))
            if self.products[part]:
                found.append(("multiplied", part))
            found += [("stored", part, store) for store in self.stores[part]]
        return found

    def happen(self, event: tuple) -> None:
        match event:
            case ("step", part):
                op = self.program.parts[part][self.at[part]]
                self.at[part] += 1
                self._apply(part, op)
                if self.at[part] == len(self.program.parts[part]):
                    self._ended(part)
            case ("copied", copy):
                self.copies.remove(copy)
                self.holds[copy.buffer] = copy.block
                self.barriers[copy.barrier].change(0, -copy.bytes)
            case ("multiplied", part):
                self.products[part].pop(0)
            case ("stored", part, store):
                self.stores[part].remove(store)
                self.stored.append(store.block)

    # --8<-- [start:order]
    def run(self, order: random.Random) -> int:
        """One random order of events to the end; how many events. Raises Fault."""
        count = 0
        # Each part, and what is done for it, has a pace of its own: rare orders are those in which
        # one is slow.
        kinds = [*itertools.product(("step", "multiplied", "stored"), self.at), ("copied", "")]
        pace = {kind: order.choice((1, 1, 8, 64)) for kind in kinds}
        while events := self.ready():
            weights = [pace["copied", ""] if e[0] == "copied" else pace[e[:2]] for e in events]
            self.happen(order.choices(events, weights)[0])
            count += 1
        waiting = {
            part: ops[self.at[part]]
            for part, ops in self.program.parts.items()
            if self.at[part] < len(ops)
        }
        if waiting:
            stuck = [
                f"{part} waits for {getattr(op, 'barrier', op)}" for part, op in waiting.items()
            ]
            raise Fault(f"nobody can go on: {', '.join(stuck)}")
        return count
        # --8<-- [end:order]

    # --8<-- [start:passes]
    def _passes(self, part: str, op: Any) -> bool:
        match op:
            case Wait(barrier, parity):
                # Parity is all that a waiter knows; it means the last phase it saw or the next.
                last = self.seen.get((part, barrier), -1)
                meant = last if last & 1 == parity else last + 1
                over = self.barriers[barrier].over
                if over > meant + 1:
                    late = f"{barrier} is {over - meant} phases ahead of {part}"
                    raise Fault(f"{late}: what it tells of is lost")
                return over == meant + 1
            case Finish(left):
                return len(self.products[part]) <= left
            case StoreWait(left):
                return len(self.stores[part]) <= left
        return True
        # --8<-- [end:passes]

    def _apply(self, part: str, op: Any) -> None:
        match op:
            case Wait(barrier, _):
                self.seen[part, barrier] = self.barriers[barrier].over - 1
                if barrier.startswith("order_barriers"):
                    if self.turn:
                        raise Fault(f"{part} takes its turn while {self.turn} has it")
                    self.turn = part
            case Arrive(barrier):
                if part and barrier.startswith("order_barriers"):
                    if self.turn != part:
                        raise Fault(f"{part} passes on a turn that is not its own")
                    self.turn = None
                self.barriers[barrier].change(1, 0)
            case Expect(barrier, n):
                self.barriers[barrier].change(1, n)
            case Copy(_, _, buffer, _):
                for other in self.products:
                    for product in self.products[other]:
                        if buffer in (product.a, product.b):
                            raise Fault(f"{buffer} is overwritten while {other} multiplies by it")
                if buffer in [copy.buffer for copy in self.copies]:
                    raise Fault(f"{buffer} is filled by two copies at the same time")
                self.lost.update(n for n, loaded in self.loads.items() if loaded == buffer)
                self.copies.append(op)
            case Load(number, buffer):
                self.read[part][number] = self._block(part, buffer)
                self.loads[number] = buffer
            case Product():
                self._start(part, op)
            case Softmax(number, _, _):
                if number in [p.number for p in self.products[part]]:
                    raise Fault(f"{part} reads scores that are still being computed")
                self.steps[part].append(op)
            case Write(buffer):
                if buffer in [s.buffer for stores in self.stores.values() for s in stores]:
                    raise Fault(f"{part} overwrites {buffer} while it is being stored")
                self.fenced[buffer] = False
            case Fence():
                self.fenced = dict.fromkeys(self.fenced, True)
            case Store(block, buffer):
                if not self.fenced.get(buffer):
                    raise Fault(f"{part} stores {buffer} before TMA can see it")
                self._judge(part, block)
                self.stores[part].append(op)

    def _block(self, part: str, buffer: str) -> tuple:
        """(channel, block) that a part reads from a buffer."""
        if buffer in [copy.buffer for copy in self.copies] or buffer not in self.holds:
            raise Fault(f"{part} reads {buffer} before its copy has arrived")
        return buffer.split("[")[0], self.holds[buffer]

    def _start(self, part: str, product: Product) -> None:
        # It starts when its registers are there: only now is it known that a load has read.
        loaded = self.loads.pop(product.a, None) if isinstance(product.a, int) else None
        if product.a in self.lost:
            raise Fault(f"{loaded} is overwritten before {part} has read it into registers")
        known = {**self.read[part], None: ("nothing", ())}
        (a, a_block), (b, b_block) = (
            self._block(part, x) if isinstance(x, str) else known[x] for x in product[1:]
        )
        if (a, b) == ("weights", "v"):
            if product.a in self.used[part]:
                raise Fault(f"{part} multiplies the same weights twice")
            self.used[part][product.a] = b_block
        elif (a, b) == ("q", "k"):
            if self.program.variant.PING_PONG and self.program.variant.OVERLAP:
                if self.turn != part:
                    raise Fault(f"{part} issues its products when it is not its turn")
                if self.issued == part:
                    raise Fault(f"{part} issues its products twice in a row")
                self.issued = part
            # The keys of the scores stand for the weights that become of them.
            self.read[part][product.number] = ("weights", (a_block, b_block))
        else:
            raise Fault(f"{part} multiplies {a} by {b}")
        self.products[part].append(product)

    def _judge(self, part: str, stored: tuple) -> None:
        """Whether the rows to be stored come from their queries and from every key they see."""
        work, rows = self.program.work, self.program.rows
        width = self.program.variant.BLOCK_N
        head, first, _ = stored
        b, h = divmod(head, work.H)
        keys = Counter()
        for number, start, masked in self.steps[part]:
            q_block, k_block = self.read[part][number][1]
            v_block = self.used[part].get(number)
            about = f"{part}, head {head}, rows from {first}"
            if q_block != (b, h, first, 0):
                raise Fault(f"{about}: queries of {q_block}")
            if k_block != (b, h // work.G, start, 0):
                raise Fault(f"{about}: keys of {k_block} instead of those from {start}")
            if v_block != k_block:
                raise Fault(f"{about}: weights of keys {k_block} with values of {v_block}")
            seen_by_all = min(work.N, first + work.causal_offset + 1 if work.causal else work.N)
            if not masked and start + width > seen_by_all:
                raise Fault(f"{about}: keys from {start} are not masked")
            keys[start] += 1
        last = min(first + rows, work.M) - 1
        visible = max(0, min(work.N, last + work.causal_offset + 1) if work.causal else work.N)
        missed = set(range(0, visible, width)) - set(keys) if first < work.M else ()
        if missed or [n for n in keys.values() if n > 1]:
            found = sorted(keys.elements())
            raise Fault(f"{part}, head {head}, rows from {first}: tiles of keys at {found}")
        self.steps[part].clear()
        self.used[part].clear()

    def _ended(self, part: str) -> None:
        """Its shared memory goes, and nothing may be left to be done for it."""
        if self.stores[part]:
            raise Fault(f"{part} ends while its rows are being stored")
        if self.products[part] or self.steps[part]:
            raise Fault(f"{part} ends before its products")


def check(variant: Any, work: Work, orders: int = 1, seed: int = 0, source: str = "") -> int:
    """Simulate every program of a problem in random orders; how many events. Raises Fault."""
    events, stored = 0, []
    for program in range(work.programs):
        traced = trace(variant, work, program, source)
        for i in range(orders):
            simulation = Simulation(traced)
            events += simulation.run(random.Random(f"{seed} {program} {i}"))
        stored += simulation.stored
    found = Counter((head, row) for head, row, _ in stored if row < work.M)
    wanted = {(h, row) for h in range(work.heads) for row in range(0, work.M, traced.rows)}
    if missing := sorted(wanted - set(found)):
        raise Fault(f"head {missing[0][0]}, rows from {missing[0][1]}: stored by no program")
    if twice := sorted(place for place, times in found.items() if times > 1):
        raise Fault(f"head {twice[0][0]}, rows from {twice[0][1]}: stored twice")
    return events


# Whole and ragged tiles, several tiles of queries for a program, and queries that see no key.
WORK = (
    Work(M=300, N=1000, heads=2, H=2, G=2, programs=2),
    Work(M=500, N=300, causal=True, causal_offset=-200, heads=2, H=2, programs=2, step=2),
    Work(M=500, N=500, causal=True, heads=2, H=2, programs=2, by_length=True),
)


def used_variants() -> list[Any]:
    """Those of the kernel's table, each once, and those that overlap also with turns."""
    table = [chosen for rows in defined("VARIANTS").values() for chosen in rows]
    table += [chosen._replace(PING_PONG=True) for chosen in table if chosen.OVERLAP]
    found = {say(chosen): chosen for chosen in table}
    return [found[words] for words in sorted(found)]


def say(variant: Any) -> str:
    """A variant in words."""
    switches = {
        "softmax under the product": variant.OVERLAP,
        "in turn": variant.OVERLAP and variant.PING_PONG,
        "queries in registers": variant.Q_IN_REGISTERS,
        "sums rescaled late": variant.LAZY,
    }
    parts = [f"{variant.CONSUMERS} consumers", f"{variant.STAGES} buffers"]
    return ", ".join([*parts, *(words for words, on in switches.items() if on)])


ORDERS = 50  # for each variant and each problem


def judge(source: str = "", orders: int = ORDERS) -> dict[str, Any]:
    """The first fault of a kernel's text and the variant that showed it; events that passed."""
    events = 0
    for seed in range(orders):
        for variant in used_variants():
            for work in WORK:
                try:
                    events += check(variant, work, 1, seed, source)
                except Fault as fault:
                    return {"message": str(fault), "variant": say(variant), "events": events}
    return {"message": "", "variant": "all", "events": events}
