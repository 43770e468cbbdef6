"""Watches where a launcher reads and writes: guards around every tensor, and each access's address.

    with Memory({"q": q, "k": k, "v": v}) as memory:
        out = launcher(*memory.inputs.values())
    memory.faults

Each input lies between two guards in memory of its own, and so does each tensor that the launcher
makes; what nobody has written yet is NaN. A write beyond a tensor changes a guard, on any device.
In Triton's interpreter each load and store is looked at before it happens: one that leaves its
tensor is noted with its line and has no effect, so a load of what is not there gives zeros.
"""

import ast
import functools
import linecache
import math
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from snippets._lab.probe.elements import Elements
from snippets._lab.probe.interpreter import looking

GUARD = 1 << 16  # elements on either side: a tile of 256 rows and 256 columns
UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided")
FILLED = tuple(
    f"{how}{what}{like}"
    for what in ("zeros", "ones", "full")
    for how, like in (("", ""), ("", "_like"), ("new_", ""))
)


@dataclass(frozen=True)
class Line:
    """A line of the reader's file."""

    number: int
    text: str

    def __str__(self) -> str:
        return f"line {self.number}, `{self.text}`,"


@dataclass(frozen=True)
class Fault:
    """An access that a kernel must not make."""

    kind: str  # "reads outside", "writes outside" or "overwrites"
    tensor: str  # as the launcher or the kernel calls it
    line: Line | None = None  # not known where no interpreter ran it
    where: str = ""  # how far from the tensor


class _Block:
    """A tensor between two guards."""

    def __init__(self, name: str, like: Tensor, fill: float, given: bool) -> None:
        size, strides = list(like.shape), list(like.stride())
        self.name, self.given = name, given
        span = 1 + sum((n - 1) * s for n, s in zip(size, strides, strict=True))
        self.memory = torch.empty(span + 2 * GUARD, dtype=like.dtype, device=like.device)
        _fill(self.memory, fill)
        self.tensor = self.memory.as_strided(size, strides, GUARD)
        self.tensor.copy_(like)
        self.before = self.memory.clone()
        self.elements = Elements(self.tensor)
        guard = GUARD * self.elements.size
        self.low, self.high = self.elements.start - guard, self.elements.end + guard

    def outside_changed(self) -> bool:
        """Whether the guards were written, or memory between the elements."""
        now, before = self.memory.clone(), self.before.clone()
        for x in (now, before):
            x.as_strided(self.tensor.shape, self.tensor.stride(), GUARD).zero_()
        return not _same(now, before)

    def elements_changed(self) -> bool:
        before = self.before.as_strided(self.tensor.shape, self.tensor.stride(), GUARD)
        return not _same(self.tensor, before)

    def place(self, address: int) -> str:
        """Where an address is that belongs to no element."""
        at = self.elements
        if address >= at.end:
            return f"{_elements((address - at.end) // at.size + 1)} past its end"
        if address < at.start:
            return f"{_elements((at.start - address) // at.size)} before its beginning"
        return "in a gap between its rows"


def _elements(count: int) -> str:
    return f"{count} element{'s' * (count != 1)}"


def _fill(memory: Tensor, value: float) -> None:
    if memory.dtype.is_floating_point:
        memory.fill_(value)
    elif memory.dtype == torch.bool:
        memory.fill_(True)
    else:
        memory.fill_(torch.iinfo(memory.dtype).max // 3)


def _same(a: Tensor, b: Tensor) -> bool:
    if a.is_floating_point():
        a, b = a.nan_to_num(7e4), b.nan_to_num(7e4)
    return torch.equal(a, b)


class Memory(TorchFunctionMode):
    """Guarded copies of a launcher's inputs; while it is entered, all that is made is guarded too.

    Args:
        inputs: name → tensor, of any strides.
        fill: what the guards of the inputs hold; a mapping gives each its own.
    """

    as_on_a_gpu = False  # whether CPU tensors say that they are on a GPU

    def __init__(
        self, inputs: Mapping[str, Tensor], fill: float | Mapping[str, float] = math.nan
    ) -> None:
        super().__init__()
        fills = fill if isinstance(fill, Mapping) else dict.fromkeys(inputs, fill)
        self._blocks = [_Block(n, x, fills[n], given=True) for n, x in inputs.items()]
        self.inputs = {block.name: block.tensor for block in self._blocks}
        self._device = self._blocks[0].memory.device
        self._faults: dict[tuple[str, str, int], Fault] = {}
        self.launched = 0  # kernels that Triton's interpreter ran
        self.loads = 0
        self.stores = 0
        self.nan_stored: Line | None = None  # by which line first
        self.short_products: dict[int, Line] = {}  # tl.dot of float32 that may run in TF32
        self._stack = ExitStack()

    def __enter__(self) -> "Memory":
        super().__enter__()
        self._stack.enter_context(looking(*_looks(self)))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        super().__exit__(kind, error, traceback)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.as_on_a_gpu:
            if func == Tensor.is_cuda.__get__:
                return True
            if func == Tensor.cuda:
                return args[0]
            args = tuple(map(_here, args))
            kwargs = {name: _here(value) for name, value in kwargs.items()}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if name not in UNWRITTEN and name not in FILLED:
            return result
        if not isinstance(result, Tensor) or not result.numel() or result.device != self._device:
            return result
        if name in UNWRITTEN and result.dtype.is_floating_point:
            result.fill_(math.nan)
        self._blocks.append(_Block("", result, math.nan, given=False))
        return self._blocks[-1].tensor

    def unwritten(self, x: Tensor) -> bool:
        """Whether the launcher made this tensor without giving it numbers."""
        return any(not b.given and b.elements.start == x.data_ptr() for b in self._blocks)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """What was seen while it happened, and what the guards and the inputs show afterwards."""
        found = dict(self._faults)
        for block in self._blocks:
            name = block.name or "a tensor that the launcher made"
            known = {(f.kind, f.tensor) for f in found.values()}
            if block.outside_changed() and ("writes outside", name) not in known:
                found["writes outside", name, 0] = Fault("writes outside", name)
            changed = block.given and block.elements_changed()
            if changed and ("overwrites", name) not in known:
                found["overwrites", name, 0] = Fault("overwrites", name)
        return tuple(found.values())

    # What the interpreter's hooks call.

    def launching(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        """Learn what the kernel calls its tensors, and guard-less tensors that it is given."""
        self.launched += 1
        for name, x in {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}.items():
            x = getattr(x, "base", x)
            if not isinstance(x, Tensor) or x.device.type != "cpu" or x.numel() == 0:
                continue
            storage = x.untyped_storage()
            low, high = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
            block = next((b for b in self._blocks if low <= b.elements.start < high), None)
            name = name.removesuffix("_ptr").removesuffix("_desc")
            if block is None:  # a copy that the launcher made: all of its memory counts as its own
                whole = torch.empty(0, dtype=x.dtype).set_(storage)
                self._blocks.append(_Unguarded(name, whole))
            elif not block.name:
                block.name = name

    def checked(self, operation: str, pointers: Any, mask: Any) -> Any:
        """Note lanes that leave their tensor; the mask without them."""
        addresses = np.asarray(pointers.data).astype(np.int64)
        active = np.broadcast_to(np.asarray(mask.data, dtype=bool), addresses.shape)
        self.loads += operation == "load"
        self.stores += operation != "load" and bool(active.any())
        lost = active
        for block in self._blocks:
            if not lost.any():
                return mask
            held = lost & block.elements.contain(addresses)
            if operation != "load" and block.given and held.any():
                self._note("overwrites", block.name, "")
            lost = lost & ~held
        if not lost.any():
            return mask
        first = int(addresses[lost].min())
        block = min(self._blocks, key=lambda b: (b.low > first) + (b.high <= first))
        if not block.low <= first < block.high:
            block = min(
                self._blocks,
                key=lambda b: min(abs(first - b.elements.start), abs(first - b.elements.end)),
            )
        kind = "reads outside" if operation == "load" else "writes outside"
        self._note(kind, block.name or "a tensor that the launcher made", block.place(first))
        return _without(lost, active)

    def dotted(self, a: Any, b: Any, precision: Any) -> None:
        """Note a product of float32 that a GPU would round."""
        wide = "fp32" in (str(a.dtype.scalar), str(b.dtype.scalar))
        if wide and "TF32" in str(precision) and "x3" not in str(precision):
            line = _line_here()
            if line is not None:
                self.short_products[line.number] = line

    def _note(self, kind: str, name: str, where: str) -> None:
        line = _line_here()
        self._faults.setdefault(
            (kind, name, line.number if line else 0), Fault(kind, name, line, where)
        )


def _here(x: Any) -> Any:
    """The CPU for a GPU that a launcher names."""
    of_gpu = isinstance(x, str | torch.device) and str(x).partition(":")[0] == "cuda"
    return "cpu" if of_gpu else x


class _Unguarded(_Block):
    """Memory that the launcher made in another way than by naming its shape."""

    def __init__(self, name: str, memory: Tensor) -> None:
        self.name, self.given, self.tensor = name, False, memory
        self.elements = Elements(memory)
        self.low, self.high = self.elements.start, self.elements.end

    def outside_changed(self) -> bool:
        return False


def _without(lost: np.ndarray[Any, Any], active: np.ndarray[Any, Any]) -> Any:
    """A mask for the interpreter that leaves out the lost lanes."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    return TensorHandle(np.ascontiguousarray(active & ~lost), tl.int1)


def _looks(memory: Memory) -> list[tuple[type, str, Callable[..., Any]]]:
    """(class, method, look) for what Triton's interpreter calls; none if it does not run."""
    if "triton" not in sys.modules:
        return []
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder

    def load(_: Any, pointers: Any, mask: Any, *rest: Any, **__: Any) -> tuple[Any, ...]:
        return pointers, memory.checked("load", pointers, mask), *rest

    def store(_: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> tuple[Any, ...]:
        kept = memory.checked("store", pointers, mask)
        if memory.nan_stored is None and np.isnan(value.data[np.asarray(kept.data, bool)]).any():
            memory.nan_stored = _line_here()
        return pointers, value, kept, *rest

    def atomic(
        _: Any, op: Any, pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> tuple[Any, ...]:
        return op, pointers, value, memory.checked("atomic", pointers, mask), *rest

    def dot(_: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> None:
        memory.dotted(a, b, precision)

    return [
        (InterpretedFunction, "run", memory.launching),
        (InterpreterBuilder, "create_masked_load", load),
        (InterpreterBuilder, "create_masked_store", store),
        (InterpreterBuilder, "create_atomic_rmw", atomic),
        (InterpreterBuilder, "create_dot", dot),
    ]


# Lines of the reader's file.


@functools.cache
def _of_others() -> tuple[str, ...]:
    """Folders and files whose lines are not the reader's."""
    folders = [
        Path(module.__file__).parent
        for name in ("triton", "torch", "numpy")
        if (module := sys.modules.get(name)) and module.__file__
    ]
    return (*map(str, folders), str(Path(__file__).parents[1]), functools.__file__, "<")


def of_reader(frame: FrameType) -> bool:
    """Whether a frame runs the reader's own code."""
    return not frame.f_code.co_filename.startswith(_of_others())


def _line_here() -> Line | None:
    frame: FrameType | None = sys._getframe()
    while frame is not None and not of_reader(frame):
        frame = frame.f_back
    return None if frame is None else line_of(frame.f_code.co_filename, frame.f_lineno)


def line_of(file: str, number: int) -> Line:
    """The line, with the whole of its statement as text."""
    for statement in _statements(file):
        if statement.lineno <= number <= (statement.end_lineno or 0):
            lines = [
                linecache.getline(file, n)
                for n in range(statement.lineno, (statement.end_lineno or 0) + 1)
            ]
            text = " ".join(line.partition("  #")[0].strip() for line in lines)
            return Line(number, text if len(text) <= 120 else f"{text[:119]}…")
    return Line(number, linecache.getline(file, number).strip())


@functools.lru_cache(8)
def _statements(file: str) -> list[ast.stmt]:
    """The simple statements of a file: those that hold no others."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not hasattr(n, "body")]
