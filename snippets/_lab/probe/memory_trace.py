"""Record what each program of a kernel loads and stores, in Triton's interpreter.

    with record({"q": q, "k": k, "v": v}) as trace:
        basic_attention(q, k, v)
    trace.total("load", tensor="k").bytes

The interpreter runs one program after the other and hands every `tl.load`, `tl.store` and atomic
to `triton.runtime.interpreter.InterpreterBuilder` as a block of addresses and a block of mask
bits; the recorder looks at these calls while the block runs. So a count is of what the kernel's
text asks for. How the compiler deals lanes to threads, vectorizes or caches is not in it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.probe.elements import Elements
from snippets._lab.probe.interpreter import looking

SECTOR_BYTES = 32  # the unit in which an NVIDIA L2 cache moves data
OTHER = "other"

Operation = Literal["load", "store", "atomic"]
Program = tuple[int, int, int]


@dataclass(frozen=True)
class Access:
    """One memory instruction of one program, as far as it touches one tensor.

    An instruction whose lanes touch two tensors (a read past the end, say) gives one Access for
    each. A descriptor's gather or scatter is one instruction per row, as the interpreter runs it.
    """

    program: Program
    operation: Operation
    tensor: str
    elements: int  # active lanes; a lane that repeats an address counts again
    bytes: int  # elements times the element's size
    sectors: int  # distinct 32-byte sectors of the active lanes, from the storage's first byte
    # With keep_addresses: bytes from the tensor's first element, one entry a lane, in the block's
    # shape; -1 where the lane is masked or touches another tensor. Absolute addresses for "other".
    offsets: np.ndarray[Any, np.dtype[np.int64]] | None = field(
        default=None, compare=False, repr=False
    )


class Launch(NamedTuple):
    """One kernel launch and the grid it was given."""

    kernel: str
    grid: Program


class Total(NamedTuple):
    """Sums over accesses; see Access for what is counted."""

    instructions: int
    elements: int
    bytes: int
    sectors: int


class _Region(Elements):
    """The addresses of one tensor's elements. Keeps the tensor, so no other can take them."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        super().__init__(tensor)
        self.name, self.tensor = name, tensor
        # A GPU would align a storage to more than a sector.
        self.storage = tensor.untyped_storage().data_ptr()


class Trace:
    """What was recorded. Read it after the `with` block.

    `selected_elements` are those that `tl.where` wrote, those inside Triton's own library functions
    included, but for a reduction (`tl.max`, `tl.argmax`, …), which the interpreter hands to NumPy.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], keep_addresses: bool) -> None:
        self.accesses: list[Access] = []
        self.launches: list[Launch] = []
        self.selected_elements = 0
        self._keep_addresses = keep_addresses
        self._kernel = ""
        self._named = frozenset(tensors)
        self._regions = [_Region(name, tensor) for name, tensor in tensors.items()]

    def total(self, operation: Operation, tensor: str | None = None) -> Total:
        """Sums over the accesses to a tensor, or to all. Matching nothing gives zeros."""
        chosen = [
            a for a in self.accesses if a.operation == operation and tensor in (None, a.tensor)
        ]
        units = ("elements", "bytes", "sectors")
        return Total(len(chosen), *(sum(getattr(a, unit) for a in chosen) for unit in units))

    def per_program(self) -> list[tuple[str, Program]]:
        """(kernel, program) of each program of each launch, idle programs included."""
        return [(launch.kernel, at) for launch in self.launches for at in np.ndindex(*launch.grid)]

    # What the interpreter's calls tell.

    def launching(self, kernel: Any, *args: Any, **kwargs: Any) -> None:
        """Name tensors that a kernel is given after its parameters: `out_ptr` becomes "out"."""
        self._kernel = kernel.fn.__name__
        for name, x in {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}.items():
            x = x.base if isinstance(x, TensorDescriptor) else x
            if not isinstance(x, torch.Tensor) or x.numel() == 0:
                continue
            _require_cpu(name, x)
            known = any(region.contain(np.array(x.data_ptr())) for region in self._regions)
            name = name.removesuffix("_ptr").removesuffix("_desc")
            # A name the caller gave to other memory (the launcher made a copy) stays the caller's.
            if not known and name not in self._named:
                self._regions.append(_Region(name, x))

    def grid_set(self, builder: Any, x: Any, y: Any, z: Any) -> None:
        grid = (operator.index(x), operator.index(y), operator.index(z))
        self.launches.append(Launch(self._kernel, grid))

    def selected(self, builder: Any, condition: Any, *rest: Any) -> None:
        self.selected_elements += condition.data.size

    def adding(self, operation: Operation, before: int, masked: bool = True) -> Callable[..., None]:
        """What records an instruction, whose pointers come after `before` arguments.

        The interpreter gives blocks of addresses and of mask bits; those of a store come last.
        """

        def add(builder: Any, *given: Any, **_: Any) -> None:
            pointers = given[before]
            mask = given[before + 1 + (operation != "load")] if masked else None
            self._add(operation, builder, pointers, mask)

        return add

    def _add(self, operation: Operation, builder: Any, pointers: Any, mask: Any) -> None:
        addresses = np.asarray(pointers.data).astype(np.int64)
        rest = np.ones(addresses.shape, dtype=bool)
        if mask is not None:  # descriptors pass a bare array, whose .data is a buffer
            rest = np.broadcast_to(np.asarray(mask.data, dtype=bool), addresses.shape)
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        touched: list[tuple[_Region | None, Any]] = []
        for region in self._regions:
            inside = rest & region.contain(addresses)
            if inside.any():
                rest = rest & ~inside
                touched.append((region, inside))
        if rest.any():
            touched.append((None, rest))
        elif not touched:  # every lane is masked
            near = [r for r in self._regions if r.contain(addresses).any()]
            touched.append((near[0] if near else None, rest))
        for found, lanes in touched:
            own = addresses[lanes]
            # Elements are aligned to their size, as a GPU demands, so none lies in two sectors.
            sectors = np.unique((own - (found.storage if found else 0)) // SECTOR_BYTES)
            start = found.start if found else 0
            self.accesses.append(
                Access(
                    program=builder.grid_idx,
                    operation=operation,
                    tensor=found.name if found else OTHER,
                    elements=own.size,
                    bytes=own.size * size,
                    sectors=sectors.size,
                    offsets=np.where(lanes, addresses - start, -1)
                    if self._keep_addresses
                    else None,
                )
            )


@contextmanager
def record(
    tensors: Mapping[str, torch.Tensor] | None = None, *, keep_addresses: bool = False
) -> Iterator[Trace]:
    """Record the loads, stores and atomics of every kernel launched in the `with` block.

    Args:
        tensors: names for memory the caller holds; CPU tensors of any strides. Of two that share an
            element the first has it. A tensor made inside the launcher is named after the kernel's
            parameter without `_ptr` ("out"); addresses in no tensor, or in a launcher's copy of a
            named one, are "other".
        keep_addresses: keep every lane's byte offset in `Access.offsets`.

    Yields:
        The Trace, complete once the block has ended.

    Raises:
        ValueError: a tensor is not on the CPU (the interpreter would run on a copy).
        RuntimeError: the block ended and nothing was recorded.
    """
    for name, tensor in (tensors or {}).items():
        _require_cpu(name, tensor)
    trace = Trace(tensors or {}, keep_addresses)
    with looking(
        (InterpretedFunction, "run", trace.launching),
        (InterpreterBuilder, "set_grid_dim", trace.grid_set),
        (InterpreterBuilder, "create_select", trace.selected),
        (InterpreterBuilder, "create_masked_load", trace.adding("load", 0)),
        (InterpreterBuilder, "create_masked_store", trace.adding("store", 0)),
        (InterpreterBuilder, "create_atomic_rmw", trace.adding("atomic", 1)),
        (InterpreterBuilder, "create_atomic_cas", trace.adding("atomic", 0, masked=False)),
    ):
        yield trace
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
