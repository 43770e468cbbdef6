"""What is refused: a call, and the error that it must raise."""

from collections.abc import Callable
from typing import Any

import pytest


def assert_refused(expected: Exception, call: Callable[..., Any], *given: Any, **named: Any) -> str:
    """Hold the call to an error of the expected one's type, with its text in it; the whole text."""
    with pytest.raises(type(expected)) as caught:
        call(*given, **named)
    assert f"{expected}" in f"{caught.value}"
    return f"{caught.value}"
