"""Does any order of its events break a program? All orders, and none is played.

simulation.py draws orders at random, and the one that matters may be rare. Here it is worked out
what comes before what in every order: what a role asks for, after what it asked for before; what
follows a wait, after all that ended the phase; what follows a wait for products or stores, after
their end. That is all the order there is (Lamport 1978, "Time, clocks, and the ordering of
events"). A load into registers has read for certain only when a product or a write uses them. Then

- the contributions to a phase must come before those to the next, and a wait must come after the
  phase before its own and before the end of the phase after it: a parity tells no more;
- of two uses of the same memory, one of which writes, one must end before the other begins;
- tensor cores and TMA see what threads wrote before a fence.

If that holds, each wait is for the same phase in all orders and each read finds the same write. So
all orders give the same numbers, and none hangs if one does not.
"""

from typing import Any, NamedTuple

from .role_traces import (
    Arrive,
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


class Use(NamedTuple):
    """Memory that is read or written between two events."""

    role: str
    what: str
    region: Region
    writes: bool
    by_threads: bool
    begins: int
    ends: int


class Phases:
    """An mbarrier: who has contributed to each of its phases."""

    def __init__(self, arrivals: int) -> None:
        self.arrivals = self.missing = arrivals
        self.bytes = 0
        self.given: list[list[int]] = [[]]  # events of each phase, the last one not over
        self.waits: list[tuple[int, int]] = []  # (event, phase)

    @property
    def over(self) -> int:
        return len(self.given) - 1

    def change(self, event: int, arrivals: int, bytes: int) -> None:
        self.given[-1].append(event)
        self.missing -= arrivals
        self.bytes += bytes
        if self.missing == 0 and self.bytes == 0:
            self.missing = self.arrivals
            self.given.append([])


class Interleavings:
    """What comes before what in one program. `faults` raises Fault, or returns what it compared."""

    def __init__(self, trace: Trace, patience: int = 1) -> None:
        """`patience` requests are a role's turn here; no verdict depends on how many."""
        self.trace, self.patience = trace, patience
        self.before: list[int] = []  # of each event: those that come before it, as bits
        self.barriers = {name: Phases(n) for name, n in trace.barriers.items()}
        self.last: dict[str, int | None] = {"": None}  # event of each role
        self.uses: list[Use] = []
        self.loads: dict[tuple[str, int], tuple[Region, int]] = {}  # that may not have read yet
        self.fences: dict[str, list[int]] = {role: [] for role in ("", *trace.roles)}
        self.products: dict[str, list[int]] = {role: [] for role in trace.roles}  # their ends
        self.stores: dict[str, list[int]] = {role: [] for role in trace.roles}
        self.doubts: list[str] = []  # waits that may be for another phase
        for op in trace.setup:
            self._apply("", op)
        self.last |= dict.fromkeys(trace.roles, self.last[""])
        self.stuck = self._run()

    def _event(self, *after: int | None) -> int:
        """A new event, after others and all that comes before those."""
        self.before.append(0)
        for event in after:
            if event is not None:
                self.before[-1] |= self.before[event] | 1 << event
        return len(self.before) - 1

    def _step(self, role: str, *after: int) -> int:
        """The same, as the next of a role."""
        event = self.last[role] = self._event(self.last[role], *after)
        return event

    def _run(self) -> list[str]:
        """Every role to its end; or who waits for what never comes."""
        left = {role: list(reversed(ops)) for role, ops in self.trace.roles.items()}
        while any(left.values()):
            moved = False
            for role, ops in left.items():
                for _ in range(self.patience):
                    if not ops or not self._passes(ops[-1]):
                        break
                    self._apply(role, ops.pop())
                    moved = True
            if not moved:
                return [f"{role} waits for {ops[-1].barrier}" for role, ops in left.items() if ops]
        return []

    def _passes(self, op: Any) -> bool:
        return not isinstance(op, Wait) or self.barriers[op.barrier].over & 1 != op.parity

    def _apply(self, role: str, op: Any) -> None:
        match op:
            case Wait(barrier, _):
                phases = self.barriers[barrier]
                meant = phases.over - 1
                self._ask(role, barrier, meant)
                event = self._step(role, *(phases.given[meant] if meant >= 0 else ()))
                phases.waits.append((event, meant))
            case Arrive(barrier, count):
                event = self._step(role)
                for _ in range(count):
                    self.barriers[barrier].change(event, 1, 0)
            case Expect(barrier, n):
                self.barriers[barrier].change(self._step(role), 1, n)
            case Copy(regions, barrier, n, arrivals):
                begins = self._step(role)
                ends = self._event(begins)
                what = "a copy" if arrivals else "TMA"
                for region in regions:
                    use = Use(role, what, region, True, bool(arrivals), begins, ends)
                    self.uses.append(use)
                for _ in range(arrivals):
                    self.barriers[barrier].change(ends, 1, 0)
                if n:
                    self.barriers[barrier].change(ends, 0, -n)
            case Load(region, number):
                self.loads[role, number] = region, self._step(role)
            case Write(region, loads):
                now = self._step(role)
                self._have_read(role, loads, now)
                self.uses.append(Use(role, "threads", region, True, True, now, now))
            case Fence():
                self.fences[role].append(self._step(role))
            case Product(regions, loads):
                begins = self._step(role)
                self._have_read(role, loads, begins)
                ends = self._event(begins, *self.products[role][-1:])  # in order
                self.products[role].append(ends)
                for region in regions:
                    self.uses.append(Use(role, "a product", region, False, False, begins, ends))
            case Store(region):
                begins = self._step(role)
                self.stores[role].append(self._event(begins))
                use = Use(role, "TMA", region, False, False, begins, self.stores[role][-1])
                self.uses.append(use)
            case Finish(left) | StoreWait(left):
                own = (self.products if isinstance(op, Finish) else self.stores)[role]
                self._step(role, *own[: len(own) - left])

    def _have_read(self, role: str, loads: tuple[int, ...], now: int) -> None:
        """An event that needs what loads bring into registers."""
        for number in loads:
            if found := self.loads.pop((role, number), None):
                region, begins = found
                self.uses.append(Use(role, "threads", region, False, True, begins, now))

    def _comes_before(self, event: int, other: int) -> bool:
        return bool(self.before[other] >> event & 1)

    def _ask(self, role: str, barrier: str, meant: int) -> None:
        """Is the phase before the one meant over in every order when a role asks?"""
        for event in self.barriers[barrier].given[meant - 1] if meant > 0 else ():
            asked = self.last[role]
            if asked is None or not (asked == event or self._comes_before(event, asked)):
                self.doubts.append(f"{role} may ask for phase {meant} of {barrier} too early")

    def _phases(self) -> None:
        """Raise where a phase, or the one that a wait is for, depends on the order."""
        for doubt in self.doubts:
            raise Fault(doubt)
        for name, phases in self.barriers.items():
            for number, (given, later) in enumerate(zip(phases.given, phases.given[1:])):  # noqa: B905
                for event in later:
                    if not all(a == event or self._comes_before(a, event) for a in given):
                        raise Fault(f"phases {number} and {number + 1} of {name} may mix")
            for event, meant in phases.waits:
                after = phases.given[meant + 1] if meant + 1 < phases.over else ()
                if after and not any(self._comes_before(event, a) for a in after):
                    raise Fault(f"a wait for phase {meant} of {name} may miss it")

    def _compare(self, one: Use, other: Use) -> None:
        """Raise unless, in every order, the first use ends before the second begins."""
        both = f"{one.what} of {one.role} and {other.what} of {other.role}"
        if one.ends != other.begins and not self._comes_before(one.ends, other.begins):
            raise Fault(f"{both} may use {one.region.buffer} at the same time")
        if one.writes and one.by_threads and not other.by_threads:
            after = [fence for fence in self.fences[one.role] if fence > one.ends]
            if not any(self._comes_before(fence, other.begins) for fence in after):
                raise Fault(f"{both} use {one.region.buffer} without a fence between them")

    def faults(self) -> int:
        """Compare all that must not depend on the order: Fault, or how many pairs of uses."""
        pairs = 0
        for i, one in enumerate(self.uses):
            for other in self.uses[:i]:
                if (one.writes or other.writes) and one.region.overlaps(other.region):
                    pairs += 1
                    first, second = sorted((one, other), key=lambda use: use.begins)
                    self._compare(first, second)
        self._phases()
        if self.stuck:
            raise Fault(f"nobody can go on: {', '.join(self.stuck)}")
        end = self._event(*self.last.values())
        for use in self.uses:  # shared memory goes with the program
            if not self._comes_before(use.ends, end):
                raise Fault(f"the program may end while {use.what} of {use.role} is not done")
        return pairs
