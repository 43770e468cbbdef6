"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "no scale",
        "tl.sum(q[None, :] * k, axis=1) * scale",
        "tl.sum(q[None, :] * k, axis=1)",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "max not subtracted",
        "tl.exp(scores - tl.max(scores, axis=0))",
        "tl.exp(scores)",
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
    ),
    Mutant(
        "not normalized",
        "weights = weights / tl.sum(weights, axis=0)",
        "weights = weights * 1.0",
        "The weights are not divided by their sum: they do not add up to one.",
    ),
    Mutant(
        "padding gets weight",
        'tl.where(mask_n, scores, float("-inf"))',
        "tl.where(mask_n, scores, 0.0)",
        "Absent keys keep a score of 0 and not -inf: they take part in the softmax.",
    ),
    Mutant(
        "last key dropped",
        "mask_n = offs_n < N",
        "mask_n = offs_n < tl.maximum(N - 1, 1)",
        "The mask of the keys is off by one: the last key and its value never arrive.",
    ),
    Mutant(
        "last column dropped",
        "mask_d = offs_d < D",
        "mask_d = offs_d < D - 1",
        "The mask of the columns is off by one: the last column is neither read nor written.",
    ),
    Mutant(
        "mean of V",
        "weights = tl.exp(scores - tl.max(scores, axis=0))",
        "weights = tl.where(mask_n, 1.0, 0.0)",
        "Every value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "zeros",
        "out.to(out_ptr.dtype.element_ty)",
        "(out * 0.0).to(out_ptr.dtype.element_ty)",
        "The result is all zeros.",
    ),
    Mutant(
        "first head for all",
        "k_tile = k_ptr + b * stride_kb + h * stride_kh",
        "k_tile = k_ptr + b * stride_kb",
        "Every head reads the keys of head 0.",
    ),
    Mutant(
        "first batch for all",
        "v_tile = v_ptr + b * stride_vb + h * stride_vh",
        "v_tile = v_ptr + h * stride_vh",
        "Every batch reads the values of batch 0.",
    ),
    Mutant(
        "strides ignored",
        "offs_d[None, :] * stride_kd",
        "offs_d[None, :]",
        "Columns of k are assumed to lie side by side: a transposed tensor is read wrongly.",
    ),
    Mutant(
        "row stride left out",
        "offs_n[:, None] * stride_vn",
        "offs_n[:, None]",
        "The row number is not multiplied by the row's stride: the tile's rows overlap.",
    ),
    Mutant(
        "keys for values",
        "v = tl.load(v_tile",
        "v = tl.load(k_tile",
        "The second load takes the keys again: the weights mix the wrong rows.",
    ),
    Mutant(
        "values for keys",
        "k = tl.load(k_tile",
        "k = tl.load(v_tile",
        "The first load takes the values already: the queries are compared with the wrong rows.",
    ),
    Mutant(
        "scale 1/D",
        "D**-0.5 if scale",
        "1 / D if scale",
        "The scores are divided by D and not by √D: the softmax is too flat.",
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
        "values not corrected",
        "acc = acc * correction +",
        "acc = acc +",
        "The sum of the values keeps weights relative to an old maximum: they are too large.",
    ),
    Mutant(
        "sum not corrected",
        "total = total * correction +",
        "total = total +",
        "The sum of the exponentials keeps those relative to an old maximum: it is too large.",
    ),
    Mutant(
        "maximum of the block alone",
        "new_largest = tl.maximum(largest, tl.max(scores, axis=0))",
        "new_largest = tl.max(scores, axis=0)",
        "The maximum is that of the last block alone: it may fall, and the correction overflows.",
    ),
    Mutant(
        "last block alone",
        "acc = acc * correction +",
        "acc = acc * 0.0 +",
        "Each block replaces the values collected so far.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_vectorized_attention_kernel": [
        "no scale",
        Slip("sum along the wrong axis", "q[None, :] * k, axis=1", "q[None, :] * k, axis=0"),
        "max not subtracted",
        "padding gets weight",
        Slip("values weighted along the columns", "weights[:, None] * v,", "weights[None, :] * v,"),
        "row stride left out",
        Slip(
            "strides of k swapped",
            "offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd",
            "offs_n[:, None] * stride_kd + offs_d[None, :] * stride_kn",
        ),
        "keys for values",
        Slip(
            "store without its mask",
            "out.to(out_ptr.dtype.element_ty), mask=mask_d)",
            "out.to(out_ptr.dtype.element_ty))",
        ),
        Slip("mask one column too wide", "mask_d = offs_d < D", "mask_d = offs_d <= D"),
    ],
}
