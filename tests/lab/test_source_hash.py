"""The source hash: moved by what can move a number, by nothing else, and equal on every Python."""

import ast

import pytest

from snippets._lab.results.source_hash import Writer, public_functions
from snippets._lab.results.staleness import Walk, source_hash
from tests import made_up

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
    refuses(x)
    if x < 3 and kernel(x):
        return math.exp(x * scale), float16
    return shifted(x, by=LIMIT)

def shifted(x, by: int, sign: tl.constexpr = 1) -> int:
    moved = [x + sign * step for step in range(by)]
    return moved

def unrelated(x):
    return x - 1

def refuses(x):
    if x > LIMIT:
        raise ValueError(f"x is {x}; at most {LIMIT} is allowed")
    if x is None:
        raise KeyError("no " + "x") from None

def main():
    print(attention(1))
'''

SAME = {
    "comment": ("# a comment", "# another: not a constant, nor = 3"),
    "comment gone": ("  # a comment", ""),
    "docstring": ('"""What it does."""\n    refuses', '"""Says something else."""\n    refuses'),
    "docstring gone": ('    """What it does."""\n    refuses', "    refuses"),
    "blank lines": ("        return math", "\n\n        return math"),
    "line breaks": ("math.exp(x * scale), float16", "(\n            math.exp(x * scale), float16)"),
    "spacing": ("x * scale", "x*scale"),
    "parentheses": ("x < 3 and kernel(x)", "(x < 3) and (kernel(x))"),
    "quotes": ('"""A kernel\'s file."""', "'''A kernel''s file.'''"),
    "number spelled otherwise": ("LIMIT = 64", "LIMIT = 0x40"),
    "unused constant": ("UNUSED = 1", "UNUSED = 2"),
    "unrelated function": ("return x - 1", "return x - 2"),
    "main": ("print(attention(1))", "print(attention(2))"),
    "annotation": ("by: int,", "by: float | None,"),
    "annotation gone": (" -> int:", ":"),
    "name of a parameter": (
        '_inner(x):\n    """What it does."""\n    return x',
        "_inner(y):\n    return y",
    ),
    "name of a variable": (
        "moved = [x + sign * step for step in range(by)]\n    return moved",
        "found = [x + sign * step for step in range(by)]\n    return found",
    ),
    "name in a comprehension": ("sign * step for step in", "sign * one for one in"),
    "wording of an error": ("at most {LIMIT} is allowed", "{LIMIT} is the most"),
    "wording of another": ('"no " + "x"', '"there is no " + "y"'),
    "order of definitions": ("LIMIT = 64\nUNUSED = 1", "UNUSED = 1\nLIMIT = 64"),
}

DIFFERENT = {
    "constant in the function": ("x < 3", "x < 4"),
    "type of a constant": ("x < 3", "x < 3.0"),
    "operator": ("x < 3", "x <= 3"),
    "and, or": ("x < 3 and", "x < 3 or"),
    "default": ("scale=2.0", "scale=2.5"),
    "order of parameters": ("x, by: int", "by: int, x"),
    "another argument": ("by=LIMIT", "sign=LIMIT"),
    "another variable": ("x + sign", "moved + sign"),
    "annotation that Triton compiles by": ("sign: tl.constexpr", "sign"),
    "decorator gone": ("@jit\ndef attention", "def attention"),
    "decorator's body": ("    return function", "    return None"),
    "helper of a helper": ("return x * LIMIT", "return x + LIMIT"),
    "helper behind an assignment": ("_inner(x) + 1", "_inner(x) + 2"),
    "global constant": ("LIMIT = 64", "LIMIT = 65"),
    "global constant changed later": ("UNUSED = 1", "LIMIT += 1"),
    "constant under a condition": ("UNUSED = 1", "if UNUSED:\n    LIMIT = 65"),
    "imported name": ("from torch import float16", "from torch import bfloat16 as float16"),
    "imported module": ("import math", "import cmath as math"),
    "line gone": ("    moved = [x + sign * step for step in range(by)]\n", ""),
    "what an error says of": ("x is {x};", "x is {x + 1};"),
    "one more value in it": ("{LIMIT} is allowed", "{LIMIT} is allowed, {x}"),
    "the condition of an error": ("x > LIMIT:", "x >= LIMIT:"),
    "the kind of an error": ("ValueError", "TypeError"),
    "the cause of an error": ('"x") from None', '"x") from x'),
    "no error": ('raise KeyError("no " + "x") from None', "pass"),
}


@pytest.fixture
def code(tmp_path, monkeypatch):
    """What definitions of a made-up room's kernel depend on."""

    def follow(source, *names):
        (folder / "kernel.py").write_text(source, encoding="utf-8")
        walk = Walk("some_attention", "gpu")
        walk.follow(folder / "kernel.py", names or ["attention"])
        return walk.code

    with made_up.room(tmp_path, monkeypatch, "some_attention") as folder:
        yield follow


def changed(old, new):
    assert SOURCE.count(old) == 1, f"{old!r} is not in the sample exactly once"
    return SOURCE.replace(old, new)


@pytest.mark.parametrize("case", SAME)
def test_the_hash_stays(case, code):
    assert code(changed(*SAME[case])) == code(SOURCE)


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_hash_moves(case, code):
    assert source_hash(code(changed(*DIFFERENT[case]))) != source_hash(code(SOURCE))


def test_what_is_reached_is_named(code):
    assert code(SOURCE) == {"some_attention/kernel.py": code(SOURCE)["some_attention/kernel.py"]}
    (found,) = code(SOURCE).values()
    assert set(found) == {
        *("attention", "jit", "kernel", "_kernel", "_inner", "LIMIT", "refuses", "shifted")
    }
    (later,) = code(changed("return x * LIMIT", "return x + LIMIT")).values()
    assert {name for name in found if found[name] != later[name]} == {"_inner"}


def test_a_table_that_chooses_an_error_counts(code):
    sources = [f"def f(found):\n    raise found['{letter}']" for letter in "ab"]
    assert code(sources[0], "f") != code(sources[1], "f")


def test_a_keyword_of_what_is_not_known_counts(code):
    """A launcher that is handed over, or a library's function."""
    for called in ("given(x, {}=1)", "math.sum(x, {}=1)"):
        sources = [f"import math\ndef f(given, x):\n    {called.format(k)}" for k in "ab"]
        assert code(sources[0], "f") != code(sources[1], "f"), called


def test_a_launch_may_rename_what_it_gives(code):
    """The grid stands between a kernel's name and its arguments."""
    source = "def k(q, N): return q\ndef f(x, n):\n    k[(n,)](x, N=n)\n"
    renamed = "def k(p, M): return p\ndef f(y, m):\n    k[(m,)](y, M=m)\n"
    assert code(source, "f") == code(renamed, "f")
    assert code(source, "f") != code(source.replace("N=n", "q=n"), "f")


def test_a_variable_hides_what_the_file_defines(code):
    """Else a function that calls a list `tests` would depend on a function of that name."""
    for inner in ("given = x", "for given in x: pass", "with x as given: pass", "(given := x)"):
        source = f"def given(): pass\ndef f(x):\n    {inner}\n    return given\n"
        assert set(*map(set, code(source, "f").values())) == {"f"}
    parameter = "def given(): pass\ndef f(given):\n    return given\n"
    assert set(*map(set, code(parameter, "f").values())) == {"f"}
    for line in (
        *("global given; given = x", "[given for given in x]", "(lambda given: given)(x)"),
        *("[given for given in given]", "lambda given=given: given"),
    ):
        source = f"def given(): pass\ndef f(x):\n    {line}\n    return given\n"
        assert set(*map(set, code(source, "f").values())) == {"f", "given"}


def test_an_async_function_can_be_hashed(code):
    sources = [f"async def attention(x):\n    await {name}" for name in "xy"]
    assert code(sources[0]) != code(sources[1])


def test_helpers_under_a_condition_count(code):
    source = "try:\n    def help(x): return 1\nexcept X: pass\ndef attention(x): return help(x)\n"
    moved = source.replace("return 1", "return 2")
    assert code(source) != code(moved)


def test_an_unknown_root_is_an_error(code):
    with pytest.raises(ValueError, match="no top-level definition of 'gone'"):
        code(SOURCE, "gone")


def test_public_functions_are_what_a_reader_imports():
    assert public_functions(SOURCE) == ["jit", "attention", "shifted", "unrelated", "refuses"]


def canonical(tree):
    return Writer().write(tree, {})


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
    assert canonical(ast.parse("def f():\n    return 'größe \U0001fae8'")).isascii()
