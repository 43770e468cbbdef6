"""The partial evaluator: what it puts in, what it drops, and what it must leave."""

import textwrap
from dataclasses import replace

import pytest

from snippets._site.fold import Unfoldable, fold
from snippets._site.program import SOME, Choice


def folded(source, given, **more):
    choice = Choice(("launch",), given, **more)
    text = fold(textwrap.dedent(source), choice)
    assert fold(text, replace(choice, texts=())) == text, "twice is once"
    return text.strip().split("\n")


KERNEL = """
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n", "extra"])
def _kernel(
    x_ptr, y_ptr,  # what is read
    n, extra,
    FLAG: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    \"\"\"Adds. With FLAG it also doubles; without, it does not.\"\"\"
    value = tl.load(x_ptr + n + tl.arange(0, BLOCK))
    if FLAG:  # twice
        value *= 2.0
    if n > 3:  # known when it runs
        value += 1.0
    if y_ptr is not None:
        value += tl.load(y_ptr)
    tl.store(x_ptr, value)


def launch(x, n, y=None, *, twice=False, other=1):
    constants = (n, 0, twice)
    _kernel[(1,)](x, y, *constants, 16)
"""


def test_a_parameter_goes_with_its_arguments():
    text = folded(KERNEL, {"launch": {"twice": True, "y": None}})
    assert "    value *= 2.0" in text
    assert "    # twice" in text, "the comment of a test that is gone"
    assert "def launch(x, n, *, other=1):" in text
    assert "    constants = (n,)" in text, "a parameter that nobody reads"
    assert '@triton.jit(do_not_specialize=["n"])' in text
    assert not any("FLAG" in line or "y_ptr" in line for line in text)


def test_a_condition_of_the_running_kernel_stays():
    text = folded(KERNEL, {"launch": {"twice": False, "y": SOME}})
    assert "    if n > 3:  # known when it runs" in text
    assert "    value += tl.load(y_ptr)" in text
    assert "def launch(x, n, y, *, other=1):" in text, "no default for what has to be there"
    assert not any("2.0" in line for line in text)


LATER = "x = None\n    for c in a:\n        b += x or c\n        x = c\n    return b"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("return a if flag else b", "return a"),
        ("return (a + b if flag else b) * 2", "return (a + b) * 2"),
        ("return flag and a == b", "return a == b"),
        ("return not flag or a", "return a"),
        ("return a is None or flag", "return True"),
        ("return f(a) or flag", "return f(a) or True"),  # f may do something
        ("return a in (1, flag)", "return a in (1, True)"),
        ("c = 1\n    return a + b", "return a + b"),
        ("c = g(a)\n    return b", "c = g(a)\n    return b"),
        ("c, d = a, b\n    return d", "return b"),
        ("c, d = a\n    return d", "_, d = a\n    return d"),
        ("if flag:\n        return a\n    return b", "return a"),
        ("if a:\n        return a\n    elif flag:\n        return b\n    return 1",
         "if a:\n        return a\n    else:\n        return b\n    return 1"),
        ("for c in a:\n        d = c\n        if d:\n            flags = d\n    return b",
         "return b"),
        (LATER, LATER),
    ],
)  # fmt: skip
def test_what_is_known_is_put_in(code, left):
    text = folded(f"def launch(a, b, flag):\n    {code}\n", {"launch": {"flag": True}})
    assert "\n".join(text[1:]) == f"    {left}"


def test_refusals_fields_and_words_of_what_is_gone_go_too():
    source = '''
    def launch(x, cap=None):
        """Multiply.

        Args:
            x: a number; with a cap, below it.
            cap: none of it is more
                than this.
        """
        for name, value in (("x", x), ("cap", cap)):
            if value is None:
                raise ValueError(f"{name} is missing")
        for error in _refusals(x, cap):
            raise error
        return x  # or the cap


    def _refusals(x, cap):
        if cap is not None and cap < 0:
            yield ValueError(f"cap is {cap}; allowed: from 0")
        if x < 0:
            yield ValueError(f"x is {x}; allowed: from 0")
    '''
    text = "\n".join(folded(source, {"launch": {"cap": None}}, words=("cap",)))
    assert "cap" not in text
    assert 'for name, value in (("x", x),):' in text
    assert "x is {x}; allowed" in text


def test_what_a_choice_narrows_is_there_once():
    narrowed = Choice(("launch",), {}, texts=(("x + 1", "x + 2"),))
    assert fold("def launch(x):\n    return x + 1\n", narrowed).endswith("return x + 2\n")
    with pytest.raises(Unfoldable, match="0 times"):
        fold("def launch(x):\n    return x\n", narrowed)
