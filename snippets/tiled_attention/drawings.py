"""The drawings of the page: tiles that slide past, the rescale, a staircase, and a cube."""

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
    frame,
    line,
    mixed,
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Matrix, cells, matrix, square
from snippets._lab.draw.identity import CONSUMERS, OUTPUT, SCORES, WEIGHTS
from snippets._lab.draw.machine import LANES
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import only, pick
from snippets._lab.draw.units import decimals

TILES = 6  # of keys, as many as are drawn
BLOCK = 4  # queries and keys of a tile in the staircase
LANE = CONSUMERS[0]


@picture
def slide():
    """A block of queries stays; tiles of keys and values slide past."""
    q = Matrix(0, 104, 40, 150, "q", "Q")
    tile = 150 / TILES
    k = Matrix(92, 34, TILES * 27, 36, "k", " ", columns="N keys")
    out = Matrix(PHONE - 40, 104, 40, 150, "output", "O")
    scores = Matrix(k.x, q.y, k.wide, q.tall, "scores", " ")
    mine = 1  # the block of queries of the program that is drawn
    at = q.y + mine * tile
    step = k.wide / TILES
    v_y = q.y + q.tall + 18
    v = Matrix(k.x, v_y, k.wide, 36, "v", " ")
    now = [
        k.slab(0, 1 / TILES),
        box(scores.x, at, step, tile, SCORES, STRONG, 1),
        v.slab(0, 1 / TILES),
    ]
    moves = {100 * i / TILES: f"transform:translateX({i * step:g}px)" for i in range(TILES)} | {
        100: f"transform:translateX({(TILES - 1) * step:g}px)"
    }
    drawn = [
        matrix(q),
        matrix(k),
        box(scores.x, scores.y, scores.wide, scores.tall, LINES, 8),
        words(scores.x + scores.wide / 2, scores.y + 18, "scores: never whole", 10.5, color=MUTED),
        matrix(v),
        matrix(out),
        q.part(mine / TILES, (mine + 1) / TILES),
        box(scores.x, at, scores.wide, tile, SCORES, 12),
        out.part(mine / TILES, (mine + 1) / TILES),
        motion("am-slide", moves, 9, now, "step-end"),
        straight((q.x + q.wide + 4, at + tile / 2), (scores.x - 5, at + tile / 2)),
        straight((scores.x + scores.wide + 5, at + tile / 2), (out.x - 4, at + tile / 2)),
        words(q.x, q.y - 8, "stays", 10.5, 600, anchor="start"),
        words(out.x + out.wide - 3, out.y - 8, "m, l, acc", 10.5, 600, anchor="end"),
        words(k.x - 8, k.y + 23, "Kᵀ", 12, 600, anchor="end"),
        words(v.x - 8, v.y + 23, "Vᵀ", 12, 600, anchor="end"),
    ]
    about = (
        "A block of rows of Q stays in a program. One tile of keys after the other comes, gives a "
        "tile of scores, meets its tile of values, and goes; m, l and acc stay."
    )
    return Picture(
        sees="Q stays, K and V slide past.",
        caption="A program keeps its block of queries. Each iteration brings one tile of keys and "
        "one of values, and of the scores only one tile ever exists. Three things survive the "
        "iteration: the maxima m, the sums l and the accumulator.",
        svg=svg(PHONE, v.y + v.tall + 6, about, drawn),
    )


@picture_of("scene")
def running(result):
    """m, l and acc of one query before and after a tile, in recorded numbers."""
    query = 0
    rows = pick(result.rows, example=result.rows[0]["example"])
    row = next(r for r in rows if r["m_before"][query] is not None and r["alpha"][query] < 1)
    m, m_new, alpha = row["m_before"][query], row["m"][query], row["alpha"][query]
    shown = 2  # columns of acc
    acc, acc_new = row["acc_before"][query][:shown], row["acc"][query][:shown]
    scores, p = row["scores"][query], row["p"][query]
    added = [b - a * alpha for a, b in zip(acc, acc_new, strict=True)]
    columns = (("before", 62), ("× α", 138), ("+ this tile", 214), ("after", 296))
    top, pitch, wide = 96, 34, 62
    drawn = [
        words(0, 14, "scores", 11, 600, color=INK, anchor="start"),
        words(0, 48, "p = exp(s − m)", 10.5, 600, color=INK, anchor="start"),
    ]
    for i, (score, weight) in enumerate(zip(scores, p, strict=True)):
        x = 100 + i * 62
        drawn += [
            box(x, 0, 56, 20, SCORES, STRONG if score == m_new else PALE),
            words(x + 28, 14, decimals(score), 11, 600 if score == m_new else 400),
            box(x, 34, 56, 20, WEIGHTS, PALE),
            words(x + 28, 48, decimals(weight), 11),
        ]
    drawn += [words(x + 4, top - 14, name, 10.5, color=MUTED) for name, x in columns]
    lines = [
        ("m", OUTPUT, (m, None, None, m_new)),
        (
            "l",
            WEIGHTS,
            (row["l_before"][query], row["l_before"][query] * alpha, sum(p), row["l"][query]),
        ),
        *(
            (f"acc {d}", OUTPUT, (acc[d], acc[d] * alpha, added[d], acc_new[d]))
            for d in range(shown)
        ),
    ]
    for i, (name, color, values) in enumerate(lines):
        y = top + i * pitch
        drawn.append(words(0, y + 14, name, 11, 600, anchor="start"))
        for value, (_, x) in zip(values, columns, strict=True):
            if value is not None:
                last = x == columns[-1][1]
                drawn += [
                    box(x - wide / 2 + 4, y, wide, 22, color, 40 if last else PALE),
                    words(x + 4, y + 15, decimals(value), 11, 600 if last else 400),
                ]
        if name == "m":
            drawn += [
                straight((columns[0][1] + 40, y + 11), (columns[3][1] - 32, y + 11)),
                words(180, y + 5, "max with the largest score", 10, color=MUTED),
            ]
    foot = top + len(lines) * pitch + 8
    drawn.append(
        words(
            0,
            foot,
            f"α = exp({decimals(m)} − {decimals(m_new)}) = {decimals(alpha)}",
            12,
            600,
            anchor="start",
        )
    )
    about = (
        f"One query, one tile. m goes from {decimals(m)} to {decimals(m_new)}, so alpha is "
        f"{decimals(alpha)}. l and acc are multiplied by it, then this tile's part is added."
    )
    assert math.isclose(sum(p) + row["l_before"][query] * alpha, row["l"][query], rel_tol=1e-3)
    return Picture(
        sees="A larger maximum makes everything before it smaller.",
        caption="This tile holds a score above all earlier ones, so m grows. What was summed "
        "relative to the old maximum is multiplied by α, and then the tile's own weights and "
        "weighted values are added. The numbers are those of one query, recorded from the kernel.",
        svg=svg(PHONE, foot + 8, about, drawn),
        table=[
            dict(zip(("what", "before", "× α", "+ this tile", "after"), (n, *v), strict=True))
            for n, _, v in lines
        ],
    )


@picture_of("axes")
def cube(result):
    """The products of a tile as a box, and who owns them in both orders of the axes.

    Triton's layouts for the tile that the chart of both orders was measured with, 16 x 16 and 8
    warps at D 64: [1, 2, 16] lanes over [D, queries, keys], [1, 1, 32] over [queries, keys, D].
    """
    shuffles = {o: only(result.rows, implementation=o, D=64)["shuffles"] for o in ("first", "last")}
    left, top, side, keys_, score = 62, 106, 12.5, 16, 5
    wide, tall, (back, up) = keys_ * side, 76, (72, -72)  # of the front; where its rear is

    def slab(column, columns, depth=0.0, deep=1.0):
        """A part of the upper face: columns of keys, and a share of the depth from the front."""
        x, y = left + column * side + depth * back, top + depth * up
        across, away = columns * side, f"{deep * back:g} {deep * up:g}"
        return f"M{x:g} {y:g}h{across:g}l{away}h{-across:g}z"

    def filled(path, percent, color=LANE):
        return f'<path d="{path}" style="fill:{mixed(color, percent)}"/>'

    def drawn(lanes, said, then):
        """The box with the upper face cut into what each lane owns."""
        right = left + wide
        return [
            box(left, top, wide, tall, SCORES, PALE),
            filled(f"M{right} {top}l{back} {up}v{tall}l{-back} {-up}z", 12, SCORES),
            *(filled(path, 20 + 30 * (i % 2)) for i, path in enumerate(lanes)),
            line(slab(score, 1), INK, 2),
            box(left + score * side, top + 1, side, tall / 16, SCORES, 100),
            words(0, 14, said, 11.5, 600, anchor="start"),
            bracket(left, top + tall + 8, wide, "keys", "below", 11),
            bracket(left - 8, top, tall, "queries", "left", 11),
            words(left + back / 2 - 6, top + up / 2, "D", 11, color=MUTED, anchor="end"),
            words(left + wide / 2, top + tall / 2 + 4, "front: a tile of scores", 11),
            words(0, top + tall + 46, then, 11.5, 600, anchor="start"),
        ]

    first = drawn(
        [slab(key, 1) for key in range(keys_)],
        "[D, queries, keys], summed along D",
        f"one thread per score: {shuffles['first']} shuffles",
    )
    last = drawn(
        [slab(0, keys_, lane / LANES, 1 / LANES) for lane in range(LANES)],
        "[queries, keys, D], summed along D",
        f"{LANES} threads a score: {shuffles['last']} shuffles",
    )
    about = (
        "A box of products with axes D, queries and keys. Each lane owns a strip that runs along "
        "D, and so all products of one score.",
        f"The same box: {LANES} lanes lie along D, and each score's products are spread over all.",
    )
    high = top + tall + 54
    return Picture(
        sees="With D first a thread adds up a whole score; with D last 32 threads share each.",
        caption="The products of one tile before they are summed: a stripe holds those of one "
        "thread, the outline those of one score. Numbers cross from thread to "
        "thread by shuffles, counted in the whole kernel (D 64, tiles of 16 × 16).",
        svg=beside(svg(PHONE, high, about[0], first), svg(PHONE, high, about[1], last)),
    )


@picture
def staircase():
    """Causal: which tiles are skipped, which need the mask, which are whole."""
    side, tiles = 9, TILES
    grid = square(34, 26, tiles * BLOCK, tiles * BLOCK, side)

    def look(row, column):
        first, last = row // BLOCK * BLOCK, row // BLOCK * BLOCK + BLOCK - 1
        start, end = column // BLOCK * BLOCK, column // BLOCK * BLOCK + BLOCK - 1
        if start > last:
            return LINES, 14
        if end <= first:
            return SCORES, STRONG
        return (SCORES, STRONG) if column <= row else (SCORES, 16)

    def kind(row, column):
        """Of a tile."""
        return "skipped" if column > row else "cut" if column == row else "full"

    kinds = [kind(r, c) for r in range(tiles) for c in range(tiles)]
    tile = BLOCK * side
    steps = "".join(
        f"M{grid.x - 0.5:g} {grid.y + i * tile - 0.5:g}h{tiles * tile:g}"
        f"M{grid.x + i * tile - 0.5:g} {grid.y - 0.5:g}v{tiles * tile:g}"
        for i in range(tiles + 1)
    )
    drawn = [cells(grid, look), line(steps, "var(--am-paper)", 1.4)]
    for i in range(tiles):
        x, y = grid.corner(i * BLOCK, i * BLOCK)
        drawn.append(frame(x - 0.5, y - 0.5, tile, tile, INK, 1.6))
    right = grid.x + grid.across + 14
    drawn += [
        words(grid.x, 16, "keys", 10.5, color=MUTED, anchor="start"),
        straight((grid.x + 30, 12), (grid.x + grid.across, 12)),
        words(24, grid.y + 8, "queries", 10.5, color=MUTED, anchor="end").replace(
            "<text", '<text transform="rotate(-90 24 34)"'
        ),
    ]
    for i, (name, color, percent, said) in enumerate(
        (
            ("full", SCORES, STRONG, "all visible"),
            ("cut", SCORES, 16, "partly hidden"),
            ("skipped", LINES, 14, "not visited"),
        )
    ):
        y = grid.y + 22 + i * 62
        drawn += [
            box(right, y, 16, 16, color, percent, 1),
            words(right, y + 31, f"{kinds.count(name)} {name}", 11, 600, anchor="start"),
            words(right, y + 45, said, 10.5, color=MUTED, anchor="start"),
        ]
    about = (
        f"A square of {tiles} by {tiles} tiles. {kinds.count('full')} tiles below the diagonal are "
        f"full, {kinds.count('cut')} on it are cut, {kinds.count('skipped')} above it are skipped."
    )
    return Picture(
        sees="Only the diagonal needs a mask.",
        caption="With a causal mask a query sees the keys up to its own. Tiles above the diagonal "
        "are never visited, and in those below it the mask hides nothing. This kernel compares "
        "each key with its query in every tile that it visits.",
        svg=svg(PHONE, grid.y + grid.down + 8, about, drawn),
    )
