"""Matrices and tiles in a drawing: grids of cells, each kind of cell one path."""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from snippets._lab.draw.drawings import INK, PALE, STRONG, box, bracket, frame, mixed, words
from snippets._lab.draw.identity import identity

Look = tuple[str, float]  # a color and its percent


class Grid(NamedTuple):
    """Rows and columns of cells with their upper left corner at (x, y)."""

    x: float
    y: float
    rows: int
    columns: int
    wide: float  # of a cell, with the gap beside it
    tall: float
    gap: float = 1

    @property
    def across(self) -> float:
        return self.columns * self.wide - self.gap

    @property
    def down(self) -> float:
        return self.rows * self.tall - self.gap

    def corner(self, row: float, column: float) -> tuple[float, float]:
        """Where a cell begins."""
        return self.x + column * self.wide, self.y + row * self.tall

    def middle(self, row: float, column: float) -> tuple[float, float]:
        x, y = self.corner(row, column)
        return x + (self.wide - self.gap) / 2, y + (self.tall - self.gap) / 2


def square(x: float, y: float, rows: int, columns: int, side: float, gap: float = 1) -> Grid:
    """A grid of square cells."""
    return Grid(x, y, rows, columns, side, side, gap)


def cells(grid: Grid, look: Callable[[int, int], Look | None]) -> str:
    """The cells of a grid by (row, column); None is left out. Those that look alike are a path.

    In a path each cell says how far it is from the one before, which repeats, and so packs well.
    """
    alike: dict[Look, list[tuple[float, float]]] = {}
    wide, tall = grid.wide - grid.gap, grid.tall - grid.gap
    outline = f"h{wide:g}v{tall:g}h{-wide:g}z"
    for row in range(grid.rows):
        for column in range(grid.columns):
            if seen := look(row, column):
                alike.setdefault(seen, []).append(grid.corner(row, column))

    def path(corners: list[tuple[float, float]]) -> str:
        x, y = corners[0]
        moves = (
            f"m{round(right - left, 3):g} {round(low - high, 3):g}"
            for (left, high), (right, low) in pairwise(corners)
        )
        return "".join(move + outline for move in (f"M{x:g} {y:g}", *moves))

    return "".join(
        f'<path d="{path(corners)}" style="fill:{mixed(*seen)}"/>'
        for seen, corners in alike.items()
    )


def numbers(
    grid: Grid, value: Callable[[int, int], str], size: float = 11, weight: int = 400
) -> str:
    """What stands in the cells of a grid; "" is left out."""
    drawn = []
    for row in range(grid.rows):
        for column in range(grid.columns):
            if said := value(row, column):
                x, y = grid.middle(row, column)
                drawn.append(words(x, y + 0.35 * size, said, size, weight))
    return "".join(drawn)


def around(grid: Grid, rows: slice, columns: slice, color: str = INK, line: float = 1.6) -> str:
    """A line around a tile of a grid, e.g. around(grid, slice(0, 2), slice(4, 8))."""
    x, y = grid.corner(rows.start, columns.start)
    wide = (columns.stop - columns.start) * grid.wide - grid.gap
    tall = (rows.stop - rows.start) * grid.tall - grid.gap
    return frame(x - 1, y - 1, wide + 2, tall + 2, color, line)


class Matrix(NamedTuple):
    """A tensor as one block: where it is, its name, and what its columns are called."""

    x: float
    y: float
    wide: float
    tall: float
    tensor: str  # q, k, v, scores, weights, output: its color
    said: str  # in its middle
    columns: str = ""  # above it

    def part(self, start: float, end: float, percent: float = STRONG) -> str:
        """A tile of rows, by shares of the height."""
        color = identity(self.tensor).color
        top, tall = self.y + start * self.tall, (end - start) * self.tall
        return box(self.x, top, self.wide, tall, color, percent, 1)

    def slab(self, start: float, end: float, percent: float = STRONG) -> str:
        """A tile of columns, by shares of the width."""
        color = identity(self.tensor).color
        left, wide = self.x + start * self.wide, (end - start) * self.wide
        return box(left, self.y, wide, self.tall, color, percent, 1)


def matrix(of: Matrix, percent: float = PALE, size: float = 12) -> str:
    """A tensor as a block with its name, and what its columns are called."""
    color = identity(of.tensor).color
    drawn = [
        box(of.x, of.y, of.wide, of.tall, color, percent, 1),
        words(of.x + of.wide / 2, of.y + of.tall / 2 + 0.35 * size, of.said, size, 600),
    ]
    if of.columns:
        drawn.append(bracket(of.x, of.y - 6, of.wide, of.columns, "above"))
    return "".join(drawn)
