"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant

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
