"""The drawings of the page: the five formulas with numbers, and what programs keep."""

import math

from snippets._lab.draw.drawings import (
    MUTED,
    PALE,
    PHONE,
    STRONG,
    box,
    bracket,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Matrix, cells, matrix, numbers, square
from snippets._lab.draw.identity import OUTPUT, SCORES, K, Q, V, identity
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.units import decimals

# Three queries, three keys, two columns; scale 1. Small enough to check by hand.
EXAMPLE = {
    "q": [[1, 0], [0, 1], [1, 1]],
    "k": [[1, 0], [0, 1], [1, 1]],
    "v": [[1, 0], [0, 2], [1, 1]],
    "do": [[1, 0], [0, 1], [1, -1]],
}
TILES = 4  # of keys and of queries


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def by_hand(q, k, v, do):
    """P, dP, Δ and dS of the example, as lists: what the kernel computes, one line each."""
    exps = [[math.exp(dot(row, key)) for key in k] for row in q]
    p = [[e / sum(row) for e in row] for row in exps]
    dp = [[dot(row, value) for value in v] for row in do]
    delta = [dot(weights, row) for weights, row in zip(p, dp, strict=True)]
    ds = [
        [w * (x - d) for w, x in zip(weights, row, strict=True)]
        for weights, row, d in zip(p, dp, delta, strict=True)
    ]
    return p, dp, delta, ds


@picture
def walk():
    """Two kernels: a program of one keeps keys and goes down, of the other queries, and across."""
    side, top, tile = 112, 78, 112 / TILES
    drawn = []
    for left, title in ((38, "for dK and dV"), (210, "for dQ")):
        down = title == "for dK and dV"
        k, v = Matrix(left, 28, side, 18, "k", " "), Matrix(left, 50, side, 18, "v", " ")
        q = Matrix(left - 30, top, 24, side, "q", " ")
        drawn += [matrix(x) for x in (k, v, q)] + [box(left, top, side, side, SCORES, 8)]
        drawn.append(words(left + side / 2, 16, title, 11.5, 600))
        drawn.append(words(left - 4, 41, "K", 10.5, 600, color=K, anchor="end"))
        drawn.append(words(left - 4, 63, "V", 10.5, 600, color=V, anchor="end"))
        drawn.append(words(left - 18, top + side + 14, "Q, dO", 10.5, 600, color=Q))
        part = slice(1 / TILES, 2 / TILES)
        if down:
            drawn += [k.slab(part.start, part.stop), v.slab(part.start, part.stop)]
            drawn.append(box(left + tile, top, tile, side, SCORES, PALE, 1))
            x = left + 1.5 * tile
            drawn.append(straight((x, top + 8), (x, top + side - 8)))
            kept = "keys stay"
        else:
            drawn.append(q.part(part.start, part.stop))
            drawn.append(box(left, top + tile, side, tile, SCORES, PALE, 1))
            y = top + 1.5 * tile
            drawn.append(straight((left + 8, y), (left + side - 8, y)))
            kept = "queries stay"
        drawn.append(words(left + side / 2, top + side + 14, kept, 10.5, color=MUTED))
    about = (
        "Two squares of scores. In the first, for dK and dV, a column is marked: a program keeps a "
        "tile of keys and goes down all queries. In the second, for dQ, a row is marked: a program "
        "keeps a tile of queries and goes across all keys."
    )
    return Picture(
        sees="One kernel keeps keys and goes through the queries, the other keeps queries and goes "
        "through the keys.",
        caption="What a program adds up stays in its registers until the end, and nobody else adds "
        "to it. Both kernels compute the scores.",
        svg=svg(PHONE, top + side + 24, about, drawn),
    )


@picture
def example():
    """P, dP, Δ and dS of three queries and three keys, with their numbers."""
    p, dp, delta, ds = by_hand(**EXAMPLE)
    side, left, top = 34, 20, 40
    right, below = left + 3 * side + 64, top + 3 * side + 56
    places = [
        ("P", "weights", p, left, top, "the forward's weights"),
        ("dP = dO Vᵀ", "v", dp, right, top, "what each weight is worth"),
        ("Δ", "output", [[d] for d in delta], left, below, "rows of P · dP, added up"),
        ("dS = P · (dP − Δ)", "scores", ds, right, below, "rows add up to 0"),
    ]
    drawn = []
    for said, tensor, rows, x, y, note in places:
        grid = square(x, y, 3, len(rows[0]), side, 2)
        color = identity(tensor).color
        drawn.append(cells(grid, lambda *_, color=color: (color, PALE)))
        drawn.append(numbers(grid, lambda i, j, rows=rows: decimals(rows[i][j], 2), 10.5))
        drawn.append(words(x, y - 8, said, 12, 600, anchor="start"))
        drawn.append(words(x, y + grid.down + 15, note, 10.5, color=MUTED, anchor="start"))
    about = (
        "Four small tables of numbers for three queries and three keys: P, dP, the row sums delta "
        "of their product, and dS, which is P times dP less delta. Each row of dS adds up to zero."
    )
    return Picture(
        sees="A score's gradient is its weight times how far the weight's gradient lies above the "
        "row's average.",
        caption="Three queries (rows) and three keys (columns), worked out with D = 2 and scale 1. "
        "Each row of dS adds up to 0: a softmax only moves weight from one key to another.",
        svg=svg(PHONE, below + 3 * side + 24, about, drawn),
        table=[
            {"query": i, "key": j, "P": p[i][j], "dP": dp[i][j], "Δ": delta[i], "dS": ds[i][j]}
            for i in range(3)
            for j in range(3)
        ],
    )


@picture
def one_pass():
    """A program keeps a tile of keys; queries go past, and a tile of dQ goes back for each."""
    left, top, wide = 120, 78, 168
    k, v = Matrix(left, 20, wide, 20, "k", " "), Matrix(left, 46, wide, 20, "v", " ")
    q, dq = Matrix(8, top, 34, wide, "q", " "), Matrix(54, top, 34, wide, "output", " ")
    at, part = 1, 1 / TILES
    step = wide / TILES
    drawn = [matrix(x) for x in (k, v, q, dq)]
    drawn += [box(left, top, wide, wide, SCORES, 8), k.slab(at * part, (at + 1) * part)]
    drawn += [v.slab(at * part, (at + 1) * part)]
    drawn += [box(left + at * step, top, step, wide, SCORES, PALE, 1)]
    drawn += [q.part(2 * part, 3 * part), dq.part(2 * part, 3 * part)]
    drawn += [box(left + at * step, top + 2 * step, step, step, SCORES, STRONG, 1)]
    drawn += [
        words(left - 6, 34, "K, dK", 11, 600, color=K, anchor="end"),
        words(left - 6, 60, "V, dV", 11, 600, color=V, anchor="end"),
        words(25, top + wide + 16, "Q, dO", 11, 600, color=Q),
        words(71, top + wide + 16, "dQ", 11, 600, color=OUTPUT),
        words(left + wide / 2 + step / 2, top + 16, "scores", 11, color=MUTED, anchor="start"),
    ]
    y = top + 2.5 * step
    drawn += [straight((left + at * step - 3, y), (54 + 34 + 3, y))]
    drawn += [words(left - 16, y - 7, "add", 10.5, color=MUTED)]
    drawn += [bracket(left + at * step, top + wide + 6, step, "BLOCK_N keys: stay", "below")]
    about = (
        "The square of scores with one column of tiles marked: one program keeps that tile of keys "
        "and values with dK and dV, goes down the queries, and adds a tile to dQ at each step."
    )
    return Picture(
        sees="One program keeps a tile of keys. At each step it adds a tile to dQ in memory, as "
        "all other programs do.",
        caption="dK and dV of the tile stay in registers until the end.",
        svg=svg(PHONE, top + wide + 34, about, drawn),
    )
