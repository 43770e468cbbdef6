"""Python instead of Gluon: a program's functions run, and what they ask for is written down.

Integers and the flow of control are computed at once. What lies in registers has a shape only;
with `numbers`, each computation becomes a request too, made when its role comes to it.
"""

import ast
import functools
import inspect
import itertools
import math
import typing
from collections.abc import Callable, Iterable, Sequence
from types import CodeType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

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
    Softmax,
    Store,
    StoreWait,
    Trace,
    Wait,
    Write,
)

FILE = "kernel.py"  # that the code of the functions says it is from
LANES = 32  # threads of a warp
TOO_MANY = 200_000  # requests of one role: its loop does not end
OPERATORS = ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "and", "getitem")
COMPARISONS = ("lt", "le", "gt", "ge", "eq")


class Scalar(int):
    """An integer of a program, which Gluon gives methods of a tensor."""

    def to(self, dtype: object) -> "Scalar":
        return self


def _scalar(of: Any) -> Any:
    def operator(self: Scalar, other: Any) -> Any:
        found = of(self, other)
        return found if found is NotImplemented else Scalar(found)

    return operator


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "xor", "radd", "rsub", "rmul"):
    setattr(Scalar, f"__{_name}__", _scalar(getattr(int, f"__{_name}__")))


class Value:
    """Numbers in registers, there when they are due; `like` has their shape and dtype at once."""

    def __init__(self, program: "Program", like: Tensor, loads: Iterable[int] = ()) -> None:
        self.program, self.like = program, like
        self.shape, self.dtype = like.shape, like.dtype
        self.loads = tuple(loads)  # numbers of those that it comes from
        self.product = -1  # of its role, that computes it
        self.due: Callable[[], Tensor] | None = None
        self.numbers: Any = None

    def now(self) -> Tensor:
        """The numbers; what is loaded from shared memory is read when it is first needed."""
        if self.due:
            self.numbers, self.due = self.due(), None
        return self.numbers

    def to(self, dtype: torch.dtype) -> "Value":
        return self.program.computed(lambda x: x.to(dtype), self)

    def reshape(self, shape: Sequence[int]) -> "Value":
        return self.program.computed(lambda x: x.reshape(shape), self)

    def permute(self, order: Sequence[int]) -> "Value":
        return self.program.computed(lambda x: x.permute(*order), self)


def _operator(of: Any) -> Any:
    return lambda self, *others: self.program.computed(of, self, *others)


for _name in (*OPERATORS, *COMPARISONS):
    setattr(Value, f"__{_name}__", _operator(getattr(Tensor, f"__{_name}__")))


class Pointer:
    """An element of a tensor in global memory, or several."""

    def __init__(self, memory: Tensor, offset: Any = 0) -> None:
        self.memory, self.offset = memory, offset

    def __add__(self, offset: Any) -> "Pointer":
        return Pointer(self.memory, self.offset + offset)


class Barriers:
    """mbarriers of one kind, named after their channel."""

    def __init__(self) -> None:
        self.name = "order_barriers"
        self.counts: dict[int, int] = {}

    def index(self, i: int) -> tuple["Barriers", int]:
        return self, int(i)


def _called(barrier: tuple[Barriers, int]) -> str:
    barriers, i = barrier
    if i not in barriers.counts:
        raise Fault(f"{barriers.name} has no barrier {i}")
    return f"{barriers.name}[{i}]"


class Buffers:
    """Shared memory of one kind, named after its channel."""

    def __init__(self, program: "Program", memory: Tensor) -> None:
        self.program, self.memory, self.name = program, memory, "out"
        self.shape, self.dtype = memory.shape, memory.dtype

    def index(self, i: int) -> "Tile":
        if not 0 <= i < self.shape[0]:
            raise Fault(f"{self.name} has no buffer {i}")
        return Tile(self.program, self.memory[i], f"{self.name}[{i}]", 0, self.shape[-1])


class Tile:
    """A buffer, or a view of it."""

    def __init__(self, program: "Program", memory: Tensor, *columns: Any) -> None:
        self.program, self.memory, self.region = program, memory, Region(*columns)
        self.shape, self.dtype = memory.shape, memory.dtype

    def reshape(self, shape: Sequence[int]) -> "Tile":
        return Tile(self.program, self.memory.view(*shape), *self.region)

    def permute(self, order: Sequence[int]) -> "Tile":
        return Tile(self.program, self.memory.permute(*order), *self.region)

    def slice(self, start: int, length: int, dim: int) -> "Tile":
        memory = self.memory.narrow(dim, start, length)
        return Tile(self.program, memory, self.region.buffer, start, length)

    def load(self, layout: object) -> Value:
        number = next(self.program.loads)
        self.program.note(Load(self.region, number))
        found = Value(self.program, self.memory, [number])
        found.due = self.memory.clone
        return found

    def store(self, value: Value) -> None:
        self.program.needs(value)
        effect = self.program.effect(lambda: self.memory.copy_(value.now()))
        self.program.note(Write(self.region, value.loads, effect))


def _window(desc: Any, at: Sequence[int]) -> tuple[Tensor, tuple[slice, ...]]:
    """The part of a tensor that a block at these coordinates covers, and where it lies in it."""
    sizes = [
        max(0, min(block, n - i))
        for block, n, i in zip(desc.block_shape, desc.base.shape, at, strict=True)
    ]
    part = desc.base
    for axis, (i, size) in enumerate(zip(at, sizes, strict=True)):
        part = part.narrow(axis, min(i, part.shape[axis]), size)
    return part, tuple(map(slice, sizes))


def _rounded(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function whose result is rounded to float32 at most."""

    def rounded(*given: Any, **options: Any) -> Tensor:
        out = function(*given, **options)
        return out.float() if out.dtype == torch.float64 else out

    return rounded


def _either(of_integers: Callable[..., int], of_tensors: Callable[..., Any]) -> Any:
    """A function of integers, which Python computes, or of values."""

    def chosen(*given: Any) -> Any:
        if any(isinstance(x, Value) for x in given):
            return of_tensors(*given)
        return Scalar(of_integers(*given))

    return chosen


class _Names(SimpleNamespace):
    """Names of Gluon: a layout is nothing here, whichever it is."""

    def __getattr__(self, name: str) -> Any:
        if name.endswith("Layout"):
            return lambda *_, **__: None
        raise AttributeError(f"no stand-in for gl.{name}")


class Program:
    """One program of a kernel: its `trace` is there once the kernel's function has run.

    A name of Gluon that is not here is an error.
    """

    def __init__(self, source: str, number: int, programs: int, numbers: bool = False) -> None:
        self.number, self.numbers = number, numbers
        self.trace = Trace({}, [], {})
        self.role, self.ops = "", self.trace.setup
        self.barriers: list[Barriers] = []
        self.copied: list[tuple[Tile, Pointer]] = []  # by threads; no barrier knows of them yet
        self.loads = itertools.count()
        self.started = self.ended = 0  # products of a role, which end in order
        self.names = self._names(programs)
        exec(gpu_code(source), self.names)  # noqa: S102 - the kernel's own text
        if softmax := self.names.get("_online_softmax"):
            self.names["_online_softmax"] = self._noted(softmax)

    def _names(self, programs: int) -> dict[str, Any]:
        def of(function: Any) -> Any:
            return lambda *given, **options: self.computed(
                functools.partial(function, **options), *given
            )

        gl = _Names(
            int64=torch.int64,
            int32=torch.int32,
            float32=torch.float32,
            bfloat16=torch.bfloat16,
            constexpr=lambda value: value,
            static_range=range,
            cdiv=lambda a, b: Scalar(-(-a // b)),
            convert_layout=lambda value, layout: value,
            program_id=lambda axis: Scalar(self.number),
            num_programs=lambda axis: Scalar(programs),
            allocate_shared_memory=self.allocate,
            warp_specialize=self.specialize,
            thread_barrier=lambda: None,  # a role is one thread here
            arange=lambda a, b, layout: self.made(torch.arange(a, b, dtype=torch.int32)),
            full=lambda shape, x, dtype, layout: self.made(torch.full(shape, x, dtype=dtype)),
            zeros=lambda shape, dtype, layout: self.made(torch.zeros(shape, dtype=dtype)),
            inline_asm_elementwise=self.assembly,
            load=self.load,
            store=self.store,
            exp2=of(_rounded(torch.exp2)),
            log2=of(torch.log2),
            max=of(torch.amax),
            sum=of(torch.sum),
            maximum=_either(max, of(_rounded(torch.maximum))),
            minimum=_either(min, of(_rounded(torch.minimum))),
            where=_either(lambda x, yes, no: yes if x else no, of(_rounded(torch.where))),
        )
        return {
            "Any": Any,
            "NamedTuple": typing.NamedTuple,
            "math": math,
            "gluon": SimpleNamespace(jit=_undecorated, constexpr_function=_undecorated),
            "gl": gl,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: None,
                init=lambda barrier, count: barrier[0].counts.update({barrier[1]: count}),
                wait=lambda barrier, phase: self.note(Wait(_called(barrier), int(phase))),
                expect=self.expect,
                arrive=lambda barrier, count: self.note(Arrive(_called(barrier), count)),
            ),
            "tma": SimpleNamespace(
                async_load=self.fetch,
                async_store=functools.partial(self.put, Tensor.copy_),
                async_atomic_add=functools.partial(self.put, Tensor.add_),
                store_wait=lambda left: self.note(StoreWait(left)),
            ),
            "_reduce_add": None,  # only a Triton without a name of its own for it needs this one
            "async_copy": SimpleNamespace(
                async_load=lambda tile, pointer: self.copied.append((tile, pointer)),
                mbarrier_arrive=self.arrive_with_copied,
            ),
            "fence_async_shared": lambda: self.note(Fence()),
            "warpgroup_mma": self.product,
            "warpgroup_mma_wait": self.finish,
        }

    def note(self, op: Any) -> None:
        if len(self.ops) > TOO_MANY:
            raise Fault(f"{self.role} does not end")
        self.ops.append(op)

    def effect(self, function: Callable[[], Any]) -> Callable[[], Any] | None:
        """What happens to numbers, if there are any."""
        return function if self.numbers else None

    # Registers.

    def made(self, numbers: Tensor) -> Value:
        """Values that depend on nothing."""
        found = Value(self, numbers)
        found.numbers = numbers
        return found

    def computed(
        self, function: Callable[..., Tensor], *given: Any, like: Tensor | None = None
    ) -> Value:
        """What threads compute from values; `like` where that cannot be tried."""
        values = [x for x in given if isinstance(x, Value)]
        for x in values:
            self.needs(x)
        if like is None:
            like = function(*(x.like if isinstance(x, Value) else x for x in given))
        found = Value(self, like, {number for x in values for number in x.loads})
        if self.numbers:
            found.due = lambda: function(*(x.now() if isinstance(x, Value) else x for x in given))
            self.note(Compute(found.now))
        return found

    def needs(self, value: Value) -> None:
        """Raise where the product that a value comes from may still run."""
        if value.product >= self.ended:
            raise Fault(f"{self.role} reads the result of a product that may still run")

    def _noted(self, softmax: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel's online softmax, which also stands in the trace as a whole."""
        bind = inspect.signature(softmax).bind

        def noted(*arguments: Any, **options: Any) -> Any:
            given = bind(*arguments, **options).arguments
            self.note(Softmax(given["s"].product, int(given["start"])))
            return softmax(*arguments, **options)

        return noted

    def assembly(self, ptx: str, operands: str, given: Sequence[Value], **options: Any) -> Value:
        """A kernel's only piece of assembly. Raises NotImplementedError for another."""
        if "UNCHANGED:" not in ptx:
            raise NotImplementedError("this assembly runs on a GPU only")
        return self.computed(torch.mul, *given)

    def load(self, at: Pointer, mask: Value, other: float) -> Value:
        def read(offset: Tensor, mask: Tensor) -> Tensor:
            mask = mask.expand_as(offset)
            found = torch.full_like(offset, other, dtype=at.memory.dtype)
            found[mask] = at.memory[offset[mask]]
            return found

        return self.computed(read, at.offset, mask, like=torch.zeros(at.offset.shape))

    def store(self, at: Pointer, value: Value, mask: Value) -> None:
        def write(offset: Tensor, value: Tensor, mask: Tensor) -> Tensor:
            mask = mask.expand_as(offset)
            at.memory[offset[mask]] = value[mask].to(at.memory.dtype)
            return value

        self.computed(write, at.offset, value, mask, like=value.like)

    # Shared memory, and who runs beside whom.

    def allocate(self, dtype: torch.dtype, shape: Sequence[int], layout: object) -> Any:
        if dtype == torch.int64:  # only barriers are
            self.barriers.append(Barriers())
            return self.barriers[-1]
        return Buffers(self, torch.full(list(shape), math.nan, dtype=dtype))

    def specialize(self, roles: Sequence[Any], warps: object, registers: object) -> None:
        (channels,) = (x for x in roles[0][1] if type(x).__name__ == "Channels")
        for channel, made in channels._asdict().items():
            kinds = made._asdict() if hasattr(made, "_asdict") else {"buffers": made}
            for kind, memory in kinds.items():
                memory.name = channel if kind == "buffers" else f"{channel}.{kind}"
        for barriers in self.barriers:
            for i, count in barriers.counts.items():
                self.trace.barriers[f"{barriers.name}[{i}]"] = count
        for function, arguments in roles:
            kind = function.__name__.lstrip("_")
            self.role = f"{kind} {arguments[0]}" if kind == "consumer" else kind
            self.ops = self.trace.roles[self.role] = []
            self.started = self.ended = 0
            function(*arguments)

    # Barriers, TMA, asynchronous copies and the tensor cores.

    def expect(self, barrier: Any, size: int) -> None:
        self.note(Expect(_called(barrier), size) if size else Arrive(_called(barrier)))

    def fetch(self, desc: Any, at: Sequence[int], barrier: Any, tile: Tile) -> None:
        def arrive() -> None:
            part, place = _window(desc, at)
            tile.memory.zero_()  # what lies outside of the tensor
            tile.memory[place] = part

        size, block = desc.block_type.nbytes, tuple(map(int, at))
        effect = self.effect(arrive)
        self.note(Copy((tile.region,), _called(barrier), size, block=block, effect=effect))

    def arrive_with_copied(self, barrier: Any, increment_count: bool) -> None:
        copied, self.copied = self.copied, []

        def arrive() -> None:
            for tile, pointer in copied:
                tile.memory.copy_(pointer.memory[pointer.offset.now()])

        regions = tuple(tile.region for tile, _ in copied)
        effect = self.effect(arrive)
        self.note(Copy(regions, _called(barrier), arrivals=LANES, effect=effect))

    def put(self, how: Callable[..., Any], desc: Any, at: Sequence[int], tile: Tile) -> None:
        def leave() -> None:
            part, place = _window(desc, at)
            how(part, tile.memory[place])

        self.note(Store(tile.region, self.effect(leave)))

    def product(
        self, a: Any, b: Tile, acc: Value, use_acc: bool = True, is_async: bool = False
    ) -> Value:
        if not is_async:
            raise Fault(f"{self.role} waits for a product, which must be asynchronous")
        # A GPU multiplies scores and subtracts in one instruction: the product is not rounded.
        dtype = torch.float32 if use_acc else torch.float64
        out = Value(self, torch.zeros((a.shape[0], b.shape[1]), dtype=dtype))
        out.product = self.started
        if isinstance(a, Value):
            self.needs(a)  # not the sum: products end in order
            if self.numbers:
                self.note(Compute(a.now))  # it starts when its registers are there

        def end() -> None:
            left = a.now() if isinstance(a, Value) else a.memory
            found = left.float() @ b.memory.float()
            out.numbers = found + acc.now() if use_acc else found.double()

        regions = tuple(x.region for x in (a, b) if isinstance(x, Tile))
        loads = a.loads if isinstance(a, Value) else ()
        self.note(Product(regions, loads, self.started, self.effect(end)))
        self.started += 1
        return out

    def finish(self, left: int, deps: Sequence[Any]) -> Any:
        self.note(Finish(left))
        self.ended = max(self.ended, self.started - left)
        return deps[0] if len(deps) == 1 else tuple(deps)


def _undecorated(function: Any = None, **_: Any) -> Any:
    return function or _undecorated


@functools.lru_cache(16)
def gpu_code(source: str) -> CodeType:
    """What of a file runs on the GPU, with the named tuples and constants that it needs."""
    body = ast.parse(source).body
    kept = [s for s in body if _is_a_tuple(s) or runs_on_gpu(s)]
    used = {n.id for s in kept for n in ast.walk(s) if isinstance(n, ast.Name)}
    chosen = [
        s
        for s in body
        if s in kept
        or (isinstance(s, ast.Assign) and any(getattr(t, "id", "") in used for t in s.targets))
    ]
    return compile(ast.Module(chosen, []), FILE, "exec")


def _is_a_tuple(statement: ast.stmt) -> bool:
    """Whether it is a class of values that functions on the GPU hand to each other."""
    return isinstance(statement, ast.ClassDef) and "NamedTuple" in map(ast.unparse, statement.bases)


def runs_on_gpu(statement: ast.stmt) -> bool:
    """Whether it is a function under one of gluon's decorators."""
    return isinstance(statement, ast.FunctionDef) and any(
        "gluon." in ast.unparse(decorator) for decorator in statement.decorator_list
    )
