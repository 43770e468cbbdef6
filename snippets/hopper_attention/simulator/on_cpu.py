"""The back end of gluon.py that computes, with tensors of PyTorch.

Every part of a program is a thread, an mbarrier is a condition, a copy happens when it is asked for
and a product when it is started; what is loaded from shared memory is read as late as it may be. So
results, masks and schedules are tested without a GPU; what else depends on the moment is not:
protocol.py plays that.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from .gluon import Gluon, Scalar

SECONDS = 20.0  # that a part waits at a barrier before it is a deadlock
LATE = 0.001  # seconds that a load from shared memory takes


class Barrier:
    """An mbarrier: a phase ends after `count` arrivals and the bytes that were announced."""

    def __init__(self, condition: threading.Condition, stop: threading.Event) -> None:
        self.condition, self.stop = condition, stop
        self.count = self.missing = self.bytes = self.phase = 0

    def arrive(self, count: int = 1, size: int = 0) -> None:
        with self.condition:
            self.missing -= count
            self.bytes -= size
            if self.missing == 0 and self.bytes == 0:
                self.phase, self.missing = self.phase + 1, self.count
                self.condition.notify_all()

    def wait(self, parity: int) -> None:
        with self.condition:
            over = self.condition.wait_for(
                lambda: self.stop.is_set() or (self.phase & 1) != parity, SECONDS
            )
        if not over or self.stop.is_set():
            raise RuntimeError("a part of the program waits for a barrier that nobody reaches")


class Rows:
    """Shared memory of a program, or of its barriers; `index` takes one of the buffers."""

    def __init__(self, items: Sequence[Any], dtype: Any = None) -> None:
        self.items, self.dtype = items, dtype

    def index(self, i: int) -> Any:
        return self.items[i]


class Loaded:
    """What is loaded from shared memory into registers: read when a product first uses it."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.value: Tensor | None = None

    def used(self) -> Tensor:
        if self.value is None:
            time.sleep(LATE)
            self.value = self.memory.clone()
        return self.value


class Tile:
    """A buffer, or a view of it."""

    def __init__(self, memory: Tensor) -> None:
        self.memory, self.shape, self.dtype = memory, list(memory.shape), memory.dtype

    def reshape(self, shape: Sequence[int]) -> "Tile":
        return Tile(self.memory.view(*shape))

    def permute(self, order: Sequence[int]) -> "Tile":
        return Tile(self.memory.permute(*order))

    def load(self, layout: object) -> Loaded:
        return Loaded(self.memory)

    def store(self, value: Tensor) -> None:
        self.memory.copy_(value)


def _window(desc: Any, at: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
    """The part of a tensor that a block at these coordinates covers, and where it lies in it."""
    tensor: Tensor = desc.base
    sizes = [max(0, min(b, n - i)) for b, n, i in zip(desc.block_shape, tensor.shape, at)]  # noqa: B905
    part = tensor
    for axis, (i, size) in enumerate(zip(at, sizes)):  # noqa: B905
        part = part.narrow(axis, min(i, part.shape[axis]), size)
    return part, tuple(sizes)


def _rounding(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of tensors, some of which may be numbers; what it takes was rounded."""

    def rounded(*given: Any) -> Tensor:
        out = function(*map(torch.as_tensor, given))
        return out.float() if out.dtype == torch.float64 else out

    return rounded


def _store(at: tuple[Tensor, Tensor], value: Tensor, mask: Tensor) -> None:
    memory, index = at
    mask = mask.expand_as(index)
    memory[index[mask]] = value[mask]


def _assembly(ptx: str, operands: str, given: list[Tensor], **options: Any) -> Tensor:
    """What the kernel's only piece of assembly computes. Raises NotImplementedError for another."""
    if "UNCHANGED:" not in ptx:
        raise NotImplementedError("this assembly runs on a GPU only")
    numbers, factors = given
    return numbers * factors


OF_TENSORS: dict[str, Callable[..., Any]] = {
    "arange": lambda a, b, layout=None: torch.arange(a, b, dtype=torch.int32),
    "exp2": lambda x: torch.exp2(x).float(),
    "inline_asm_elementwise": _assembly,
    "full": lambda shape, x, dtype, layout: torch.full(shape, x, dtype=dtype),
    "log2": torch.log2,
    "max": lambda x, axis: x.amax(axis),
    "maximum": _rounding(torch.maximum),
    "minimum": _rounding(torch.minimum),
    "store": _store,
    "sum": lambda x, axis: x.sum(axis),
    "where": _rounding(torch.where),
    "zeros": lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
}


class Program(Gluon):
    """The back end that computes."""

    int64, int32, float32 = torch.int64, torch.int32, torch.float32

    def __init__(self, source: str, program: int, programs: int) -> None:
        self.condition, self.stop = threading.Condition(), threading.Event()
        self.errors: list[BaseException] = []
        super().__init__(source, program, programs)

    def of_tensors(self, name: str) -> Callable[..., Any]:
        return OF_TENSORS[name]

    def allocate(self, dtype: Any, shape: Sequence[int], layout: object) -> Rows:
        if dtype is self.int64:  # only barriers are
            return Rows([Barrier(self.condition, self.stop) for _ in range(shape[0])])
        memory = torch.full(list(shape), float("nan"), dtype=dtype)
        return Rows([Tile(x) for x in memory], dtype)

    def partitions(self, parts: Sequence[Any], warps: object, registers: object) -> None:
        @torch.no_grad()  # each thread would begin with gradients
        def run(function: Any, arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001 - the launch raises it
                self.errors.append(error)
                self.stop.set()
                with self.condition:
                    self.condition.notify_all()

        threads = [threading.Thread(target=run, args=part, daemon=True) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def init(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.missing = count

    def wait(self, barrier: Barrier, phase: int) -> None:
        barrier.wait(phase)

    def expect(self, barrier: Barrier, size: int) -> None:
        with barrier.condition:
            barrier.bytes += size
        barrier.arrive()

    def arrive(self, barrier: Barrier, count: int) -> None:
        barrier.arrive(count)

    def fetch(self, desc: Any, at: Sequence[int], barrier: Barrier, buffer: Tile) -> None:
        part, sizes = _window(desc, at)
        buffer.memory.zero_()
        buffer.memory[tuple(slice(n) for n in sizes)] = part
        barrier.arrive(0, desc.block_type.nbytes)

    def put(self, desc: Any, at: Sequence[int], buffer: Tile) -> None:
        part, sizes = _window(desc, at)
        part.copy_(buffer.memory[tuple(slice(n) for n in sizes)])

    def store_wait(self, left: int) -> None:
        """A store has ended when it was asked for."""

    def fence(self) -> None:
        """What was written is visible at once."""

    def product(
        self, a: Any, b: Tile, acc: Tensor, use_acc: bool = True, is_async: bool = False
    ) -> Tensor:
        left = a.memory if isinstance(a, Tile) else a.used() if isinstance(a, Loaded) else a
        out = left.float() @ b.memory.float()
        # A GPU multiplies scores and subtracts in one instruction: the product is not rounded.
        return out + acc if use_acc else out.double()

    def finish(self, left: int, deps: Sequence[Any]) -> Any:
        return deps[0] if len(deps) == 1 else tuple(deps)


class Pointer:
    """The first element of a tensor, as a kernel adds offsets to it."""

    def __init__(self, tensor: Tensor) -> None:
        self.memory = tensor.view(-1)

    def __add__(self, offsets: Tensor) -> tuple[Tensor, Tensor]:
        return self.memory, offsets


class _Kernel:
    """kernel.py's kernel, to be launched with tensors on a CPU."""

    def __init__(self, source: str) -> None:
        self.source = source

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            given = [self._argument(x) for x in arguments]
            named = {name: self._argument(x) for name, x in options.items()}
            for number in range(grid[0]):
                program = Program(self.source, number, grid[0])
                program.names["_hopper_attention_kernel"](*given, **named)
                if program.errors:
                    raise program.errors[0]

        return launch

    def _argument(self, x: Any) -> Any:
        if isinstance(x, Tensor):
            return Pointer(x)
        if hasattr(x, "block_shape"):  # a descriptor
            size = x.base.element_size()
            for block in x.block_shape:
                size *= block
            return SimpleNamespace(
                base=x.base,
                block_shape=list(x.block_shape),
                dtype=x.base.dtype,
                layout=None,
                block_type=SimpleNamespace(nbytes=size),
            )
        return Scalar(x) if isinstance(x, int) and not isinstance(x, bool) else x


@contextlib.contextmanager
def played(launcher: Any, programs: int = 3) -> Iterator[None]:
    """The launcher of a kernel.py takes tensors on a CPU, which its kernel then computes with."""
    names = launcher.__globals__
    check_inputs = names["_check_inputs"]

    def on_any_device(q: Any, k: Any, v: Any, *options: Any) -> None:
        with patch.dict(names, {"_capability": lambda device: (9, 0)}):
            check_inputs(*(_OnGPU.of(x) for x in (q, k, v)), *options)

    stand_ins = {
        "_hopper_attention_kernel": _Kernel(Path(names["__file__"]).read_text(encoding="utf-8")),
        "_multiprocessors": lambda device: programs,
        "_check_inputs": on_any_device,
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the parts are threads already, and their tensors are small
    try:
        with patch.dict(names, stand_ins):
            yield
    finally:
        torch.set_num_threads(threads)


class _OnGPU(Tensor):
    """A tensor that says it is on a GPU: what checks inputs asks for nothing else."""

    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]

    @classmethod
    def of(cls, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.device.type != "cpu":
            return x
        # A sparse tensor has no memory to be seen as another class; it is refused as it is.
        return x if x.is_nested or x.layout != torch.strided else x.as_subclass(cls)
