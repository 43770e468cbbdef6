"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "no scale",
        "score = tl.sum(q * k, axis=0) * scale",
        "score = tl.sum(q * k, axis=0)",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "scale 1/D",
        "D**-0.5 if scale",
        "1 / D if scale",
        "The scores are divided by D and not by √D: the softmax is too flat.",
    ),
    Mutant(
        "max not subtracted",
        "tl.exp(scores - largest)",
        "tl.exp(scores)",
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
    ),
    Mutant(
        "not normalized",
        "weights = weights / tl.where(total == 0.0, 1.0, total)",
        "weights = weights * 1.0",
        "The weights are not divided by their sum: they do not add up to one.",
    ),
    Mutant(
        "hidden row gives NaN",
        "tl.where(total == 0.0, 1.0, total)",
        "total",
        "A query that sees no key divides 0 by 0: its row is NaN and not zeros.",
    ),
    Mutant(
        "hidden row subtracts infinity",
        'tl.where(largest == float("-inf"), 0.0, largest)',
        "largest",
        "A query that sees no key subtracts -inf from -inf: its row is NaN and not zeros.",
    ),
    Mutant(
        "padding gets weight",
        'tl.full([BLOCK_N], float("-inf"), tl.float32)',
        "tl.full([BLOCK_N], 0.0, tl.float32)",
        "Keys that are not seen start at score 0 and not at -inf: they take part in the softmax.",
    ),
    Mutant(
        "mask off by one",
        "tl.minimum(first_sees + m, N)",
        "tl.minimum(first_sees + m + 1, N)",
        "Every query sees one key of the future.",
    ),
    Mutant(
        "own key hidden",
        "tl.minimum(first_sees + m, N)",
        "tl.minimum(first_sees + m - 1, N)",
        "No query sees the key at its own place; without a mask, query 0 misses the last key.",
    ),
    Mutant(
        "future, not past",
        "for n in range(visible):",
        "start = tl.maximum(visible, 0) % N\n"
        "    k_row += start * stride_kn\n"
        "    for n in range(start, N):",
        "The mask points the other way: a query sees the keys after its place.",
    ),
    Mutant(
        "corners swapped",
        '1 if align == "top_left" else 1 + N - M',
        '1 + N - M if align == "top_left" else 1',
        "The mask is aligned with the other corner: only M = N hides the mistake.",
    ),
    Mutant(
        "last key dropped",
        "for n in range(visible):",
        "for n in range(visible - 1):",
        "The loop over the keys ends one early: the last visible key is never looked at.",
    ),
    Mutant(
        "last column dropped",
        "mask_d = offs_d < D",
        "mask_d = offs_d < D - 1",
        "The mask of the columns is off by one: the last column of q and k is not read.",
    ),
    Mutant(
        "equal weights",
        "weights = tl.exp(scores - largest)",
        "weights = tl.where(slots < visible, 1.0, 0.0)",
        "Every visible key gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "zeros",
        "weights.to(out_ptr.dtype.element_ty)",
        "(weights * 0.0).to(out_ptr.dtype.element_ty)",
        "The result is all zeros.",
    ),
    Mutant(
        "first head for all",
        "k_row = k_ptr + b * stride_kb + h * stride_kh",
        "k_row = k_ptr + b * stride_kb",
        "Every head reads the keys of head 0.",
    ),
    Mutant(
        "first batch for all",
        "q_row = q_ptr + b * stride_qb + h * stride_qh",
        "q_row = q_ptr + h * stride_qh",
        "Every batch reads the queries of batch 0.",
    ),
    Mutant(
        "strides ignored",
        "offs_d * stride_kd",
        "offs_d",
        "Columns of k are assumed to lie side by side: a transposed tensor is read wrongly.",
    ),
    Mutant(
        "wrong base",
        "weights = tl.exp(",
        "weights = tl.exp2(",
        "exp2 is used instead of exp, without log2(e) in the scale: the softmax is too flat.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_attention_weights_kernel": [
        "no scale",
        "max not subtracted",
        "not normalized",
        "hidden row gives NaN",
        "mask off by one",
        "own key hidden",
        "padding gets weight",
        Slip("store without its mask", "weights, mask=slots < N)", "weights)"),
        "first head for all",
        Slip("a misspelled function", "tl.exp(scores", "tl.expo(scores"),
    ],
}
