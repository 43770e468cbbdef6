"""The drawings of the page: a warp along a row and down a column, who reads what, and strides."""

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PHONE,
    STRONG,
    Key,
    box,
    bracket,
    frame,
    keys,
    line,
    mixed,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, square
from snippets._lab.draw.identity import identity
from snippets._lab.draw.machine import LANES, SECTOR
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.rows import only
from snippets._lab.draw.units import count, exact

WARP, HBM = identity("consumer 0").color, identity("HBM").color
SIZE = 4  # bytes of float32
PER = SECTOR // SIZE  # elements of a sector
STRIDES = (1, 2, 4, 8)
# A program of the copy: kernel.py's BLOCK, and Triton's number of warps.
ELEMENTS, WARPS, PROGRAMS = 1_024, 4, 6


@picture
def row_and_column():
    """One load of a warp, along a row of a matrix and down a column of it."""
    side, top, drawn = 5, 62, []
    elements = [(i, 0) for i in range(LANES)]
    shown = {
        "along a row": [(3, i) for _, i in enumerate(range(LANES))],
        "down a column": [(i, 11) for i, _ in elements],
    }
    told = []
    for index, (said, asked) in enumerate(shown.items()):
        x = index * (PHONE - LANES * side)
        grid = square(x, top, LANES, LANES, side, 0.6)
        fetched = {(row, column // PER) for row, column in asked}
        drawn += [
            words(x, 14, said, 12, 600, anchor="start"),
            words(x, 31, f"{len(fetched)} sectors", 11.5, anchor="start"),
            words(
                x,
                47,
                f"{exact(LANES * SIZE / (len(fetched) * SECTOR))} of the bytes used",
                10.5,
                color=MUTED,
                anchor="start",
            ),
            box(x, top, grid.across, grid.down, LINES, 16),
            _blocks(grid, HBM, 45, [(row, part * PER, PER) for row, part in sorted(fetched)]),
            _blocks(grid, WARP, 85, [(row, column, 1) for row, column in asked]),
            _mesh(grid),
        ]
        told.append(f"{said} it touches {len(fetched)} sectors")
    foot = top + LANES * side + 10
    drawn.append(
        keys(
            0,
            foot,
            PHONE,
            (
                Key(WARP, 85, "asked for by a lane"),
                Key(HBM, 45, "fetched with it, unused"),
                Key(LINES, 16, "left in memory"),
            ),
        )
    )
    about = (
        f"Two matrices of {LANES} by {LANES} elements. A warp loads one element a lane: "
        f"{' and '.join(told)}."
    )
    return Picture(
        sees="Along a row a warp shares its sectors; down a column each lane needs its own.",
        caption=f"A float32 matrix stored row by row; a square is an element, and {PER} next to "
        f"each other are a sector of {SECTOR} bytes. Both warps ask for {LANES * SIZE} bytes.",
        svg=svg(PHONE, foot + 36, about, drawn),
    )


def _blocks(grid, color, percent, runs):
    """Runs of cells, (row, first column, how many), as one path."""
    path = "".join(
        f"M{x:g} {y:g}h{many * grid.wide:g}v{grid.tall:g}h{-many * grid.wide:g}z"
        for row, column, many in runs
        for x, y in [grid.corner(row, column)]
    )
    return f'<path d="{path}" style="fill:{mixed(color, percent)}"/>'


def _mesh(grid):
    """The gaps between the cells of a grid, drawn over them."""
    path = "".join(
        [f"M{grid.x + i * grid.wide:g} {grid.y:g}v{grid.down:g}" for i in range(1, grid.columns)]
        + [f"M{grid.x:g} {grid.y + i * grid.tall:g}h{grid.across:g}" for i in range(1, grid.rows)]
    )
    return line(path, "var(--am-paper)", grid.gap)


@picture
def nesting():
    """From a program to its warps, their lanes, and what a lane loads."""
    left, wide, tall, step = 0, PHONE, 22, 88
    lanes_of = ELEMENTS // WARPS // LANES
    levels = (
        ("a grid of programs", PROGRAMS, 2, "in any order, on any multiprocessor"),
        (f"a program: {WARPS} warps", WARPS, 1, f"a tile of {count(ELEMENTS)} elements"),
        (f"a warp: {LANES} lanes", LANES, 4, "one instruction for all of them"),
        (f"a lane: {lanes_of} elements", lanes_of, None, f"{WARPS * LANES} elements apart"),
    )
    drawn, colors = [], (LINES, WARP, WARP, HBM)
    for index, (said, parts, opened, beside) in enumerate(levels):
        top = 22 + index * step
        unit = (wide + 2) / parts
        grid = Grid(left, top, 1, parts, unit, tall + 2, 2)
        drawn += [
            words(0, top - 8, said, 11.5, 600, anchor="start"),
            cells(
                grid,
                lambda _, place, opened=opened, color=colors[index]: (
                    color,
                    STRONG if place == opened or opened is None else 26,
                ),
            ),
            words(PHONE, top - 8, beside, 10.5, color=MUTED, anchor="end"),
        ]
        if opened is not None:
            x, _ = grid.corner(0, opened)
            drawn.append(frame(x - 1, top - 1, unit, tall + 2, INK, 1.4))
            # It opens to the whole level below, whose head stands in it.
            path = f"M{x:g} {top + tall + 2}h{unit - 2:g}L{wide} {top + step - 24}H0z"
            drawn.append(f'<path d="{path}" style="fill:{mixed(LINES, 14)}"/>')
    about = (
        f"A grid of programs; a program has {WARPS} warps; a warp has {LANES} lanes; each lane of "
        f"this copy loads {lanes_of} elements of the program's {ELEMENTS}."
    )
    return Picture(
        sees="You write the program; the hardware loads by warps.",
        caption="The copy of this page. Its source speaks of one tile. The compiler deals the tile "
        f"to {WARPS} × {LANES} lanes, and memory sees one request for each load instruction of "
        "a warp.",
        svg=svg(PHONE, 22 + 3 * step + tall + 4, about, drawn),
    )


@picture
def touched(results):
    """Which sectors a warp touches at strides of 1, 2, 4 and 8."""
    result = next(r for r in results if (r.post, r.result) == ("coalescing", "lanes"))
    rows = [only(result.rows, dtype="float32", stride=stride) for stride in STRIDES]
    unit, top, drawn = PHONE / LANES, 0, []
    for row in rows:
        fetched = {at // row["sector_bytes"] for at in row["lane_bytes"]}
        asked = {at // row["element_bytes"] for at in row["lane_bytes"]}
        used = exact(
            len(row["lane_bytes"]) * row["element_bytes"] / (len(fetched) * row["sector_bytes"])
        )
        sector = Grid(0, top + 20, 1, LANES, unit, 22, 1.4)
        per = row["sector_bytes"] // row["element_bytes"]
        inner = (unit - 1.4) / per
        ticks = "".join(
            f"M{at // per * unit + at % per * inner:.2f} {top + 24}h{inner:.2f}v12h-{inner:.2f}z"
            for at in sorted(asked)
        )
        said = "1 (neighbors)" if row["stride"] == 1 else row["stride"]
        drawn += [
            words(0, top + 12, f"stride {said}", 11.5, 600, anchor="start"),
            words(PHONE, top + 12, f"{len(fetched)} sectors, {used} used", 11, anchor="end"),
            cells(
                sector,
                lambda _, place, fetched=fetched: (HBM, 40) if place in fetched else (LINES, 16),
            ),
            f'<path d="{ticks}" style="fill:{mixed(WARP, 95)}"/>',
        ]
        top += 56
    drawn += [
        bracket(0, top - 6, unit - 1.4, "", "below"),
        words(unit + 6, top + 2, f"a sector: {SECTOR} bytes", 10.5, color=MUTED, anchor="start"),
        keys(
            0,
            top + 14,
            PHONE,
            (Key(WARP, 95, "an element of a lane"), Key(HBM, 40, "a fetched sector")),
        ),
    ]
    about = " ".join(
        f"At stride {row['stride']} the {LANES} lanes of a warp touch {row['sectors']} sectors."
        for row in rows
    )
    return Picture(
        sees="Twice the stride is twice the sectors, until each lane has its own.",
        caption=f"One load of a warp from float32, one element a lane, and the {LANES} sectors "
        "from its first address on.",
        svg=svg(PHONE, top + 34, about, drawn),
        table=[{"stride": r["stride"], "sectors": r["sectors"]} for r in rows],
        sources=[result],
    )
