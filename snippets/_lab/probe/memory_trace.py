"""Record what each program of a kernel loads and stores, in Triton's interpreter.

    with record({"q": q, "k": k, "v": v}) as trace:
        basic_attention(q, k, v)
    trace.total("load", tensor="k").bytes

The interpreter runs one program after the other and hands every `tl.load`, `tl.store` and atomic
to `triton.runtime.interpreter.InterpreterBuilder` as a block of addresses and a block of mask
bits; the recorder wraps these methods while the block runs. So a count is of what the kernel's
text asks for. How the compiler deals lanes to threads, vectorizes or caches is not in it.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import torch
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.probe.elements import Elements

SECTOR_BYTES = 32  # the unit in which an NVIDIA L2 cache moves data
OTHER = "other"

Operation = Literal["load", "store", "atomic"]
OPERATIONS: tuple[Operation, ...] = ("load", "store", "atomic")
Program = tuple[int, int, int]


@dataclass(frozen=True)
class Access:
    """One memory instruction of one program, as far as it touches one tensor.

    An instruction whose lanes touch two tensors (a read past the end, say) gives one Access for
    each. A descriptor's gather or scatter is one instruction per row, as the interpreter runs it.
    """

    launch: int  # 0 for the first kernel launched while recording
    kernel: str
    program: Program
    operation: Operation
    tensor: str
    elements: int  # active lanes; a lane that repeats an address counts again
    masked: int  # lanes switched off by the mask
    bytes: int  # elements times the element's size
    sectors: int  # distinct 32-byte sectors of the active lanes, from the storage's first byte
    first_offset: int | None  # bytes from the tensor's first element to the lowest active address
    # With keep_addresses: bytes from the tensor's first element, one entry a lane, in the block's
    # shape; -1 where the lane is masked or touches another tensor. Absolute addresses for "other".
    offsets: np.ndarray[Any, np.dtype[np.int64]] | None = field(
        default=None, compare=False, repr=False
    )


@dataclass(frozen=True)
class Launch:
    """One kernel launch and the grid it was given."""

    kernel: str
    grid: Program


@dataclass(frozen=True)
class Total:
    """Sums over accesses; see Access for what is counted."""

    instructions: int
    elements: int
    masked: int
    bytes: int
    sectors: int


class _Region(Elements):
    """The addresses of one tensor's elements. Keeps the tensor, so no other can take them."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        self.name, self.tensor = name, tensor
        # A GPU would align a storage to more than a sector.
        self.storage = tensor.untyped_storage().data_ptr()

    def overlaps(self, other: Elements) -> bool:
        apart = self.end <= other.start or other.end <= self.start
        return not apart and bool(self.contain(other.bytes()).any())


class Trace:
    """What was recorded. Read it after the `with` block."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], keep_addresses: bool) -> None:
        self.accesses: list[Access] = []
        self.launches: list[Launch] = []
        self._keep_addresses = keep_addresses
        self._kernel = ""
        self._selected: Counter[tuple[int, Program]] = Counter()
        self._named = frozenset(tensors)
        self._regions = [_Region(name, tensor) for name, tensor in tensors.items()]
        for one, two in itertools.combinations(self._regions, 2):
            if one.overlaps(two):
                raise ValueError(
                    f"{one.name} and {two.name} share memory, so an access to it has no single "
                    "name; name one of them, or slices that do not overlap"
                )

    @property
    def selected_elements(self) -> int:
        """Elements that `tl.where` wrote, those inside Triton's own library functions included.

        Not included: a reduction (`tl.max`, `tl.argmax`, …), which the interpreter hands to NumPy.
        """
        return self._selected.total()

    def total(
        self,
        operation: Operation | None = None,
        *,
        tensor: str | None = None,
        kernel: str | None = None,
        program: Program | None = None,
    ) -> Total:
        """Sums over the accesses that match; None matches all. Matching nothing gives zeros."""
        chosen = [
            a
            for a in self.accesses
            if (operation is None or a.operation == operation)
            and (tensor is None or a.tensor == tensor)
            and (kernel is None or a.kernel == kernel)
            and (program is None or a.program == program)
        ]
        return Total(
            len(chosen),
            *(sum(getattr(a, unit) for a in chosen) for unit in _UNITS),
        )

    def per_program(self) -> list[dict[str, Any]]:
        """One row for each program of each launch, in launch order, idle programs included.

        Fields: launch, kernel, program, then `load_instructions`, `load_elements`, `load_masked`,
        `load_bytes`, `load_sectors`, the same for store and atomic, and `selected_elements`.
        """
        rows: dict[tuple[int, Program], dict[str, Any]] = {}
        for index, launch in enumerate(self.launches):
            for x, y, z in np.ndindex(*launch.grid):
                rows[index, (x, y, z)] = {
                    "launch": index,
                    "kernel": launch.kernel,
                    "program": (x, y, z),
                    **{f"{op}_{u}": 0 for op in OPERATIONS for u in ("instructions", *_UNITS)},
                    "selected_elements": self._selected[index, (x, y, z)],
                }
        for a in self.accesses:
            row = rows[a.launch, a.program]
            row[f"{a.operation}_instructions"] += 1
            for unit in _UNITS:
                row[f"{a.operation}_{unit}"] += getattr(a, unit)
        return list(rows.values())

    def _learn(self, name: str, argument: Any) -> None:
        """Name a tensor that a kernel was given after its parameter: `out_ptr` becomes "out"."""
        if isinstance(argument, TensorDescriptor):
            argument = argument.base
        if not isinstance(argument, torch.Tensor) or argument.numel() == 0:
            return
        _require_cpu(name, argument)
        known = any(region.contain(np.array(argument.data_ptr())) for region in self._regions)
        name = name.removesuffix("_ptr").removesuffix("_desc")
        # A name the caller gave to other memory (the launcher made a copy) stays the caller's.
        if not known and name not in self._named:
            self._regions.append(_Region(name, argument))

    def _add(self, operation: Operation, builder: Any, pointers: Any, mask: Any) -> None:
        """Record one instruction: `pointers` and `mask` are the interpreter's handles."""
        addresses = np.asarray(pointers.data).astype(np.int64)
        active = np.ones(addresses.shape, dtype=bool)
        if mask is not None:  # descriptors pass a bare array, whose .data is a buffer
            active = np.broadcast_to(np.asarray(mask.data, dtype=bool), addresses.shape)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        masked = int(addresses.size - active.sum())
        rest = active
        before = len(self.accesses)
        for region in self._regions:
            inside = rest & region.contain(addresses)
            if inside.any():
                rest = rest & ~inside
                self._append(operation, builder, region, addresses, inside, masked, size)
                masked = 0  # counted once, with the first part
        if rest.any():
            self._append(operation, builder, None, addresses, rest, masked, size)
        elif len(self.accesses) == before:  # every lane is masked
            near = [r for r in self._regions if r.contain(addresses).any()]
            region_or_none = near[0] if near else None
            self._append(operation, builder, region_or_none, addresses, rest, masked, size)

    def _append(
        self,
        operation: Operation,
        builder: Any,
        region: _Region | None,
        addresses: np.ndarray[Any, np.dtype[np.int64]],
        lanes: np.ndarray[Any, np.dtype[np.bool_]],
        masked: int,
        size: int,  # bytes of an element
    ) -> None:
        touched = addresses[lanes]
        # Elements are aligned to their size, as a GPU demands, so none lies in two sectors.
        sectors = np.unique((touched - (region.storage if region else 0)) // SECTOR_BYTES)
        start = region.start if region else 0
        self.accesses.append(
            Access(
                launch=len(self.launches) - 1,
                kernel=self._kernel,
                program=builder.grid_idx,
                operation=operation,
                tensor=region.name if region else OTHER,
                elements=touched.size,
                masked=masked,
                bytes=touched.size * size,
                sectors=sectors.size,
                first_offset=int(touched.min()) - start if region and touched.size else None,
                offsets=np.where(lanes, addresses - start, -1) if self._keep_addresses else None,
            )
        )


_UNITS = ("elements", "masked", "bytes", "sectors")
_recording = False


@contextmanager
def record(
    tensors: Mapping[str, torch.Tensor] | None = None, *, keep_addresses: bool = False
) -> Iterator[Trace]:
    """Record the loads, stores and atomics of every kernel launched in the `with` block.

    Args:
        tensors: names for memory the caller holds; CPU tensors of any strides that share no
            element. A tensor made inside the launcher is named after the kernel's parameter
            without `_ptr` ("out"); addresses in no tensor, or in a launcher's copy of a named
            one, are "other".
        keep_addresses: keep every lane's byte offset in `Access.offsets`.

    Yields:
        The Trace, complete once the block has ended.

    Raises:
        ValueError: a tensor is not on the CPU (the interpreter would run on a copy), is empty, or
            shares memory with another.
        RuntimeError: a recording is already under way, or the block ended and nothing was recorded.
    """
    global _recording
    if _recording:
        raise RuntimeError("a recording is already under way; end it before starting another")
    for name, tensor in (tensors or {}).items():
        _require_cpu(name, tensor)
        if tensor.numel() == 0:
            raise ValueError(f"{name} is empty: no address can be its own")
    trace = Trace(tensors or {}, keep_addresses)
    with ExitStack() as stack:
        for owner, method, replacement in _replacements(trace):
            stack.enter_context(patch.object(owner, method, replacement))
        _recording = True
        try:
            yield trace
        finally:
            _recording = False
            trace._regions.clear()  # lets go of the tensors
    if not trace.launches:
        raise RuntimeError(
            "no kernel ran in Triton's interpreter, so nothing was recorded; set "
            "TRITON_INTERPRET=1 before the kernel's module is imported and pass CPU tensors"
        )
    if not trace.accesses:
        raise RuntimeError("kernels ran but none loaded or stored anything: nothing was recorded")


def _require_cpu(name: str, tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(
            f"{name} is on {tensor.device}; the interpreter would run on a copy whose addresses "
            "are unknown; pass CPU tensors and set TRITON_INTERPRET=1 before importing the kernel"
        )


def _replacements(trace: Trace) -> list[tuple[type, str, Callable[..., Any]]]:
    """(class, method, wrapper) for each hook; every load and store ends in a masked one."""

    def wrap(
        owner: type, method: str, hook: Callable[..., None], before: bool = False
    ) -> tuple[type, str, Callable[..., Any]]:
        original = getattr(owner, method)

        @functools.wraps(original)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if before:
                hook(None, *args, **kwargs)
            result = original(*args, **kwargs)
            if not before:
                hook(result, *args)
            return result

        return owner, method, wrapper

    def launching(_: Any, kernel: Any, *args: Any, **kwargs: Any) -> None:
        trace._kernel = kernel.fn.__name__
        for name, value in {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}.items():
            trace._learn(name, value)

    def grid_set(_: Any, builder: Any, x: Any, y: Any, z: Any) -> None:
        grid = (operator.index(x), operator.index(y), operator.index(z))
        trace.launches.append(Launch(trace._kernel, grid))

    def loaded(_: Any, builder: Any, pointers: Any, mask: Any, *rest: Any) -> None:
        trace._add("load", builder, pointers, mask)

    def stored(_: Any, builder: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> None:
        trace._add("store", builder, pointers, mask)

    def updated(_: Any, builder: Any, op: Any, pointers: Any, v: Any, mask: Any, *r: Any) -> None:
        trace._add("atomic", builder, pointers, mask)

    def swapped(_: Any, builder: Any, pointers: Any, *rest: Any) -> None:
        trace._add("atomic", builder, pointers, None)

    def selected(result: Any, builder: Any, *rest: Any) -> None:
        trace._selected[len(trace.launches) - 1, builder.grid_idx] += result.data.size

    return [
        wrap(InterpretedFunction, "run", launching, before=True),
        wrap(InterpreterBuilder, "set_grid_dim", grid_set),
        wrap(InterpreterBuilder, "create_masked_load", loaded),
        wrap(InterpreterBuilder, "create_masked_store", stored),
        wrap(InterpreterBuilder, "create_atomic_rmw", updated),
        wrap(InterpreterBuilder, "create_atomic_cas", swapped),
        wrap(InterpreterBuilder, "create_select", selected),
    ]
