"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "block coordinates not swapped",
        "out += offs_n[:, None] * stride_on + offs_m[None, :] * stride_om\n"
        "    tl.store(out, tl.trans(x), mask=mask_n[:, None] & mask_m[None, :])",
        "out += offs_m[:, None] * stride_on + offs_n[None, :] * stride_om\n"
        "    tl.store(out, tl.trans(x), mask=(offs_m < N)[:, None] & (offs_n < M)[None, :])",
        "Each tile is transposed but stored where it came from, not at its mirror place.",
    ),
    Mutant(
        "tile not transposed",
        "tl.store(out, tl.trans(x), mask=",
        "tl.store(out, x, mask=",
        "The tile lands at its mirror place, but its inside is not transposed.",
    ),
    Mutant(
        "mask along K off by one",
        "mask_k = (offs_k < K - k) | EVEN_K",
        "mask_k = (offs_k < K - k + 1) | EVEN_K",
        "The last step along K reads beyond the row: a foreign product joins the sum.",
    ),
    Mutant(
        "accumulator starts anew",
        "acc = tl.dot(a, b, acc, ",
        "acc = tl.dot(a, b, ",
        "Each step along K replaces the sum: only the last step is left.",
    ),
    Mutant(
        "a's tile stands still",
        "a_tile += tl.cast(stride_ak, tl.int64) * BLOCK_K",
        "a_tile += tl.cast(stride_ak, tl.int64) * 0",
        "The addresses of a do not move on: each step along K multiplies its first columns again.",
    ),
    Mutant(
        "last step dropped",
        "for k in range(0, K, BLOCK_K):",
        "for k in range(0, K - BLOCK_K + 1, BLOCK_K):",
        "The loop along K ends before its last, partly filled step.",
    ),
    Mutant(
        "group taken for full",
        "height = tl.minimum(tiles_m - first, GROUP_M)",
        "height = GROUP_M",
        "The last group of tile rows may be lower: some tiles are never computed.",
    ),
    Mutant(
        "bfloat16 not raised",
        "UPCAST=INTERPRETED and a.dtype == torch.bfloat16",
        "UPCAST=False",
        "The interpreter keeps bfloat16 as integers, and its products are wrong by far.",
    ),
    Mutant(
        "no scale",
        "acc = acc * scale",
        "acc = acc * 1.0",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "max not subtracted",
        "tl.exp(x - largest)",
        "tl.exp(x)",
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
    ),
    Mutant(
        "padding gets weight",
        'other=float("-inf")',
        "other=0.0",
        "Unused slots hold 0 and not -inf: numbers that do not exist take part in the softmax.",
    ),
    Mutant(
        "not normalized",
        "weights = weights / tl.where(total == 0.0, 1.0, total)",
        "weights = weights * 1.0",
        "The weights are not divided by their sum: they do not add up to one.",
    ),
    Mutant(
        "softmax left out",
        "_run_softmax(scores, weights)",
        "weights.copy_(scores)",
        "The values are mixed with the scores themselves.",
    ),
    Mutant(
        "mean of V",
        "_run_matmul(weights, v, out)",
        "_run_matmul(weights.fill_(1.0 / N), v, out)",
        "Every value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "zeros",
        "_run_matmul(weights, v, out)",
        "_run_matmul(weights, v, out, 0.0)",
        "The result is all zeros.",
    ),
    Mutant(
        "scale 1/D",
        "D**-0.5 if scale",
        "1 / D if scale",
        "The scores are divided by D and not by √D: the softmax is too flat.",
    ),
    Mutant(
        "one head for all",
        "+ (index % H).to(tl.int64) * stride_h",
        "+ (index % H).to(tl.int64) * 0",
        "Every head reads and writes the matrix of head 0.",
    ),
    Mutant(
        "one batch for all",
        "(index // H).to(tl.int64) * stride_b",
        "(index // H).to(tl.int64) * 0",
        "Every batch reads and writes the matrices of batch 0.",
    ),
    Mutant(
        "strides ignored",
        "offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn",
        "offs_k[:, None] * N + offs_n[None, :]",
        "The right factor is assumed to lie row after row: another layout is read wrongly.",
    ),
    Mutant(
        "keys not transposed",
        "_run_transpose(k, k_t)",
        "k_t.copy_(k.reshape(k_t.shape))",
        "The numbers of k are only given the shape of its transpose: rows and columns mix.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_transpose_kernel": [
        "tile not transposed",
        Slip(
            "strides of the result swapped",
            "offs_n[:, None] * stride_on + offs_m[None, :] * stride_om",
            "offs_n[:, None] * stride_om + offs_m[None, :] * stride_on",
        ),
        Slip(
            "columns not broadcast",
            "offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn",
            "offs_m * stride_xm + offs_n * stride_xn",
        ),
        Slip("masks of the result swapped", "mask_n[:, None] & mask_m", "mask_m[:, None] & mask_n"),
        Slip("rows and columns of tiles swapped", "tile // tiles_n", "tile % tiles_n"),
        Slip("half of the mask left out", "mask_m[:, None] & mask_n[None, :]", "mask_m[:, None]"),
        Slip("load without its mask", "x, mask=mask_m[:, None] & mask_n[None, :]", "x"),
        Slip("store without its mask", "(x), mask=mask_n[:, None] & mask_m[None, :]", "(x)"),
        "one head for all",
        Slip("rows packed", "offs_m[:, None] * stride_xm", "offs_m[:, None] * N"),
    ],
    "kernel.py:_matmul_kernel": [
        "accumulator starts anew",
        Slip("mask along K left out", "mask_m[:, None] & mask_k[None, :],", "mask_m[:, None],"),
        Slip("mask along K does not move on", "mask_k = (offs_k < K - k)", "mask_k = (offs_k < K)"),
        "a's tile stands still",
        Slip("b moves along its columns", "stride_bk, tl.int64", "stride_bn, tl.int64"),
        Slip("factors in the wrong order", "tl.dot(a, b, acc, ", "tl.dot(b, a, acc, "),
        Slip(
            "an elementwise product",
            'acc = tl.dot(a, b, acc, input_precision="ieee")',
            "acc += a * b",
        ),
        "no scale",
        "last step dropped",
        Slip(
            "strides of the result swapped",
            "out += offs_m[:, None] * stride_om + offs_n[None, :] * stride_on",
            "out += offs_m[:, None] * stride_on + offs_n[None, :] * stride_om",
        ),
    ],
    "kernel.py:_softmax_kernel": [
        "max not subtracted",
        "not normalized",
        "padding gets weight",
        Slip("mask without `other`", 'mask=mask_n, other=float("-inf"))', "mask=mask_n)"),
        Slip("load without its mask", 'tl.load(x, mask=mask_n, other=float("-inf"))', "tl.load(x)"),
        Slip("exponential of the wrong base", "tl.exp(x", "tl.exp2(x"),
        Slip("each program takes the first row", "m * stride_xm + offs_n *", "offs_n *"),
        Slip("scores stored instead of weights", "tl.store(out, weights", "tl.store(out, x"),
        Slip("sum before the exponential", "tl.sum(weights, axis=0)", "tl.sum(x, axis=0)"),
        Slip("a module that kernels do not have", "tl.exp(x", "math.exp(x"),
    ],
}
