"""Pieces of code are found by what they say: no comment and no line break hides or shows one."""

import ast
import io
import re
import subprocess
import sys
import tokenize

import pytest

from snippets._lab import rooms
from snippets._lab.judge.patch import MutantError, changed_lines, find, replace, tokens
from tests.floors import some

SOURCE = '''\
"""total = first + second is what this does."""

import math


def total(first, second, *, scale=None):
    """Add up: return first + second, times scale."""
    factor = 1.0 if scale is None else scale  # by default one
    # The loop is there
    # to have one.
    for n in range(3):  # three times
        first += n
        second = (
            first * second  # a product
            + math.sqrt(second)
        )
        if n == 1:
            first += n

    if factor > 1:
        return first + second, "kept", factor
    return (first + second), 'left', factor  # the rest
'''


def changed(old, new):
    """The lines that a replacement takes from SOURCE, and those that it puts there."""
    return changed_lines(SOURCE, replace(SOURCE, old, new))


REPLACED = {
    "a token": (
        "range(3)",
        "range(4)",
        "    for n in range(3):  # three times",
        "    for n in range(4):  # three times",
    ),
    "part of an expression": (
        "1.0 if scale is None",
        "2.0 if not scale",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "    factor = 2.0 if not scale else scale  # by default one",
    ),
    "something taken out": (
        "if scale is None else scale",
        "if scale is None else 2",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "    factor = 1.0 if scale is None else 2  # by default one",
    ),
    "the end of a statement taken away": (
        "1.0 if scale is None else scale\n",
        "1.0\n",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "    factor = 1.0  # by default one",
    ),
    "the beginning taken away": (
        "1.0 if scale is None else scale",
        "scale",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "    factor = scale  # by default one",
    ),
    "something put in": (
        "for n in range(3):\n        first",
        "for n in range(3 - 1):\n        first",
        "    for n in range(3):  # three times",
        "    for n in range(3 - 1):  # three times",
    ),
    "something put in front": (
        "factor = 1.0",
        "other = factor = 1.0",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "    other = factor = 1.0 if scale is None else scale  # by default one",
    ),
    "across a comment": (
        "first * second + math",
        "first * second - math",
        "            + math.sqrt(second)",
        "            - math.sqrt(second)",
    ),
    "brackets that a formatter set": (
        "second = first * second",
        "second = second * second",
        "            first * second  # a product",
        "            second * second  # a product",
    ),
    "other quotes": (
        'return first + second, "left", factor\n',
        'return first - second, "left", factor\n',
        "    return (first + second), 'left', factor  # the rest",
        "    return (first - second), 'left', factor  # the rest",
    ),
    "a statement": (
        "        if n == 1:\n",
        "        if n == 2:\n",
        "        if n == 1:",
        "        if n == 2:",
    ),
    "a statement put in": (
        "    if factor > 1:\n",
        "    second += 1\n    if factor > 1:\n",
        "",
        "    second += 1",
    ),
    "a statement put behind another": (
        "for n in range(3):\n        first += n\n",
        "for n in range(3):\n        first += n\n        first += 1\n",
        "",
        "        first += 1",
    ),
    "a block put in": (
        "        if n == 1:\n",
        "        while first > 9:\n            first -= 1\n        if n == 1:\n",
        "",
        "        while first > 9:\n            first -= 1",
    ),
    "a statement put before a piece of one": (
        "for n in range(3):\n        first += n\n        second",
        "for n in range(3):\n        first += n\n        first += 1\n        second",
        "",
        "        first += 1",
    ),
    "a statement taken out with its comment": (
        "    factor = 1.0 if scale is None else scale\n",
        "",
        "    factor = 1.0 if scale is None else scale  # by default one",
        "",
    ),
    "two statements for one": (
        "for n in range(3):",
        "n = 3\n    for n in range(n):",
        "    for n in range(3):  # three times",
        "    n = 3\n    for n in range(n):  # three times",
    ),
    "told apart by their place": (
        "            first += n\n",
        "            first -= n\n",
        "            first += n",
        "            first -= n",
    ),
    "text that is not moved": (
        "        if n == 1:\n",
        '        a = """\nb\n"""\n        if n == 1:\n',
        "",
        '        a = """\nb\n"""',
    ),
}


@pytest.mark.parametrize("case", REPLACED)
def test_what_differs_is_replaced_in_the_original_text(case):
    old, new, *lines = REPLACED[case]
    assert changed(old, new) == tuple(lines)


REFUSED = {
    "not there": ("first - second", "", "occurs 0 times"),
    "twice": ("first + second", "first", "occurs 2 times"),
    "half a name": ("fact", "f", "occurs 0 times"),
    "only in a comment": ("# three times", "# twice", "no code"),
    "only with a comment": ("first += n  # added", "first = n", "occurs 2 times"),
    "the comment tells which": (
        "range(3):  # three times\n        first += m",
        "",
        "occurs 0 times",
    ),
    "words of a comment": ("by default one", "", "occurs 0 times"),
    "only in the docstring": ("Add up", "Subtract", "occurs 0 times"),
    "the code in a docstring": ("total = first", "", "occurs 0 times"),
    "in another place": ("                first += n\n", "", "occurs 0 times"),
    "no statement's end": ("first * second\n", "first\n", "occurs 0 times"),
    "nothing": ("", "x", "no code"),
    "no change": ("range(3)", "range( 3 )  # three", "the same code"),
    "no Python": ("range(3):", "range(3)", "not Python"),
    "an empty block": ("            first += n\n", "", "not Python"),
    "out of brackets of the layout": ("second = first * second", "n = n", "that the layout needs"),
    "no token": ("first $ second", "", "'. second' is not Python"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_found_exactly_once_is_refused(case):
    old, new, message = REFUSED[case]
    with pytest.raises(MutantError, match=message):
        replace(SOURCE, old, new)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("f(a, b)", "f(\n    a,  # one\n    b,\n)"),
        ("x = a + b\n", "x = (\n    a\n    + b\n)\n"),
        ("return a, b\n", "return (\n    a,\n    b,\n)\n"),
        ("x = f(a if b else c)\n", "x = f((a if b else c))\n"),
        ("f('a' \"b\")", 'f("ab")'),
        ("a = 1E5\n", "a = 1e5\n"),
        ("f(x)", "f \\\n  (x)"),
    ],
)
def test_two_layouts_are_the_same_code(text, same):
    spoken = [[t.value for t in tokens(x) if not t.optional] for x in (text, same)]
    assert spoken[0] == spoken[1]


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("(a + b) * c\n", "a + b * c\n"),
        ("f((a, b))\n", "f(a, b)\n"),
        ("x = (a,)\n", "x = (a)\n"),
        ("x = ()\n", "x = f()\n"),
        ("a = b\n", "a = b"),
        ("f'{a}'", "'{a}'"),
        ("ab", "a b"),
    ],
)
def test_other_code_is_not_the_same(text, other):
    spoken = [[t.value for t in tokens(x) if not t.optional] for x in (text, other)]
    assert spoken[0] != spoken[1]


# The pieces of all rooms.


def pieces(room):
    """(name, old, new) of everything that looks for code in a room's file."""
    if rooms.room_file(room, "mutants.py").exists():
        for name, old, new, _ in rooms.load(room, "mutants").MUTANTS:
            yield f"mutant {name}", old, new
    for name, changes in BENCHES.get(room, dict)().items():
        yield from ((f"{name}, change {i}", *change) for i, change in enumerate(changes))


def flash():
    bench = rooms.load("flash_attention", "bench")
    return {name: rung.changes for name, rung in bench.RUNGS.items()}


def hopper():
    rungs = rooms.load("hopper_attention", "bench").RUNGS
    mistakes = rooms.load("hopper_attention", "simulator.mistakes").MISTAKES
    return {name: rung.changes for name, rung in rungs.items()} | {
        mistake.name: mistake.changes for mistake in mistakes
    }


def backward():
    rungs = rooms.load("hopper_backward", "bench").RUNGS
    return {name: rung.changes for name, rung in rungs.items()}


def tiled():
    bench = rooms.load("tiled_attention", "bench")
    return {"summed last": bench.SUMMED_LAST, "no tile skipped": bench.NO_SKIP}


def basic():
    return rooms.load("basic_attention", "bench").PARTS


def coalescing():
    told = '@triton.jit(do_not_specialize_on_alignment=("x_ptr", "out_ptr"))'
    assert told in rooms.room_file("coalescing", "bench.py").read_text("utf-8")
    return {"several elements a lane": [(told, "@triton.jit")]}


BENCHES = {
    "basic_attention": basic,
    "coalescing": coalescing,
    "decode_attention": lambda: rooms.load("decode_attention", "bench").LOOPS,
    "flash_attention": flash,
    "flash_backward": lambda: rooms.load("flash_backward", "bench").WITHOUT,
    "hopper_attention": hopper,
    "hopper_backward": backward,
    "tiled_attention": tiled,
    "vectorized_attention": lambda: rooms.load("vectorized_attention", "bench").REMEDIES,
}


def test_every_bench_that_changes_code_is_among_them():
    changing = {
        path.parent.name
        for path in rooms.SNIPPETS.glob("[!_]*/*.py")
        if re.search(r"judge.*import.*\b(variant|mutate|replace)\b", path.read_text("utf-8"))
    }
    changing.remove("language_model")  # its faults are mutants of flash_backward
    changing.remove("ring_attention")  # it changes op.py, by mutants that its own test rejects
    assert changing == set(BENCHES)


LINTERS = re.compile(r"--8<--|# (noqa|type|ruff)\b")  # comments that are no words


def reworded(source):
    """The file with other words in all its comments."""
    lines = source.splitlines(keepends=True)
    found = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token in reversed(found):
        if token.type == tokenize.COMMENT and not LINTERS.search(token.string):
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = f"{lines[row - 1][:start]}# words{lines[row - 1][end:]}"
    return "".join(lines)


def formatted(source, width):
    options = ["--line-length", str(width), "--config", "format.skip-magic-trailing-comma=true"]
    command = [sys.executable, "-m", "ruff", "format", "--isolated", *options, "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def test_the_rewording_leaves_no_word_and_all_of_the_code():
    text = reworded(SOURCE)
    assert "three times" not in text
    assert text.count("# words") == 6
    assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(SOURCE))
    assert formatted(text, 40) != formatted(text, 200) != SOURCE


def node(source, start, end):
    """The path to the smallest node of the syntax tree that holds a part of the text."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    start, end = (len(source[:at].encode()) for at in (start, end))
    path, here = [], ast.parse(source)
    while True:
        for field, value in ast.iter_fields(here):
            children = value if isinstance(value, list) else [value]
            for i, child in enumerate(children):
                if not hasattr(child, "end_lineno"):
                    continue
                first = starts[child.lineno - 1] + child.col_offset
                last = starts[child.end_lineno - 1] + child.end_col_offset
                if first <= start and end <= last:
                    path.append((type(child).__name__, field, i))
                    here = child
                    break
            else:
                continue
            break
        else:
            return path


@pytest.mark.parametrize(
    "room", [r for r in rooms.rooms() if r in BENCHES or rooms.room_file(r, "mutants.py").exists()]
)
def test_no_comment_and_no_line_break_matters(room):
    """Every piece is found once and in the same place, whatever the comments and the layout."""
    file = rooms.source_file(room).read_text("utf-8")
    layouts = [formatted(reworded(file), width) for width in (50, 180)]
    asked = 0
    for name, old, new in some(pieces(room)):
        match = find(file, old)
        place = node(file, match.start, match.end)
        for text in layouts:
            match = find(text, old)
            assert node(text, match.start, match.end) == place, name
            replace(text, old, new)
        asked += 1
    assert asked >= 8


def test_a_piece_that_leans_on_a_comment_is_seen():
    """What the test above would say if text were compared."""
    old = "range(3):  # three times"
    assert SOURCE.count(old) == 1
    assert find(SOURCE, old).end == SOURCE.index("  # three times")
    assert reworded(SOURCE).count(old) == 0
    assert find(reworded(SOURCE), old)
