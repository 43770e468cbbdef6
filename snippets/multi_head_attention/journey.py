"""The drawing of a tensor's way through the layer: its shape after each step, top to bottom."""

from snippets._lab.draw.drawings import MUTED, arrow, box, svg, words
from snippets._lab.draw.identity import identity

ROOM = "multi_head_attention"
LETTERS = ("E", "D", "N", "H·D", "H")  # by the shades of the room; B, the batch, is an aside
COLORS = {letter: identity(ROOM, shade).color for shade, letter in enumerate(LETTERS)}
COLORS["B"] = identity("context").color
WIDTH = 360
PITCH = 62  # from one shape to the next
BOX = 30  # height of a box
GAP, LEFT = 8, 8
ARROW, WORDS = 196, 206  # where operations stand


def journey(steps, start, by_size):
    """An SVG: one row of boxes for each shape, ribbons from axis to axis, operations between.

    `steps` are recorded rows, `start` the first shape, `by_size` size → letter.
    """
    states = [start, *(row["shape"] for row in steps)]
    rows = [_boxes([by_size[size] for size in shape]) for shape in states]
    sizes = {letter: size for size, letter in by_size.items()}
    parts = []
    for i, row in enumerate(steps):
        top, bottom = i * PITCH + BOX + 4, (i + 1) * PITCH
        parts += _ribbons(rows[i], rows[i + 1], row["operation"], top, bottom)
        parts.append(_operation(row, [by_size[size] for size in row["shape"]], top, bottom))
    for i, boxes in enumerate(rows):
        for letter, x, wide in boxes:
            name = letter.removesuffix("'")
            parts.append(_box(name, sizes[name], x, wide, i * PITCH))
    about = (
        "The shapes on the way through the layer, one below the other; "
        "the table below holds the same."
    )
    return svg(WIDTH, PITCH * len(states) - 24, about, parts, font="mono")


def _ribbons(before, after, operation, top, bottom):
    """From each box to the box that takes its values on."""
    for a, x, wide in before:
        for b, to, wide_there in after:
            shared = _carried(a, b, operation)
            if not shared:
                continue
            left, w = _side(a, x, wide, shared)
            left_there, w_there = _side(b, to, wide_there, shared)
            right, right_there = left + w, left_there + w_there
            yield (
                f'<path d="M{left} {top}C{left} {bottom - 12} {left_there} {top + 12} '
                f"{left_there} {bottom}H{right_there}C{right_there} {top + 12} "
                f'{right} {bottom - 12} {right} {top}Z" '
                f'fill="{COLORS[shared]}" fill-opacity="0.22"/>'
            )


def _operation(row, letters, top, bottom):
    """An arrow, dashed where the result lies in the same memory, and what happens there."""
    dashed = {"stroke_dasharray": "3 3"} if row["same_memory"] else {}
    down = arrow(f"M{ARROW} {top}V{bottom - 4}", (ARROW, bottom - 3), "down", MUTED, **dashed)
    middle = (top + bottom) // 2 + 4
    return down + words(WORDS, middle, _said(row, letters), 11.5, anchor="start")


def _box(name, size, x, wide, top):
    """A dimension: its letter and its size."""
    middle = x + wide // 2
    return (
        box(x, top + 2, wide, BOX, COLORS[name], line=1.3)
        + words(middle, top + 16, name, 12, 600)
        + words(middle, top + 28, str(size), 10.5, color=MUTED)
    )


def _boxes(letters):
    """(letter, x, width) of the boxes of a shape; a second N is written N' to tell it apart."""
    found, x = [], LEFT
    for place, letter in enumerate(letters):
        wide = 2 * (BOX + 6) + GAP if letter == "H·D" else BOX + 6
        again = letter in letters[:place]
        found.append((letter + "'" if again else letter, x, wide))
        x += wide + GAP
    return found


def _side(letter, x, wide, carried):
    """(x, width) of what a box hands on: of H·D the heads are the left half, D the right."""
    if letter != "H·D" or carried == letter:
        return x, wide
    half = wide // 2
    return (x, half) if carried == "H" else (x + half, half)


def _carried(a, b, operation):
    """The letter whose values axis a hands to axis b, or None."""
    if a == b:
        # A product sums over its last axis: D and the second N end there, another begins.
        return a.removesuffix("'")
    if a == "H·D" and b in ("H", "D") and operation == "view":
        return b
    if b == "H·D" and a in ("H", "D") and operation == "view":
        return a
    return None


def _said(row, letters):
    """The operation as the reader knows it from the code."""
    operation = row["operation"]
    if operation.startswith("W_"):
        return f"{operation}(…)"
    if operation == "matmul":
        return "· v" if letters[-1] == "D" else "· kᵀ"
    if operation == "mul":
        return "· 1/√D"
    if operation == "view":
        return f"view({', '.join(letters)})"
    return f"{operation}({', '.join(map(str, row['arguments']))})"
