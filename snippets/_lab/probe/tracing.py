"""Python's own tracing, what a debugger uses: lines of some functions, as they are reached."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def tracing(
    of: Callable[[FrameType], bool], tell: Callable[[FrameType, str], None]
) -> Iterator[None]:
    """Tell of each "line", "return" and "exception" in functions whose frames are `of` them."""

    def at_a_line(frame: FrameType, event: str, _: Any) -> Any:
        tell(frame, event)
        return at_a_line

    def at_a_call(frame: FrameType, event: str, _: Any) -> Any:
        return at_a_line if of(frame) else None

    before = sys.gettrace()
    sys.settrace(at_a_call)
    try:
        yield
    finally:
        sys.settrace(before)
