"""The drawings of the page: the chain's traffic, a tile's transpose and reuse, order of tiles."""

from snippets._lab.draw.drawings import (
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    arrow,
    beside,
    box,
    bracket,
    flow,
    labeled,
    line,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, around, cells, numbers, square
from snippets._lab.draw.identity import HBM, SCORES, K, Q, identity
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import pick
from snippets._lab.draw.units import ratio, size

ROOM = "composed_attention"
A, B, C = Q, K, SCORES
TILES, GROUP, AT_ONCE = 6, 3, 9  # of `grouped`: tiles a side, rows walked together, programs
SQUARE = 4_096  # queries and keys of `traffic`


@picture_of("memory_traffic")
def traffic(result):
    """What the kernels of the chain read from HBM and write to it, beside a fused kernel."""
    rows = pick(result.rows, dtype="float16", N=SQUARE)
    fused = rows[0]["bytes_fused"]
    most = max(max(r["bytes_stored"], r["bytes_moved"] - r["bytes_stored"]) for r in rows)
    thick = 34 / most  # pixels for each byte
    chain = [(r["label"].split(" = ")[0], r["bytes_moved"], r["bytes_stored"]) for r in rows]
    # A fused kernel reads Q, K and V and writes a fourth tensor of their size.
    shown = [(name, moved - stored, stored) for name, moved, stored in chain]
    shown.append(("fused", fused * 3 // 4, fused // 4))
    pitch, top, foot, drawn = PHONE / len(shown), 24, 150, []
    for index, (name, read, written) in enumerate(shown):
        x = index * pitch
        middle = x + pitch / 2
        lone = index == len(shown) - 1
        color = identity("flash_attention" if lone else ROOM).color
        drawn += [
            labeled(x + 2, top, pitch - 4, 30, color, name, 10.5),
            flow((middle - 14, foot - 2), (middle - 14, top + 36), read * thick, HBM, 62),
            flow((middle + 16, top + 36), (middle + 16, foot - 2), written * thick, HBM, 34),
            words(middle, foot + 48, size(read + written), 11, 600),
        ]
    total = sum(r["bytes_moved"] for r in rows)
    drawn += [
        box(0, foot + 2, PHONE, 26, HBM, PALE, 1),
        words(PHONE / 2, foot + 19, "HBM", 11.5, 600),
        line(f"M{PHONE - pitch:g} 14V{foot + 54}", LINES, 1, "3 3"),
        words((PHONE - pitch) / 2, 14, f"the chain: {size(total)}", 11.5, 600),
    ]
    about = (
        "; ".join(
            f"{name} reads {size(read)} and writes {size(written)}" for name, read, written in shown
        )
        + "."
    )
    return Picture(
        sees=f"The chain moves {ratio(total / fused)} the bytes of a fused kernel.",
        caption=f"Arrows up are loads, arrows down are stores, as wide as their bytes. One head in "
        f"float16, N {SQUARE}, D {rows[0]['D']}: the scores go to memory once and come back, the "
        "weights too. A fused kernel reads Q, K and V and writes the output: its arrows are lines.",
        svg=svg(PHONE, foot + 56, about, drawn),
        table=[
            {"kernel": name, "bytes read": read, "bytes written": wrote}
            for name, read, wrote in shown
        ],
    )


@picture
def tile_transpose():
    """A program's tile of a transpose: where it goes, and who moves what inside it."""
    side, top, i, j = 25, 24, 1, 4
    x = square(4, top, 4, TILES, side)
    out = square(x.x + x.across + 76, top, TILES, 4, side)
    where = []
    for grid, said, (row, column) in ((x, "x", (i, j)), (out, "xᵀ", (j, i))):
        at = {(row, column): f"{row},{column}"}
        where += [
            words(grid.x + grid.across / 2, 14, said, 12, 600),
            cells(grid, lambda r, c, at=at: (A, STRONG if (r, c) in at else PALE)),
            numbers(grid, lambda r, c, at=at: at.get((r, c), ""), 11, 600),
        ]
    (_, y), (left, low) = x.middle(i, j), out.middle(j, i)
    right = x.corner(i, j + 1)[0]
    where.append(
        arrow(
            f"M{right + 1:g} {y:g}H{out.x - 30:g}V{low:g}H{left - 14:g}",
            (left - 14, low),
            "right",
            MUTED,
        )
    )
    small, lane, lanes = 22, 2, 5
    read, wrote = (square(at, top, lanes, lanes, small) for at in (20, 212))
    inside = [
        words(read.x + read.across / 2, 14, "loaded", 12, 600),
        words(wrote.x + wrote.across / 2, 14, "stored", 12, 600),
        straight((read.x + read.across + 10, top + 54), (wrote.x - 10, top + 54)),
        words((read.x + read.across + wrote.x) / 2, top + 44, "shared", 11),
        words((read.x + read.across + wrote.x) / 2, top + 72, "memory", 11),
    ]
    for grid, said, turned in (
        (read, "read along a row", False),
        (wrote, "written along a row", True),
    ):
        first = slice(lane, lane + 1)
        whole = slice(0, lanes)
        inside += [
            cells(
                grid,
                lambda r, c, turned=turned: (
                    (B, STRONG) if (c if turned else r) == lane else (A, PALE)
                ),
            ),
            numbers(
                grid, lambda r, c, turned=turned: str(lanes * c + r if turned else lanes * r + c)
            ),
            around(grid, first, whole),
            words(grid.x + grid.across / 2, top + grid.down + 20, said, 11, 600),
            words(
                grid.x + grid.across / 2,
                top + grid.down + 35,
                "neighboring addresses",
                11,
                color=MUTED,
            ),
        ]
    about = (
        f"A matrix of 4 by {TILES} tiles and its transpose: tile ({i}, {j}) goes to ({j}, {i}).",
        "A tile's elements 0 to 24, row by row; in the transpose row 2 has become column 2. A warp "
        "reads along a row, and after an exchange in shared memory a warp writes along a row.",
    )
    high = top + TILES * side + 4
    return Picture(
        sees="Two swaps: the tile's coordinates, and rows with columns inside it.",
        caption="One program moves one tile. Inside it, elements change hands in shared memory, so "
        f"that a warp touches neighboring addresses on both sides (drawn with {lanes} × {lanes} "
        "elements).",
        svg=beside(svg(PHONE, high, about[0], where), svg(PHONE, high, about[1], inside)),
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

    def lit(inside, color):
        return lambda row, column: (color, STRONG if inside(row, column) else PALE)

    drawn = [
        cells(a, lit(lambda row, column: rows.start <= row < rows.stop, A)),
        cells(b, lit(lambda row, column: columns.start <= column < columns.stop, B)),
        cells(
            c,
            lit(
                lambda row, column: (
                    rows.start <= row < rows.stop and columns.start <= column < columns.stop
                ),
                C,
            ),
        ),
        around(a, rows, slice(0, 6)),
        around(b, slice(0, 6), columns),
        around(c, rows, columns),
        words(46, top - 8, "a", 12, 600, color=A),
        words(left - 10, 50, "b", 12, 600, color=B, anchor="end"),
        words(left + c.across + 10, top + 12, "result", 12, 600, color=C, anchor="start"),
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
    """The tiles of the first programs in both orders, and what they load."""
    side, top, drawn, told = 21, 74, [], []
    for index, (said, order) in enumerate(
        (("row after row", _plain), (f"groups of {GROUP} rows", _grouped))
    ):
        x = 20 + index * 180
        running = {order(tile): tile for tile in range(AT_ONCE)}
        rows, columns = {r for r, _ in running}, {c for _, c in running}
        grid = square(x, top, TILES, TILES, side)
        beside, above = square(x - 16, top, TILES, 1, side), square(x, top - 16, 1, TILES, side)
        beside, above = beside._replace(wide=12), above._replace(tall=12)
        loads = len(rows) + len(columns)
        drawn += [
            words(x, 14, said, 12, 600, anchor="start"),
            words(x, 30, f"{len(rows)} rows of a + {len(columns)} columns", 10.5, anchor="start"),
            words(x, 44, f"of b: {loads} loads", 10.5, anchor="start"),
            cells(beside, lambda r, _, rows=rows: (A, STRONG if r in rows else 12)),
            cells(above, lambda _, c, columns=columns: (B, STRONG if c in columns else 12)),
            cells(grid, lambda r, c, running=running: (C, 60 if (r, c) in running else 10)),
            numbers(
                grid,
                lambda r, c, running=running: str(running[r, c]) if (r, c) in running else "",
                10,
            ),
        ]
        told.append(f"{said}: {len(rows)} rows and {len(columns)} columns, {loads} together")
    about = (
        f"{TILES} by {TILES} tiles, of which the first {AT_ONCE} programs run at once. "
        + "; ".join(told)
        + "."
    )
    return Picture(
        sees="The same tiles in another order share more of what they load.",
        caption=f"The first {AT_ONCE} programs, which run at the same time, with the rows of *a* "
        "(left) and the columns of *b* (above) that they need from L2 or HBM. The kernel walks "
        "groups of eight rows.",
        svg=svg(PHONE, top + TILES * side + 4, about, drawn),
    )


def _plain(tile):
    """Row after row."""
    return divmod(tile, TILES)


def _grouped(tile):
    """Down GROUP rows of tiles, then one column on: as the kernel does."""
    first = tile // (GROUP * TILES) * GROUP
    height = min(TILES - first, GROUP)
    within = tile % (GROUP * TILES)
    return first + within % height, within // height
