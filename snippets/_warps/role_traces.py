"""What the roles of a program ask for, each in its own order: waits, arrivals, copies, products.

A role is a group of warps with work of its own: a producer, a consumer, a writer. What it asks for
does not depend on time: the loops of these kernels follow from sizes alone. Memory goes by names
such as k[0], barriers by names such as k.full[0].
"""

from collections.abc import Callable
from typing import Any, NamedTuple

Effect = Callable[[], Any] | None  # on numbers, if there are any


class Fault(AssertionError):
    """What a kernel would do wrong in some order of events; the text says who and where."""


class Region(NamedTuple):
    """Columns of a buffer in shared memory."""

    buffer: str
    first: int = 0
    width: int = 1

    def overlaps(self, other: "Region") -> bool:
        """Whether both have a column."""
        apart = self.first + self.width <= other.first or other.first + other.width <= self.first
        return self.buffer == other.buffer and not apart


class Wait(NamedTuple):
    barrier: str
    parity: int  # of the phase that must be over


class Arrive(NamedTuple):
    barrier: str
    times: int = 1


class Expect(NamedTuple):
    """An arrival that announces bytes."""

    barrier: str
    bytes: int


class Copy(NamedTuple):
    """Regions are filled: by TMA, whose bytes count at a barrier, or by threads, which arrive."""

    regions: tuple[Region, ...]
    barrier: str
    bytes: int = 0
    arrivals: int = 0
    block: tuple[int, ...] = ()  # coordinates of what TMA fetches
    effect: Effect = None


class Load(NamedTuple):
    """A region is read into registers: at the latest when a product or a write needs them."""

    region: Region
    number: int


class Product(NamedTuple):
    """Started on the tensor cores, which read regions until it ends."""

    regions: tuple[Region, ...]
    loads: tuple[int, ...] = ()  # numbers of the loads that its registers need
    number: int = 0  # of its role
    effect: Effect = None


class Finish(NamedTuple):
    """Wait until at most so many own products still run; they end in order."""

    left: int


class Softmax(NamedTuple):
    number: int  # of the product that computed the scores
    start: int  # the first key


class Write(NamedTuple):
    """Threads write a region; the tensor cores and TMA see it after a fence."""

    region: Region
    loads: tuple[int, ...] = ()  # numbers of the loads that it needs
    effect: Effect = None


class Fence(NamedTuple):
    pass


class Store(NamedTuple):
    """TMA reads a region, and stores it or adds it to memory."""

    region: Region
    effect: Effect = None


class StoreWait(NamedTuple):
    """Wait until at most so many own stores, the last ones, still read their regions."""

    left: int


class Compute(NamedTuple):
    """What threads compute in registers; in traces with numbers only."""

    effect: Callable[[], Any]


class Trace(NamedTuple):
    """One program."""

    barriers: dict[str, int]  # arrivals that end a phase
    setup: list[Any]  # before the roles begin
    roles: dict[str, list[Any]]  # "consumer 0", "consumer 1", "producer" → requests
