"""The drawings of the page: one product cut into heads, a strip of memory, and two ways to "
"launch."""

from snippets._lab.draw.drawings import (
    MUTED,
    Key,
    bracket,
    keys,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, numbers
from snippets._lab.draw.identity import identity
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.rows import only
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import count, percent, time

POST = "multi_head_attention"
HEADS, TOKENS, COLUMNS = 3, 5, 4  # of one sentence: out is [B, 3, 5, 4] as on the page
SHADES = (16, 42, 75)  # of a head
Q, HOST = identity("q").colour, identity("scores").colour
MANY = 8  # heads, in the timeline
LOOP, WIDE = "multi_head_attention:loop", "multi_head_attention:vectorized"


@picture
def split():
    """One wide product whose columns are those of all heads, cut apart."""
    side, rows = 13, TOKENS
    x = Grid(0, 34, rows, 6, side, side)
    w = Grid(100, 34, 6, HEADS * COLUMNS, 8, 11)
    wide = Grid(214, 34, rows, HEADS * COLUMNS, 11, side)

    def by_head(row, column):
        return (Q, SHADES[column // COLUMNS])

    drawn = [
        words(39, 24, "x [N, E]", 10.5, 600),
        words(148, 24, "W [E, H·D]", 10.5, 600),
        words(280, 24, "queries [N, H·D]", 10.5, 600),
        cells(x, lambda row, column: (MUTED, 30)),
        words(89, 72, "·", 14, 600),
        cells(w, by_head),
        words(205, 72, "=", 13, 600),
        cells(wide, by_head),
    ]
    for head in range(HEADS):
        own = Grid(200 + head * 50, 150, rows, COLUMNS, 11, side)
        start = wide.corner(rows, head * COLUMNS + COLUMNS / 2)
        drawn += [
            straight((start[0], start[1] + 3), (start[0], 128), MUTED),
            cells(own, lambda row, column, head=head: (Q, SHADES[head])),
            words(own.x + own.across / 2, 144, f"head {head}", 10.5),
        ]
    drawn += [
        words(190, 122, "split", 10.5, 600, colour=MUTED, anchor="end"),
        words(190, 136, "(a view: no copy)", 10.5, colour=MUTED, anchor="end"),
        bracket(200, 150 + rows * side + 6, 100 + COLUMNS * 11, "[H, N, D]", "below"),
    ]
    about = (
        "A matrix x times a wide matrix of weights gives the queries of three heads side by side; "
        "split cuts them into three matrices, one per head."
    )
    return Picture(
        sees="One product computes the queries of all heads; a view cuts them apart.",
        caption="Each shade is a head. The weights of the heads stand side by side, so the "
        "columns of the "
        "product do too. Cutting them apart changes shape and strides and copies nothing.",
        svg=svg(344, 242, about, drawn),
    )


@picture
def strip():
    """Memory as a strip of numbers, and which of them one row of the merged result needs."""
    total = HEADS * TOKENS * COLUMNS
    across = 20
    memory = Grid(26, 34, total // across, across, 15.5, 22)
    merged = Grid(26, 150, 1, HEADS * COLUMNS, 25, 24)

    def place(row, column):
        return row * across + column

    def head(number):
        return number // (TOKENS * COLUMNS)

    def wanted(number):
        return number % (TOKENS * COLUMNS) < COLUMNS  # token 0 of its head

    drawn = [
        words(
            0,
            16,
            "memory, in order: out is [3 heads, 5 tokens, 4 columns]",
            11,
            600,
            anchor="start",
        ),
        cells(memory, lambda r, c: (Q, SHADES[head(place(r, c))])),
        numbers(memory, lambda r, c: str(place(r, c)) if wanted(place(r, c)) else "", 10, 600),
    ]
    for row in range(memory.rows):
        y = memory.middle(row, 0)[1] + 4
        drawn.append(words(20, y, f"h{row}", 10, colour=MUTED, anchor="end"))
    drawn += [
        words(
            0,
            132,
            "the merged row of token 0 needs these, one after another:",
            11,
            600,
            anchor="start",
        ),
        cells(merged, lambda r, c: (Q, SHADES[c // COLUMNS])),
        numbers(
            merged,
            lambda r, c: str(c // COLUMNS * TOKENS * COLUMNS + c % COLUMNS),
            10.5,
            600,
        ),
        words(26, 190, "+1 +1 +1", 10, colour=MUTED, anchor="start"),
        words(126, 190, f"+{TOKENS * COLUMNS - COLUMNS + 1}", 10.5, 600, anchor="middle"),
        words(226, 190, f"+{TOKENS * COLUMNS - COLUMNS + 1}", 10.5, 600, anchor="middle"),
        words(
            26, 207, "no single stride gives both steps: merging needs a copy", 10.5, anchor="start"
        ),
    ]
    about = (
        "Sixty numbers in memory: head 0 holds numbers 0 to 19, head 1 20 to 39, head 2 40 to "
        "59. The "
        "merged row of token 0 needs 0 to 3, 20 to 23 and 40 to 43: steps of 1 and of 17."
    )
    return Picture(
        sees="After transpose, a token's numbers are spread over three places, and no single "
        "stride "
        "walks through them.",
        caption="One sentence of the page's [2, 3, 5, 4]; each shade is a head, the numbers "
        "are positions "
        "in memory. `transpose` swaps strides and leaves memory as it is; `view` would need "
        "one stride "
        "for the merged dimension.",
        svg=svg(344, 214, about, drawn),
    )


def _result(results, name):
    """A result of this page that a GPU measured."""
    of = (r for r in results if (r.post, r.result, r.place) == (POST, name, "gpu"))
    return next(of, None)


@picture
def launches_timeline(results):
    """Host and GPU of the loop and of the batched layer, to scale."""
    counted, timed = _result(results, "launches"), _result(results, "layer_time")
    if counted is None or timed is None:
        return None
    case = {"heads": MANY, "passes": "forward"}
    small = {**case, "size": "small"}
    spans, table = [], []
    calls = {
        name: only(timed.rows, implementation=name, clock="host", **small)["ms_p50"]
        for name in (LOOP, WIDE)
    }
    lanes = ["loop: host", "GPU", "batched: host", "GPU "]
    over = Timeline(lanes, calls[LOOP] * 1.02, left=86, tall=20)
    for (host, gpu), name in zip((lanes[:2], lanes[2:]), (LOOP, WIDE), strict=True):
        number = only(counted.rows, implementation=name, **case)["launches"]
        busy = only(timed.rows, implementation=name, clock="gpu", **small)["ms_p50"]
        each, own = calls[name] / number, busy / number
        for i in range(number):
            spans.append(Span(host, i * each, (i + 0.85) * each, HOST, percent=45))
            spans.append(Span(gpu, (i + 0.85) * each, (i + 0.85) * each + own, Q, percent=85))
        table.append(
            {
                "layer": "loop" if name == LOOP else "batched",
                "launches": count(number),
                "a call": time(calls[name] / 1e3),
                "GPU busy": f"{time(busy / 1e3)}, {percent(busy / calls[name])}",
            }
        )
    shown = [Key(HOST, 45, "a launch (host)"), Key(Q, 85, "a kernel (GPU)")]
    top = over.down + 30
    drawn = [timeline(over, spans), time_arrow(over), keys(86, top, 258, shown)]
    loop, wide = table
    about = (
        f"Two timelines. The loop makes {loop['launches']} launches in {loop['a call']} while "
        f"the GPU "
        f"is busy for {loop['GPU busy']}; the batched layer makes {wide['launches']} in "
        f"{wide['a call']}."
    )
    return Picture(
        sees="The GPU waits between the loop's launches; the batched layer is done long before.",
        caption=f"One forward call with {MANY} heads on the small input. Launches were counted "
        f"and both "
        "clocks measured; that all launches of a call take equally long, and all kernels, is a "
        "simplification of the drawing.",
        svg=svg(344, top + 22, about, drawn),
        table=table,
        sources=[counted, timed],
    )
