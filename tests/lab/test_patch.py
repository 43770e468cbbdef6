"""Pieces of code are found by their words and signs: no comment and no line break hides one."""

import pytest

from snippets._lab import rooms
from snippets._lab.judge.patch import MutantError, changed_lines, occurs, replace

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


CLAUSE = "1.0 if scale is None else scale"
FACTOR = f"    factor = {CLAUSE}  # by default one"
LOOP = "    for n in range(3):  # three times"
CONDITION, LAST = "        if n == 1:\n", "            first += n\n"
THEN = "    if factor > 1:\n"
IN_A_LINE = {  # old and new code, and the line in which it is replaced as if it were any text
    "a token": ("range(3)", "range(4)", LOOP),
    "part of an expression": ("1.0 if scale is None", "2.0 if not scale", FACTOR),
    "a statement": (CONDITION, "        if n == 2:\n", CONDITION),
    "two statements for one": ("for n in range(3):", "n = 3\n    for n in range(n):", LOOP),
    "told apart by their place": (LAST, "            first -= n\n", LAST),
}


@pytest.mark.parametrize("case", IN_A_LINE)
def test_a_piece_of_a_line_is_replaced(case):
    old, new, line = IN_A_LINE[case]
    assert changed(old, new) == (line.rstrip("\n"), line.replace(old, new).rstrip("\n"))


REPLACED = {  # old and new code, and the lines that are gone and that have come
    "an end taken away": (f"{CLAUSE}\n", "1.0\n", FACTOR, "    factor = 1.0  # by default one"),
    "something put in": (
        "for n in range(3):\n        first",
        "for n in range(3 - 1):\n        first",
        LOOP,
        "    for n in range(3 - 1):",
    ),
    "across a comment": (
        "first * second + math",
        "first * second - math",
        "            first * second  # a product\n            + math.sqrt(second)",
        "            first * second - math.sqrt(second)",
    ),
    "a statement put in": (THEN, f"    second += 1\n{THEN}", "", "    second += 1"),
    "a statement taken out with its comment": (f"    factor = {CLAUSE}\n", "", FACTOR, ""),
    "text that is not moved": (
        CONDITION,
        f'        a = """\nb\n"""\n{CONDITION}',
        "",
        '        a = """\nb\n"""',
    ),
}


@pytest.mark.parametrize("case", REPLACED)
def test_a_piece_is_replaced_whatever_the_layout(case):
    old, new, gone, come = REPLACED[case]
    assert changed(old, new) == (gone, come)


REFUSED = {
    "nowhere": ("first - n", "n", "occurs 0 times"),
    "twice": ("first += n", "first -= n", "occurs 2 times"),
    "part of a word": ("cond = (", "n = (", "occurs 0 times"),
    "in another place": ("    first += n\n", "n", "occurs 0 times"),
    "not the end of a statement": ("1.0 if scale is None\n", "1.0\n", "occurs 0 times"),
    "a comment only": ("# by default one", "", "has no code"),
    "the same code": ("n in range(3)", "n in range( 3 )", "the same code"),
    "an empty block": ("            first += n\n", "", "not Python"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_found_exactly_once_is_refused(case):
    old, new, message = REFUSED[case]
    with pytest.raises(MutantError, match=message):
        replace(SOURCE, old, new)


# The pieces of all rooms.


def pieces(room):
    """(file, name, old, new) of everything that looks for code in a room's files."""
    usual = rooms.source_file(room).name
    if rooms.room_file(room, "mutants.py").exists():
        for name, old, new, _, file in rooms.load(room, "mutants").MUTANTS:
            yield file or usual, f"mutant {name}", old, new
    for name, changes in BENCHES.get(room, dict)().items():
        yield from ((usual, f"{name}, change {i}", *change) for i, change in enumerate(changes))


def rungs(room):
    return {name: rung.changes for name, rung in rooms.load(room, "bench").RUNGS.items()}


def hopper():
    mistakes = rooms.load("hopper_attention", "protocol").MISTAKES
    return rungs("hopper_attention") | {mistake.name: mistake.changes for mistake in mistakes}


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
    "flash_attention": lambda: rungs("flash_attention"),
    "hopper_attention": hopper,
    "hopper_backward": lambda: rungs("hopper_backward"),
    "tiled_attention": tiled,
    "vectorized_attention": lambda: rooms.load("vectorized_attention", "bench").REMEDIES,
}


@pytest.mark.parametrize(
    "room", [r for r in rooms.rooms() if r in BENCHES or rooms.room_file(r, "mutants.py").exists()]
)
def test_every_piece_is_found_once(room):
    asked = 0
    for file, name, old, new in pieces(room):
        text = rooms.room_file(room, file).read_text("utf-8")
        assert occurs(text, old), name
        replace(text, old, new)
        asked += 1
    assert asked >= 8
