"""The drawings of the page: who reads what, and a sum over a program's warps."""

import math

from snippets._lab.draw.drawings import (
    INK,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    beside,
    box,
    bracket,
    frame,
    line,
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells
from snippets._lab.draw.identity import CONSUMERS, OUTPUT, SHARED, K, Q, V
from snippets._lab.draw.machine import LANES
from snippets._lab.draw.pictures import Picture, picture, picture_of
from snippets._lab.draw.rows import only
from snippets._lab.draw.units import count

WARP = CONSUMERS[0]
PROGRAMS, KEYS = 5, 12  # as many as are drawn
SLOTS, WARPS = 1024, 4  # of `warp_sum`: slots of a row, and warps of a program by default
CELL = 1.75  # pixels of a lane


@picture
def programs():
    """A program for each query, and each of them reads all keys and all values."""
    top, pitch, side = 40, 34, 8
    row_wide, strip = 32, KEYS * side
    at_q, at_k, at_v = 0, 82, 82 + strip + 16
    at_out = PHONE - row_wide
    heads = ((at_q + 16, "Q"), (at_k + strip / 2, "K"), (at_v + strip / 2, "V"), (at_out + 16, "O"))
    drawn = [words(x, 14, name, 13, 600) for x, name in heads]
    drawn += [
        words(at_k + strip / 2, 29, "key by key", 10.5, color=MUTED),
        words(at_v + strip / 2, 29, "value by value", 10.5, color=MUTED),
    ]
    for program in range(PROGRAMS):
        y = top + program * pitch
        middle = y + 9
        drawn += [
            box(at_q, y, row_wide, 18, Q, STRONG),
            straight((at_q + row_wide + 3, middle), (at_k - 6, middle)),
            words(at_q + row_wide + 20, y + 5, str(program), 10, color=MUTED),
            cells(Grid(at_k, y, 1, KEYS, side, 19), lambda row, column: (K, PALE)),
            cells(Grid(at_v, y, 1, KEYS, side, 19), lambda row, column: (V, PALE)),
            straight((at_v + strip + 2, middle), (at_out - 4, middle)),
            box(at_out, y, row_wide, 18, OUTPUT, STRONG),
        ]
    # What is read now: the same key in all programs, then the same value.
    tall = (PROGRAMS - 1) * pitch + 22
    now = [frame(at_k - 1.5, top - 2, side + 2, tall, INK, 2)]
    moves = {}
    for key in range(KEYS):
        moves[50 * key / KEYS] = f"transform:translateX({key * side}px)"
        moves[50 + 50 * key / KEYS] = f"transform:translateX({at_v - at_k + key * side}px)"
    moves[100] = moves[50 + 50 * (KEYS - 1) / KEYS]
    drawn.append(motion("am-sweep", dict(sorted(moves.items())), 9, now, "step-end"))
    foot = top + PROGRAMS * pitch - 8
    drawn += [
        words(
            at_q,
            foot + 38,
            "Each row of Q is a program of its own.",
            10.5,
            color=MUTED,
            anchor="start",
        ),
        bracket(at_k, foot + 4, strip, "N keys"),
        bracket(at_v, foot + 4, strip, "N values"),
    ]
    about = (
        "A program for each row of Q. Every one of them reads the keys one after the other, then "
        "the values, and writes one row of O."
    )
    return Picture(
        sees="Every program reads everything.",
        caption="A program owns one query. It walks through all keys, then through all values, and "
        "writes one row of the output. Its neighbor reads all of it again.",
        svg=svg(PHONE, foot + 44, about, drawn),
    )


@picture_of("left")
def warp_sum(result):
    """A sum over the slots of four warps, and of one: shuffles, shared memory, barriers."""
    row = only(result.rows, without="nothing", heads=1, N=SLOTS, loop="values")
    steps, last = int(math.log2(LANES)), int(math.log2(WARPS))
    assert (row["shuffles"], row["barriers"]) == (steps + last, 3), "what is drawn was counted"
    left, pitch, step_tall, slot = 92, 63, 17, 18
    foot = 32 + steps * step_tall + 13
    middles = [left + (warp + 0.5) * pitch for warp in range(WARPS)]

    def funnels(middles, lane):
        """Each warp's sums before and after each shuffle, and what the lines are."""
        own = f"{SLOTS // len(middles) // LANES} slots a lane"
        for warp, middle in enumerate(middles):
            yield words(middle, 14, f"warp {warp}", 11.5, 600, color=WARP)
            for step in range(steps + 1):
                sums = LANES >> step
                x, y = middle - sums * lane / 2, 24 + step * step_tall
                grid = Grid(x, y, 1, sums, lane, 12, 0.4)
                yield cells(grid, lambda _, column: (WARP, STRONG))
        for step in range(steps + 1):
            said = str(LANES >> step) if step else f"{LANES} sums"
            yield words(left - 6, 34 + step * step_tall, said, 11, color=MUTED, anchor="end")
        yield words(0, 14, own, 11, color=MUTED, anchor="start")
        yield bracket(64, 42, step_tall * steps - 6, f"{steps} shuffles", "left", 11)

    def told(y, said, weight=400):
        return words(0, y, said, 11, weight, anchor="start")

    def barrier(y, said):
        return line(f"M0 {y}H{PHONE}", INK, 2, "7 4") + told(y - 5, said, 600)

    four = [*funnels(middles, CELL), told(158, "shared"), told(171, "memory")]
    for middle in middles:
        four += [
            straight((middle, foot), (middle, 146)),
            box(middle - slot / 2, 149, slot, 18, SHARED, STRONG, 1),
            straight((middle, 254), (middle, 278)),
        ]
    first, end = middles[0], middles[-1]
    four += [
        barrier(192, "barrier: all four wait"),
        line(f"M{end} 167V212H{first}" + "".join(f"M{x} 167V212" for x in middles[1:-1]), MUTED),
        straight((first, 167), (first, 226)),
        words(first + 16, 239, f"warp 0 adds {WARPS} sums: {last} shuffles", 11, anchor="start"),
        box(first - slot / 2, 228, slot, 14, SHARED, STRONG, 1),
        line(f"M{first} 242V254H{end}", MUTED),
        barrier(268, "barrier: all four wait"),
        told(294, "every lane reads the total"),
        barrier(318, "barrier, before shared memory is written again"),
        told(342, f"{row['shuffles']} shuffles, {row['barriers']} barriers", 600),
    ]
    one = [
        *funnels([(left + PHONE) / 2], WARPS * CELL),
        told(158, "every lane has the total"),
        told(182, f"{steps} shuffles, no barrier", 600),
    ]
    about = (
        f"Four warps: {steps} shuffles in each, four sums into shared memory, a barrier, {last} "
        "shuffles that add them, a barrier, every lane reads the total, a barrier.",
        f"One warp: {steps} shuffles, and every lane has the total.",
    )
    return Picture(
        sees="A sum over four warps has three barriers; inside one warp it has none.",
        caption=f"Reading one weight sums {count(SLOTS)} slots. Each shuffle halves the number of "
        "sums in a warp; four warps then meet in shared memory and wait for each other, as counted "
        "in the machine code.",
        svg=beside(svg(PHONE, 348, about[0], four), svg(PHONE, 188, about[1], one)),
    )
