"""The machine in a drawing: lanes of a warp, sectors of memory, and bands for its parts."""

from collections.abc import Collection
from typing import NamedTuple

from snippets._lab.draw.drawings import INK, LINES, PALE, STRONG, box, words
from snippets._lab.draw.grids import Grid, cells
from snippets._lab.draw.identity import identity

LANES = 32  # of a warp
SECTOR = 32  # bytes that memory hands over at once


def lanes(
    x: float, y: float, wide: float, lit: Collection[int] = range(LANES), rows: int = 1
) -> tuple[Grid, str]:
    """A warp: its 32 lanes as squares, in rows; the grid, and what is drawn."""
    side = (wide + 1) / (LANES // rows)
    grid = Grid(x, y, rows, LANES // rows, side, side)
    color = identity("consumer 0").color
    drawn = cells(
        grid,
        lambda row, column: (color, STRONG if row * grid.columns + column in lit else PALE),
    )
    return grid, drawn


def sectors(grid: Grid, touched: Collection[tuple[int, int]], memory: str = "HBM") -> str:
    """Sectors of a memory: those that an access touches are lit."""
    color = identity(memory).color
    return cells(grid, lambda row, column: (color, 80) if (row, column) in touched else (LINES, 18))


class Band(NamedTuple):
    """A part of the machine: where it is, its color, its name and what is known of it."""

    x: float
    y: float
    wide: float
    tall: float
    color: str
    name: str
    said: str = ""


def band(of: Band, size: float = 11.5) -> str:
    """A box across, its name on the left and what is known of it on the right."""
    middle = of.y + of.tall / 2 + 4
    right = words(of.x + of.wide - 8, middle, of.said, size - 0.5, anchor="end") if of.said else ""
    return (
        box(of.x, of.y, of.wide, of.tall, of.color, PALE, 1)
        + words(of.x + 8, middle, of.name, size, 600, color=INK, anchor="start")
        + right
    )
