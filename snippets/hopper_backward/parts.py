"""What each part of a program of hopper_backward asks for: waits, copies, products, in its order.

The kernel's functions run as Python and nothing is computed; what they ask of barriers, TMA and the
tensor cores is written down. That list does not depend on time: the loops of this kernel follow
from sizes alone. orders.py says in which orders the parts can do it.
"""

import contextlib
import itertools
import math
from types import SimpleNamespace
from typing import NamedTuple

from .on_cpu import LANES, Kernel, played
from .op import stand_in

ARITHMETIC = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv")
OPERATORS = (*ARITHMETIC, "lt", "le", "gt", "ge", "and", "getitem")


class Fault(AssertionError):
    """What some order of events would do wrong; the text says who and where."""


class Region(NamedTuple):
    """Columns of a buffer in shared memory."""

    buffer: str  # such as q.tiles[0]
    first: int
    width: int

    def overlaps(self, other):
        """Whether both have a column."""
        same = self.buffer == other.buffer
        return (
            same
            and self.first < other.first + other.width
            and other.first < self.first + self.width
        )


class Wait(NamedTuple):
    barrier: str
    parity: int  # of the phase that must be over


class Arrive(NamedTuple):
    barrier: str
    count: int


class Expect(NamedTuple):
    barrier: str
    bytes: int


class Copy(NamedTuple):
    """TMA fills a region; its bytes then count at a barrier."""

    region: Region
    barrier: str
    bytes: int


class CopyNumbers(NamedTuple):
    """Threads start copies into regions, and arrive when these have come."""

    regions: tuple
    barrier: str
    count: int


class Load(NamedTuple):
    """Threads read a region into registers: at the latest when these are needed."""

    region: Region
    number: int


class Write(NamedTuple):
    """Threads write a region; the tensor cores and TMA see it after a fence."""

    region: Region
    loads: tuple = ()  # numbers of the loads that it needs


class Fence(NamedTuple):
    pass


class Product(NamedTuple):
    """Started on the tensor cores, which read regions until it ends."""

    regions: tuple
    loads: tuple = ()  # numbers of the loads that its registers need


class Finish(NamedTuple):
    left: int  # own products that may still run; they end in order


class Store(NamedTuple):
    """TMA reads a region, and stores it or adds it to memory."""

    region: Region


class StoreWait(NamedTuple):
    left: int  # own stores whose regions may still be read


class Program(NamedTuple):
    """One program: its barriers, and what each of its parts asks for, in order."""

    arrivals: dict  # barrier → arrivals that end a phase
    parts: dict  # "consumer 0", "consumer 1", "producer", "writer" → operations


class Value:
    """Numbers in registers; of a product, there only when it has ended."""

    def __init__(self, lister, shape=(0, 0), product=None, loads=()):
        self.lister, self.shape, self.product, self.dtype = lister, list(shape), product, None
        self.loads = tuple(loads)  # numbers of those that it comes from

    def used(self, *others, **_):
        """What is computed from it, and from others."""
        return self.lister.computed([self, *others])

    def reshape(self, shape):
        return self.lister.computed([self], shape)

    to = used


for _name in OPERATORS:
    setattr(Value, f"__{_name}__", Value.used)


class Tile:
    """A buffer in shared memory, or a view of it."""

    def __init__(self, owner, name, shape, columns=None):
        self.owner, self.name, self.shape = owner, name, list(shape)
        self.dtype, self.columns = None, columns or (0, shape[-1])

    @property
    def region(self):
        return Region(f"{self.owner.name}[{self.name}]", *self.columns)

    def _view(self, shape, columns=None):
        return Tile(self.owner, self.name, shape, columns or self.columns)

    def reshape(self, shape):
        return self._view(shape)

    def permute(self, order):
        return self._view([self.shape[i] for i in order])

    def slice(self, start, length, dim):
        assert dim == len(self.shape) - 1
        return self._view([*self.shape[:-1], length], (start, length))

    def load(self, layout):
        number = next(self.owner.lister.loads)
        self.owner.lister.note(Load(self.region, number))
        return Value(self.owner.lister, self.shape, loads=[number])

    def store(self, value):
        self.owner.lister.needs(value)
        self.owner.lister.note(Write(self.region, value.loads))


class Buffers:
    """Memory of one kind; the channel that it belongs to names it."""

    def __init__(self, lister, dtype, shape):
        self.lister, self.dtype, self.shape, self.name = lister, dtype, list(shape), ""

    def index(self, i):
        if not 0 <= i < self.shape[0]:
            raise Fault(f"{self.name} has no buffer {i}")
        return Tile(self, int(i), self.shape[1:])


class Barriers:
    """mbarriers of one kind."""

    def __init__(self, lister):
        self.lister, self.counts, self.name = lister, {}, ""

    def index(self, i):
        return self, int(i)

    def call(self, i):
        """The name of one."""
        if i not in self.counts:
            raise Fault(f"{self.name} has no barrier {i}")
        return f"{self.name}[{i}]"


class Lister(stand_in.Gluon):
    """The back end that writes down what is asked of it."""

    def __init__(self, source, program, programs):
        self.arrivals, self.parts, self.loads = {}, {}, itertools.count()
        super().__init__(source, program, programs)

    def _names(self):
        names = super()._names()
        for layout in ("BlockedLayout", "NVMMASharedLayout", "SwizzledSharedLayout"):
            setattr(names["gl"], layout, lambda *_, **__: None)
        names["gl"].convert_layout = lambda value, layout: value.used()
        names["gl"].load = lambda pointer, mask, other: pointer.offset.used()
        names["gl"].store = lambda pointer, value, mask: self.needs(value)
        copies = SimpleNamespace(
            async_load=lambda tile, pointer: self.numbers.append(tile.region),
            mbarrier_arrive=self._with_numbers,
        )
        return names | {"_reduce_add": self.put, "async_copy": copies}

    def note(self, op):
        self.ops.append(op)

    def needs(self, value):
        """Raise where the product that a value comes from may still run."""
        if isinstance(value, Value) and value.product is not None and value.product >= self.ended:
            raise Fault(f"{self.part} reads the result of a product that may still run")

    def computed(self, given, shape=()):
        """What threads compute from values; of this shape, or of the largest among them."""
        for value in given:
            self.needs(value)
        values = [x for x in given if isinstance(x, Value)]
        shapes = [x.shape for x in values]
        loads = {number for x in values for number in x.loads}
        return Value(self, max([list(shape), *shapes], key=len), loads=loads)

    def of_tensors(self, name):
        made = name in ("zeros", "full")
        return lambda *given, **_: self.computed(given, given[0] if made else ())

    def allocate(self, dtype, shape, layout):
        return Barriers(self) if dtype is self.int64 else Buffers(self, dtype, shape)

    def partitions(self, parts, warps, registers):
        channels = parts[0][1][3]  # of the consumer's arguments
        for channel, kinds in channels._asdict().items():
            for kind, memory in kinds._asdict().items():
                memory.name = channel if kind == "buffers" else f"{channel}.{kind}"
                for i, count in getattr(memory, "counts", {}).items():
                    self.arrivals[f"{memory.name}[{i}]"] = count
        for function, arguments in parts:
            kind = function.__name__.lstrip("_")
            self.part = f"{kind} {arguments[0]}" if kind == "consumer" else kind
            self.ops = self.parts[self.part] = []
            self.numbers, self.started, self.ended = [], 0, 0  # products, which end in order
            function(*arguments)

    def init(self, barrier, count):
        barriers, i = barrier
        barriers.counts[i] = count

    def wait(self, barrier, phase):
        self.note(Wait(Barriers.call(*barrier), int(phase)))

    def expect(self, barrier, size):
        self.note(Expect(Barriers.call(*barrier), size))

    def arrive(self, barrier, count):
        self.note(Arrive(Barriers.call(*barrier), count))

    def fetch(self, desc, at, barrier, buffer):
        self.note(Copy(buffer.region, Barriers.call(*barrier), desc.block_type.nbytes))

    def _with_numbers(self, barrier, increment_count):
        assert not increment_count
        self.note(CopyNumbers(tuple(self.numbers), Barriers.call(*barrier), LANES))
        self.numbers = []

    def put(self, desc, at, buffer):
        self.note(Store(buffer.region))

    def store_wait(self, left):
        self.note(StoreWait(left))

    def fence(self):
        self.note(Fence())

    def product(self, a, b, acc, use_acc=True, is_async=False):
        assert is_async
        self.needs(a)  # the accumulator may be a product's: they end in order
        loads = a.loads if isinstance(a, Value) else ()
        self.note(Product(tuple(x.region for x in (a, b) if isinstance(x, Tile)), loads))
        self.started += 1
        return Value(self, (a.shape[0], b.shape[1]), self.started - 1)

    def finish(self, left, deps):
        self.note(Finish(left))
        self.ended = max(self.ended, self.started - left)
        return deps[0] if len(deps) == 1 else tuple(deps)


class _Listed(Kernel):
    """kernel.py's kernel: a launch lists what its programs ask for."""

    def __init__(self, source, found):
        super().__init__(source, None)
        self.found = found

    def __getitem__(self, grid):
        def launch(**options):
            named = {name: self._argument(x) for name, x in options.items()}
            for number in range(math.prod(grid)):
                lister = Lister(self.source, number, grid[0])
                lister.names["_hopper_backward_kernel"](**named)
                self.found.append(Program(lister.arrivals, lister.parts))

        return launch


class _Nothing:
    """A kernel whose launch does nothing."""

    def __getitem__(self, grid):
        return lambda *_, **__: None


@contextlib.contextmanager
def listed(launcher):
    """The launcher computes nothing and fills a list: a `Program` for each that it launches."""
    found = []
    names = launcher.__globals__
    others = {name: names[name] for name in ("_prepare_kernel", "_finish_kernel")}
    with played(launcher):
        names["_hopper_backward_kernel"] = _Listed(names["_hopper_backward_kernel"].source, found)
        names.update(dict.fromkeys(others, _Nothing()))
        try:
            yield found
        finally:
            names.update(others)
