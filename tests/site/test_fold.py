"""The partial evaluator: what it puts in, what it drops, and what it must leave."""

import textwrap

import pytest

from snippets._site.fold import Choice, fold
from snippets._site.your_kernel import formatted


def folded(source, known, **more):
    choice = Choice("launch", known, **more)
    text = formatted(fold(textwrap.dedent(source), choice))
    assert formatted(fold(text, choice)) == text, "twice is once"
    return text.strip()


KERNEL = """
@triton.jit(do_not_specialize=["n", "extra"])
def _kernel(
    x_ptr, y_ptr,  # what is read
    n, extra,
    FLAG: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    value = tl.load(x_ptr + n + tl.arange(0, BLOCK))
    if FLAG:  # twice
        value *= 2.0
    if n > 3:  # known when it runs
        value += 1.0
    if y_ptr is not None:
        value += tl.load(y_ptr)
    tl.store(x_ptr, value)


def launch(x, n, y=None, *, twice=False, other=1):
    _kernel[(1,)](x, y, n, 0, twice, 16)
"""


def test_a_parameter_goes_with_its_arguments():
    text = folded(KERNEL, {"twice": True, "y": None})
    assert "    # twice\n    value *= 2.0\n    if n > 3:  # known when it runs" in text
    assert "def launch(x, n, *, other=1):\n    _kernel[(1,)](x, n, 16)" in text
    assert '@triton.jit(do_not_specialize=["n"])' in text


INSIDE = "def c():\n        return d\n\n    d = a\n    return c"
LATER = "x = None\n    for c in a:\n        b += x or c\n        x = c\n    return b"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("return (a + b if flag else b) * 2", "return (a + b) * 2"),
        ("return flag and a == b", "return a == b"),
        ("return not flag or a", "return a"),
        ("return a is None or flag", "return True"),
        ("return f(a) or flag", "return f(a) or True"),  # f may do something
        ("c = set_it(a)\n    return b", "c = set_it(a)\n    return b"),
        ("c, d = f(a)\n    return d", "_, d = f(a)\n    return d"),
        ("if flag:\n        return a\n    return b", "return a"),
        ("if a:\n        return a\n    elif flag:\n        return b\n    return 1",
         "if a:\n        return a\n    else:\n        return b\n    return 1"),
        ("for c in a:\n        d = c\n        if d:\n            flags = d\n    return b",
         "return b"),
        (LATER, LATER),
        (INSIDE, INSIDE),
    ],
)  # fmt: skip
def test_what_is_known_is_put_in(code, left):
    text = folded(f"def launch(a, b, flag):\n    {code}\n", {"flag": True})
    assert text.split("\n", 1)[1] == f"    {left}"


def test_refusals_and_words_of_what_is_gone_go_too():
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
        return x  # or the cap
    '''
    text = folded(source, {"cap": None}, words=("cap",))
    assert "cap" not in text
    assert 'for name, value in (("x", x),):' in text


def test_what_a_choice_narrows_is_there_once():
    with pytest.raises(ValueError, match="0 times"):
        fold("def launch(x):\n    return x\n", Choice("launch", {}, texts=(("x + 1", "x + 2"),)))
