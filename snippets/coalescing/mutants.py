"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "stride ignored",
        "x_ptr + offs * step",
        "x_ptr + offs",
        "The lanes read side by side: a fast copy, of the wrong elements.",
    ),
    Mutant(
        "tensor's own stride ignored",
        "stride * x.stride(0)",
        "stride",
        "x is assumed to lie without gaps: a view such as x[::2] is read wrongly.",
    ),
    Mutant(
        "last element dropped",
        "mask = offs < n",
        "mask = offs < n - 1",
        "The mask of the copy is off by one: the last element is neither read nor written.",
    ),
    Mutant(
        "rounded down",
        "n = triton.cdiv(x.shape[0], stride)",
        "n = max(1, x.shape[0] // stride)",
        "The length of the result is rounded down: the last element is lost.",
    ),
    Mutant(
        "programs overlap",
        "pid * BLOCK",
        "pid * (BLOCK // 2)",
        "Each program starts half a block too early: the end of the result is never written.",
    ),
    Mutant(
        "every program the first block",
        "offs = pid * BLOCK + ",
        "offs = pid * 0 + ",
        "The program's number is not used: all programs copy the first block.",
    ),
    Mutant(
        "rows and columns swapped",
        "x if dim == 1 else x.T",
        "x.T if dim == 1 else x",
        "dim means the dimension that is added up, not the one that is kept.",
    ),
    Mutant(
        "first line for all",
        "offs = line * stride_line + ",
        "offs = line * 0 + ",
        "Every program adds up line 0.",
    ),
    Mutant(
        "item stride ignored",
        "(start + items) * stride_item",
        "(start + items)",
        "Items of a line are assumed to lie side by side: columns are read as if they were rows.",
    ),
    Mutant(
        "ragged end dropped",
        "for start in range(0, length, BLOCK):",
        "for start in range(0, length // BLOCK * BLOCK, BLOCK):",
        "Only whole blocks are added: the rest of the line is missing.",
    ),
    Mutant(
        "first block only",
        "acc += x.to(tl.float32)",
        "acc += tl.where(start == 0, x.to(tl.float32), 0.0)",
        "The blocks after the first are loaded and not added.",
    ),
    Mutant(
        "last block alone",
        "acc += x.to(tl.float32)",
        "acc = x.to(tl.float32)",
        "Each block replaces the sums so far: only the last block is left.",
    ),
    Mutant(
        "one item too many",
        "mask=start + items < length",
        "mask=start + items < length + 1",
        "The mask lets in the first item of what comes after the line.",
    ),
    Mutant(
        "switched-off lanes count", "other=0.0", "other=1.0", "Lanes without an item add a one."
    ),
    Mutant(
        "summed in float16",
        "acc += x.to(tl.float32)",
        "acc = (acc + x.to(tl.float32)).to(tl.float16).to(tl.float32)",
        "The running sums are rounded to float16 after each addition: the error grows with length.",
    ),
    Mutant(
        "mean, not sum",
        "total = tl.sum(acc, axis=0)",
        "total = tl.sum(acc, axis=0) / length",
        "The sums are divided by their length.",
    ),
]

# Usual wrong answers to exercise.py: the page names them, as it names MUTANTS of kernel.py.
EXERCISE = [
    Mutant(
        "strides exchanged",
        "offs = offs_m[:, None] * stride_m + offs_n[None, :] * stride_n",
        "offs = offs_m[:, None] * stride_n + offs_n[None, :] * stride_m",
        "The strides of rows and columns are exchanged: the matrix is read transposed.",
    ),
    Mutant(
        "last tile only",
        "acc += tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)",
        "acc = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)",
        "Each tile replaces the sums so far: only the last tile is left.",
    ),
    Mutant(
        "first rows in every tile",
        "offs = offs_m[:, None] * stride_m",
        "offs = (offs_m - start)[:, None] * stride_m",
        "The addresses do not move on with `start`: every iteration reads the first rows.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_coalescing_kernel": [
        "stride ignored",
        Slip("the step on the result too", "out_ptr + offs, x", "out_ptr + offs * step, x"),
        "last element dropped",
        Slip("mask one element too wide", "mask = offs < n", "mask = offs <= n"),
        Slip("load without its mask", "x_ptr + offs * step, mask=mask", "x_ptr + offs * step"),
        Slip("store without its mask", "out_ptr + offs, x, mask=mask", "out_ptr + offs, x"),
        "programs overlap",
        "every program the first block",
        Slip("a range of n", "tl.arange(0, BLOCK)", "tl.arange(0, n)"),
        Slip(
            "a pointer that is indexed",
            "x = tl.load(x_ptr + offs * step, mask=mask)",
            "x = x_ptr[offs * step]",
        ),
    ],
    "kernel.py:_line_sums_kernel": [
        "first line for all",
        "item stride ignored",
        "ragged end dropped",
        "one item too many",
        Slip("mask without `other`", "start + items < length, other=0.0", "start + items < length"),
        Slip("start of the block left out of the mask", "start + items < length", "items < length"),
        "last block alone",
        Slip("a sum without its axis", "tl.sum(acc, axis=0)", "tl.sum(acc, axis=1)"),
        Slip("a block stored instead of its sum", "total.to", "acc.to"),
        "mean, not sum",
    ],
}
