"""The drawings of the page: the five formulas with numbers, the walk of a program, the order."""

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
from snippets._lab.draw.grids import Grid, Matrix, cells, matrix, numbers, square
from snippets._lab.draw.identity import identity
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.units import decimals

Q, K, V, SCORES, WEIGHTS, OUTPUT = (
    identity(name).color for name in ("q", "k", "v", "scores", "weights", "output")
)
# Three queries, three keys, two columns; scale 1. Small enough to check by hand.
EXAMPLE = {
    "q": [[1, 0], [0, 1], [1, 1]],
    "k": [[1, 0], [0, 1], [1, 1]],
    "v": [[1, 0], [0, 2], [1, 1]],
    "do": [[1, 0], [0, 1], [1, -1]],
}
TILES = 4  # of keys and of queries in the drawing of the order


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
def walk():
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
        caption="dK and dV of the tile stay in registers until the end. Each tile of dQ is the sum "
        "of what all programs of its head add to it.",
        svg=svg(PHONE, top + wide + 34, about, drawn),
    )


def turns(key_tile, query_tile):
    """When a program adds to a tile of dQ under a causal mask, counted in its own steps."""
    return query_tile - key_tile if query_tile >= key_tile else None


@picture
def order():
    """In which step each program adds to each tile of dQ, if the last keys begin first."""
    side, left, top = 46, 92, 40
    grid = Grid(left, top, TILES, TILES, side, side, 2)

    def look(row, column):
        step = turns(column, row)
        return None if step is None else (OUTPUT, PALE + 16 * step)

    drawn = [
        cells(grid, look),
        numbers(grid, lambda i, j: "" if turns(j, i) is None else str(turns(j, i) + 1), 13),
        words(left, top - 22, "tile of keys: one program each", 11, anchor="start"),
        words(8, top + 14, "tile of dQ", 11, anchor="start"),
    ]
    for j in range(TILES):
        drawn.append(words(grid.middle(0, j)[0], top - 6, str(j), 10.5, color=MUTED))
        drawn.append(words(left - 12, grid.middle(j, 0)[1] + 4, str(j), 10.5, color=MUTED))
    about = (
        "A triangle of tiles, query tiles down and key tiles across. The number in a cell is the "
        "step at which that program reaches it: 1 on the diagonal, 2 below it, and so on."
    )
    return Picture(
        sees="Under a causal mask each row is reached from right to left, one program per step: "
        "no program waits.",
        caption="The number is the step in which a program gets to that tile. All programs of a "
        "head start together, each at its own diagonal. Drawn for steps of equal length; on the "
        "GPU the order costs time, as measured below.",
        svg=svg(PHONE, top + grid.down + 12, about, drawn),
    )
