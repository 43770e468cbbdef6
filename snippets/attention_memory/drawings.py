"""The drawings of the page: tensors to scale, how long each lives, and the levels of memory."""

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    PALE,
    PHONE,
    STRONG,
    box,
    bracket,
    flow,
    line,
    svg,
    words,
)
from snippets._lab.draw.gpu import memories
from snippets._lab.draw.identity import SCORES, identity
from snippets._lab.draw.machine import Band, band
from snippets._lab.draw.pictures import Picture, picture_of
from snippets._lab.draw.rows import only
from snippets._lab.draw.units import ratio, size
from snippets._lab.results.store import DataError

NAMES = {"q": "Q", "k": "K", "v": "V", "scores": "scores", "weights": "weights", "output": "O"}
# What eager attention holds in each step: the scores are deleted before the last product. While
# the first one runs there is a scaled copy of Q too, which the caption names.
STEPS = (
    ("q · kᵀ", ("q", "k", "v", "scores")),
    ("softmax", ("q", "k", "v", "scores", "weights")),
    ("weights · v", ("q", "k", "v", "weights", "output")),
)


@picture_of("tensors")
def square(result):
    """Q, K, V, the output and the scores of one head, to scale."""
    row = only(result.rows, dtype="float32")
    N, D = row["N"], row["D"]
    side = 240
    thin, left, top = side * D / N, 42, 42
    right = left + side + 22

    def tensor(name, *at):
        return box(*at, identity(name).color, 78)

    drawn = [
        tensor("q", left - 8 - thin, top, thin, side),
        words(left - 16 - thin, top + side / 2, "Q", 12, 600, anchor="end"),
        tensor("k", left, top - 8 - thin, side, thin),
        words(left + side / 2, top - 18 - thin, "Kᵀ", 12, 600),
        box(left, top, side, side, SCORES, PALE, 1),
        words(left + side / 2, top + side / 2 - 6, "scores, N × N", 13, 600),
        words(left + side / 2, top + side / 2 + 12, size(row["scores"]), 12),
        tensor("v", right, top, thin, side),
        words(right + thin / 2, top - 8, "V", 12, 600),
        tensor("output", right + 22, top, thin, side),
        words(right + 22 + thin / 2, top - 8, "O", 12, 600),
        bracket(left, top + side + 8, side, f"N = {N}", "below"),
        words(left - 16 - thin, top + side + 21, f"D = {D}", 10.5, color=MUTED),
    ]
    about = (
        f"To scale for N {N} and D {D}: Q, K, V and the output are strips of {size(row['q'])}, "
        f"the scores a square of {size(row['scores'])}."
    )
    return Picture(
        sees="Next to the scores, everything else is a thin line.",
        caption=f"One head to scale: Q, K, V and O are N × D, the scores N × N, "
        f"{row['scores'] // row['q']} times as large. The sizes are those of the whole layer of "
        "this page, in float32.",
        svg=svg(PHONE, top + side + 28, about, drawn),
        table=[{"tensor": name, "bytes": row[key]} for key, name in NAMES.items()],
    )


@picture_of("tensors")
def lifetimes(result):
    """Which tensors of eager attention live in which step, and where their sum is largest."""
    row = only(result.rows, dtype="float32")
    totals = [sum(row[name] for name in held) for _, held in STEPS]
    peak = max(totals)
    if peak != row["eager"]:
        raise DataError(f"the tensors drawn sum to {peak} bytes, the formula to {row['eager']}")
    at = totals.index(peak)
    left, wide, unit = 68, (PHONE - 68) / len(STEPS), 76 / row["scores"]
    drawn, y = [], 30
    for index, (said, _) in enumerate(STEPS):
        drawn.append(words(left + (index + 0.5) * wide, 14, said, 11, 600))
    for name, called in NAMES.items():
        tall = max(row[name] * unit, 1.2)
        row_tall = max(tall, 15)
        lives = [index for index, (_, held) in enumerate(STEPS) if name in held]
        middle = y + row_tall / 2
        drawn += [
            words(left - 10, middle + 4, called, 11, anchor="end"),
            box(
                left + min(lives) * wide,
                middle - tall / 2,
                len(lives) * wide - 2,
                tall,
                identity(name).color,
                STRONG,
            ),
        ]
        if tall > 20:
            # Beside the frame of the peak, in a step that is not framed.
            across = left + (next(i for i in lives if i != at) + 0.5) * wide
            drawn.append(words(across, middle + 4, size(row[name]), 11))
        y += row_tall + 5
    foot = y + 12
    drawn += [
        line(f"M{left - 60} {y + 2}H{PHONE}", LINES),
        words(left - 10, foot + 6, "sum", 11, 600, anchor="end"),
        *(
            words(
                left + (index + 0.5) * wide,
                foot + 6,
                size(total),
                11,
                600 if index == at else 400,
                color=INK if index == at else MUTED,
            )
            for index, total in enumerate(totals)
        ),
        f'<rect x="{left + at * wide - 3:g}" y="22" width="{wide + 4:g}" height="{foot - 6:g}" '
        f'rx="4" fill="none" stroke="{INK}" stroke-width="1.4" stroke-dasharray="4 3"/>',
        words(left + (at + 0.5) * wide, foot + 32, "the peak", 11, 600),
    ]
    about = (
        "; ".join(
            f"during {said}: {size(total)}" for (said, _), total in zip(STEPS, totals, strict=True)
        )
        + ". The peak is in the softmax, where scores and weights are both there."
    )
    return Picture(
        sees="The peak is where scores and weights live at once.",
        caption="A row is a tensor, as high as its bytes (Q, K, V and O are lines), from the step "
        "that makes it to the last that reads it. B "
        f"{row['B']}, H {row['H']}, N {row['N']}, D {row['D']}, float32; the sum in the middle is "
        "what the formula says. Left out is a scaled copy of Q, as thin as Q, in the first step.",
        svg=svg(PHONE, foot + 38, about, drawn),
        table=[
            {"step": said, "bytes": total} for (said, _), total in zip(STEPS, totals, strict=True)
        ],
    )


@picture_of("hierarchy")
def levels(sizes):
    """The memories from registers to HBM, with arrows as wide as their rates."""
    shown = memories(sizes)
    many = only(sizes.rows, kind="sizes")["multiprocessors"]
    colors = ("registers", "shared memory", "L2", "HBM")
    wide_of = {0: 0.42, 1: 0.58, 2: 0.8, 3: 1}  # farther is wider; the sizes are written on it
    most = max(level.per_s for level in shown)
    drawn, top = [], 4
    for index, (level, color) in enumerate(zip(shown, colors, strict=True)):
        wide = PHONE * wide_of[index]
        x = (PHONE - wide) / 2
        name = level.name.replace("shared memory and L1", "L1, shared").replace("L2", "L2 cache")
        drawn.append(band(Band(x, top, wide, 36, identity(color).color, name, level.size), 11))
        if index + 1 < len(shown):
            below = shown[index + 1]
            thick, color = 70 * below.per_s / most, identity(colors[index + 1]).color
            drawn += [
                flow(
                    (PHONE / 2, top + 84),
                    (PHONE / 2, top + 42),
                    thick,
                    identity(colors[index + 1]).color,
                ),
                words(PHONE / 2 + thick / 2 + 12, top + 68, below.rate, 11.5, 600, anchor="start"),
            ]
        top += 90
    rates = shown[1].per_s / shown[3].per_s
    about = ". ".join(f"{level.name}: {level.line()}" for level in shown) + "."
    return Picture(
        sees=f"Each step toward the arithmetic is faster: {ratio(rates)} from HBM to L1.",
        caption=f"{sizes.label}. Registers, L1 and shared memory are those of one of {many} "
        "multiprocessors; an arrow is as wide as the measured rate of all of them together. "
        "The top arrow is L1's; shared memory alone gave more.",
        svg=svg(PHONE, top - 50, about, drawn),
        table=[{"level": x.name, "size": x.size, "rate": x.rate} for x in shown],
    )
