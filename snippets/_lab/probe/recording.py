"""What the scene of a kernel at work is drawn from: one program's variables, lines and bytes.

Recorded in Triton's interpreter while the kernel runs as it is: variables and lines by Python's
tracing (variables.py), bytes by the loads and stores that it makes (memory_trace.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from snippets._lab.probe import launches
from snippets._lab.probe.listing import Listing
from snippets._lab.probe.memory_trace import Program, Trace, record
from snippets._lab.probe.variables import SOFTMAX, Turn, Turns, softmax_steps, watch

# What begins the second and the third part of an iteration: the maximum moves, values are added.
PARTS = ("m_new", "v_tile")


@dataclass(frozen=True)
class Recording:
    """A launch of a kernel. Read it after the `with` block."""

    listing: Listing
    turns: Turns
    trace: Trace
    launched: launches.Launches
    keys: int

    def of(self, program: Program) -> list[Turn]:
        """The turns of one program."""
        return [turn for turn in self.turns if turn.program == program]

    def bytes(self, program: Program, tensor: str) -> list[int]:
        """Bytes of each load from a tensor, or store to it, in the order in which they came."""
        found = [a for a in self.trace.accesses if a.program == program and a.tensor == tensor]
        if not found:
            raise RuntimeError(f"program {program} never touched {tensor}")
        return [access.bytes for access in found]

    def launch(self, out: torch.Tensor, program: Program, **names: str) -> dict[str, Any]:
        """What another interpreter needs to do the same with another text of the kernel.

        `names`: what this kernel calls its variables, where it is not what SOFTMAX calls them.
        """
        expected = {"float32": launches.float32(out), "allowed": 0.0}
        outputs = [self.launched.place(out, "out") | expected]
        problem = {"launches": self.launched.rows, "storages": self.launched.memory()}
        return {
            "launch": {
                "program": list(program),
                "names": names,
                "problem": problem | {"outputs": outputs},
            }
        }


@contextmanager
def recording(
    kernel: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    names: tuple[str, ...] = SOFTMAX,
) -> Iterator[Recording]:
    """Record the named variables at every head of a loop, the lines between, and every access."""
    inputs = {"q": q, "k": k, "v": v}
    with (
        record(inputs) as trace,
        watch(kernel, names) as turns,
        launches.recorded(inputs) as launched,
    ):
        yield Recording(Listing.of(kernel.fn), turns, trace, launched, k.shape[-2])


def running_softmax(
    recorded: Recording, program: Program, **of_softmax_steps: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of softmax_steps with their lines and bytes; and what is of the whole program.

    `lines` of a row are those of its scores, of the maximum and what follows from it, and of the
    values; a statement is its first and last line in the listing.
    """
    turns, listing = recorded.of(program), recorded.listing
    rows = softmax_steps(turns, program, recorded.keys, **of_softmax_steps)
    moved = zip(recorded.bytes(program, "k"), recorded.bytes(program, "v"), strict=True)
    for row, turn, (k, v) in zip(rows, turns[1:], moved, strict=True):
        row["lines"] = listing.parts(turn.lines, PARTS)
        row["bytes"] = {"k": k, "v": v}
    (q,), (out,) = (recorded.bytes(program, tensor) for tensor in ("q", "out"))
    return rows, {
        "listing": listing.lines,
        "begin": listing.statements(turns[0].lines),
        "end": listing.statements(recorded.turns.last_lines[program]),
        "bytes": {"q": q, "out": out},
    }
