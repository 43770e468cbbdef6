"""Random orders of the events of a program: does any deadlock, or lose what somebody still reads?

`Simulation` plays the traces of the roles against TMA and the tensor cores, one event at a time in
an order drawn at random, and raises Fault at the first thing that must not be. Traces with numbers
compute: copies, products and stores take place when they end.

Not modeled: the warps of one role among themselves, which Triton keeps together.
"""

import itertools
import random
from typing import Any

from .role_traces import (
    Arrive,
    Compute,
    Copy,
    Expect,
    Fault,
    Fence,
    Finish,
    Load,
    Product,
    Region,
    Store,
    StoreWait,
    Trace,
    Wait,
    Write,
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
    """The roles of a program against each other, with TMA and the tensor cores.

    `ready` lists what can happen next and `happen` lets one of it happen; raises Fault. An event
    is ("step", role), ("copied", copy), ("multiplied", role) or ("stored", role): the products of
    a role end in order, and so do its stores.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.barriers = {name: Barrier(n) for name, n in trace.barriers.items()}
        self.at = dict.fromkeys(trace.roles, 0)
        self.seen: dict[tuple[str, str], int] = {}  # phase that a role waited for last
        self.holds: dict[str, tuple[int, ...]] = {}  # buffer → block
        self.copies: list[Copy] = []  # on their way
        self.products: dict[str, list[Product]] = {role: [] for role in trace.roles}
        self.stores: dict[str, list[Store]] = {role: [] for role in trace.roles}
        self.loads: dict[int, Region] = {}  # that may not have been read yet
        self.lost: set[int] = set()  # loads of what was then overwritten
        self.unfenced: list[tuple[str, Region]] = []  # what roles wrote
        self.turn: str | None = None  # whose turn it is to issue
        # Roles that take turns at a barrier: each waits for every second phase, whose parity is
        # always the same.
        asked: dict[tuple[str, str], list[int]] = {}
        for role, ops in trace.roles.items():
            for op in ops:
                if isinstance(op, Wait):
                    asked.setdefault((role, op.barrier), []).append(op.parity)
        self.skipping = {x for x, found in asked.items() if len(found) > 1 == len(set(found))}
        for op in trace.setup:
            self._apply("", op)
        for role in trace.roles:
            self._compute(role)

    def ready(self) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = [("copied", copy) for copy in self.copies]
        for role, ops in self.trace.roles.items():
            if self.at[role] < len(ops) and self._passes(role, ops[self.at[role]]):
                found.append(("step", role))
            if self.products[role]:
                found.append(("multiplied", role))
            if self.stores[role]:
                found.append(("stored", role))
        return found

    def happen(self, event: tuple[Any, ...]) -> None:
        op: Any = None
        match event:
            case ("step", role):
                op = self.trace.roles[role][self.at[role]]
                self.at[role] += 1
                self._apply(role, op)
                self._compute(role)
                return
            case ("copied", op):
                self.copies.remove(op)
                self.holds |= dict.fromkeys((region.buffer for region in op.regions), op.block)
                for _ in range(op.arrivals):
                    self.barriers[op.barrier].change(1, 0)
                self.barriers[op.barrier].change(0, -op.bytes)
            case ("multiplied", role):
                op = self.products[role].pop(0)
            case ("stored", role):
                op = self.stores[role].pop(0)
        if op.effect:
            op.effect()

    def run(self, order: random.Random) -> int:
        """One random order of events to the end; how many events. Raises Fault."""
        count = 0
        # Each role, and what is done for it, has a pace of its own: rare orders are those in which
        # one is slow.
        kinds = [*itertools.product(("step", "multiplied", "stored"), self.at), ("copied", "")]
        pace = {kind: order.choice((1, 1, 8, 64)) for kind in kinds}
        while events := self.ready():
            weights = [pace["copied", ""] if e[0] == "copied" else pace[e[:2]] for e in events]
            self.happen(order.choices(events, weights)[0])
            count += 1
        if waiting := self.stuck():
            stuck = [
                f"{role} waits for {getattr(op, 'barrier', op)}" for role, op in waiting.items()
            ]
            raise Fault(f"nobody can go on: {', '.join(stuck)}")
        return count

    def stuck(self) -> dict[str, Any]:
        """The roles that are not at their end, and what each waits for."""
        ops = self.trace.roles
        return {role: ops[role][at] for role, at in self.at.items() if at < len(ops[role])}

    def _passes(self, role: str, op: Any) -> bool:
        match op:
            case Wait(barrier, parity):
                if (role, barrier) in self.skipping:
                    return self.barriers[barrier].over & 1 != parity
                # Parity is all that a waiter knows; it means the last phase it saw or the next.
                last = self.seen.get((role, barrier), -1)
                meant = last if last & 1 == parity else last + 1
                over = self.barriers[barrier].over
                if over > meant + 1:
                    missed = f"{role} missed a phase of {barrier}"
                    raise Fault(f"{missed}: two phases later the parity is the same again")
                return over == meant + 1
            case Finish(left):
                return len(self.products[role]) <= left
            case StoreWait(left):
                return len(self.stores[role]) <= left
        return True

    def _compute(self, role: str) -> None:
        """Let a role compute what comes next; at its end its shared memory goes."""
        ops = self.trace.roles[role]
        while self.at[role] < len(ops) and isinstance(op := ops[self.at[role]], Compute):
            op.effect()
            self.at[role] += 1
        if self.at[role] == len(ops) and (self.products[role] or self.stores[role]):
            left = "its rows are being stored" if self.stores[role] else "its products run"
            raise Fault(f"{role} ends while {left}")

    def _apply(self, role: str, op: Any) -> None:
        match op:
            case Wait(barrier, _):
                self.seen[role, barrier] = self.barriers[barrier].over - 1
                if barrier.startswith("order_barriers"):
                    if self.turn:
                        raise Fault(f"{role} takes its turn while {self.turn} has it")
                    self.turn = role
            case Arrive(barrier, count):
                if role and barrier.startswith("order_barriers"):
                    if self.turn != role:
                        raise Fault(f"{role} passes on a turn that is not its own")
                    self.turn = None
                for _ in range(count):
                    self.barriers[barrier].change(1, 0)
            case Expect(barrier, n):
                self.barriers[barrier].change(1, n)
            case Copy():
                for region in op.regions:
                    self._overwrite(role, region)
                    if self._arriving(region):
                        raise Fault(f"{region.buffer} is filled by two copies at the same time")
                self.copies.append(op)
            case Load(region, number):
                self._read(role, region)
                self.loads[number] = region
            case Product():
                self._have_read(role, op.loads)
                for region in op.regions:
                    self._read(role, region)
                    if self._unseen(region):
                        unseen = f"{role} multiplies by {region.buffer}"
                        raise Fault(f"{unseen} before the tensor cores can see it")
                if self.turn != role and self._in_turns(op):
                    raise Fault(f"{role} issues its products when it is not its turn")
                self.products[role].append(op)
            case Write(region, loads, effect):
                self._have_read(role, loads)
                self._overwrite(role, region)
                self.holds[region.buffer] = ()
                self.unfenced.append((role, region))
                if effect:
                    effect()
            case Fence():
                self.unfenced = [(writer, x) for writer, x in self.unfenced if writer != role]
            case Store(region):
                if self._unseen(region):
                    raise Fault(f"{role} stores {region.buffer} before TMA can see it")
                self.stores[role].append(op)

    def _arriving(self, region: Region) -> bool:
        return any(region.overlaps(x) for copy in self.copies for x in copy.regions)

    def _unseen(self, region: Region) -> bool:
        return any(region.overlaps(x) for _, x in self.unfenced)

    def _in_turns(self, op: Product) -> bool:
        """Whether it is a product with keys where the consumers take turns."""
        turns = any(b.startswith("order_barriers") for _, b in self.seen)
        return turns and any(x.buffer.startswith("k[") for x in op.regions)

    def _overwrite(self, role: str, region: Region) -> None:
        for other, products in self.products.items():
            if any(region.overlaps(x) for product in products for x in product.regions):
                raise Fault(f"{region.buffer} is overwritten while {other} multiplies by it")
        if any(region.overlaps(x.region) for stores in self.stores.values() for x in stores):
            raise Fault(f"{role} overwrites {region.buffer} while it is being stored")
        self.lost.update(n for n, loaded in self.loads.items() if region.overlaps(loaded))

    def _read(self, role: str, region: Region) -> None:
        if self._arriving(region) or region.buffer not in self.holds:
            raise Fault(f"{role} reads {region.buffer} before its copy has arrived")

    def _have_read(self, role: str, loads: tuple[int, ...]) -> None:
        """Raise if one of these loads, known only now to have read, came too late."""
        for number in loads:
            region = self.loads.pop(number, None)
            if region and number in self.lost:
                late = f"before {role} has read it into registers"
                raise Fault(f"{region.buffer} is overwritten {late}")
