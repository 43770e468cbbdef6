"""The drawings of the page: what four kernels pass to each other, reuse in a tile, and tile "
"order."""

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    STRONG,
    box,
    bracket,
    flow,
    labelled,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, around, cells, numbers, square
from snippets._lab.draw.identity import identity
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.rows import pick
from snippets._lab.draw.units import ratio, size

POST = "composed_attention"
STEPS = {  # of the chain: what it is called here, and the colour of what it writes
    "transpose": ("transpose", "k"),
    "scores": ("q · Kᵀ", "scores"),
    "softmax": ("softmax", "weights"),
    "values": ("weights · V", "output"),
}
LENGTH, WIDTH, DTYPE = 4096, 64, "float16"  # the case of the drawing
THICK = 26  # of the thickest arrow
A, B, OUTPUT = (identity(name).colour for name in ("q", "k", "output"))


@picture
def traffic(results):
    """Four kernels below memory, with arrows as thick as the bytes they read and write."""
    result = next(
        (r for r in results if (r.post, r.result) == (POST, "memory_traffic")),
        None,
    )
    if result is None:
        return None
    case = {"N": LENGTH, "D": WIDTH, "dtype": DTYPE}
    rows = {row["step"]: row for row in pick(result.rows, **case)}
    moved = {
        step: (r["bytes_moved"] - r["bytes_stored"], r["bytes_stored"]) for step, r in rows.items()
    }
    most, fused = max(max(pair) for pair in moved.values()), rows["scores"]["bytes_fused"]
    top, foot, each = 34, 132, 86
    drawn = [
        box(0, 0, 344, top, LINES, 22, 1),
        words(172, 21, "HBM", 12, 600),
    ]
    table = []
    for at, (step, (said, tensor)) in enumerate(STEPS.items()):
        read, stored = moved[step]
        x = at * each
        colour = identity(tensor).colour
        drawn += [
            flow((x + 22, top + 2), (x + 22, foot - 2), max(1, THICK * read / most), MUTED, 55),
            flow((x + 60, foot - 2), (x + 60, top + 2), max(1, THICK * stored / most), colour, 75),
            labelled(x + 1, foot, each - 4, 26, colour, said, 10.5),
            words(x + 22, foot + 42, size(read), 10, colour=MUTED),
            words(x + 60, foot + 57, size(stored), 10, colour=INK),
        ]
        table.append({"kernel": said, "reads": size(read), "writes": size(stored)})
    total = sum(sum(pair) for pair in moved.values())
    drawn += [
        words(
            0,
            foot + 78,
            f"four kernels move {size(total)}; a fused kernel moves {size(fused)}",
            11,
            600,
            anchor="start",
        ),
    ]
    about = (
        f"Four kernels below a bar of memory. At {LENGTH} queries and keys in float16 the product "
        f"q Kᵀ writes {size(moved['scores'][1])} of scores and the softmax reads them again; the "
        f"transpose moves {size(sum(moved['transpose']))}."
    )
    return Picture(
        sees=f"The scores leave the chip and come back: {ratio(total / fused)} the bytes of a "
        "fused kernel.",
        caption=f"One head, {LENGTH} queries and keys, D {WIDTH}, float16. Arrows are as thick "
        f"as the "
        "bytes that a kernel reads (gray, left) and writes (right), counted by formula; the "
        "thinnest "
        "are drawn thicker than they are.",
        svg=svg(344, foot + 84, about, drawn),
        table=table,
        sources=[result],
    )


@picture
def reuse():
    """One tile of a product, with the rows of a and the columns of b that it needs."""
    side, n, tile = 13, 12, 4
    left, top = 100, 96
    c = square(left, top, n, n, side)
    a = square(8, top, n, 6, side)
    b = Grid(left, 12, 6, n, side, side)
    rows, columns = slice(4, 4 + tile), slice(6, 6 + tile)

    def lit(inside, colour):
        return lambda row, column: (colour, STRONG if inside(row, column) else PALE)

    drawn = [
        cells(a, lit(lambda row, column: rows.start <= row < rows.stop, A)),
        cells(b, lit(lambda row, column: columns.start <= column < columns.stop, B)),
        cells(
            c,
            lit(
                lambda row, column: (
                    rows.start <= row < rows.stop and columns.start <= column < columns.stop
                ),
                OUTPUT,
            ),
        ),
        around(a, rows, slice(0, 6)),
        around(b, slice(0, 6), columns),
        around(c, rows, columns),
        words(46, top - 8, "a", 12, 600, colour=A),
        words(left - 10, 50, "b", 12, 600, colour=B, anchor="end"),
        words(left + c.across + 10, top + 12, "result", 12, 600, colour=OUTPUT, anchor="start"),
        bracket(left + c.across + 8, c.corner(rows.start, 0)[1], tile * side, "4 rows", "right"),
        bracket(c.corner(0, columns.start)[0], top + c.down + 6, tile * side, "4 columns", "below"),
    ]
    about = (
        "A result of 12 by 12 with one tile of 4 by 4 marked, the four rows of a and the four "
        "columns "
        "of b that it needs: each number of a is used for four columns, each of b for four rows."
    )
    return Picture(
        sees="Each loaded number of a is used once per column of the tile.",
        caption="One program's tile of the result, and what it loads for it. A tile of 4 × 4 "
        "uses each "
        "number of a four times and each of b four times. With 128 × 128 it is 128 times, so "
        "memory "
        "is read that much less often.",
        svg=svg(344, top + c.down + 30, about, drawn),
    )


@picture
def grouped():
    """Nine programs at the same time: in row-major order, and in groups of three rows."""
    n, running, high, side = 9, 9, 3, 16

    def row_major(row, column):
        return row * n + column

    def in_groups(row, column):
        return (row // high) * high * n + column * high + row % high

    drawn, needs = [], []
    for at, (said, order) in enumerate(
        (("row by row", row_major), ("in groups of 3 rows", in_groups))
    ):
        grid = square(4 + at * 178, 40, n, n, side)
        now = {
            (row, column) for row in range(n) for column in range(n) if order(row, column) < running
        }
        strips = len({row for row, _ in now}) + len({column for _, column in now})
        needs.append(strips)
        drawn += [
            words(grid.x, 14, said, 11.5, 600, anchor="start"),
            words(grid.x, 29, f"{strips} strips of a and b", 10.5, colour=MUTED, anchor="start"),
            cells(
                grid, lambda row, column, now=now: (OUTPUT, STRONG if (row, column) in now else 12)
            ),
            numbers(
                grid,
                lambda row, column, order=order, now=now: (
                    str(order(row, column)) if (row, column) in now else ""
                ),
                10,
            ),
        ]
    about = (
        f"Nine of 81 tiles, twice. Row by row the first nine tiles need one strip of a and "
        f"nine of b, "
        f"{needs[0]} in all. In groups of three rows they need three and three, {needs[1]}."
    )
    return Picture(
        sees=f"Grouped order: nine programs at the same time share {needs[1]} strips instead of "
        f"{needs[0]}.",
        caption="Tiles of the result that nine programs compute at the same time, numbered in "
        "the order "
        "in which they start. Each tile needs its row strip of a and its column strip of b; "
        "the fewer "
        "strips, the more of the loads find them in L2. (The kernel's groups are eight rows high.)",
        svg=svg(344, 40 + n * side + 4, about, drawn),
    )
