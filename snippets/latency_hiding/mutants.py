"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "address not loaded",
        "at = tl.load(links_ptr + at)",
        "at = tl.load(links_ptr + at * 0)",
        "Every step loads the same link: no load waits for another, and no latency is measured.",
    ),
    Mutant(
        "a step too few",
        "other=0)\n    for _ in range(steps):",
        "other=0)\n    for _ in range(steps - 1):",
        "The walk ends a step early: a time divided by `steps` comes out too small.",
    ),
    Mutant(
        "first walker's start for all",
        "tl.load(starts_ptr + offs, mask=offs < n, other=0)",
        "tl.load(starts_ptr + offs * 0, mask=offs < n, other=0)",
        "All walkers follow the first one's path, and the caches serve them.",
    ),
    Mutant(
        "last walker dropped",
        "tl.store(out_ptr + offs, at, mask=offs < n)",
        "tl.store(out_ptr + offs, at, mask=offs < n - 1)",
        "The mask is off by one: where the last walker ends is never written.",
    ),
    Mutant(
        "cycle broken",
        "order.roll(-1)",
        "order",
        "Each line links to itself: a walk stays in one line, which L1 holds.",
    ),
    Mutant(
        "tile skipped",
        "range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0))",
        "range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0) + 1)",
        "The programs' steps are too wide: every so many tiles one is left out.",
    ),
    Mutant(
        "ragged end not copied",
        "tl.cdiv(n, BLOCK)",
        "n // BLOCK",
        "Only whole tiles are copied: what follows the last one is never written.",
    ),
    Mutant(
        "every program the first tiles",
        "range(tl.program_id(0), tiles, tl.num_programs(0))",
        "range(0, tiles, tl.num_programs(0))",
        "The program's number is not used: tiles that belong to others are never worked on.",
    ),
    Mutant(
        "no loop over tiles",
        "range(tl.program_id(0), tiles, tl.num_programs(0))",
        "range(tl.program_id(0), tl.minimum(tiles, tl.num_programs(0)), tl.num_programs(0))",
        "A persistent launch works on its first wave of tiles and leaves the others.",
    ),
    Mutant(
        "work not accumulated",
        "y = y * 0.5 + x",
        "y = x * 0.5 + x",
        "Each multiply-add starts from x again: the compiler may leave out all but one.",
    ),
    Mutant(
        "what is held is not used",
        "total = tl.sum(x, axis=0) + tl.sum(y, axis=0)",
        "total = tl.sum(y, axis=0)",
        "Nothing needs x: the compiler drops it, and no register is held.",
    ),
    Mutant(
        "walks where it should compute",
        "y = y * 0.5 + 1.0",
        "y = y * 0.5 + 0.5",
        "The multiply-adds go to another limit.",
    ),
]

# Usual wrong answers to exercise.py: the page names them, as it names MUTANTS of kernel.py.
EXERCISE = [
    Mutant(
        "both halves start alike",
        "b = tl.load(starts_ptr + offs + BLOCK,",
        "b = tl.load(starts_ptr + offs,",
        "The second half starts where the first does: its starts lie BLOCK places further.",
    ),
    Mutant(
        "second half follows the first",
        "b = tl.load(links_ptr + b)",
        "b = tl.load(links_ptr + a)",
        "The second half follows the links of the first.",
    ),
    Mutant(
        "second half stands still",
        "        b = tl.load(links_ptr + b)\n",
        "",
        "The second half is stored where it began: it takes no step.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_latency_hiding_kernel": [
        Slip("the address is not what was loaded", "links_ptr + at", "links_ptr + offs"),
        "a step too few",
        Slip("a step too many", "for _ in range(steps):", "for _ in range(steps + 1):"),
        Slip("one start for all walkers", "starts_ptr + offs, mask=offs", "starts_ptr, mask=offs"),
        Slip("mask without `other`", "mask=offs < n, other=0)", "mask=offs < n)"),
        Slip("start loaded without its mask", "offs, mask=offs < n, other=0", "offs"),
        Slip("store without its mask", "out_ptr + offs, at, mask=offs < n", "out_ptr + offs, at"),
        "last walker dropped",
        Slip("each program takes the first walkers", "tl.program_id(0) * BLOCK + ", ""),
        Slip(
            "an address added instead of followed",
            "at = tl.load(links_ptr + at)",
            "at += tl.load(links_ptr + at)",
        ),
    ],
    "kernel.py:_copy_kernel": [
        "tile skipped",
        "ragged end not copied",
        Slip("each program copies all tiles", "tl.program_id(0), tl.cdiv", "0, tl.cdiv"),
        Slip("the tile's number for its first element", "tl.int64) * BLOCK +", "tl.int64) +"),
        Slip("load without its mask", "tl.load(x_ptr + at, mask=at < n)", "tl.load(x_ptr + at)"),
        Slip("store without its mask", "out_ptr + at, x, mask=at < n", "out_ptr + at, x"),
        Slip("mask one element too wide", "x_ptr + at, mask=at < n", "x_ptr + at, mask=at <= n"),
        Slip("mask of the tile and not of the tensor", "at, x, mask=at <", "at, x, mask=offs <"),
        Slip("the same tile each time", "at = tl.cast(tile, tl.int64)", "at = tl.program_id(0)"),
        Slip("addresses stored instead of numbers", "out_ptr + at, x, ", "out_ptr + at, at, "),
    ],
    "kernel.py:_tiles_kernel": [
        "every program the first tiles",
        "no loop over tiles",
        "work not accumulated",
        Slip("a step too few", "for _ in range(steps):", "for _ in range(steps - 1):"),
        Slip("input stored instead of result", "out_ptr + at, y", "out_ptr + at, x"),
        Slip("the tile's number for its first element", "tl.int64) * BLOCK + ", "tl.int64) + "),
        Slip("a name that is not there yet", "        y = x\n", ""),
        Slip("result written over the input", "out_ptr + at, y", "x_ptr + at, y"),
        Slip("added before it is halved", "y = y * 0.5 + x", "y = (y + x) * 0.5"),
        Slip("a type that changes in the loop", "        y = x\n", "        y = 0\n"),
    ],
    "kernel.py:_held_kernel": [
        Slip("the address is not what was loaded", "links_ptr + place", "links_ptr + pid"),
        Slip("one start for all programs", "tl.load(starts_ptr + pid)", "tl.load(starts_ptr)"),
        Slip("a step too few", "steps):\n            place", "steps - 1):\n            place"),
        "what is held is not used",
        Slip(
            "results swapped",
            "tl.store(ends_ptr + pid, place)\n    tl.store(sums_ptr + pid, total)",
            "tl.store(sums_ptr + pid, place)\n    tl.store(ends_ptr + pid, total)",
        ),
        Slip("ends not stored", "    tl.store(ends_ptr + pid, place)\n", ""),
        Slip("a tile stored where a number belongs", "total = tl.sum(x, axis=0)\n", "total = x\n"),
        Slip("all programs store to the first place", "sums_ptr + pid, total", "sums_ptr, total"),
        Slip(
            "each program holds other numbers",
            "x_ptr + tl.arange(0, HELD)",
            "x_ptr + pid * HELD + tl.arange(0, HELD)",
        ),
        Slip("a condition at run time", "if WORK == 0:", "if place == 0:"),
    ],
}
