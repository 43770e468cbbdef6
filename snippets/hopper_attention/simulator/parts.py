"""What each part of a program of kernel.py asks for, found by running the kernel's lines as Python.

This back end of gluon.py computes nothing; it writes down waits, arrivals, copies, products and
stores, in order, with their buffers and barriers. protocol.py plays these lists against each other,
diagram.py draws them. So the simulation and the pictures cannot differ from the kernel: there is no
second description of it.
"""

import functools
import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from .gluon import KERNEL, Gluon

TOO_MANY = 50_000  # events of one part: its loop does not end


class Fault(AssertionError):
    """What the kernel would do wrong in some order of events; the text says who and where."""


# What a part of the kernel asks for. Buffers and barriers go by names such as k[0], k.full[0].
class Wait(NamedTuple):
    barrier: str
    parity: int  # of the phase that must be over


class Arrive(NamedTuple):
    barrier: str


class Expect(NamedTuple):
    barrier: str
    bytes: int


class Copy(NamedTuple):
    block: tuple  # coordinates of what TMA fetches
    barrier: str
    buffer: str
    bytes: int


class Load(NamedTuple):
    """A buffer read into registers: at the latest when a product uses them."""

    number: int  # of the result, which products name
    buffer: str


class Product(NamedTuple):
    """Started on the tensor cores, which read buffers until it ends."""

    number: int
    a: str | int  # a buffer, or the number of the result that the registers hold
    b: str | int


class Finish(NamedTuple):
    """Wait until at most so many own products still run; they end in order."""

    left: int


class Softmax(NamedTuple):
    number: int  # of the scores
    start: int  # the first key
    masked: bool


class Write(NamedTuple):
    buffer: str


class Fence(NamedTuple):
    """What was written so far becomes visible to TMA."""


class Store(NamedTuple):
    block: tuple
    buffer: str


class StoreWait(NamedTuple):
    """Wait until at most so many own stores still read their buffers."""

    left: int


class Work(NamedTuple):
    """A problem and how it is divided; as the launcher of kernel.py does, if not told otherwise."""

    M: int  # queries
    N: int  # keys
    causal: bool = False
    causal_offset: int = 0  # query m sees keys up to m + causal_offset
    heads: int = 1  # of queries, of all batches
    H: int = 1  # of a batch
    G: int = 1  # of them that share a head of keys
    programs: int = 1
    step: int = 1  # tiles that a program takes in a row
    by_length: bool = False  # whether tiles of all heads are dealt by their length


class Trace(NamedTuple):
    """One program: its barriers, and what each of its parts does in its own order."""

    barriers: dict[str, int]  # arrivals that end a phase
    setup: list[Any]
    parts: dict[str, list[Any]]  # "consumer 0", …, "producer"
    work: Work
    variant: Any
    rows: int  # of a consumer


class Value:
    """Numbers in registers, of no interest here; `number` if they come from a load or product."""

    def __init__(self, number: int | None = None, shape: Sequence[int] = (0, 0)) -> None:
        self.number, self.shape, self.dtype = number, shape, None

    def to(self, dtype: object) -> "Value":
        return self

    def _any(self, *others: object) -> "Value":
        return Value(shape=self.shape)

    __getitem__ = __add__ = __radd__ = __sub__ = __mul__ = __truediv__ = __rtruediv__ = _any
    __le__ = __gt__ = __eq__ = _any  # type: ignore[assignment]


class Buffer:
    """A part of shared memory, or a view of it."""

    def __init__(self, tracer: "Tracer", name: str, shape: Sequence[int]) -> None:
        self.tracer, self.name, self.shape, self.dtype = tracer, name, shape, None

    def index(self, i: int) -> "Buffer":
        if not 0 <= i < self.shape[0]:
            raise Fault(f"{self.name} has no buffer {i}")
        return Buffer(self.tracer, f"{self.name}[{i}]", self.shape[1:])

    def reshape(self, shape: Sequence[int]) -> "Buffer":
        if math.prod(shape) != math.prod(self.shape):
            raise Fault(f"{self.name} of {self.shape} read as {shape}")
        return Buffer(self.tracer, self.name, shape)

    def permute(self, order: Sequence[int]) -> "Buffer":
        return Buffer(self.tracer, self.name, [self.shape[i] for i in order])

    def load(self, layout: object) -> Value:
        return self.tracer.result(Load, self.name, shape=self.shape)

    def store(self, value: Value) -> None:
        self.tracer.note(Write(self.name))


class Barriers:
    """mbarriers of one kind; their channel names them, those of no channel order the consumers."""

    def __init__(self) -> None:
        self.name = "order_barriers"
        self.counts: dict[int, int] = {}

    def index(self, i: int) -> tuple["Barriers", int]:
        return self, i


class Tracer(Gluon):
    """The back end that writes down what is asked of it."""

    def __init__(self, source: str, work: Work, program: int) -> None:
        self.ops: list[Any] = []
        self.setup = self.ops
        self.parts: dict[str, list[Any]] = {}
        self.barriers: list[Barriers] = []
        self.numbers = itertools.count()
        super().__init__(source, program, work.programs)
        channel = self.names["Channel"]
        softmax = inspect.signature(self.names["_online_softmax"])

        def named(buffers: Buffer, full: Barriers, empty: Barriers) -> Any:
            full.name, empty.name = f"{buffers.name}.full", f"{buffers.name}.empty"
            return channel(buffers, full, empty)

        def noted(*arguments: Any, **options: Any) -> tuple[Value, ...]:
            given = softmax.bind(*arguments, **options).arguments
            self.note(Softmax(given["s"].number, given["start"], bool(given["MASKED"])))
            return given["s"], Value(), Value(), Value()

        # In place: the kernel's functions look here.
        self.names.update(Channel=named, _online_softmax=noted)

    def note(self, op: Any) -> None:
        if len(self.ops) > TOO_MANY:
            raise Fault(f"a part of program {self.program} does not end")
        self.ops.append(op)

    def result(self, kind: Any, *operands: Any, shape: Sequence[int]) -> Value:
        number = next(self.numbers)
        self.note(kind(number, *operands))
        return Value(number, shape)

    def of_tensors(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: Value()

    def allocate(self, dtype: str, shape: Sequence[int], layout: object) -> Buffer | Barriers:
        if dtype != self.int64:
            return Buffer(self, dtype, shape)  # a descriptor's dtype is its name here
        self.barriers.append(Barriers())
        return self.barriers[-1]

    def partitions(self, parts: Sequence[Any], warps: object, registers: object) -> None:
        seen: Counter[str] = Counter()
        for function, arguments in parts:
            kind = function.__name__.lstrip("_")
            name = "producer" if kind == "producer" else f"{kind} {seen[kind]}"
            seen[kind] += 1
            self.ops = self.parts[name] = []
            function(*arguments)

    def init(self, barrier: Any, count: int) -> None:
        barriers, i = barrier
        barriers.counts[i] = count

    def wait(self, barrier: Any, phase: int) -> None:
        self.note(Wait(_name(barrier), phase))

    def expect(self, barrier: Any, size: int) -> None:
        self.note(Expect(_name(barrier), size) if size else Arrive(_name(barrier)))

    def arrive(self, barrier: Any, count: int) -> None:
        for _ in range(count):
            self.note(Arrive(_name(barrier)))

    def fetch(self, desc: Any, at: Sequence[int], barrier: Any, buffer: Buffer) -> None:
        self.note(Copy(tuple(at), _name(barrier), buffer.name, desc.block_type.nbytes))

    def put(self, desc: Any, at: Sequence[int], buffer: Buffer) -> None:
        self.note(Store(tuple(at), buffer.name))

    def store_wait(self, left: int) -> None:
        self.note(StoreWait(left))

    def fence(self) -> None:
        self.note(Fence())

    def product(
        self, a: Any, b: Any, acc: Value, use_acc: bool = True, is_async: bool = False
    ) -> Value:
        operands = (x.name if isinstance(x, Buffer) else x.number for x in (a, b))
        out = self.result(Product, *operands, shape=(a.shape[0], b.shape[1]))
        return out if is_async else self.finish(0, [out])

    def finish(self, left: int, deps: Sequence[Value]) -> Any:
        self.note(Finish(left))
        return deps[0] if len(deps) == 1 else tuple(deps)


def _name(barrier: tuple[Barriers, int]) -> str:
    barriers, i = barrier
    if i not in barriers.counts:
        raise Fault(f"{barriers.name} has no barrier {i}")
    return f"{barriers.name}[{i}]"


def defined(name: str) -> Any:
    """A class or a constant of kernel.py, such as Variant and VARIANTS, without torch."""
    return Tracer(KERNEL.read_text("utf-8"), Work(1, 1), 0).names[name]


@functools.lru_cache(64)
def trace(variant: Any, work: Work, program: int = 0, source: str = "", D: int = 128) -> Trace:
    """What each part of a program asks for, from the kernel's text or another instead."""
    tracer = Tracer(source or KERNEL.read_text("utf-8"), work, program)
    rows = tracer.names["CONSUMER_M"]
    tile = rows * variant.CONSUMERS
    tiles = -(-work.M // tile)

    def desc(name: str, *block: int) -> SimpleNamespace:
        size = SimpleNamespace(nbytes=2 * math.prod(block))
        return SimpleNamespace(dtype=name, block_shape=list(block), block_type=size, layout=None)

    given = variant._asdict() | {
        "q_desc": desc("q", 1, 1, rows, D),
        "k_desc": desc("k", 1, 1, variant.BLOCK_N, D),
        "v_desc": desc("v", 1, 1, variant.BLOCK_N, D),
        "out_desc": desc("out", 1, rows, D),
        "H": work.H,
        "G": work.G,
        "M": work.M,
        "N": work.N,
        "tiles": tiles,
        "total": work.heads * tiles,
        "step": work.step,
        "by_length": work.by_length,
        "causal_offset": work.causal_offset,
        "CAUSAL": work.causal,
        "MASKED": work.causal or work.N % variant.BLOCK_N != 0,
    }
    # No number of registers and no scale is looked at.
    unseen = ("lse_ptr", "scale_log2", "CONSUMER_REGS", "PRODUCER_REGS", "num_warps")
    given |= dict.fromkeys(unseen)
    kernel = tracer.names["_hopper_attention_kernel"]
    kernel(**{name: given[name] for name in inspect.signature(kernel).parameters})
    counts = {f"{b.name}[{i}]": n for b in tracer.barriers for i, n in b.counts.items()}
    return Trace(counts, tracer.setup, tracer.parts, work, variant, rows)
