"""The drawings of the page: a grid of addresses, a tile in registers, and loads over time."""

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    box,
    bracket,
    line,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells, numbers
from snippets._lab.draw.identity import HBM, REGISTERS, K, Q, V
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import TIME, only, pick
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import count, thousands

FAR = HBM
MOST = 255  # registers that a thread can have
KEYS = 6  # as many as are drawn
STRIDE = 64  # elements from a row of the drawn tensor to the next


@picture_of("latency")
def loads(result):
    """Many loads, each waited for, against three."""
    slow, fast = (
        only(result.rows, implementation=name, M=1, N=256)
        for name in ("basic_attention", "vectorized_attention")
    )
    many = 2 * slow["N"] + 1
    wait, work = 4, 1
    spans, now = [], 0
    order = [("q", Q), *(("k", K) for _ in range(KEYS)), *(("v", V) for _ in range(KEYS))]
    for said, color in order:
        spans += [
            Span("a row", now, now + wait, LINES, "", 25),
            Span("a row", now + wait, now + wait + work, color, said),
        ]
        now += wait + work
    end, start = now, 0
    for said, color, rows in (("q", Q, 1), ("K", K, KEYS), ("V", V, KEYS)):
        long = wait + rows * work * 0.6
        spans += [
            Span("a tile", start, start + wait, LINES, "", 25),
            Span("a tile", start + wait, start + long, color, said),
        ]
        start += long
    over = Timeline(("a row", "a tile"), end, y=26, left=48)
    drawn = [
        words(0, 12, "one load for each key and value, or for all", 12, 600, anchor="start"),
        timeline(over, spans),
        time_arrow(over),
        box(48, over.y + over.down + 28, 11, 11, LINES, 25, 1),
        words(64, over.y + over.down + 37, "waiting for memory", 10.5, anchor="start"),
    ]
    about = (
        f"Above, {2 * KEYS + 1} loads of a row, each waited for. Below, the same in three loads: "
        "the query, all keys, all values."
    )
    return Picture(
        sees="Wait three times instead of 2N + 1 times.",
        caption="Each load costs a latency before its first byte arrives, however much it brings. "
        f"Drawn for {KEYS} keys, not to scale. Measured with one query and {count(slow['N'])} "
        f"keys: the loop with {count(many)} loads took {TIME.text(slow)}, its sums included; the "
        f"kernel with three took {TIME.text(fast)}.",
        svg=svg(PHONE, over.y + over.down + 46, about, drawn),
        table=[
            {"loads": n, "N": r["N"], "time": TIME.text(r)} for n, r in ((many, slow), (3, fast))
        ],
    )


@picture
def addresses():
    """A column of rows and a row of columns become a grid of addresses."""
    rows, columns, side = 4, 5, 40
    left, top = 118, 78
    grid = Grid(left, top, rows, columns, side, 30)
    column = Grid(34, top, rows, 1, 52, 30)
    row = Grid(left, 30, 1, columns, side, 30)
    drawn = [
        words(60, 14, "rows[:, None] * D", 10.5, color=MUTED),
        words(left + grid.across / 2, 14, "cols[None, :]", 10.5, color=MUTED),
        cells(column, lambda r, c: (Q, PALE)),
        numbers(column, lambda r, c: str(r * STRIDE)),
        words(102, top + grid.down / 2 + 4, "+", 15, 600),
        words(102, 49, "", 11),
        cells(row, lambda r, c: (V, PALE)),
        numbers(row, lambda r, c: str(c)),
        cells(grid, lambda r, c: (K, PALE + 12 * (r % 2))),
        numbers(grid, lambda r, c: str(r * STRIDE + c)),
        bracket(28, top, grid.down, "", "left"),
        words(12, top + grid.down / 2 + 4, "N", 10.5, color=MUTED),
        bracket(left, top + grid.down + 8, grid.across, "D"),
    ]
    about = (
        f"A column of row offsets, 0, {STRIDE} and so on, plus a row of column offsets, 0 to "
        f"{columns - 1}: a grid in which every entry is the sum of its row's and its column's."
    )
    return Picture(
        sees="A column plus a row is a grid.",
        caption="`[:, None]` turns the keys' numbers into a column and `[None, :]` the columns' "
        f"numbers into a row. Adding them repeats both: every key at every column, here of a "
        f"tensor whose rows begin {STRIDE} elements apart. `tl.load` takes the whole grid at once.",
        svg=svg(PHONE, top + grid.down + 28, about, drawn),
    )


@picture_of("registers")
def tile_in_registers(result):
    """What a thread holds of a tile that grows, against the registers it has."""
    if result.place != "gpu":
        return None
    of = pick(result.rows, D=64)
    shown = [r for r in of if 2 * MOST // 8 <= _held(r) <= 2 * MOST + 2]
    threads, top, tall = 32 * shown[0]["num_warps"], 46, 150
    per, wide = tall / MOST, 34  # pixels of a register
    most = max(_held(r) for r in shown)
    brim = top + (most - MOST) * per
    floor = brim + tall
    pitch = (PHONE - 70) / len(shown)
    drawn = [
        words(
            0,
            12,
            f"a tile of N × {shown[0]['D']} numbers, dealt to {threads} threads",
            12,
            600,
            anchor="start",
        ),
        line(f"M0 {brim:g}H{PHONE}", INK, 1.2, "4 3"),
        words(0, brim - 16, f"{MOST} registers", 10.5, anchor="start"),
        words(0, brim - 4, "at most, per thread", 10.5, color=MUTED, anchor="start"),
    ]
    for i, row in enumerate(shown):
        x = 86 + i * pitch
        held = _held(row)
        level = min(held, MOST) * per
        drawn += [
            box(x, brim, wide, tall, LINES, 8),
            box(x, floor - level, wide, level, REGISTERS, STRONG),
            words(x + wide / 2, floor + 15, f"N {count(row['N'])}", 10.5, 600),
            words(x + wide / 2, floor + 29, str(held), 10.5, color=MUTED),
        ]
        if held > MOST:
            over = (held - MOST) * per
            drawn.append(box(x, brim - over, wide, over, FAR, STRONG))
        if row["stack_bytes"]:
            drawn += [
                words(x + wide / 2, floor + 45, thousands(row["stack_bytes"]), 10.5, 600, color=INK)
            ]
    drawn += [
        words(0, floor + 29, "per thread", 10.5, color=MUTED, anchor="start"),
        words(0, floor + 45, "stack, bytes", 10.5, color=MUTED, anchor="start"),
    ]
    about = "; ".join(
        f"N {r['N']}: {_held(r)} numbers per thread, a stack of {r['stack_bytes']} bytes"
        for r in shown
    )
    return Picture(
        sees="The tile outgrows the registers.",
        caption=f"Every doubling of N doubles what each of the {threads} threads holds of one tile "
        f"(float32). A thread has at most {MOST} registers, and it needs some for addresses and "
        "sums. What does not fit spills to a stack in memory: compiled for the device, this many "
        "bytes for each thread.",
        svg=svg(PHONE, floor + 52, about, drawn),
        table=[
            {
                "N": r["N"],
                "numbers per thread": _held(r),
                "registers": r["registers"],
                "stack, bytes": r["stack_bytes"],
            }
            for r in shown
        ],
    )


def _held(row):
    """Numbers of a tile that a thread holds."""
    return row["N"] * row["D"] // (32 * row["num_warps"])
