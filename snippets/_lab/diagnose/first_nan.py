"""Finds where a launcher's first NaN comes from: the line, the variable, what it was made of."""

import ast
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from torch import Tensor

from snippets._lab.judge.bounds import Line, line_of, of_reader
from snippets._lab.probe.tracing import tracing


class _Found(BaseException):
    """Ends the run: no kernel catches it."""


@dataclass(frozen=True)
class Origin:
    """The first variable that held a NaN."""

    variable: str
    line: Line
    index: tuple[int, ...]
    program: tuple[int, ...] | None  # of the grid, where a kernel ran
    made_of: tuple[tuple[str, float], ...]  # the variables of that line, at that place

    def text(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        where = f" of program {self.program}" if self.program else ""
        made = ", ".join(f"{name} is {value:.4g}" for name, value in self.made_of)
        return f"The first NaN is in {self.variable}{at}{where}: {self.line} makes it" + (
            f"; there {made}." if made else "."
        )


def first_nan(run: Callable[[], object], unwritten: Callable[[Tensor], bool]) -> Origin | None:
    """Run something and stop at its first NaN. None if no variable ever holds one.

    Args:
        run: the call of the launcher; the inputs hold no NaN.
        unwritten: whether a tensor is one that the launcher made without giving it numbers.
    """
    seen: dict[int, tuple[FrameType, int, dict[str, Any]]] = {}  # frame → its last line and names

    def look(frame: FrameType, event: str) -> None:
        if event not in ("line", "return"):
            return
        _, line, before = seen.get(id(frame), (frame, frame.f_lineno, {}))
        now = _with_fields(frame.f_locals)
        for name, value in now.items():
            if value is before.get(name) and not isinstance(value, Tensor):
                continue
            numbers = _numbers(value, unwritten)
            if numbers is None or not np.isnan(numbers).any():
                continue
            index = tuple(int(i) for i in np.argwhere(np.isnan(numbers))[0])
            where = line_of(frame.f_code.co_filename, line)
            parts = _made_of(where, before, numbers.shape, index, unwritten)
            raise _Found(Origin(name, where, index, _program(value), parts))
        seen[id(frame)] = (frame, frame.f_lineno, now)

    try:
        with tracing(of_reader, look):
            run()
    except _Found as found:
        origin: Origin = found.args[0]
        return origin
    return None


def _with_fields(names: Mapping[str, Any]) -> dict[str, Any]:
    """The variables, and each field of a named tuple by its own name: state.acc."""
    found = dict(names)
    for name, value in names.items():
        found |= {
            f"{name}.{field}": getattr(value, field) for field in getattr(value, "_fields", ())
        }
    return found


def _numbers(value: Any, unwritten: Callable[[Tensor], bool]) -> np.ndarray[Any, Any] | None:
    """The numbers of a tile, a tensor or a float; None for anything else."""
    data = getattr(getattr(value, "handle", None), "data", None)
    if isinstance(data, np.ndarray):
        return data if data.dtype.kind == "f" else None
    if isinstance(value, Tensor):
        if not value.is_floating_point() or unwritten(value):
            return None
        return value.detach().cpu().double().numpy()
    return np.array(value) if isinstance(value, float) else None


def _program(value: Any) -> tuple[int, ...] | None:
    if not hasattr(value, "handle"):
        return None
    from triton.runtime.interpreter import interpreter_builder

    return tuple(int(i) for i in interpreter_builder.grid_idx)


def _made_of(
    line: Line,
    names: dict[str, Any],
    shape: tuple[int, ...],
    index: tuple[int, ...],
    unwritten: Callable[[Tensor], bool],
) -> tuple[tuple[str, float], ...]:
    """What the variables of a statement held before it, at the place of the NaN."""
    try:
        nodes = ast.walk(ast.parse(line.text))
    except SyntaxError:
        return ()
    parts = []
    for name in dict.fromkeys(
        ast.unparse(n) for n in nodes if isinstance(n, ast.Name | ast.Attribute)
    ):
        numbers = _numbers(names.get(name), unwritten)
        if numbers is None:
            continue
        if numbers.ndim == 1 < len(shape):
            numbers = numbers[:, None]  # one number a row
        with contextlib.suppress(ValueError):  # of another shape
            parts.append((name, float(np.broadcast_to(numbers, shape)[index])))
    return tuple(parts)
