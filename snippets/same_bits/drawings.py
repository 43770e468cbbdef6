"""The drawings of the page: one sum in four orders, and a row in one pass and split."""

import functools
import struct

from snippets._lab.draw.drawings import (
    INK,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    Key,
    keys,
    labeled,
    line,
    straight,
    svg,
    words,
)
from snippets._lab.draw.identity import OUTPUT, SCORES, K
from snippets._lab.draw.pictures import Picture, picture

COUNT, PITCH, DEEP = 16, 13, 62  # of `orders`: numbers, pixels between two, of the highest tree


def _float(x):
    """The float32 next to x; the sum of two of them is exact before it is rounded."""
    return struct.unpack("f", struct.pack("f", x))[0]


def _bits(x):
    return f"{struct.unpack('I', struct.pack('f', x))[0]:08x}"


# The same as in sum_orders.js.
LIST = [1.9, -2.0, 0.9, -1.4, 1.9, -1.9, 1.5, 0.7, 1.4, 2.0, -1.0, -0.6, 0.8, -0.9, -0.9, -1.1]
NUMBERS = [_float(x) for x in LIST]


def _in_turn(parts):
    return functools.reduce(lambda a, b: (a, b), parts)


def _in_pairs(parts):
    while len(parts) > 1:
        parts = [(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


LEAVES = list(range(COUNT))
ORDERS = {
    "first to last": _in_turn(LEAVES),
    "last to first": _in_turn(LEAVES[::-1]),
    "in pairs": _in_pairs(LEAVES),
    "four threads, then their sums": _in_pairs([_in_turn(LEAVES[i::4]) for i in range(4)]),
}


def total(tree):
    """The sum of the numbers in the order of a tree, rounded after each addition."""
    return NUMBERS[tree] if isinstance(tree, int) else _float(total(tree[0]) + total(tree[1]))


def _depth(tree):
    return 0 if isinstance(tree, int) else 1 + max(map(_depth, tree))


def _branches(tree, step, foot):
    """Where a tree's root is, and the lines below it."""
    if isinstance(tree, int):
        return (14 + tree * PITCH, foot), []
    (x, y), left = _branches(tree[0], step, foot)
    (to, to_y), right = _branches(tree[1], step, foot)
    root = (x + to) / 2, foot - step * _depth(tree)
    path = f"M{x:g} {y:g}L{root[0]:g} {root[1]:g}L{to:g} {to_y:g}"
    return root, [*left, *right, line(path, SCORES, 1.2)]


@picture
def orders():
    """The same sixteen numbers, added in four orders, and the bits of each sum."""
    drawn, y = [], 4
    for name, tree in ORDERS.items():
        foot = y + DEEP
        root, branches = _branches(tree, (DEEP - 8) / _depth(tree), foot)
        drawn += branches
        drawn += [line(f"M{14 + i * PITCH:g} {foot}v4", INK, 1.4) for i in LEAVES]
        drawn.append(line(f"M{root[0]:g} {root[1]:g}v-5", OUTPUT, 2.4))
        x, middle = 14 + COUNT * PITCH, y + 18
        head, _, rest = name.partition(", ")
        drawn.append(words(x, middle, head + "," * bool(rest), 11.5, 600, anchor="start"))
        drawn.append(words(x, middle + 14, rest, 11.5, 600, anchor="start") if rest else "")
        middle += 29 if rest else 15
        for said in (f"{total(tree):.7f}", _bits(total(tree))):
            drawn.append(words(x, middle, said, 11.5, anchor="start"))
            middle += 14
        y += DEEP + 20
    found = {_bits(total(tree)) for tree in ORDERS.values()}
    sums = ", ".join(f"{name}: {_bits(total(tree))}" for name, tree in ORDERS.items())
    return Picture(
        sees=f"One list of numbers, {len(found)} different sums.",
        caption="Sixteen numbers in float32, rounded after each addition, which is where two lines "
        "meet. Beside each tree stand its sum and the 32 bits of it, in hexadecimal.",
        svg=svg(PHONE, y, f"Four trees over the same sixteen numbers. {sums}.", drawn),
    )


TILES, CHUNKS = 3, 3  # of `chunks`


@picture
def chunks():
    """A row of scores in one pass and split: the same tiles, the same merges, in one order."""
    wide, tall, gap, drawn = 100, 22, 14, []
    middle = [6 + i * (wide + gap) + wide / 2 for i in range(CHUNKS)]
    for top, said in (
        (18, "one pass: a program has all chunks"),
        (144, "split: each chunk has a program"),
    ):
        drawn.append(words(6, top - 6, said, 11.5, 600, anchor="start"))
        split = said.startswith("split")
        for i in range(CHUNKS):
            left = 6 + i * (wide + gap)
            for j in range(TILES):
                part = wide / TILES
                name = f"{TILES * i + j}"
                drawn.append(labeled(left + j * part, top, part - 2, tall, K, name, 10.5, PALE))
            color, kind = (OUTPUT, PALE) if split else (SCORES, PALE)
            drawn.append(
                labeled(left + 14, top + 36, wide - 30, tall, color, "m, l, acc", 10.5, kind)
            )
            drawn.append(straight((middle[i] - 1, top + tall + 1), (middle[i] - 1, top + 34)))
        y = top + 76
        for i in range(CHUNKS):
            drawn.append(straight((middle[i] - 1, top + 59), (middle[i] - 1, y - 1)))
            drawn.append(labeled(middle[i] - 27, y, 52, 20, OUTPUT, "merge", 10.5, STRONG))
            if i:
                drawn.append(straight((middle[i - 1] + 26, y + 10), (middle[i] - 29, y + 10), INK))
    drawn.append(
        words(
            6,
            258,
            "A second kernel merges what the programs stored.",
            11,
            anchor="start",
            color=MUTED,
        )
    )
    shown = (
        Key(K, PALE, "tile of 64 keys"),
        Key(SCORES, PALE, "in registers"),
        Key(OUTPUT, PALE, "through memory"),
    )
    drawn.append(keys(6, 274, PHONE - 8, shown))
    return Picture(
        sees="Who computes a chunk differs. Which numbers are added to which, and when, does not.",
        caption="Nine tiles in three chunks (in the kernel a chunk has eight). Each chunk starts "
        "from nothing, and merges go from left to right in both.",
        svg=svg(
            PHONE,
            294,
            "Above, one program sums three chunks and merges each as it goes. Below, three "
            "programs store a state each, and a second kernel merges them in the same order.",
            drawn,
        ),
    )
