"""The drawings of the page: who reads what, one iteration, and the row of slots."""

import math

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    box,
    bracket,
    frame,
    labeled,
    line,
    mixed,
    motion,
    straight,
    svg,
    words,
)
from snippets._lab.draw.grids import Grid, cells
from snippets._lab.draw.identity import identity
from snippets._lab.draw.machine import LANES
from snippets._lab.draw.pictures import Picture, picture
from snippets._lab.draw.units import count

Q, K, V, SCORES, WEIGHTS, OUTPUT = (
    identity(name).color for name in ("q", "k", "v", "scores", "weights", "output")
)
WARP = identity("consumer 0").color
PROGRAMS, KEYS = 5, 12  # as many as are drawn
SLOTS, SLOT = 1024, 300  # slots of a row, and the one that changes


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
            foot + 30,
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
        svg=svg(PHONE, foot + 36, about, drawn),
    )


@picture
def slots():
    """The row of scores: one slot changes and all are written."""
    columns, rows = 64, SLOTS // 64
    side = PHONE / columns
    tall, top = rows * side, 24
    lines = [f"M{i * side:g} {top}v{tall:g}" for i in range(columns + 1)]
    lines += [f"M0 {top + i * side:g}h{PHONE}" for i in range(rows + 1)]
    row, column = divmod(SLOT, columns)
    x, y = column * side, top + row * side
    drawn = [
        words(0, 14, f"scores: {count(SLOTS)} slots", 12, 600, anchor="start"),
        words(PHONE, 14, f"slots == {SLOT}", 11, color=MUTED, anchor="end"),
        box(0, top, PHONE, tall, SCORES, PALE),
        line("".join(lines), "var(--am-paper)", 0.8),
        f'<rect x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" '
        f'style="fill:{mixed(SCORES, 100)}"/>',
        frame(x - 2, y - 2, side + 4, side + 4, INK, 1.6),
        line(f"M0 {top + tall + 8:g}", LINES),
        words(PHONE / 2, top + tall + 18, f"written: {count(SLOTS)} slots · changed: 1", 11.5, 600),
    ]
    about = (
        f"A row of {SLOTS} slots as a grid. The score of key {SLOT} goes into one of them, but the "
        "select goes through all."
    )
    return Picture(
        sees="One slot changes, and all are rewritten.",
        caption="Triton has no `scores[n] = score`. `tl.where(slots == n, score, scores)` compares "
        f"every slot's number with `n` and writes every slot: {count(SLOTS)} selects for one "
        f"score, in each of {count(SLOTS)} iterations.",
        svg=svg(PHONE, top + tall + 26, about, drawn),
    )


@picture
def trip():
    """One iteration of the loop over keys: what is done, on what, and what it waits for."""
    exchanges = int(math.log2(LANES))
    steps = [
        (K, "load a row of K", "[D]", "memory: a whole latency"),
        (SCORES, "multiply by q", "[D]", "the load"),
        (SCORES, "sum over the lanes", "1 a warp", f"{exchanges} exchanges, one after the other"),
        (SCORES, "sum over the warps", "1", "a barrier: the slowest warp"),
        (SCORES, "select into slot n", "[BLOCK_N]", "the sum, and the row of before"),
    ]
    tall, gap, wide = 34, 20, 142
    drawn = [
        words(wide / 2, 12, "one iteration", 12, 600),
        words(wide + 44, 12, "of", 10.5, color=MUTED),
        words(wide + 84, 12, "waits for", 10.5, color=MUTED, anchor="start"),
    ]
    for i, (color, what, shape, waits) in enumerate(steps):
        y = 22 + i * (tall + gap)
        drawn += [
            labeled(0, y, wide, tall, color, what, 11.5),
            words(wide + 44, y + tall / 2 + 4, shape, 10.5),
        ]
        first, _, rest = waits.partition(", " if ", " in waits else ": ")
        drawn.append(words(wide + 84, y + 13, first, 10.5, anchor="start"))
        drawn.append(words(wide + 84, y + 27, rest, 10.5, color=MUTED, anchor="start"))
        if i:
            drawn.append(straight((wide / 2, y - gap + 2), (wide / 2, y - 2)))
    end = 22 + len(steps) * (tall + gap) - gap
    drawn += [
        line(f"M{wide / 2:g} {end + 2}v14", MUTED, 1.4, "3 3"),
        words(
            wide / 2 + 10, end + 14, "next key, N times in all", 10.5, color=MUTED, anchor="start"
        ),
    ]
    about = "One iteration, from top to bottom: " + "; ".join(
        f"{what}, {shape}, waits for {waits}" for _, what, shape, waits in steps
    )
    return Picture(
        sees="One number an iteration, through five steps that wait for each other.",
        caption="A row of K comes in, is multiplied by the query, summed over the "
        f"{LANES} lanes of each warp, then over the warps, and the one score goes into its slot. "
        "Only the load could begin before the last iteration is done: its address is known.",
        svg=svg(PHONE, end + 22, about, drawn),
    )
