"""The simulation with a clock, and which line of kernel.py each part is at: for the scene.

timed.py says when something happens; the lines come from the same run of the kernel as the list of
what its parts ask for, so that a line is lit when the part comes to it.
"""

import ast
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest.mock import patch

from . import parts
from .gluon import KERNEL
from .parts import Tracer, Work, trace
from .timed import _Clock

SHOWN = ("_producer", "_step_overlapped", "_consumer")  # functions of kernel.py, where parts are


class At(NamedTuple):
    """A part comes to a line of one of the functions that are shown."""

    part: str
    function: str
    line: int  # of kernel.py
    time: int


class Sent(NamedTuple):
    """An arrival at a barrier, whether somebody waited for it or not."""

    barrier: str
    sender: str
    time: int


class _Lined(Tracer):
    """A tracer that also notes where the kernel is."""

    lines: dict[int, tuple[str, int]]  # the number of an operation in all → function and line

    def note(self, op: Any) -> None:
        super().note(op)
        places = self.__dict__.setdefault("places", {})
        places.setdefault(id(self.ops), []).append(_innermost_shown())


def _innermost_shown() -> tuple[str, int] | None:
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        if code.co_filename == KERNEL.name and code.co_name in SHOWN:
            return code.co_name, frame.f_lineno
        frame = frame.f_back
    return None
