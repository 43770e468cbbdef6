"""The drawings of the page: blocks that travel, who computes what, and the steps of one rank."""

from snippets._lab.draw.drawings import (
    MUTED,
    PALE,
    PHONE,
    box,
    labeled,
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import cells, numbers, square
from snippets._lab.draw.identity import SCORES, K, Q
from snippets._lab.draw.pictures import Picture, picture

RANKS = 4
SHADES = (16, 34, 52, 70)  # percent of a color, for each rank


def chunks(rank, layout):
    """The two eighths of the sequence that a rank holds."""
    if layout == "zigzag":
        return rank, 2 * RANKS - 1 - rank
    return 2 * rank, 2 * rank + 1


def owner(chunk, layout):
    """The rank that holds a chunk."""
    return next(rank for rank in range(RANKS) if chunk in chunks(rank, layout))


def step_of(query_chunk, key_chunk, layout):
    """In which step a rank meets a chunk of keys: as many hops as they have come."""
    return (owner(query_chunk, layout) - owner(key_chunk, layout)) % RANKS


@picture
def travel():
    """Four ranks in a ring: queries stay, blocks of keys and values go around."""
    wide, tall, left, top = 96, 74, 30, 16
    places = [(left, top), (PHONE - left - wide, top)]
    places += [(x, top + tall + 62) for x, _ in reversed(places)]  # round the ring: clockwise
    drawn, blocks = [], []
    for rank, (x, y) in enumerate(places):
        drawn.append(box(x, y, wide, tall, MUTED, 8))
        drawn.append(words(x + wide / 2, y + 16, f"rank {rank}", 11.5, 600))
        drawn.append(labeled(x + 8, y + 26, 36, 38, Q, f"Q {rank}"))
    (x0, y0), (x1, _), (_, y2), _ = places
    middle_x, middle_y = x0 + wide / 2, y0 + tall
    right_x = x1 + wide / 2
    drawn += [
        straight((x0 + wide + 8, y0 + tall / 2), (x1 - 8, y0 + tall / 2)),
        straight((right_x, middle_y + 8), (right_x, y2 - 8)),
        straight((x1 - 8, y2 + tall / 2), (x0 + wide + 8, y2 + tall / 2)),
        straight((middle_x, y2 - 8), (middle_x, middle_y + 8)),
    ]
    for source, (x, y) in enumerate(places):
        stops = [places[(source + step) % RANKS] for step in range(RANKS + 1)]
        frames = {}
        for step, (to_x, to_y) in enumerate(stops):
            moved = f"transform:translate({to_x - x:g}px,{to_y - y:g}px)"
            frames[25 * step] = moved
            if step < RANKS:
                frames[25 * step + 15] = moved
        block = labeled(x + 52, y + 26, 36, 38, K, f"K {source}")
        blocks.append(motion(f"am-ring-{source}", frames, 10, [block]))
    about = (
        "Four ranks at the corners of a square, each with a block of queries that stays. Four "
        "blocks of keys move clockwise from rank to rank until each is home again."
    )
    return Picture(
        sees="Queries stay; blocks of keys, with their values, go around.",
        caption="After four steps every rank has seen every block.",
        svg=svg(PHONE, y2 + tall + 14, about, [*drawn, *blocks]),
    )


@picture
def staircase():
    """Which rank computes which part of the causal triangle, contiguous and in zigzag."""
    side, top, between = 18, 36, 30
    left = (PHONE - between - 16 * side - 12) / 2  # the last column of ranks stands outside
    drawn = []
    for at, layout in enumerate(("contiguous", "zigzag")):
        grid = square(left + at * (8 * side + between), top, 8, 8, side)

        def look(row, column, layout=layout):
            return (SCORES, SHADES[owner(row, layout)]) if column <= row else None

        def step(row, column, layout=layout):
            return str(step_of(row, column, layout)) if column <= row else ""

        drawn += [cells(grid, look), numbers(grid, step, 10)]
        drawn.append(words(grid.x, top - 12, layout, 12, 600, anchor="start"))
        drawn.append(words(grid.x + 8 * side + 14, top - 12, "rank", 10, color=MUTED, anchor="end"))
        for row in range(8):
            x, y = grid.corner(row, 8)
            drawn.append(words(x + 7, y + 12.5, str(owner(row, layout)), 10, color=MUTED))
    work = {}
    for layout in ("contiguous", "zigzag"):
        tiles = [sum(c + 0.5 for c in chunks(rank, layout)) for rank in range(RANKS)]
        work[layout] = tiles
    about = (
        "Two triangles of eight by eight chunks, shaded by the rank that computes a row. "
        "Contiguous: rank 0 has the two short rows at the top, rank 3 the two long ones at the "
        "bottom. Zigzag: each rank has a short row and a long one."
    )
    return Picture(
        sees="Contiguous shards give the last rank most of the triangle; in zigzag each rank has a "
        "short row of chunks and a long one.",
        caption="Queries down, keys across, eight chunks each; the shade and the number at the "
        "right are the rank. The number in a cell is the step in which its keys are there.",
        svg=svg(PHONE, top + 8 * side + 8, about, drawn),
        table=[
            {"layout": layout, "rank": rank, "chunks of scores": tiles}
            for layout, found in work.items()
            for rank, tiles in enumerate(found)
        ],
    )


@picture
def steps():
    """What rank 1 of four computes in each step: a triangle, then rectangles without a mask."""
    rank, side, gap, top = 1, 32, 19, 44
    left = (PHONE - 4 * 2 * side - 3 * gap) / 2
    drawn = []
    for t in range(RANKS):
        source = (rank - t) % RANKS
        grid = square(left + t * (2 * side + gap), top, 2, 2, side)
        there = seen(rank, source)

        def look(row, column, there=there):
            what = there.get((row, column))
            return {None: (MUTED, 8), "all": (SCORES, 60), "half": (SCORES, PALE)}[what]

        def said(row, column, there=there):
            return "mask" if there.get((row, column)) == "half" else ""

        drawn += [cells(grid, look), numbers(grid, said, 9.8)]
        drawn.append(words(grid.x, top - 24, f"step {t}", 11.5, 600, anchor="start"))
        drawn.append(words(grid.x, top - 8, f"keys of {source}", 10, color=MUTED, anchor="start"))
    about = (
        "Four squares of two by two chunks. Step 0 with its own keys: a triangle. Step 1, keys of "
        "rank 0: the left column. Steps 2 and 3, keys of ranks 3 and 2: the lower row."
    )
    return Picture(
        sees="Only the step of a rank's own keys needs a mask; all others are rectangles.",
        caption="Rank 1 of four in zigzag: its two chunks of queries down, two chunks of keys "
        "across. Strong: seen whole. Gray: not seen, and not computed.",
        svg=svg(PHONE, top + 2 * side + 10, about, drawn),
    )


def seen(rank, source):
    """Of a rank's two chunks of queries and another's two of keys: what is seen, by (row, column).

    "all" or "half"; the steps of the kernel cover the same.
    """
    found = {}
    for i, query in enumerate(chunks(rank, "zigzag")):
        for j, key in enumerate(chunks(source, "zigzag")):
            if key < query:
                found[i, j] = "all"
            elif key == query:
                found[i, j] = "half"
    return found
