"""Record what a launcher launches: kernels, grids and arguments, with their tensors' memory.

    with recorded({"q": q, "k": k, "v": v}) as launches:
        out = tiled_attention(q, k, v)
    launches.rows, launches.memory()

A launcher is Python, and stays there: what a kernel is given on a fixed problem is all that another
interpreter of kernels needs. Runs in Triton's interpreter, on the CPU.
"""

from __future__ import annotations

import base64
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.probe.interpreter import looking

STEP = 1 / 16  # inputs are whole multiples of it, or of a power of two times it: a byte each
PRINTED = 5  # rows of a result that are told, at most
NOT_A_NUMBER = -128  # among these bytes
Row = dict[str, Any]


@dataclass
class Launches:
    """What was launched; whole once the block has ended."""

    inputs: Mapping[str, Tensor]
    rows: list[Row] = field(default_factory=list)
    held: dict[int, tuple[Tensor, str]] = field(default_factory=dict)  # address → the first there

    def place(self, x: Tensor, name: str) -> Row:
        """Where a tensor lies: the number of its storage, and its elements there."""
        address = x.untyped_storage().data_ptr()
        first, _ = self.held.setdefault(address, (x, name))  # so that no other takes its address
        if first.dtype != x.dtype:
            raise ValueError(f"{name} shares memory with a tensor of another dtype")
        return {
            "storage": list(self.held).index(address),
            "offset": x.storage_offset(),
            "shape": list(x.shape),
            "strides": list(x.stride()),
        }

    def memory(self) -> list[Row]:
        """Each storage: its size and dtype, and the input that lies in it, if one does."""
        found = []
        for address, (x, first) in self.held.items():
            size = x.untyped_storage().nbytes() // x.element_size()
            dtype = str(x.dtype).removeprefix("torch.")
            row: Row = {"name": first, "dtype": dtype, "size": size}
            for name, given in self.inputs.items():
                if given.untyped_storage().data_ptr() == address:
                    if "shape" in row:
                        raise ValueError(f"{name} and {row['name']} share memory")
                    row |= {"name": name, **self.place(given, name), **_bytes(given)}
                    del row["storage"]
            found.append(row)
        return found


class _NotRunError(Exception):
    """The launch is recorded, and that is all that was wanted."""


@contextmanager
def recorded(inputs: Mapping[str, Tensor], run: bool = True) -> Iterator[Launches]:
    """Record every launch in the block; `inputs` hold the numbers that kernels begin with.

    Without `run` the block is left at its first launch, whose kernel does not run.
    """
    launches = Launches(inputs)

    def launching(kernel: Any, *args: Any, **options: Any) -> None:
        given = {**dict(zip(kernel.arg_names, args, strict=False)), **options}
        known = inspect.signature(kernel.fn).parameters
        arguments = {
            name: _argument(launches, name, value, known[name].annotation)
            for name, value in given.items()
            if name in known
        }
        launches.rows.append({"kernel": kernel.fn.__name__, "grid": [], "args": arguments})

    def grid_set(builder: Any, *sizes: int) -> None:
        launches.rows[-1]["grid"] = [int(n) for n in sizes]
        if not run:
            raise _NotRunError

    hooks = (
        (InterpretedFunction, "run", launching),
        (InterpreterBuilder, "set_grid_dim", grid_set),
    )
    with suppress(_NotRunError), looking(*hooks):
        yield launches
    if not launches.rows:
        raise RuntimeError(
            "no kernel ran in Triton's interpreter; set TRITON_INTERPRET=1 before the kernel's "
            "module is imported and pass CPU tensors"
        )


def _argument(launches: Launches, name: str, value: Any, annotation: Any) -> Any:
    label = name.removesuffix("_ptr")
    if isinstance(value, Tensor):
        return launches.place(value, label)
    if isinstance(value, TensorDescriptor):
        place = launches.place(value.base, label)
        place |= {"shape": list(value.shape), "strides": list(value.strides)}
        return {"descriptor": place, "block": list(value.block_shape)}
    value = value.value if isinstance(value, tl.constexpr) else value
    if isinstance(value, float):
        if annotation is tl.constexpr or annotation == "tl.constexpr":
            return {"type": "float64", "value": value}
        return {"type": "float32", "value": float(np.float32(value))}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    raise ValueError(f"the argument {name} is of type {type(value).__name__}")


def _bytes(x: Tensor) -> Row:
    """The numbers of an input, in order: a byte each, times `step`, or four where that is lossy."""
    if not x.is_floating_point():
        return {"int32": _text(x.to(torch.int32).contiguous().numpy())}
    values = x.double()
    for step in (STEP * 2**power for power in range(12)):
        whole = values.nan_to_num(NOT_A_NUMBER * step) / step
        if bool((whole == whole.round()).all()) and bool((whole.abs() <= -NOT_A_NUMBER).all()):
            return {"int8": _text(whole.to(torch.int8).contiguous().numpy()), "step": step}
    return {"float32": _text(x.float().contiguous().numpy())}


def _text(values: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


def float32(x: Tensor) -> str:
    """Numbers of 32 bits in base64, in the order of x's elements."""
    return _text(x.detach().to(torch.float32).contiguous().numpy())


def on_the_lattice(x: Tensor, step: float = STEP) -> Tensor:
    """The nearest numbers that take a byte each."""
    return (x / step).round().clamp(-127, 127) * step


def prints(out: Tensor) -> list[float]:
    """Sums of some rows of a result [..., columns], each a sum that every column moves.

    Rounded to float16. What two mistakes leave differs in one of them, if it differs at all by more
    than rounding: all weights are positive, and no two columns near each other have the same. The
    rows are the first and the last two, and some in between; what is no number counts as a large
    one, so that it shows where it is.
    """
    rows = out.double().nan_to_num(512.0, 8192.0, -8192.0).reshape(-1, out.shape[-1])
    last = len(rows) - 1
    some = {0, 1, last - 1, last, *(last * i // (PRINTED - 3) for i in range(PRINTED - 3))}
    rows = rows[[row for row in sorted(some) if 0 <= row <= last]]
    weights = 1 + (torch.arange(rows.shape[-1]) * 5 % 7) / 7
    return [float(x) for x in (rows * weights).sum(-1).to(torch.float16)]


def float16(values: Sequence[float]) -> str:
    """Numbers of 16 bits in base64."""
    return _text(np.array(values, dtype=np.float16))
