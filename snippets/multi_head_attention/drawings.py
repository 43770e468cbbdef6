"""The drawings of the page: launches, heads cut from a product, heads in memory, masks."""

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PHONE,
    STRONG,
    Key,
    box,
    bracket,
    keys,
    labeled,
    line,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, around, cells, square
from snippets._lab.draw.identity import CONSUMERS, SCORES, identity
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import only
from snippets._lab.draw.tables import cell
from snippets._lab.draw.timelines import Span, Timeline, timeline
from snippets._lab.draw.units import count, percent, time

ROOM = "multi_head_attention"
HEADS = [identity(ROOM, shade).color for shade in (1, 2, 3)]  # of three heads, everywhere here
MANY = 8  # heads, in the timeline
LOOP, WIDE = f"{ROOM}:loop", f"{ROOM}:vectorized"
HOST, GPU = MUTED, CONSUMERS[0]
SEEN = SCORES


def _slabs(x, y, wide, tall, said=""):
    """A matrix whose columns belong to three heads."""
    part = wide / len(HEADS)
    drawn = [box(x + i * part, y, part - 1, tall, color, 34, 1) for i, color in enumerate(HEADS)]
    return "".join(drawn) + words(x + wide / 2, y + tall / 2 + 4, said, 12, 600) * bool(said)


@picture_of("launches", "layer_time")
def launches_timeline(counted, timed):
    """Host and GPU of the loop and of the batched layer, to scale."""
    case = {"heads": MANY, "passes": "forward"}
    small = {**case, "size": "small"}
    found, table = {}, []
    for said, name in (("loop", LOOP), ("batched", WIDE)):
        call = only(timed.rows, implementation=name, clock="host", **small)["ms_p50"]
        busy = only(timed.rows, implementation=name, clock="gpu", **small)["ms_p50"]
        found[said] = only(counted.rows, implementation=name, **case)["launches"], call, busy
    paid = [call / number for number, call, _ in found.values()]
    assert max(paid) < 1.05 * min(paid), "the page says that both pay the same per launch"
    end = max(call for _, call, _ in found.values())
    tick = next(step for step in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0) if end / step < 5)
    ticks = [i * tick for i in range(int(end / tick) + 1)]
    first = over = Timeline(["host", "GPU"], end * 1.03, y=22, left=40, tall=22)
    drawn = []
    for said, (number, call, busy) in found.items():
        over = first._replace(y=first.y + len(table) * (first.down + 44))
        each, own = call / number, busy / number
        spans = []
        for i in range(number):
            spans.append(Span("host", i * each, (i + 0.85) * each, HOST, percent=50))
            spans.append(Span("GPU", (i + 0.85) * each, (i + 0.85) * each + own, GPU, percent=100))
        assert busy < call / 2, "the title says that the GPU waits"
        share = percent(busy / call)
        drawn += [
            timeline(over, spans),
            words(40, over.y - 7, f"{said}: {time(call)}", 12, 600, anchor="start"),
            words(PHONE, over.y - 7, f"{number} launches, GPU busy {share}", 11, anchor="end"),
            line(f"M{over.at(call):g} {over.y}V{over.y + over.down + 4:g}", INK, 1.6),
        ]
        table.append({"layer": said, "launches": count(number), "a call": time(call)})
        table[-1] |= {"GPU busy": f"{time(busy)}, {share}", "per launch": time(each)}
    foot = over.y + over.down + 10
    axis = "".join(f"M{over.at(at):g} {foot:g}v5" for at in ticks)
    drawn.append(line(f"M{over.at(0):g} {foot:g}H{PHONE}{axis}", MUTED))
    for at in ticks:
        drawn.append(words(over.at(at), foot + 18, time(at) if at else "0", 11, color=MUTED))
    shown = [Key(HOST, 50, "a launch (host)"), Key(GPU, 100, "a kernel (GPU)")]
    drawn.append(keys(40, foot + 30, PHONE - 40, shown, 11))
    loop, wide = table
    about = (
        f"Two timelines on one scale. The loop makes {loop['launches']} launches in "
        f"{loop['a call']} while the GPU is busy for {loop['GPU busy']}; the batched layer makes "
        f"{wide['launches']} in {wide['a call']}."
    )
    return Picture(
        sees=f"The loop takes {loop['a call']}, the batch {wide['a call']}: the GPU waits for "
        "launches.",
        caption=f"One forward call with {MANY} heads on the small input, to scale. Per launch the "
        f"loop takes {loop['per launch']} and the batch {wide['per launch']}. Launches were "
        "counted and both clocks measured. We draw all launches of a call equally long; in reality "
        "they differ.",
        svg=svg(PHONE, foot + 44, about, drawn),
        table=table,
    )


@picture
def split():
    """One wide projection, cut into heads, which attend apart and are joined again."""
    x, top, tall = 12, 36, 56
    drawn = [
        box(x + 14, top, 48, tall, LINES, 22, 1),
        words(x + 38, top + tall / 2 + 4, "x", 12, 600),
        bracket(x + 8, top, tall, "N", "left"),
        bracket(x + 14, top - 6, 48, "E", "above"),
        words(x + 76, top + tall / 2 + 4, "·", 14),
        _slabs(x + 92, top, 96, 48, "W_q"),
        bracket(x + 92, top - 6, 96, "H·D", "above"),
        words(x + 206, top + tall / 2 + 4, "=", 14),
        _slabs(x + 224, top, 96, tall, "q"),
        bracket(x + 224, top - 6, 96, "H·D", "above"),
    ]
    cut = top + tall + 44
    drawn += [words(x, cut - 18, "cut into heads: no arithmetic, no copy", 11, anchor="start")]
    centers = [PHONE / 2 - 108, PHONE / 2, PHONE / 2 + 108]
    fork = f"M{centers[-1]} {top + tall + 4}V{cut - 12}M{centers[0]} {cut - 12}H{centers[-1]}"
    drawn.append(line(fork, MUTED))
    for index, (middle, color) in enumerate(zip(centers, HEADS, strict=True)):
        drawn += [
            straight((middle, cut - 12), (middle, cut - 2), MUTED),
            box(middle - 16, cut, 32, tall, color, 34, 1),
            words(middle, cut + tall / 2 + 4, f"q{index}", 11, 600),
            straight((middle, cut + tall + 4), (middle, cut + tall + 18)),
            labeled(
                middle - 51, cut + tall + 22, 102, 36, color, f"attention, head {index}", 10, 14
            ),
            straight((middle, cut + tall + 62), (middle, cut + tall + 76)),
            box(middle - 21, cut + tall + 80, 42, tall, color, 34, 1),
            words(middle, cut + 1.5 * tall + 84, "N × D", 10),
        ]
    joined = cut + 2 * tall + 120
    drawn += [
        line(
            f"M{centers[0]} {joined - 36}v10H{centers[-1]}v-10M{centers[1]} {joined - 36}v28", MUTED
        ),
        _slabs(PHONE / 2 - 48, joined, 96, tall),
        bracket(PHONE / 2 - 54, joined, tall, "N", "left"),
        words(PHONE / 2 + 58, joined + 24, "transpose, then", 10.5, color=MUTED, anchor="start"),
        words(PHONE / 2 + 58, joined + 38, "view as H·D", 10.5, color=MUTED, anchor="start"),
    ]
    about = (
        "x, N by E, times a weight matrix of E by H times D is q, N by H times D. Its columns are "
        "cut into three heads of N by D. Each head computes attention by itself, and their "
        "results stand side by side again."
    )
    return Picture(
        sees="A head is a slab of columns of one wide product.",
        caption="A color is a head. Drawn for the queries; keys and values are further columns of "
        "the same product. One batched product then attends in all heads.",
        svg=svg(PHONE, joined + tall + 4, about, drawn),
    )


@picture_of("contiguity")
def strip(result):
    """Memory of [2, 3, 5, 4] as a strip, before and after a transpose, colored by head."""
    rows = {r["expression"]: r for r in result.rows}
    first, turned, copied = (
        rows[f"out{call}"] for call in ("", ".transpose(1, 2)", ".transpose(1, 2).contiguous()")
    )
    _, H, N, D = first["sizes"]
    per, unit = N * D, PHONE / (H * N * D)
    drawn, top = [], 0

    def strip_of(y, order):
        """Cells in the order of memory, or of reading: each has its head's color."""
        grid = Grid(0, y, 1, len(order), unit, 20, 0.6)
        drawn.append(cells(grid, lambda _, place: (HEADS[order[place] // per], 62)))

    memory = list(range(H * N * D))
    by_token = [h * per + n * D + d for n in range(N) for h in range(H) for d in range(D)]
    for said, row, order in (
        ("out", first, memory),
        ("out.transpose(1, 2): the same memory", turned, memory),
        ("…contiguous(): a copy in a new order", copied, by_token),
    ):
        sizes = f"sizes {cell_list(row['shape'])}, strides {cell_list(row['stride'])}"
        drawn += [
            words(0, top + 12, said, 11.5, 600, anchor="start"),
            words(0, top + 27, sizes, 10.5, color=MUTED, anchor="start"),
        ]
        strip_of(top + 34, order)
        if row is turned:
            # How the first token is read: a jump of a whole head between two of its parts.
            for head in range(H):
                x = head * per * unit
                drawn.append(bracket(x + 0.5, top + 60, D * unit - 1, ""))
            apart = f"token 0, in {H} places"
            drawn.append(words(0, top + 74, apart, 10.5, color=MUTED, anchor="start"))
            top += 14
        if row is copied:
            drawn.append(bracket(0.5, top + 60, H * D * unit - 1, "token 0"))
            top += 16
        top += 76
    shown = [Key(color, 62, f"head {head}") for head, color in enumerate(HEADS)]
    drawn.append(keys(0, top + 4, PHONE, shown))
    about = (
        f"Memory of the first batch of {first['sizes']}: three heads one after the other. After "
        f"the transpose it is the same memory with strides {turned['stride']}: a token's parts "
        "lie a head apart. A contiguous copy has them side by side."
    )
    return Picture(
        sees="A transpose moves nothing: only the strides change.",
        caption=f"The first of two batches. To merge the last two dimensions into H·D, one stride "
        f"has to walk through both. After the transpose a token's {H * D} numbers lie in {H} "
        "places, so `view` raises and a copy is needed.",
        svg=svg(PHONE, top + 22, about, drawn, font="sans"),
        table=[
            {"expression": r["expression"], "sizes": str(r["shape"]), "strides": str(r["stride"])}
            for r in (first, turned, copied)
        ],
    )


@picture
def mask():
    """A causal mask, a padding mask, and what both leave of a matrix of scores."""
    n, side, top, pad = 6, 13.5, 24, 2
    masks = {
        "causal": lambda m, key: key <= m,
        "padding": lambda m, key: key >= pad,
        "both": lambda m, key: pad <= key <= m,
    }
    drawn, x = [], 56
    for (said, sees), sign in zip(masks.items(), ("and", "=", ""), strict=True):
        grid = square(x, top, n, n, side)
        drawn += [
            words(x + grid.across / 2, 14, said, 12, 600),
            cells(grid, lambda m, key, sees=sees: (SEEN, STRONG) if sees(m, key) else (LINES, 18)),
            words(x + grid.across + 12, top + grid.down / 2 + 4, sign, 11),
        ]
        x += grid.across + 23
    foot = top + grid.down
    drawn += [
        bracket(50, top, grid.down, "queries", "left", 11),
        bracket(56, foot + 7, grid.across, "keys", "below", 11),
        around(grid, slice(0, pad), slice(0, n), INK, 2),
        words(PHONE, foot + 17, f"queries 0 and {pad - 1} see no key", 11, 600, anchor="end"),
        keys(56, foot + 38, PHONE, (Key(SEEN, STRONG, "visible"), Key(LINES, 18, "hidden")), 11),
    ]
    about = (
        f"Three masks of {n} queries by {n} keys. Causal: a query sees the keys up to its own. "
        f"Padding: nobody sees the first {pad} keys. Both: the first {pad} queries see no key."
    )
    return Picture(
        sees="A mask is a matrix of visible keys, and two together can leave a row empty.",
        caption="Causal: no key after the query. Padding: here the first two tokens of the "
        "sentence only fill it up. A softmax over a row without a visible key would divide zero "
        "by zero.",
        svg=svg(PHONE, foot + 52, about, drawn),
    )


def cell_list(numbers):
    """A list of sizes as one reads it."""
    return f"[{', '.join(map(cell, numbers))}]"
