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
        "max not subtracted",
        "tl.exp(scores - largest)",
        "tl.exp(scores)",
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
    ),
    Mutant(
        "not normalized",
        "weights = weights / tl.maximum(tl.sum(weights, axis=0), 1.0)",
        "weights = weights * 1.0",
        "The weights are not divided by their sum: they do not add up to one.",
    ),
    Mutant(
        "padding gets weight",
        'tl.full([BLOCK_N], float("-inf"), tl.float32)',
        "tl.full([BLOCK_N], 0.0, tl.float32)",
        "Unused slots start at 0 and not at -inf: keys that do not exist take part in the softmax.",
    ),
    Mutant(
        "last key dropped",
        "for n in range(N):\n        k = ",
        "for n in range(N - 1):\n        k = ",
        "The loop over the keys ends one early: the last key is never looked at.",
    ),
    Mutant(
        "last value dropped",
        "for n in range(N):\n        v = ",
        "for n in range(N - 1):\n        v = ",
        "The loop over the values ends one early: the last value never arrives.",
    ),
    Mutant(
        "last column dropped",
        "mask_d = offs_d < D",
        "mask_d = offs_d < D - 1",
        "The mask of the columns is off by one: the last column is neither read nor written.",
    ),
    Mutant(
        "mean of V",
        "weight = tl.sum(tl.where(slots == n, weights, 0.0), axis=0)",
        "weight = 1.0 / N",
        "Every value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "zeros",
        "acc.to(out_ptr.dtype.element_ty)",
        "(acc * 0.0).to(out_ptr.dtype.element_ty)",
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
        "v_row = v_ptr + b * stride_vb + h * stride_vh",
        "v_row = v_ptr + h * stride_vh",
        "Every batch reads the values of batch 0.",
    ),
    Mutant(
        "strides ignored",
        "offs_d * stride_kd",
        "offs_d",
        "Columns of k are assumed to lie side by side: a transposed tensor is read wrongly.",
    ),
    Mutant(
        "scale 1/D",
        "D**-0.5 if scale",
        "1 / D if scale",
        "The scores are divided by D and not by √D: the softmax is too flat.",
    ),
    Mutant(
        "keys for values",
        "v_row = v_ptr + b * stride_vb + h * stride_vh",
        "v_row = k_ptr + b * stride_vb + h * stride_vh",
        "The second loop walks over the keys again: the weights mix the wrong rows.",
    ),
    Mutant(
        "wrong base",
        "weights = tl.exp(",
        "weights = tl.exp2(",
        "exp2 is used instead of exp, without log2(e) in the scale: the softmax is too flat.",
    ),
]

# Usual wrong answers to exercise.py: the page names them, as it names MUTANTS of kernel.py.
EXERCISE = [
    Mutant(
        "first query twice",
        "second = tl.where(slots == n, tl.sum(q_second * k, axis=0) * scale, second)",
        "second = tl.where(slots == n, tl.sum(q_first * k, axis=0) * scale, second)",
        "The second row scores the keys with the first query.",
    ),
    Mutant(
        "second row keeps its padding",
        'second = tl.full([BLOCK_N], float("-inf"), tl.float32)',
        "second = tl.full([BLOCK_N], 0.0, tl.float32)",
        "Unused slots of the second row hold 0 and not -inf: keys that do not exist get weight.",
    ),
    Mutant(
        "divided by the other row's sum",
        "second = second / tl.sum(second, axis=0)",
        "second = second / tl.sum(first, axis=0)",
        "The second row is divided by the sum of the first: its weights do not add up to one.",
    ),
    Mutant(
        "weights of the first row",
        "acc_second += tl.sum(tl.where(slots == n, second, 0.0), axis=0) * v",
        "acc_second += tl.sum(tl.where(slots == n, first, 0.0), axis=0) * v",
        "The second row weighs the values as the first row does.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_basic_attention_kernel": [
        "no scale",
        "max not subtracted",
        "not normalized",
        "padding gets weight",
        "last key dropped",
        Slip("load without its mask", "tl.load(k_row, mask=mask_d, other=0.0)", "tl.load(k_row)"),
        Slip("mask without `other`", "stride_qd, mask=mask_d, other=0.0", "stride_qd, mask=mask_d"),
        Slip("k's pointer does not move on", "        k_row += stride_kn", "        k_row += 0"),
        Slip(
            "a slot written as in NumPy",
            "scores = tl.where(slots == n, score, scores)",
            "scores[n] = score",
        ),
        Slip("a range that is no power of two", "tl.arange(0, BLOCK_N)", "tl.arange(0, N)"),
    ],
}
