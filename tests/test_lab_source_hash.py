"""The source hash: moved by what can move a number, by nothing else, and equal on every Python."""

import ast

import pytest

from snippets._lab.results.source_hash import canonical, closure, public_functions, source_hash

SOURCE = '''
"""A kernel's file."""
import math
from torch import float16

LIMIT = 64
UNUSED = 1

def jit(function):
    return function

def _inner(x):
    """What it does."""
    return x * LIMIT

def _kernel(x):
    return _inner(x) + 1

kernel = jit(_kernel)

@jit
def attention(x, scale=2.0):  # a comment
    """What it does."""
    if x < 3 and kernel(x):
        return math.exp(x * scale), float16
    return x

def unrelated(x):
    return x - 1

def main():
    print(attention(1))
'''

SAME = {
    "comment": ("# a comment", "# another: not a constant, nor = 3"),
    "comment gone": ("  # a comment", ""),
    "docstring": ('"""What it does."""\n    if', '"""Says something else."""\n    if'),
    "docstring gone": ('    """What it does."""\n    if', "    if"),
    "blank lines": ("        return math", "\n\n        return math"),
    "line breaks": ("math.exp(x * scale), float16", "(\n            math.exp(x * scale), float16)"),
    "spacing": ("x * scale", "x*scale"),
    "parentheses": ("x < 3 and kernel(x)", "(x < 3) and (kernel(x))"),
    "quotes": ('"""A kernel\'s file."""', "'''A kernel''s file.'''"),
    "number spelled otherwise": ("LIMIT = 64", "LIMIT = 0x40"),
    "unused constant": ("UNUSED = 1", "UNUSED = 2"),
    "unrelated function": ("return x - 1", "return x - 2"),
    "main": ("print(attention(1))", "print(attention(2))"),
    "order of definitions": ("LIMIT = 64\nUNUSED = 1", "UNUSED = 1\nLIMIT = 64"),
}

DIFFERENT = {
    "constant in the function": ("x < 3", "x < 4"),
    "type of a constant": ("x < 3", "x < 3.0"),
    "operator": ("x < 3", "x <= 3"),
    "and, or": ("x < 3 and", "x < 3 or"),
    "default": ("scale=2.0", "scale=2.5"),
    "name of a parameter": ("x, scale=2.0", "x, factor=2.0"),
    "decorator gone": ("@jit\ndef attention", "def attention"),
    "decorator's body": ("    return function", "    return None"),
    "helper of a helper": ("return x * LIMIT", "return x + LIMIT"),
    "helper behind an assignment": ("_inner(x) + 1", "_inner(x) + 2"),
    "global constant": ("LIMIT = 64", "LIMIT = 65"),
    "global constant changed later": ("UNUSED = 1", "LIMIT += 1"),
    "constant under a condition": ("UNUSED = 1", "if UNUSED:\n    LIMIT = 65"),
    "imported name": ("from torch import float16", "from torch import bfloat16 as float16"),
    "imported module": ("import math", "import cmath as math"),
    "line gone": ("    return x\n\ndef unrelated", "\ndef unrelated"),
}


def hash_of(tmp_path, source, *names):
    path = tmp_path / "kernel.py"
    path.write_text(source, encoding="utf-8")
    return source_hash([(path, names or ["attention"])])


def changed(old, new):
    assert SOURCE.count(old) == 1, f"{old!r} is not in the sample exactly once"
    return SOURCE.replace(old, new)


@pytest.mark.parametrize("case", SAME)
def test_the_hash_stays(case, tmp_path):
    assert hash_of(tmp_path, changed(*SAME[case])) == hash_of(tmp_path, SOURCE)


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_hash_moves(case, tmp_path):
    assert hash_of(tmp_path, changed(*DIFFERENT[case])) != hash_of(tmp_path, SOURCE)


def test_an_async_function_can_be_hashed(tmp_path):
    sources = [f"async def attention(x):\n    await {name}" for name in "xy"]
    assert hash_of(tmp_path, sources[0]) != hash_of(tmp_path, sources[1])


def test_helpers_under_a_condition_count(tmp_path):
    source = "try:\n    def help(x): return 1\nexcept X: pass\ndef attention(x): return help(x)\n"
    moved = source.replace("return 1", "return 2")
    assert hash_of(tmp_path, source) != hash_of(tmp_path, moved)


def test_an_unknown_root_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no top-level definition of 'gone'"):
        hash_of(tmp_path, SOURCE, "gone")


def test_two_files_are_two_parts(tmp_path):
    first, second = tmp_path / "a.py", tmp_path / "b.py"
    first.write_text("def f(): return 1")
    second.write_text("def g(): return 2")
    both = source_hash([(first, ["f"]), (second, ["g"])])
    second.write_text("def g(): return 3")
    assert source_hash([(first, ["f"]), (second, ["g"])]) != both


def test_public_functions_are_what_a_reader_imports():
    assert public_functions(SOURCE) == ["jit", "attention", "unrelated"]


# One of everything that Python's versions write down differently, or may one day.
EVERYTHING = r'''
"""Module docstring."""
from __future__ import annotations
import math
from typing import Any as Anything

BIG = 123456789012345678901234567890
SMALL, NEAR = 1e-300, 0.1 + 0.2j
WORDS: dict[str, list[int]] = {"größe": [1, 2], "\N{GREEK SMALL LETTER PI}": [*range(3)], **{}}
RAW = rb"\x00" b"\xff" + br"\d"
NAMES = "a" "b" f"c{BIG:>{len('x')}}" "d" f"{{}}" f"{SMALL!r:}" f"{NEAR = }" f"\N{EN DASH}{1}é" f""

def decorated(times=2, *, unit: str = "ms"):
    def wrap(function):
        return function
    return wrap

@decorated(times=3)
def sample(x: int, /, y: float = -1.0, *args, z: Anything = None, **kwargs) -> str:
    """Docstring."""
    global BIG
    total = 0x_ff + 0b1 + 1_000
    if (n := len(args)) > 3 and not x <= y < 3 or x is not None:
        total += n ** -x @ math.pi if z else ~x
    elif True: pass
    match kwargs:
        case {"a": [1, *rest], **other} if rest: return f"{rest!r:{total}.{n}}"
        case [int(real=1) | float(), None] | "x": return f"{'nested ' f'{x:{y}{n}}'}"
        case _: ...
    square = lambda a, *b, c=1, **d: (a, *b, {k: v for k, v in d.items() if k if v})
    try:
        with open("x") as f, open("y"): del total
    except* (ValueError, TypeError) as error:
        raise RuntimeError from error
    else:
        assert square, "message"
    finally:
        for i, (j, *k) in enumerate([]): continue
        else: i = j[1:2, ..., None, ::3]
        while False: break
    return f"""{x:%H:%M} {x,} {(lambda: 1)()} {"".join(s for s in 'a')}
    {x!s:{'>'}{10}} {{literal}} {x:{y}}"""if 0 else f'{z:{y}}'

class Kind(dict, metaclass=type):
    "Docstring."
    field: int = 0
    async def run(self):
        async with self as a, self: await a
        async for b in self: yield [c async for c in b]
'''


def test_every_python_gives_the_recorded_value(tmp_path):
    """Computed with 3.11.7, 3.12.1 and 3.13.0. A change makes every measured result stale."""
    names = ["sample", "Kind", "NAMES", "WORDS", "RAW", "SMALL", "BIG"]
    assert hash_of(tmp_path, EVERYTHING, *names) == "cfdf07515bab0721"


def test_what_only_python_3_12_writes_does_not_count():
    """It ends the format of f"{x:{y}}" with an empty constant: seen here on every Python."""
    tree = ast.parse('f"{x:{y}}"')
    before = canonical(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            node.values.append(ast.Constant(""))
    assert canonical(tree) == before


def test_non_ascii_text_is_written_in_ascii():
    """Which characters count as printable depends on the Python's Unicode tables."""
    (text,) = closure("def f():\n    return 'größe \U0001fae8'", ["f"])
    assert text.isascii()
