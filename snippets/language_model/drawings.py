"""The drawings of the page: what a layer adds, how positions turn, which kernel works where."""

from snippets._lab.draw.drawings import (
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
from snippets._lab.draw.identity import CONSUMERS, OUTPUT
from snippets._lab.draw.pictures import Picture, picture

EXACT, FAST = CONSUMERS[:2]


@picture
def kernels():
    """Training goes through forward and backward, sampling through append and decode."""
    wide, tall, half = PHONE, 26, PHONE / 2
    columns = ((1, "training: 16 × 1024 bytes"), (half + 7, "sampling: one byte"))
    steps = (
        ("tokens in", "the newest byte in"),
        ("flash_attention", "cache_append"),
        ("loss of each next byte", "decode_attention"),
        ("flash_backward", "weights of 256 bytes"),
        ("AdamW", "draw one"),
    )
    ours = {"flash_attention", "flash_backward", "cache_append", "decode_attention"}
    drawn, top = [], 24
    for side, (x, title) in enumerate(columns):
        drawn.append(words(x, 12, title, 11, 600, anchor="start"))
        for row, said in enumerate(pair[side] for pair in steps):
            y = top + row * (tall + 14)
            look = (OUTPUT, STRONG) if said in ours else (MUTED, PALE)
            drawn.append(labeled(x, y, half - 8, tall, look[0], said, 10.5, look[1]))
            if row:
                middle = x + (half - 8) / 2
                drawn.append(straight((middle, y - 13), (middle, y - 2), MUTED))
    height = top + len(steps) * (tall + 14)
    shown = (Key(OUTPUT, STRONG, "kernels of this site"), Key(MUTED, PALE, "PyTorch"))
    drawn.append(keys(0, height + 2, wide, shown))
    return Picture(
        sees="Four kernels of this site, and PyTorch for the rest.",
        caption="A step of training goes down the left side, a sampled byte down the right one. "
        "The model is the same. On an H100 or H200, hopper_attention and hopper_backward replace "
        "flash_attention and flash_backward.",
        svg=svg(
            wide,
            height + 24,
            "Two columns. Training: tokens, flash_attention, loss, flash_backward, AdamW. "
            "Sampling: the newest byte, cache_append, decode_attention, weights, a draw.",
            drawn,
        ),
    )


@picture
def layer():
    """One layer: a stream of float32, to which two branches of bfloat16 add."""
    stream, left, wide, tall, gap = 24, 62, PHONE - 70, 22, 7
    branches = (
        ("RMSNorm", "q, k, v: one product", "rotary positions", "attend(q, k, v)", "product"),
        ("RMSNorm", "gate and up: one product", "SiLU(gate) · up", "product"),
    )
    drawn, top = [], 34
    for branch in branches:
        first = top
        for said in branch:
            color = EXACT if said == "RMSNorm" else FAST
            percent = STRONG if said.startswith("attend") else PALE
            drawn.append(labeled(left, top, wide, tall, color, said, 11, percent))
            top += tall + gap
        drawn.append(straight((stream, first + tall / 2), (left - 3, first + tall / 2), EXACT))
        last = top - gap - tall / 2
        drawn.append(straight((left, last), (stream + 9, last), FAST))
        drawn += [box(stream - 8, last - 8, 16, 16, EXACT, PALE, 1), words(stream, last + 4, "+")]
        top += 12
    trunk = line(f"M{stream} 22V{top + 4}", EXACT, 2.5)
    drawn = [words(stream - 20, 14, "x [B, N, E]", 11, 600, anchor="start"), trunk, *drawn]
    shown = (
        Key(EXACT, PALE, "float32"),
        Key(FAST, PALE, "bfloat16"),
        Key(FAST, STRONG, "ours or PyTorch's"),
    )
    drawn.append(keys(0, top + 12, PHONE, shown))
    return Picture(
        sees="Two branches, and a sum that never leaves float32.",
        caption="One layer of the model. Each branch normalizes the stream, works in bfloat16 and "
        "adds what it finds. Attention is the only part that changes from run to run.",
        svg=svg(
            PHONE,
            top + 36,
            "One layer: a vertical stream in float32; a branch with attention and a branch with "
            "the feed-forward layer leave it and are added to it again.",
            drawn,
        ),
    )
