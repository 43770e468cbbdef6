"""The drawing of a GPU that all pages share, and what is written on its memories."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    box,
    labeled,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import cells, square
from snippets._lab.draw.identity import CONSUMERS, HBM, L2, REGISTERS, SHARED, oklch
from snippets._lab.draw.machine import Band, band
from snippets._lab.draw.rows import ceiling, moved, only, pick
from snippets._lab.draw.units import bandwidth, binary, size
from snippets._lab.results.store import Result

TENSOR, EXPONENTIAL, CORES = oklch(0.6, 0.15, 22), oklch(0.6, 0.13, 330), oklch(0.6, 0.1, 45)
QUARTERS = 4  # of a multiprocessor, each with a scheduler of its own
WARPS = 16  # that a scheduler has at most


class Level(NamedTuple):
    """A memory: its name, size, rate and latency as text; "" for what is unknown."""

    name: str
    size: str
    rate: str
    latency: str
    per_s: float = 0  # the rate as a number, where it was measured

    def line(self) -> str:
        """What is known, in one line."""
        return " · ".join(x for x in (self.size, self.rate, self.latency) if x)


def memories(sizes: Result, latency: Callable[[str], str] = lambda level: "") -> list[Level]:
    """Registers, shared memory, L2 and HBM of a GPU, from its sizes and its walks.

    `latency` knows that of L1, L2 and HBM as text, or "".
    """
    chip = only(sizes.rows, kind="sizes")
    rates = {
        "L1": walked(sizes, chip["shared_bytes"] // 2),
        "L2": walked(sizes, chip["l2_bytes"] // 2),
        "HBM": ceiling(sizes, "read"),
    }
    named = (
        ("shared memory and L1", binary(chip["shared_bytes"]), "L1"),
        ("L2", binary(chip["l2_bytes"]), "L2"),
        ("HBM", size(chip["memory_bytes"]), "HBM"),
    )
    return [
        Level("registers", binary(chip["registers_bytes"]), "", ""),
        *(
            Level(name, held, bandwidth(rates[level]), latency(level), rates[level])
            for name, held, level in named
        ),
    ]


def walked(sizes: Result, most: int) -> float:
    """Bytes a second of the walk through the largest working set of at most so many bytes."""
    walks = [r for r in pick(sizes.rows, kind="walk") if r["set_bytes"] <= most]
    return moved(max(walks, key=lambda r: r["set_bytes"]), "bytes_loaded")


def gpu(chip: tuple[str, int], levels: Sequence[Level], units: Sequence[str]) -> str:
    """One streaming multiprocessor inside its chip.

    chip: the GPU's name and how many multiprocessors it has. levels: registers, shared memory
    (with L1), L2, HBM. units: tensor cores, float32 cores, exponential units, and what each does.
    """
    name, many = chip
    registers, shared, l2, hbm = levels
    tensor, cores, exponential = units
    left, wide = 8, PHONE - 16
    inner, across = left + 8, wide - 16
    drawn = [
        box(1, 1, PHONE - 2, 488, LINES, 6, 1),
        words(left + 2, 19, f"{name}: {many} multiprocessors (SM)", 12.5, 600, anchor="start"),
        box(left, 30, wide, 318, LINES, 14, 1),
        words(inner, 49, "one streaming multiprocessor", 11.5, 600, anchor="start"),
    ]
    gap = 6
    part = (across - (QUARTERS - 1) * gap) / QUARTERS
    for quarter in range(QUARTERS):
        drawn += _quarter(inner + quarter * (part + gap), part, quarter)
    within = (
        (148, REGISTERS, "registers", registers.line()),
        (188, CORES, "float32 cores", cores),
        (228, TENSOR, "tensor cores", tensor),
        (268, EXPONENTIAL, "exponential units", exponential),
        (308, SHARED, "L1, shared memory", shared.line()),
    )
    drawn += [band(Band(inner, top, across, 34, *of), 11) for top, *of in within]
    middle = PHONE / 2
    drawn += [
        straight((middle, 352), (middle, 372)),
        words(middle + 10, 366, "shared by all multiprocessors", 10, color=MUTED, anchor="start"),
        band(Band(left, 376, wide, 44, L2, "L2 cache", l2.line()), 11),
        straight((middle, 422), (middle, 438)),
        band(Band(left, 440, wide, 42, HBM, "HBM, its memory", hbm.line()), 11),
    ]
    about = (
        f"The {name}: {many} streaming multiprocessors. Each has four warp schedulers with up to "
        f"16 warps each; registers: {registers.line()}; float32 cores: {cores}; tensor cores: "
        f"{tensor}; exponential units: {exponential}; shared memory and L1: {shared.line()}. "
        f"All share L2: {l2.line()}; and HBM: {hbm.line()}."
    )
    return svg(PHONE, 490, about, drawn)


def _quarter(x: float, wide: float, number: int) -> Iterator[str]:
    """A scheduler and the warps it chooses from: one of them is working."""
    yield labeled(x, 58, wide, 22, INK, f"scheduler {number}")
    grid = square(x, 90, 2, WARPS // 2, (wide + 2) / (WARPS // 2), 2)
    color = CONSUMERS[0]
    yield cells(grid, lambda row, column: (color, STRONG if (row, column) == (0, number) else PALE))
    yield words(x + wide / 2, 136, f"{WARPS} warps", 10, color=MUTED)
