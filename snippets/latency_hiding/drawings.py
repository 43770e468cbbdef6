"""The drawings of the page: warps that take turns, a pipe of bytes, and waves of programs."""

import math

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
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells
from snippets._lab.draw.identity import identity
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.rows import ceiling, only
from snippets._lab.draw.timelines import Span, Timeline, time_arrow, timeline
from snippets._lab.draw.units import bandwidth, exact, many, percent, size, time

from . import model

OURS = "latency_hiding"
HBM, WARP = identity("HBM").color, identity("consumer 0").color
WAITS = 7  # times as long as the instructions between two loads: the example of `turns`


def _own(results, name):
    """The result of this page that was measured first, or None."""
    found = (r for r in results if (r.post, r.result) == (OURS, name) and r.place == "gpu")
    return next(found, None)


@picture
def turns(results):
    """What a scheduler does over time with one warp, with two and with eight."""
    source = _own(results, "latency")
    latency = model.levels(source)["L2"]["cycles"] if source else 0
    counts = (1, 2, WAITS + 1)
    turn, end, drawn, top = WAITS + 1, 2.5 * (WAITS + 1), [], 6
    busy = {n: min(1.0, n / turn) for n in counts}
    for number in counts:
        told = "1 warp" if number == 1 else f"{number} warps"
        drawn += [
            words(0, top + 9, told, 12, 600, anchor="start"),
            words(PHONE, top + 9, f"scheduler busy {exact(busy[number])}", 11, anchor="end"),
        ]
        spans, starts = [], []
        for warp in range(number):
            begin = warp
            while begin < end:
                spans.append(Span(f"warp {warp}", begin, begin + 1, WARP))
                spans.append(Span(f"warp {warp}", begin + 1, begin + turn, LINES, percent=26))
                starts.append(begin)
                begin += turn
        spans += [Span("scheduler", begin, begin + 1, INK, percent=60) for begin in starts]
        lanes = ["scheduler", *(f"warp {warp}" for warp in range(number))]
        over = Timeline(lanes, end, y=top + 18, left=62, tall=11, gap=3)
        drawn.append(timeline(over, spans))
        top += 18 + over.down + 18
    drawn.append(time_arrow(over))
    top += 10
    shown = (
        Key(WARP, STRONG, "instructions of a warp"),
        Key(LINES, 26, "waits for its load"),
        Key(INK, 60, "scheduler starts one"),
    )
    drawn.append(keys(0, top, PHONE, shown))
    about = "A scheduler and its warps over time. " + " ".join(
        f"With {n} of them it is busy {exact(busy[n])} of the time." for n in counts
    )
    measured = (
        f" On the GPU measured here a load from L2 takes {latency:.0f} cycles." if latency else ""
    )
    return Picture(
        sees=f"One warp leaves its scheduler idle; {WAITS + 1} fill the time.",
        caption=f"In this example a warp waits {WAITS} times as long as it computes between two "
        "loads. No load gets faster: while one warp waits, the scheduler starts instructions of "
        f"another, and changing over costs nothing.{measured}",
        svg=svg(PHONE, top + 34, about, drawn),
        sources=[source] if source else (),
    )


@picture
def pipe(results):
    """Little's law: a pipe as long as the latency and as wide as the bandwidth."""
    source = _own(results, "littles_law")
    said = {"length": "latency", "width": "bandwidth", "inside": "latency × bandwidth"}
    table = []
    if source:
        row = next(iter(model.with_law(source)))
        limit = ceiling(source, "copy") / 2
        latency, rate = time(row["latency_ms"]), bandwidth(limit)
        needed = size(model.amount(limit, row["latency_ms"]))
        said = {"length": f"latency: {latency}", "width": rate, "inside": needed}
        table = [{"latency": latency, "bandwidth": rate, "in flight": needed}]
    wide, tall, drawn = 220, 60, []
    for top, share, told in ((42, 1, "full"), (160, 4, "a quarter full")):
        x = 42
        pitch = 20 * share
        grid = Grid(x - pitch, top + 6, 4, wide // pitch + 2, pitch, 12.5)
        # One load of each row at a pitch; what is drawn is 17 long, whatever the pitch.
        loads = "".join(
            box(x_, y, 17, 9, HBM, STRONG)
            for row in range(4)
            for column in range(grid.columns)
            for x_, y in [grid.corner(row, column)]
        )
        moving = motion(
            f"am-pipe{share}",
            {0: "transform:none", 100: f"transform:translate({pitch}px,0)"},
            1.2 * share,
            [loads],
            "linear",
        )
        drawn += [
            box(x, top, wide, tall, HBM, 14, 1),
            f'<svg x="{x}" y="{top}" width="{wide}" height="{tall}" viewBox="{x} {top} {wide} '
            f'{tall}">{moving}</svg>',
            words(x - 8, top + 26, "HBM", 10.5, color=HBM, anchor="end"),
            straight((x - 30, top + 38), (x - 6, top + 38), HBM),
            words(x + wide + 34, top + 26, "SM", 10.5, color=MUTED, anchor="start"),
            straight((x + wide + 6, top + 38), (x + wide + 30, top + 38), MUTED),
            words(x, top + tall + 18, told, 11.5, 600, anchor="start"),
        ]
    drawn += [
        bracket(42, 36, wide, said["length"], "above", 11),
        bracket(42 + wide + 58, 42, tall, "", "right"),
        words(PHONE, 36, said["width"], 11, color=MUTED, anchor="end"),
        words(42 + wide, 42 + tall + 18, f"in flight: {said['inside']}", 11, anchor="end"),
        words(42 + wide, 160 + tall + 18, "¼ of the bandwidth arrives", 11, anchor="end"),
    ]
    about = (
        "Memory as a pipe: its length is the latency, its width the bandwidth. To keep it full, "
        "latency times bandwidth must be in flight"
        + (f": {said['inside']}." if table else ".")
        + " With a quarter of that in flight, a quarter of the bandwidth arrives."
    )
    return Picture(
        sees="What is in flight fills the pipe, or leaves it partly empty.",
        caption="A load needs the latency to come through, however many others are under way. So "
        "what arrives each second is what is in flight, divided by the latency.",
        svg=svg(PHONE, 244, about, drawn),
        table=table,
        sources=[source] if source else (),
    )


@picture
def tail(results):
    """Programs dealt to multiprocessors in waves; a last one that few of them fill."""
    source = _own(results, "waves") or next(
        r for r in results if (r.post, r.result) == ("attention_memory", "hierarchy")
    )
    rows = source.rows
    processors = (
        rows[0]["multiprocessors"]
        if source.post == OURS
        else only(rows, kind="sizes")["multiprocessors"]
    )
    programs = (processors, processors + 1, 2 * processors + processors // 2)
    columns = 12
    lines, side, drawn, top, table = math.ceil(processors / columns), 7, [], 26, []
    most = max(math.ceil(n / processors) for n in programs)
    pitch = columns * side + 34
    drawn += [
        words(wave * pitch + columns * side / 2, 12, f"wave {wave + 1}", 11, color=MUTED)
        for wave in range(most)
    ]
    for number in programs:
        waves = math.ceil(number / processors)
        used = number / (processors * waves)
        for wave in range(waves):
            busy = min(processors, number - wave * processors)
            grid = Grid(wave * pitch, top + 20, lines, columns, side, side)

            def look(row, column, busy=busy):
                index = row * columns + column
                return None if index >= processors else (WARP, 62) if index < busy else (LINES, 18)

            drawn.append(cells(grid, look))
            if wave + 1 < waves:
                y = grid.y + grid.down / 2
                drawn.append(straight((grid.x + grid.across + 6, y), (grid.x + pitch - 6, y)))
        said = f"{number} programs: {percent(used)} of the time is used"
        drawn.append(words(0, top + 12, said, 11.5, 600, anchor="start"))
        table.append({"programs": number, "waves": waves, "used": percent(used)})
        top += 20 + lines * side + 22
    drawn.append(keys(0, top - 8, PHONE, (Key(WARP, 62, "works"), Key(LINES, 18, "idle"))))
    about = "; ".join(
        f"{row['programs']} programs on {processors} multiprocessors take "
        f"{many(row['waves'], 'wave')}, and "
        f"{row['used']} of the time is used"
        for row in table
    )
    return Picture(
        sees="One program too many costs a whole wave.",
        caption=f"Each square is one of the {processors} multiprocessors of an {source.label}. "
        "Each works on one program at a time, and all take equally long. Computed, not measured.",
        svg=svg(PHONE, top + 14, f"{about}.", drawn),
        table=table,
        sources=[source],
    )
