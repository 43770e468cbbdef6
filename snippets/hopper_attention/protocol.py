"""Random orders of the events of kernel.py: does any deadlock, or lose what somebody still reads?

`Simulation` plays what parts.py has found against the copy engine and the tensor cores, one event
at a time in an order drawn at random, and raises Fault at the first thing that must not be.

Not modelled: numbers, and the warps of one consumer among themselves, which Triton keeps together.
"""

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from snippets._lab.judge.mutants import CONTROL, Mutant, MutantError, mutate

from .parts import (
    KERNEL,
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
    """The parts of a program against each other, with the copy engine and the tensor cores.

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
        self.fenced: dict[str, bool] = {}  # out buffer → visible to the copy engine
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
        waiting = {p: ops[self.at[p]] for p, ops in self.program.parts.items()
                   if self.at[p] < len(ops)}  # fmt: skip
        if waiting:
            who = [f"{p} waits for {getattr(op, 'barrier', op)}" for p, op in waiting.items()]
            raise Fault(f"nobody can go on: {', '.join(who)}")
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
                if barrier.startswith("turns"):
                    if self.turn:
                        raise Fault(f"{part} takes its turn while {self.turn} has it")
                    self.turn = part
            case Arrive(barrier):
                if part and barrier.startswith("turns"):
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
                self.copies.append(op)
            case Load(number, buffer):
                self.read[part][number] = self._block(part, buffer)
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
                    raise Fault(f"{part} stores {buffer} before the copy engine can see it")
                self._judge(part, block)
                self.stores[part].append(op)

    def _block(self, part: str, buffer: str) -> tuple:
        """(channel, block) that a part reads from a buffer."""
        if buffer in [copy.buffer for copy in self.copies] or buffer not in self.holds:
            raise Fault(f"{part} reads {buffer} before its copy has arrived")
        return buffer.split("[")[0], self.holds[buffer]

    def _start(self, part: str, product: Product) -> None:
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
            seen_by_all = min(work.N, first + work.shift + 1 if work.causal else work.N)
            if not masked and start + width > seen_by_all:
                raise Fault(f"{about}: keys from {start} are not masked")
            keys[start] += 1
        last = min(first + rows, work.M) - 1
        visible = max(0, min(work.N, last + work.shift + 1) if work.causal else work.N)
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


class Mistake(NamedTuple):
    """A wrong protocol: texts of kernel.py, each occurring once, that are replaced."""

    name: str
    changes: list[tuple[str, str]]
    diagnosis: str  # one sentence a reader with this mistake would want to read


TURN = "        mbarrier.arrive(turns.index((who + 1) % V.CONSUMERS), count=1)\n"
RELEASED = "\n                    mbarrier.arrive(q.empty.index(who), count=1)\n                e ="
MISTAKES = [
    Mistake(
        "no wait for an empty buffer",
        [("    mbarrier.wait(channel.empty.index(i), phase ^ 1)", "    ")],
        "The producer runs ahead and copies over tiles that nobody has read.",
    ),
    Mistake(
        "wait for an empty buffer in the first phase",
        [("mbarrier.wait(channel.empty.index(i), phase ^ 1)",
          "mbarrier.wait(channel.empty.index(i), phase)")],
        "Nobody has emptied a buffer that was never full: only the opposite parity lets the first "
        "wait pass.",
    ),
    Mistake(
        "full before the bytes are there",
        [("mbarrier.expect(channel.full.index(i), desc.block_type.nbytes)",
          "mbarrier.arrive(channel.full.index(i), count=1)")],
        "An arrival that announces no bytes ends the phase at once; the copy is still on its way.",
    ),
    Mistake(
        "a phase for each tile of keys",
        [("phase = count // V.STAGES & 1", "phase = count & 1")],
        "The phase changes when a buffer comes round again, not with every tile.",
    ),
    Mistake(
        "tiles counted anew for each tile of queries",
        [("        count += n\n", "")],
        "Barriers remember their phases from one tile of queries to the next, so must the count.",
    ),
    Mistake(
        "one arrival too few",
        [("k = _channel(k_desc, V.STAGES, V.CONSUMERS)",
          "k = _channel(k_desc, V.STAGES, V.CONSUMERS - 1)")],
        "Every consumer reads a tile of keys; it is empty when the last of them has released it.",
    ),
    Mistake(
        "one arrival too many",
        [("v = _channel(v_desc, V.STAGES, V.CONSUMERS)",
          "v = _channel(v_desc, V.STAGES, V.CONSUMERS + 1)")],
        "The barrier waits for a consumer that does not exist.",
    ),
    Mistake(
        "keys released under their product",
        [("    s = warpgroup_mma_wait(0, deps=[_start_scores(q_tile, k, count, s_layout, V)])\n"
          "    _release(k, count, V)\n",
          "    s = _start_scores(q_tile, k, count, s_layout, V)\n    _release(k, count, V)\n"
          "    s = warpgroup_mma_wait(0, deps=[s])\n")],
        "A started product still reads its buffers: release them after the wait for its end.",
    ),
    Mistake(
        "values released under their product",
        [("    acc, _ = warpgroup_mma_wait(0, deps=[acc, e])\n    _release(v, count - 1, V)\n",
          "    _release(v, count - 1, V)\n    acc, _ = warpgroup_mma_wait(0, deps=[acc, e])\n")],
        "The product with the values runs until the second wait of a step, and so must the buffer.",
    ),
    Mistake(
        "values of the last tile not released",
        [("                _release(v, count + n - 1, V)\n", "")],
        "The last tile is folded in after the loop, and its buffer is needed by the next queries.",
    ),
    Mistake(
        "scores read too early",
        [("warpgroup_mma_wait(1, deps=[scores])", "warpgroup_mma_wait(2, deps=[scores])")],
        "Two products run; one may be left when the softmax begins, and that is the later one.",
    ),
    Mistake(
        "weights times the values of the next tile",
        [("_start_values(e, acc, v, count - 1, V)", "_start_values(e, acc, v, count, V)")],
        "With the softmax under the product, the weights at hand belong to the tile before.",
    ),
    Mistake(
        "queries released before the loop",
        [("                masked = gl.maximum(masked, 1)\n",
          "                masked = gl.maximum(masked, 1)\n"
          "                if not V.Q_IN_REGISTERS:\n"
          "                    mbarrier.arrive(q.empty.index(who), count=1)\n"),
         ("if not V.Q_IN_REGISTERS:" + RELEASED, "if False:" + RELEASED)],
        "The tensor cores read the queries from shared memory for every tile of keys.",
    ),
    Mistake(
        "queries without keys never released",
        [("            elif not V.Q_IN_REGISTERS:\n"
          "                mbarrier.arrive(q.empty.index(who), count=1)\n", "")],
        "A tile of queries that sees no key was copied all the same, and its buffer is awaited.",
    ),
    Mistake(
        "turn not passed on",
        [(TURN + "    s = ", "        pass\n    s = ")],
        "The other consumer waits for its turn, this one for the other, and the producer for both.",
    ),
    Mistake(
        "nobody's turn at first",
        [("    if V.PING_PONG:\n        mbarrier.arrive(turns.index(0), count=1)\n", "")],
        "Each consumer waits for the other to begin.",
    ),
    Mistake(
        "turn not waited for",
        [("mbarrier.wait(turns.index(who), count & 1)\n    scores", "pass\n    scores")],
        "Results stay right, but both consumers may multiply, and then both do their softmax.",
    ),
    Mistake(
        "rows written over rows on their way out",
        [("        tma.store_wait(0)\n", "")],
        "The copy engine may still be storing the tile before when a short one is done.",
    ),
    Mistake(
        "end before the last rows are out",
        [("    tma.store_wait(0)\n", "")],
        "The next program gets this shared memory while the copy engine still reads it.",
    ),
    Mistake(
        "no fence before the store",
        [("        fence_async_shared()\n", "")],
        "The copy engine reads shared memory another way than threads do, and may see old rows.",
    ),
    Mistake(
        "programs one ticket apart",
        [("(gl.num_programs(0) - 1) * p.step + 1, 1", "gl.num_programs(0) * p.step + 1, 1")],
        "Each program leaves out the tickets of one program too many, and nobody takes those.",
    ),
]  # fmt: skip

# Whole and ragged tiles, several tiles of queries for a program, and queries that see no key.
WORK = (
    Work(M=300, N=1000, heads=2, H=2, G=2, programs=2),
    Work(M=500, N=300, causal=True, shift=-200, heads=2, H=2, programs=2, step=2),
)


def used_variants() -> list[Any]:
    """Those of the kernel's table, each once: lengths apart, which choose among them."""
    table, found = [defined("VARIANTS")], {}
    while table:
        entry = table.pop()
        if hasattr(entry, "CONSUMERS"):
            found[say(entry)] = entry
        else:
            table += entry.values() if isinstance(entry, dict) else entry
    return [found[words] for words in sorted(found)]


def say(variant: Any) -> str:
    """A variant in words."""
    switches = {
        "softmax under the product": variant.OVERLAP,
        "in turn": variant.OVERLAP and variant.PING_PONG,
        "queries in registers": variant.Q_IN_REGISTERS,
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


def protocol_mutants(lab: Any, orders: int = ORDERS) -> Iterator[dict[str, Any]]:
    """What the simulation says to each mistake; the kernel as it is comes first and passes."""
    source = KERNEL.read_text("utf-8")
    mistakes = {CONTROL: Mistake(CONTROL, [], "")} | {m.name: m for m in MISTAKES}
    for case in lab.each(mutant=list(mistakes)):
        _, changes, diagnosis = mistakes[case["mutant"]]
        wrong = source
        for old, new in changes:
            wrong = mutate(wrong, Mutant(case["mutant"], old, new, diagnosis))
        found = judge(wrong, orders)
        if bool(found["message"]) != bool(changes):
            raise MutantError(f"{case['mutant']}: {found['message'] or 'nothing was found'}")
        yield {**case, "diagnosis": diagnosis, **found}
