"""Read a kernel's variables while Triton's interpreter runs it.

    with watch(_tiled_attention_kernel, ["start", "m_i"]) as turns:
        tiled_attention(q, k, v)
    turns[1].values["m_i"]

In the interpreter a kernel is a Python function, so Python's own tracing (what a debugger uses)
sees its variables: nothing is added to the kernel, and none of its lines is changed. They are read
each time a `for` of the kernel is reached: before its first trip, between trips, after the last.
Beside them stands which lines ran since the time before, so that a picture can light them.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from triton.runtime.interpreter import InterpretedFunction, interpreter_builder

from snippets._lab.probe.tracing import tracing


@dataclass(frozen=True)
class Turn:
    """The variables at the head of a loop. One that is not assigned yet is left out."""

    program: tuple[int, int, int]
    loop: int  # 0 for the kernel's first `for`
    values: dict[str, Any]  # a tile is a NumPy array, a copy
    lines: tuple[int, ...] = ()  # of the file, that the program ran since its turn before


class Turns(list[Turn]):
    """Turns in the order they came, and what each program ran after its last."""

    def __init__(self) -> None:
        super().__init__()
        self.last_lines: dict[tuple[int, int, int], list[int]] = {}


@contextmanager
def watch(kernel: Any, names: Sequence[str]) -> Iterator[Turns]:
    """Record the named variables at every head of a loop of `kernel`, in the order they come.

    Raises:
        ValueError: the kernel is no interpreted kernel, or has no `for`.
        RuntimeError: the block ended and the kernel had not run, or a name was never assigned.
    """
    if not isinstance(kernel, InterpretedFunction):
        raise ValueError(
            f"{kernel} does not run in Triton's interpreter; set TRITON_INTERPRET=1 before its "
            "module is imported"
        )
    function = kernel.fn
    lines, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(lines)))
    loops = sorted(node.lineno + first - 1 for node in ast.walk(tree) if isinstance(node, ast.For))
    if not loops:
        raise ValueError(f"{function.__name__} has no loop to watch")
    turns = Turns()

    def look(frame: FrameType, event: str) -> None:
        if event != "line":
            return
        line, program = frame.f_lineno, interpreter_builder.grid_idx
        if line in loops:
            found = {n: _plain(frame.f_locals[n]) for n in names if n in frame.f_locals}
            ran = tuple(turns.last_lines.pop(program, ()))
            turns.append(Turn(program, loops.index(line), found, ran))
        turns.last_lines.setdefault(program, []).append(line)

    place = function.__name__, function.__code__.co_filename
    with tracing(lambda frame: (frame.f_code.co_name, frame.f_code.co_filename) == place, look):
        yield turns
    if not turns:
        raise RuntimeError(f"{function.__name__} did not run, so nothing was recorded")
    if missing := set(names) - {name for turn in turns for name in turn.values}:
        raise RuntimeError(f"{function.__name__} never assigned {', '.join(sorted(missing))}")


def _plain(value: Any) -> Any:
    """A copy of a tile's numbers, a scalar as Python's own; anything else as it is."""
    handle = getattr(value, "handle", None)
    if handle is None:
        return value
    data = np.array(handle.data)
    return data.item() if data.size == 1 and data.ndim <= 1 else data


SOFTMAX = ("start", "scores", "m_i", "alpha", "p", "l_i", "acc")


def softmax_steps(
    turns: Sequence[Turn],
    program: tuple[int, int, int],
    keys: int,
    *,
    scores: str = "scores",
    scale: float = 1.0,
) -> list[dict[str, Any]]:
    """One row a tile for a program that was watched with the names of SOFTMAX; JSON throughout.

    A kernel may call its scores otherwise, and multiply them only in the exponent (`scale`, with
    log2(e) where its exponentials are exp2): then m and the scores of a row have one unit again.
    Its loop may be in a function of its own, and there may be two loops, one after the other.

    Beside the variables after a tile (scores [queries, tile], m, alpha, p [queries, tile], l,
    acc [queries, columns]) their values before it, and `share` [queries, keys]: what each key
    would weigh if the tile were the last. -inf is None.
    """
    mine = [turn.values for turn in turns if turn.program == program]
    rows: list[dict[str, Any]] = []
    weights = np.zeros((len(mine[0]["m_i"]), keys))
    for before, after in itertools.pairwise(mine):
        if after.get("start") in (None, before.get("start")):
            continue  # from the end of one loop to the head of the next: no tile between them
        start, tile = after["start"], after["p"].shape[1]
        weights *= after["alpha"].astype(np.float64)[:, None]
        weights[:, start : start + tile] = after["p"][:, : keys - start]
        total = after["l_i"].astype(np.float64)
        share = weights / np.where(total == 0, 1, total)[:, None]
        rows.append(
            {
                "start": start,
                "scores": _json(after[scores] * np.float32(scale)),
                "m_before": _json(before["m_i"]),
                "m": _json(after["m_i"]),
                "alpha": _json(after["alpha"]),
                "p": _json(after["p"]),
                "l_before": _json(before["l_i"]),
                "l": _json(after["l_i"]),
                "acc_before": _json(before["acc"]),
                "acc": _json(after["acc"]),
                "share": _json(share),
            }
        )
    return rows


def _json(tile: np.ndarray[Any, Any]) -> list[Any]:
    """Nested lists; -inf, which JSON cannot hold, becomes None."""
    shown = tile.astype(object)
    shown[tile == -np.inf] = None
    listed: list[Any] = shown.tolist()
    return listed
