"""The drawing of the page: a warp along a row and down a column."""

from snippets._lab.draw.drawings import LINES, MUTED, PHONE, Key, box, keys, line, mixed, svg, words
from snippets._lab.draw.grids import square
from snippets._lab.draw.identity import CONSUMERS, HBM
from snippets._lab.draw.machine import LANES, SECTOR
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.units import exact

WARP = CONSUMERS[0]
SIZE = 4  # bytes of float32
PER = SECTOR // SIZE  # elements of a sector


@picture
def row_and_column():
    """One load of a warp, along a row of a matrix and down a column of it."""
    side, top, drawn = 5, 62, []
    shown = {
        "along a row": [(3, lane) for lane in range(LANES)],
        "down a column": [(lane, 11) for lane in range(LANES)],
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
        f"each other are a sector of {SECTOR} bytes. A *warp* is {LANES} threads, its "
        f"*lanes*; both warps ask for {LANES * SIZE} bytes.",
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
