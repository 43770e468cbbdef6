"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "zeros", "out = acc * (1.0 / l_i)[:, None]", "out = acc * 0.0", "The result is all zeros."
    ),
    Mutant(
        "mean of V",
        "p = tl.exp2((s * before - m_sub[:, None]) * after)",
        "p = tl.where(s > float('-inf'), 1.0, 0.0)",
        "Every visible value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "no scale",
        "scale * LOG2_E.value",
        "LOG2_E.value",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "wrong base",
        "scale * LOG2_E.value",
        "scale",
        "exp2 without log2(e) in the scale: the softmax is too flat.",
    ),
    Mutant(
        "max not subtracted",
        "m_new = tl.maximum(m_i, tl.max(s, axis=1) * before)",
        "m_new = tl.zeros_like(m_i)",
        "The softmax does not subtract the largest score: exp2 overflows and the row becomes NaN.",
    ),
    Mutant(
        "accumulator not rescaled",
        "acc = acc * alpha[:, None]",
        "acc = acc * 1.0",
        "When the maximum moves, what was summed before keeps its old, too large, weight.",
    ),
    Mutant(
        "sum not rescaled",
        "l_i = l_i * alpha + row_sum",
        "l_i = l_i + row_sum",
        "When the maximum moves, the sum of the weights keeps its old scale.",
    ),
    Mutant(
        "maximum not kept",
        "m_i = m_new",
        "m_i = tl.max(s, axis=1) * before",
        "The maximum of the last tile replaces the maximum so far.",
    ),
    Mutant(
        "last key dropped",
        "s = tl.where(offs_n[None, :] <= last_key[:, None]",
        "s = tl.where(offs_n[None, :] < last_key[:, None]",
        "The mask is off by one: a query does not see the last key it should see.",
    ),
    Mutant(
        "key beyond the end",
        "tl.arange(0, BLOCK_N) < N - unmasked_end",
        "tl.arange(0, BLOCK_N) <= N - unmasked_end",
        "The last tile counts one key that does not exist: zeros, with the weight of a score of 0.",
    ),
    Mutant(
        "mask off by one",
        "last_key = tl.minimum(last_key, offs_m + causal_offset)",
        "last_key = tl.minimum(last_key, offs_m + causal_offset + 1)",
        "The causal mask is off by one: a query sees one key of its future.",
    ),
    Mutant(
        "other corner",
        'N - M if align == "bottom_right" else 0',
        'N - M if align == "top_left" else 0',
        "The triangle of the causal mask sits in the other corner.",
    ),
    Mutant(
        "last tile dropped",
        "unmasked_end, end = N, N",
        "unmasked_end, end = N, N // BLOCK_N * BLOCK_N",
        "The keys after the last whole tile never arrive.",
    ),
    Mutant(
        "diagonal without a mask",
        "unmasked_end = unmasked_end // BLOCK_N * BLOCK_N",
        "unmasked_end = tl.cdiv(unmasked_end, BLOCK_N) * BLOCK_N",
        "The tile that the last visible key cuts is taken whole: queries see their future.",
    ),
    Mutant(
        "wrong head of keys",
        "hk = h // G",
        "hk = h % (H // G)",
        "Query heads are dealt to the heads of keys in turn; they belong to them in groups.",
    ),
    Mutant(
        "hidden rows become NaN",
        'm_sub = tl.where(m_new == float("-inf"), 0.0, m_new)',
        "m_sub = m_new",
        "A row that has seen no key subtracts -inf from -inf.",
    ),
    Mutant(
        "rows packed",
        "offs_row[:, None] * stride_row",
        "offs_row[:, None] * D",
        "Rows are assumed to lie one after the other: a view of a wider tensor is read wrongly.",
    ),
    Mutant(
        "keys for values",
        "v, b, hk, start, N, stride_vn",
        "k, b, hk, start, N, stride_kn",
        "The weights are summed over the keys again and not over the values.",
    ),
    Mutant(
        "logsumexp in base 2",
        "(m_i * after + tl.log2(l_i)) / LOG2_E",
        "(m_i * after + tl.log2(l_i))",
        "The logsumexp stays a logarithm of base 2.",
    ),
    Mutant(
        "huge scores scaled first",
        "q.dtype == torch.float32 or scale > 1",
        "q.dtype == torch.float32",
        "A multiply-add subtracts a maximum that was rounded: huge scores end in NaN or zeros.",
    ),
    Mutant(
        "correction not scaled",
        "alpha = tl.exp2((m_i - m_sub) * after)",
        "alpha = tl.exp2(m_i - m_sub)",
        "What was summed before is corrected by a power of the difference without its scale.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_flash_attention_kernel": [
        Slip("keys not transposed", "tl.dot(q_tile, k_tile.T, ", "tl.dot(q_tile, k_tile, "),
        "correction not scaled",
        Slip("exp in place of exp2", "p = tl.exp2(", "p = tl.exp("),
        "accumulator not rescaled",
        "sum not rescaled",
        Slip("maximum not carried on", "        m_i = m_new\n", "        m_i = m_i\n"),
        Slip("accumulator not passed on", "rounded, v_tile, acc, ", "rounded, v_tile, "),
        "mask off by one",
        Slip("a head of keys for each head of queries", "hk = h // G", "hk = h"),
        Slip("ragged end not masked", "elif MASKED and start >=", "elif CAUSAL and start >="),
    ]
}
