"""The machine in a drawing: its sizes, and bands for its parts."""

from typing import NamedTuple

from snippets._lab.draw.drawings import INK, PALE, box, words

LANES = 32  # of a warp
SECTOR = 32  # bytes that memory hands over at once


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
