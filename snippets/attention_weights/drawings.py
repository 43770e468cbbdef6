"""The drawings of the page: a token's q, k and v, one query in numbers, a triangle, a spread."""

import math
from statistics import NormalDist

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    STRONG,
    Key,
    arrow,
    beside,
    box,
    bracket,
    keys,
    line,
    mixed,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, numbers, square
from snippets._lab.draw.identity import OUTPUT, SCORES, WEIGHTS, K, Q, V
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import only
from snippets._lab.draw.units import decimals

# An example whose arithmetic can be done in one's head: d is 4, so √d is 2.
QUERY = (2, 1, 0, 1)
KEYS = ((2, 1, 1, 1), (1, 0, 2, 2), (0, 2, 1, 0), (-1, 0, 1, 2))
VALUES = ((1, 0, 4), (3, 2, 0), (0, 5, 1), (4, 1, 2))
WIDTH, HEADS = 384, 12  # of all-MiniLM-L6-v2: numbers of a token, heads of a layer
MAP = {"sentence": "pronoun", "layer": 3}, 1  # rows and head that the attention map opens with
MANY = 8  # keys whose scores lie like those of a normal distribution


def softmax(scores):
    """Weights that sum to one."""
    largest = max(scores)
    terms = [math.exp(score - largest) for score in scores]
    return [term / sum(terms) for term in terms]


def steps():
    """Scores, scaled scores, weights and output of the example."""
    scores = [sum(a * b for a, b in zip(QUERY, key, strict=True)) for key in KEYS]
    scaled = [score / math.sqrt(len(QUERY)) for score in scores]
    weights = softmax(scaled)
    mixed_ = [
        sum(w * v[column] for w, v in zip(weights, VALUES, strict=True))
        for column in range(len(VALUES[0]))
    ]
    return scores, scaled, weights, mixed_


@picture_of("attention_map")
def projections(result):
    """A token's vector times three matrices, to scale; and its query meets the keys of all."""
    where, head = MAP
    row = only(result.rows, **where)
    tokens, (query, key) = row["tokens"], row["pairs"][0]
    weights = row["weights"][head][query]
    assert max(weights) == weights[key], "the caption says that this key matches best"
    D, asks, unit = WIDTH // HEADS, tokens[query], 0.55  # pixels of a number
    wide, tall, left, pitch = WIDTH * unit, D * unit, 14, 58
    made = (
        (Q, "q", "query", "what am I looking for?"),
        (K, "k", "key", "what do I contain?"),
        (V, "v", "value", "what do I pass on?"),
    )
    one = [
        words(left, 12, f"the vector of “{asks}”", 11.5, 600, anchor="start"),
        words(left + wide, 12, f"{WIDTH} numbers", 11, color=MUTED, anchor="end"),
        box(left, 20, wide, 10, LINES, 60, 1),
    ]
    for index, (color, letter, name, means) in enumerate(made):
        y = 58 + index * pitch
        middle, x = y + tall / 2, left + wide
        one += [
            arrow(f"M{left} 25H4V{middle:g}H{left - 2}", (left - 2, middle), "right", MUTED),
            box(left, y, wide, tall, color, 22, 1),
            words(left + wide / 2, middle + 4, f"W_{letter}: {D} × {WIDTH}", 11.5, 600),
            straight((x + 4, middle), (x + 20, middle)),
            box(x + 26, middle - 5, tall, 10, color, STRONG, 1),
            words(x + 52, middle + 4, f"{name} {letter}", 12, 600, color=color, anchor="start"),
            words(x + 52, middle + 19, f"{D} numbers", 11, color=MUTED, anchor="start"),
            words(left, y + tall + 14, means, 11, color=MUTED, anchor="start"),
        ]
    at_key, at_weight, top, step = 66, 134, 48, 14.5
    many = [
        words(at_key + 24, 12, f"q of “{asks}”", 11.5, 600, color=Q),
        box(at_key, 20, 48, 9, Q, STRONG, 1),
        words(at_key + 24, top - 4, "· each k", 11, color=K),
        words(at_weight, top - 4, "weight of its value", 11, color=MUTED, anchor="start"),
    ]
    for index, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        y, bold = top + 4 + index * step, 600 if index == key else 400
        long = 150 * weight / max(weights)
        many += [
            words(at_key - 8, y + 9, token, 11, bold, anchor="end"),
            box(at_key, y, 48, 9, K, STRONG if index == key else 40),
            box(at_weight, y, max(long, 0.6), 9, WEIGHTS, 65),
            words(at_weight + long + 5, y + 9, decimals(weight), 11, bold, anchor="start"),
        ]
    about = (
        f"The vector of the token “{asks}”, {WIDTH} numbers, times W_q, W_k and W_v, each {D} by "
        f"{WIDTH}, gives a query, a key and a value of {D} numbers.",
        f"The query of “{asks}” meets the keys of {len(tokens)} tokens; the largest weight, "
        f"{decimals(max(weights))}, goes to “{tokens[key]}”.",
    )
    high = top + 4 + len(tokens) * step + 4
    return Picture(
        sees="Three matrices turn one token into a query, a key and a value.",
        caption="One head; its left half is to scale.",
        svg=beside(
            *(svg(340, high, said, drawn) for said, drawn in zip(about, (one, many), strict=True))
        ),
        table=[
            {"token": token, "weight": decimals(weight, 4)}
            for token, weight in zip(tokens, weights, strict=True)
        ],
    )


@picture
def one_query():
    """Attention for one query and four keys, in numbers."""
    d = len(QUERY)
    scores, scaled, weights, mixed_ = steps()
    side, left = 25, 24
    query = square(left, 22, 1, d, side)
    rows = square(left, 74, len(KEYS), d, side)
    drawn = [
        words(left - 6, 39, "q", 12, 600, color=Q, anchor="end"),
        cells(query, lambda row, column: (Q, 30)),
        numbers(query, lambda row, column: decimals(QUERY[column], 0)),
        words(left, 14, "one query", 10.5, color=MUTED, anchor="start"),
        words(left, 67, "four keys", 10.5, color=MUTED, anchor="start"),
        cells(rows, lambda row, column: (K, 22)),
        numbers(rows, lambda row, column: decimals(KEYS[row][column], 0)),
    ]
    at_scores, at_scaled, at_weights = 150, 196, 246
    heads = ((at_scores, "q · k", "1"), (at_scaled, "÷ √d", "2"), (at_weights + 40, "softmax", "3"))
    for x, said, step in heads:
        drawn += [words(x, 52, step, 12, 600), words(x, 67, said, 10.5, color=MUTED)]
    most = 54 / max(weights)
    for row, (score, small, weight) in enumerate(zip(scores, scaled, weights, strict=True)):
        x, y = rows.middle(row, 0)
        foot, top = y + 4, y - 10
        drawn += [
            words(left - 6, foot, f"k{row}", 11, color=K, anchor="end"),
            box(at_scores - 15, top, 30, 20, SCORES, 22),
            words(at_scores, foot, decimals(score, 0), 11),
            box(at_scaled - 15, top, 30, 20, SCORES, 22),
            words(at_scaled, foot, decimals(small, 0), 11),
            box(at_weights - 18, top, weight * most, 20, WEIGHTS, 60),
            words(
                at_weights - 14 + weight * most,
                foot,
                decimals(weight),
                11,
                600 if weight == max(weights) else 400,
                anchor="start",
            ),
        ]
    # Step 4, below: each value as strong as its weight, and their sum.
    top = 222
    drawn += [
        straight((at_weights, 180), (at_weights, 204)),
        words(at_weights + 10, 196, "weights", 10.5, color=MUTED, anchor="start"),
        words(left, top - 10, "4", 12, 600, anchor="start"),
        words(left + 14, top - 10, "mix the values", 10.5, color=MUTED, anchor="start"),
    ]
    columns = len(VALUES[0])
    for row, weight in enumerate(weights):
        value = Grid(96, top + row * side, 1, columns, 44, side)
        foot = top + row * side + 16
        drawn += [
            words(86, foot, f"{decimals(weight)} ×", 11, anchor="end"),
            cells(value, lambda _, column, weight=weight: (V, 8 + 80 * weight)),
            numbers(value, lambda _, column, row=row: decimals(VALUES[row][column], 0)),
            words(236, foot, f"v{row}", 11, color=V, anchor="start"),
        ]
    last = top + len(weights) * side + 10
    out = Grid(96, last, 1, columns, 44, side)
    drawn += [
        line(f"M30 {last - 6}H228", MUTED),
        words(86, last + 16, "sum", 11, 600, anchor="end"),
        cells(out, lambda row, column: (OUTPUT, 34)),
        numbers(out, lambda row, column: decimals(mixed_[column]), 11, 600),
        words(236, last + 16, "output", 11, 600, color=OUTPUT, anchor="start"),
    ]
    about = (
        f"A query {QUERY} and four keys. Scores {scores}; divided by the square root of {d}: "
        f"{[round(x, 1) for x in scaled]}; softmax: {[round(x, 2) for x in weights]}. The values, "
        f"each times its weight, sum to {[round(x, 2) for x in mixed_]}."
    )
    return Picture(
        sees="One query, four keys, four steps.",
        caption="The output is mostly the first value.",
        svg=svg(344, last + side + 4, about, drawn),
    )


def first_sees(m_, n_, align):
    """How many keys the first of m_ queries sees; each further query sees one more."""
    return 1 + n_ - m_ if align == "bottom_right" else 1


@picture
def spread():
    """Scores that spread as √d, and what a softmax makes of them."""
    normal = NormalDist()
    at = [normal.inv_cdf((i + 0.5) / MANY) for i in range(MANY)]
    cases = ((4, 1.0), (64, 1.0), (64, 1 / 8))
    said = ("d = 4", "d = 64", "d = 64, ÷ √d")
    widest = 3 * math.sqrt(max(d for d, _ in cases))
    half, drawn, top = 84, [], 34
    drawn += [
        words(half + 4, 14, "scores of a query", 11.5, 600),
        words(270, 14, "their softmax", 11.5, 600),
    ]
    found = []
    for (d, scale), name in zip(cases, said, strict=True):
        deviation = math.sqrt(d) * scale
        weights = softmax([deviation * z for z in at])
        found.append(max(weights))
        foot = top + 66
        unit = half / widest
        curve = []
        for step in range(-60, 61):
            z = step / 20
            x, y = half + 4 + z * deviation * unit, foot - 46 * math.exp(-z * z / 2)
            curve.append(f"{x:.1f} {y:.1f}")
        drawn += [
            words(4, top + 4, name, 11.5, 600, anchor="start"),
            f'<path d="M{"L".join(curve)}Z" style="fill:{mixed(SCORES, 30)}"/>',
            line(f"M4 {foot}H{2 * half + 4}", LINES),
            *(line(f"M{half + 4 + z * deviation * unit:.1f} {foot}v-7", INK, 1.5) for z in at),
            words(
                2 * half + 4, top + 4, f"± {decimals(deviation, 0)}", 11, color=MUTED, anchor="end"
            ),
            line(f"M200 {foot}H340", LINES),
        ]
        for index, weight in enumerate(weights):
            tall = 58 * weight
            drawn.append(box(202 + index * 17.2, foot - tall, 14, max(tall, 0.6), WEIGHTS, 65))
        drawn.append(
            words(340, top + 4, f"largest {decimals(max(weights))}", 11, color=MUTED, anchor="end")
        )
        top = foot + 32
    about = "Bell curves of scores and the softmax of eight scores. " + " ".join(
        f"{name}: the largest of eight weights is {decimals(most)}."
        for name, most in zip(said, found, strict=True)
    )
    return Picture(
        sees="Wider heads have larger scores, and their softmax picks one key.",
        caption="Left: how the sums of d products spread, if each product has variance one; a mark "
        "is one of eight keys. Right: their weights. Divided by √d, the scores of "
        "any head spread alike. Computed from the normal distribution, not measured.",
        svg=svg(344, top - 20, about, drawn),
    )


@picture
def triangle():
    """Causal masks where queries and keys differ in number, in both alignments."""
    drawn, side = [], 17
    sizes = ((4, 7), (7, 4))
    tops = (46, 46 + 4 * side + 58)
    empty = 0
    for column, align in enumerate(("bottom_right", "top_left")):
        x = 30 + column * 172
        corner = align.replace("_", " ")
        drawn.append(words(x, 14, corner, 12, 600, anchor="start"))
        for (m_, n_), top in zip(sizes, tops, strict=True):
            first = first_sees(m_, n_, align)
            grid = square(x, top, m_, n_, side)
            drawn += [
                cells(
                    grid,
                    lambda row, key, first=first: (
                        (SCORES, STRONG) if key < first + row else (LINES, 14)
                    ),
                ),
                bracket(x, top - 6, grid.across, f"N = {n_} keys", "above"),
                words(x - 6, top + grid.down / 2 + 4, f"M={m_}", 10, color=MUTED, anchor="end"),
            ]
            nothing = [row for row in range(m_) if first + row <= 0]
            if nothing:
                empty = len(nothing)
                tall = empty * side - 1
                drawn.append(bracket(x + grid.across + 6, top, tall, "no key:", "right", 10))
                middle = top + tall / 2 + 3.5
                drawn.append(
                    words(
                        x + grid.across + 11, middle + 13, "zeros", 10, color=MUTED, anchor="start"
                    )
                )
    foot = tops[1] + 7 * side + 12
    shown = (Key(SCORES, STRONG, "seen by the query"), Key(LINES, 14, "hidden"))
    drawn.append(keys(30, foot, 300, shown))
    about = (
        "Four causal masks. Aligned at the bottom right, the last query sees all keys: with 4 "
        "queries and 7 keys the first query sees 4; with 7 queries and 4 keys the first "
        f"{empty} queries see none. Aligned at the top left, query m sees keys 0 to m."
    )
    return Picture(
        sees="The triangle is aligned with one corner or the other.",
        caption="A row is a query, a column a key. Bottom right, the default here: the last query "
        "sees every key, as when a few new tokens follow many old ones. Top left: query *m* sees "
        "keys 0 to *m*. The two differ only where M and N do. A query that sees no key gets zeros.",
        svg=svg(344, foot + 18, about, drawn),
    )
