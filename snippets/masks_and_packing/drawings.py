"""The drawings of the page: a mask as tiles, a packed batch, a sink's share, evicted pages."""

import math

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    beside,
    box,
    bracket,
    labeled,
    line,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, around, cells, square
from snippets._lab.draw.identity import SCORES, WEIGHTS, K, V
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.units import percent

SIDE, TILE, WINDOW = 16, 4, 5  # of `tiles`: queries and keys, of a tile, keys that a query sees


def _seen(row, column, window=SIDE):
    return row - window < column <= row


@picture
def tiles():
    """A causal mask and one with a window, cut into tiles: skipped, whole or masked."""
    shown = []
    for title, window in (("causal", SIDE), (f"window of {WINDOW} keys", WINDOW)):
        grid = square(8, 30, SIDE, SIDE, 10)
        tile = [
            [
                sum(_seen(r, c, window) for r in _span(i) for c in _span(j))
                for j in range(SIDE // TILE)
            ]
            for i in range(SIDE // TILE)
        ]

        def look(row, column, window=window, tile=tile):
            count = tile[row // TILE][column // TILE]
            if not count:
                return MUTED, 8
            return SCORES, (STRONG if _seen(row, column, window) else PALE)

        frames = [
            around(grid, slice(i * TILE, (i + 1) * TILE), slice(j * TILE, (j + 1) * TILE))
            for i in range(SIDE // TILE)
            for j in range(SIDE // TILE)
            if tile[i][j]
        ]
        visited = sum(bool(x) for rows in tile for x in rows)
        about = f"{title}: {visited} of {(SIDE // TILE) ** 2} tiles have a visible score."
        drawn = [
            words(8, 16, f"{title}: {visited} tiles", 11.5, 600, anchor="start"),
            cells(grid, look),
            *frames,
        ]
        shown.append(svg(SIDE * 10 + 16, SIDE * 10 + 36, about, drawn))
    return Picture(
        sees="With a window the tiles lie along the diagonal: their number grows with N, not N².",
        caption=f"Rows are queries, columns are keys, {SIDE} of each in tiles of {TILE} by {TILE}. "
        "Strongly colored scores are visible. Outlined tiles are computed: those that the mask "
        "cuts are masked score by score. Gray tiles are never loaded.",
        svg=beside(*shown),
    )


def _span(index):
    return range(index * TILE, (index + 1) * TILE)


EXAMPLE = (2.0, 0.5, 1.0, -0.5)  # scores of `sink`, which itself is 1.5
OWN = 1.5


@picture
def sink():
    """Weights of four keys without a sink and with one, which takes its share of the row."""
    drawn, wide = [], PHONE - 96
    for index, (title, scores) in enumerate(
        (("no sink", EXAMPLE), (f"sink {OWN:g}", (*EXAMPLE, OWN)))
    ):
        y, left = 24 + index * 40, 92
        total = sum(math.exp(s) for s in scores)
        drawn.append(words(84, y + 16, title, 11.5, 600, anchor="end"))
        for i, score in enumerate(scores):
            share = math.exp(score) / total
            color, strength = (WEIGHTS, 30 + 12 * i) if i < len(EXAMPLE) else (MUTED, 12)
            drawn.append(box(left, y, share * wide - 2, 24, color, strength, 1))
            if share > 0.1:
                drawn.append(words(left + share * wide / 2 - 1, y + 16, percent(share), 10.5))
            left += share * wide
    taken = math.exp(OWN) / sum(math.exp(s) for s in (*EXAMPLE, OWN))
    return Picture(
        sees=f"A sink of {OWN:g} takes {percent(taken)} of this row, and the keys share the rest.",
        caption=f"Weights of four keys with the scores {', '.join(f'{s:g}' for s in EXAMPLE)}. The "
        "gray part belongs to the sink: its value is zeros, so it adds nothing to the output.",
        svg=svg(PHONE, 96, "Two bars of weights; in the second a sink takes its part.", drawn),
    )


LENGTHS, BLOCK = (5, 1, 9), 4  # of `packed`: rows of three sequences, and of a tile


@picture
def packed():
    """Three sequences in one tensor, their tiles, and the numbers by which tiles are found."""
    wide, top, x, drawn = 20, 34, 4, []
    colors = (K, V, WEIGHTS)
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    total = sum(LENGTHS)
    for index, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        left = x + start * wide
        for row in range(length):
            drawn.append(box(left + row * wide, top, wide - 2, 22, colors[index], STRONG))
        drawn.append(words(left + length * wide / 2 - 1, top - 6, f"{length}", 11))
    drawn += [words(x, 14, "q: rows of three sequences", 11.5, 600, anchor="start")]
    y, number = top + 50, 0
    drawn += [words(x, y - 8, "programs", 11.5, 600, anchor="start")]
    pitch = (PHONE - 8) / (total // BLOCK + len(LENGTHS) + 1)
    for index, (start, length) in enumerate(zip(starts, LENGTHS, strict=True)):
        first = start // BLOCK + index
        last = (start + length) // BLOCK + index + 1
        for tile in range(first, last):
            rows = max(min(BLOCK, length - (tile - first) * BLOCK), 0)
            said = f"{rows} row{'s' * (rows != 1)}" if rows else "exits"
            color, strength = (colors[index], PALE) if rows else (MUTED, 8)
            left = x + number * pitch
            drawn.append(labeled(left, y, pitch - 3, 26, color, said, 10.5, strength))
            number += 1
    left = x + number * pitch
    drawn.append(labeled(left, y, pitch - 3, 26, MUTED, "exits", 10.5, 8))
    formula = "; ".join(
        f"{start} // {BLOCK} + {i} = {start // BLOCK + i}" for i, start in enumerate(starts)
    )
    drawn.append(words(x, y + 46, f"first tiles: {formula}", 11, anchor="start", color=MUTED))
    about = (
        f"Rows of sequences of {', '.join(map(str, LENGTHS))}; below the programs, each with the "
        "rows of one sequence; the last has none and exits."
    )
    return Picture(
        sees="A tile never holds rows of two sequences, and nobody counted tiles on the host.",
        caption=f"Tiles of {BLOCK} rows. Sequence i has those from cu_seqlens[i] // {BLOCK} + i, "
        "enough wherever it begins. A program finds its sequence by searching cu_seqlens.",
        svg=svg(PHONE, y + 54, about, drawn),
    )


PAGES, PAGE, FIRST = 6, 4, 9  # of `evicted`: pages, keys of each, the first key still seen


@picture
def evicted():
    """A cache of pages, of which the window has left two and a part of a third."""
    grid = Grid(4, 30, 1, PAGES * PAGE, 14, 26)

    def look(_, column):
        if column < FIRST // PAGE * PAGE:
            return MUTED, 10
        return K, (STRONG if column >= FIRST else PALE)

    gone = FIRST // PAGE
    drawn = [words(4, 14, "keys in pages of four", 11.5, 600, anchor="start"), cells(grid, look)]
    for page in range(PAGES):
        x, y = grid.corner(0, page * PAGE)
        if page < gone:
            drawn.append(words(x + 27, y + 17, "NaN", 11, 600, color=INK))
        drawn.append(line(f"M{x - 0.5:g} {y - 3}v32", LINES))
    x, y = grid.corner(0, FIRST)
    drawn += [
        bracket(x, y + 34, (PAGES * PAGE - FIRST) * 14 - 1, "seen by a query", "below"),
        words(4, y + 50, "never read", 11, anchor="start", color=MUTED),
    ]
    return Picture(
        sees="What no query sees may hold anything, NaN included: it is never read.",
        caption="A window has moved on. Two pages were given back and hold what their next owner "
        "wrote. Of the third page, only what lies in the window is read.",
        svg=svg(PHONE, y + 60, "Six pages of keys; two hold NaN and are never read.", drawn),
    )
