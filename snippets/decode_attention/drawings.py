"""The drawings of the page: the growing cache, a group, shares of a sequence, turns and pages."""

import random

from snippets._lab.draw.drawings import (
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    Key,
    box,
    keys,
    labeled,
    line,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, around, cells, square
from snippets._lab.draw.identity import CONSUMERS, OUTPUT, WEIGHTS, K, Q, V
from snippets._lab.draw.pictures import Picture, picture

FIRST, SECOND = CONSUMERS[:2]


@picture
def cache():
    """Three tokens in a row: each reads all keys and values, and adds one of each."""
    before, steps, side = 9, 3, 20
    drawn, top = [words(84, 12, "keys and values in the cache", 11.5, 600, anchor="start")], 24
    for step in range(steps):
        length = before + step + 1
        drawn += [
            words(0, top + 16, f"token {length}", 11, 600, anchor="start"),
            box(52, top + 3, 18, 18, Q, STRONG, 1),
        ]
        for down, color in ((0, K), (side, V)):
            grid = Grid(84, top + down, 1, length, side, side)
            look = (color, STRONG), (color, PALE)
            drawn.append(cells(grid, lambda _, n, at=length - 1, look=look: look[n != at]))
        drawn.append(straight((72, top + 12), (82, top + 12), Q))
        top += 2 * side + 14
    shown = (
        Key(Q, STRONG, "query of the new token"),
        Key(K, PALE, "old keys"),
        Key(V, PALE, "old values"),
        Key(K, STRONG, "new key"),
        Key(V, STRONG, "new value"),
    )
    drawn.append(keys(0, top, PHONE, shown))
    about = (
        f"Tokens {before + 1} to {before + steps}, one below the other. Each has one query, reads "
        "the keys and values of all tokens up to itself, and adds one key and one value."
    )
    return Picture(
        sees="One query, and all keys and values so far.",
        caption="Each new token adds one key and one value to the cache of its sequence, and its "
        "query reads everything that is there. A key and a value come from memory for only two "
        "products: the query with the key, and its weight with the value.",
        svg=svg(PHONE, top + 36, about, drawn),
    )


TILES, SHARES = 16, 4


@picture
def shares():
    """A sequence cut into four: each program gives a part, and another kernel merges them."""
    each = TILES // SHARES
    grid = square(4, 26, 1, TILES, 21)
    drawn = [words(PHONE / 2, 14, f"keys of one head, in {TILES} tiles", 11.5, 600)]
    drawn.append(cells(grid, lambda _, n: (K, STRONG if n // each % 2 else 40)))
    wide = each * 21
    for number in range(SHARES):
        x = 4 + number * wide
        middle = x + wide / 2
        drawn += [
            straight((middle, 50), (middle, 66), MUTED),
            labeled(x + 3, 68, wide - 6, 24, WEIGHTS, f"program {number}", 11),
            straight((middle, 94), (middle, 110), MUTED),
            labeled(x + 3, 112, 46, 22, OUTPUT, "part", 10.5),
            labeled(x + 52, 112, wide - 55, 22, WEIGHTS, "lse", 10.5),
            line(f"M{middle:g} 136V146H{PHONE / 2:g}", MUTED),
        ]
    drawn += [
        straight((PHONE / 2, 146), (PHONE / 2, 158), MUTED),
        labeled(PHONE / 2 - 80, 160, 160, 24, OUTPUT, "combine: one row", 11, STRONG),
        words(PHONE / 2, 202, "weight of a part: exp(its lse − lse of all)", 10.5, color=MUTED),
    ]
    about = (
        f"{TILES} tiles of keys are cut into {SHARES} splits of {each}. Each program writes a part "
        "of the result and its logsumexp, and a second kernel merges the parts."
    )
    return Picture(
        sees=f"Each of {SHARES} programs reads its share of the keys, all at the same time.",
        caption="Each writes its part as if there were no other keys, with the logarithm of its "
        "sum of exponentials (lse). That is all that merging needs.",
        svg=svg(PHONE, 210, about, drawn),
    )


@picture
def group():
    """Eight query heads on two heads of keys; the four of a group are rows of one tile."""
    share, groups, side, columns = 4, 2, 19, 8
    drawn = [
        words(44, 12, "query heads", 11.5, 600),
        words(150, 12, "rows of a tile", 11.5, 600),
        words(276, 12, "keys of their head", 11.5, 600),
    ]
    top = 24
    for hk, color in zip(range(groups), (FIRST, SECOND), strict=True):
        for row in range(share):
            y = top + row * side
            drawn.append(labeled(14, y, 60, side - 3, color, f"head {hk * share + row}"))
            drawn.append(straight((76, y + 8), (108, y + 8), color))
        tile = Grid(110, top, share, 4, side, side)
        drawn.append(cells(tile, lambda *_, color=color: (color, STRONG)))
        drawn.append(around(tile, slice(0, share), slice(0, 4), color))
        grid = Grid(200, top + 1.5 * side, 1, columns, side - 1, side)
        drawn.append(cells(grid, lambda *_: (K, STRONG)))
        middle = grid.y + side / 2
        drawn.append(straight((grid.x - 2, middle), (tile.x + tile.across + 4, middle), K))
        drawn.append(words(grid.x + grid.across / 2, grid.y + side + 13, f"key head {hk}", 10.5))
        top += share * side + 18
    about = (
        f"{share * groups} query heads in {groups} groups of {share}. The queries of a group are "
        f"the rows of one tile, which reads the keys of one head once for all {share}."
    )
    return Picture(
        sees=f"Each key is loaded once for {share} query heads.",
        caption="This is *grouped-query attention*. The rows of a tile are the queries of a group, "
        "where in training they are those of different tokens.",
        svg=svg(PHONE, top, about, drawn),
    )


PAGES, POOL = 5, 12


@picture
def table():
    """The page table of a sequence, and where its pages lie in the pool."""
    page = random.Random(1).sample(range(POOL), PAGES)
    side = 28
    pool = Grid(4, 146, 1, POOL, side, side)
    entries = Grid(102, 74, 1, PAGES, side, 22)
    logical = Grid(102, 26, 1, PAGES, side, 22)
    drawn = [
        words(96, 41, "pages, in order", 11, 600, anchor="end"),
        words(96, 89, "page table", 11, 600, anchor="end"),
        words(0, 194, "pool of pages, for all sequences", 11, 600, anchor="start"),
        cells(logical, lambda _, n: (K, STRONG)),
        cells(entries, lambda _, n: (LINES, 30)),
        cells(pool, lambda _, n: (K, STRONG) if n in page else (LINES, 12)),
    ]
    for n, at in enumerate(page):
        x, y = entries.middle(0, n)
        first, _ = logical.middle(0, n)
        to, _ = pool.middle(0, at)
        drawn += [
            words(first, logical.middle(0, n)[1] + 4, f"{n}", 11),
            straight((first, 50), (x, 72), MUTED),
            words(x, y + 4, f"{at}", 11),
            line(f"M{x:g} 98L{to:g} 144", MUTED),
            words(to, pool.middle(0, at)[1] + 4, f"{n}", 11),
        ]
    listing = ", ".join(map(str, page))
    about = f"The pages of a sequence lie at the places {listing} of a pool of {POOL} pages."
    return Picture(
        numbers={"key": 37, "row": 37 % 16, "page": 37 // 16},
        sees="The table says where each page of a sequence lies.",
        caption="A page holds a fixed number of keys of every head. A sequence that grows takes "
        "any free page, so no memory is kept for tokens that may never come.",
        svg=svg(PHONE, 202, about, drawn),
    )
