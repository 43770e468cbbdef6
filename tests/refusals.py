"""What is refused: a call, and the error that it must raise."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest


def assert_refused(expected: Exception, call: Callable[..., Any], *given: Any, **named: Any) -> str:
    """Hold the call to an error of the expected one's type, with its text in it; the whole text."""
    with pytest.raises(type(expected)) as caught:
        call(*given, **named)
    assert f"{expected}" in f"{caught.value}"
    return f"{caught.value}"


def each_refusal(table: Mapping[type[Exception], Mapping[str, Any]]) -> pytest.MarkDecorator:
    """Parametrize over the `error`s of a table and the `change` to a right call that raises it.

    The table has the type of an error, its text, and the change; the text names the case.
    """
    cases = [(kind(text), x) for kind, said in table.items() for text, x in said.items()]
    return pytest.mark.parametrize(("error", "change"), cases, ids=[str(e) for e, _ in cases])
