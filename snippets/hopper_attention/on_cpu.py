"""Runs kernel.py's own GPU functions as Python, with numbers: Triton's interpreter has no Gluon.

Every part of a program is a thread, an mbarrier is a condition, a copy happens when it is asked for
and a product when it is started. So results, masks and schedules are tested without a GPU; what
depends on the moment is not: protocol.py plays that.
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from .parts import SURROUNDINGS, gpu_code

SECONDS = 20.0  # that a part waits at a barrier before it is a deadlock


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


class Tile:
    """A buffer, or a view of it."""

    def __init__(self, memory: Tensor) -> None:
        self.memory, self.shape, self.dtype = memory, list(memory.shape), memory.dtype

    def reshape(self, shape: Sequence[int]) -> "Tile":
        return Tile(self.memory.view(*shape))

    def permute(self, order: Sequence[int]) -> "Tile":
        return Tile(self.memory.permute(*order))

    def load(self, layout: object) -> Tensor:
        return self.memory.clone()

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


def _fetch(desc: Any, at: Sequence[int], barrier: Barrier, buffer: Tile) -> None:
    part, sizes = _window(desc, at)
    buffer.memory.zero_()
    buffer.memory[tuple(slice(n) for n in sizes)] = part
    barrier.arrive(0, desc.block_type.nbytes)


def _write(desc: Any, at: Sequence[int], buffer: Tile) -> None:
    part, sizes = _window(desc, at)
    part.copy_(buffer.memory[tuple(slice(n) for n in sizes)])


def _expect(barrier: Barrier, size: int) -> None:
    with barrier.condition:
        barrier.bytes += size
    barrier.arrive()


def _product(
    a: Any, b: Tile, acc: Tensor, use_acc: bool = True, is_async: bool = False
) -> Tensor:  # fmt: skip
    left = a.memory if isinstance(a, Tile) else a
    out = left.float() @ b.memory.float()
    return out + acc if use_acc else out


class Program:
    """The stand-ins for Gluon that one program of kernel.py runs with."""

    def __init__(self, program: int, programs: int) -> None:
        self.condition, self.stop = threading.Condition(), threading.Event()
        self.errors: list[BaseException] = []
        whole = (int, bool)

        def either(of_integers: Any, of_tensors: Any) -> Any:
            def choose(a: Any, b: Any) -> Any:
                if isinstance(a, whole) and isinstance(b, whole):
                    return Scalar(of_integers(a, b))
                return of_tensors(torch.as_tensor(a), torch.as_tensor(b))

            return choose

        def where(condition: Any, a: Any, b: Any) -> Any:
            if isinstance(condition, Tensor):
                return torch.where(condition, a, b)
            return a if condition else b

        def named(name: str) -> Any:
            return lambda *a, **k: SimpleNamespace(name=name, parent=a[1] if len(a) > 1 else None)

        self.gl = SimpleNamespace(
            constexpr=lambda value: value, static_range=range, int64=torch.int64,
            int32=torch.int32, float32=torch.float32,
            cdiv=lambda a, b: Scalar(-(-a // b)),
            minimum=either(min, torch.minimum), maximum=either(max, torch.maximum), where=where,
            arange=lambda a, b, layout=None: torch.arange(a, b, dtype=torch.int32),
            zeros=lambda shape, dtype, layout: torch.zeros(shape, dtype=dtype),
            full=lambda shape, x, dtype, layout: torch.full(shape, x, dtype=dtype),
            exp2=torch.exp2, log2=torch.log2,
            max=lambda x, axis: x.amax(axis), sum=lambda x, axis: x.sum(axis),
            convert_layout=lambda value, layout: value, store=self._store,
            program_id=lambda axis: Scalar(program), num_programs=lambda axis: Scalar(programs),
            allocate_shared_memory=self._allocate, warp_specialize=self._partitions,
            SliceLayout=named("slice"), NVMMADistributedLayout=named("product"),
            DotOperandLayout=named("operand"), DistributedLinearLayout=named("linear"),
        )  # fmt: skip
        self.names = {
            "gl": self.gl,
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: None, init=self._init, expect=_expect,
                wait=lambda barrier, parity: barrier.wait(parity),
                arrive=lambda barrier, count: barrier.arrive(count),
            ),
            "tma": SimpleNamespace(
                async_copy_global_to_shared=_fetch, async_copy_shared_to_global=_write,
                store_wait=lambda left: None,
            ),
            "fence_async_shared": lambda: None,
            "warpgroup_mma": _product,
            "warpgroup_mma_wait": lambda left, deps: deps[0] if len(deps) == 1 else tuple(deps),
        }  # fmt: skip

    def _allocate(self, dtype: Any, shape: Sequence[int], layout: object) -> Rows:
        if dtype is torch.int64:  # only barriers are
            return Rows([Barrier(self.condition, self.stop) for _ in range(shape[0])])
        memory = torch.full(list(shape), float("nan"), dtype=dtype)
        return Rows([Tile(x) for x in memory], dtype)

    def _init(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.missing = count

    def _store(self, at: tuple[Tensor, Tensor], value: Tensor, mask: Tensor) -> None:
        memory, index = at
        mask = mask.expand_as(index)
        memory[index[mask]] = value[mask]

    def _partitions(self, parts: Sequence[Any], warps: object, registers: object) -> None:
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


class Pointer:
    """The first element of a tensor, as a kernel adds offsets to it."""

    def __init__(self, tensor: Tensor) -> None:
        self.memory = tensor.view(-1)

    def __add__(self, offsets: Tensor) -> tuple[Tensor, Tensor]:
        return self.memory, offsets


class _Kernel:
    """kernel.py's kernel, to be launched with tensors on a CPU."""

    def __init__(self, source: str) -> None:
        self.code = gpu_code(source)

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(*arguments: Any, num_warps: int) -> None:
            given = [self._argument(x) for x in arguments]
            for number in range(grid[0]):
                program = Program(number, grid[0])
                names = {**SURROUNDINGS, **program.names}
                exec(self.code, names)  # noqa: S102 - the kernel's own text
                names["_hopper_attention_kernel"](*given, num_warps)
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
                base=x.base, block_shape=list(x.block_shape), dtype=x.base.dtype, layout=None,
                block_type=SimpleNamespace(nbytes=size),
            )  # fmt: skip
        return Scalar(x) if isinstance(x, int) and not isinstance(x, bool) else x


@contextlib.contextmanager
def played(launcher: Any, programs: int = 3) -> Iterator[None]:
    """The launcher of a kernel.py takes tensors on a CPU, which its kernel then computes with."""
    names = launcher.__globals__
    refuse = names["_refuse"]

    def on_any_device(q: Any, *others: Any) -> None:
        with patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)):
            refuse(*(_OnGPU.of(x) for x in (q, *others)))

    stand_ins = {
        "_hopper_attention_kernel": _Kernel(Path(names["__file__"]).read_text(encoding="utf-8")),
        "_multiprocessors": lambda device: programs,
        "_refuse": on_any_device,
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the parts are threads already, and their tensors are small
    try:
        with patch.dict(names, stand_ins):
            yield
    finally:
        torch.set_num_threads(threads)


class _OnGPU(Tensor):
    """A tensor that says it is on a GPU: what refuses asks for nothing else."""

    device = property(lambda self: torch.device("cuda", 0))  # type: ignore[assignment]

    @classmethod
    def of(cls, x: Any) -> Any:
        return x.as_subclass(cls) if isinstance(x, Tensor) and x.device.type == "cpu" else x
