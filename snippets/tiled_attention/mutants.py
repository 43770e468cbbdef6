"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "zeros",
        "out.to(out_ptr.dtype.element_ty)",
        "(out * 0.0).to(out_ptr.dtype.element_ty)",
        "The result is all zeros.",
    ),
    Mutant(
        "mean of V",
        "p = tl.exp(scores - m_sub[:, None])",
        "p = tl.where(visible, 1.0, tl.zeros([BLOCK_M, BLOCK_N], tl.float32))",
        "Every visible value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "no scale",
        "q = q * scale",
        "q = q * 1.0",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "acc not rescaled",
        "        acc = acc * alpha[:, None]\n",
        "",
        "When the maximum moves, the values collected so far keep their old, too large weights.",
    ),
    Mutant(
        "sum not rescaled",
        "l_i = l_i * alpha + tl.sum(p, axis=1)",
        "l_i = l_i + tl.sum(p, axis=1)",
        "When the maximum moves, the sum keeps exponentials of the old one: it is too large.",
    ),
    Mutant(
        "rescaled the wrong way",
        "alpha = tl.exp(m_i - m_sub)",
        "alpha = tl.where(m_i > float('-inf'), tl.exp(m_sub - m_i), 0.0)",
        "The factor is upside down: exp(new - old) instead of exp(old - new).",
    ),
    Mutant(
        "max not subtracted",
        'm_sub = tl.where(m_new == float("-inf"), 0.0, m_new)',
        'm_sub = tl.where(m_new == float("-inf"), 0.0, m_new * 0.0)',
        "No maximum is subtracted: exp overflows at large scores, and the row becomes NaN.",
    ),
    Mutant(
        "max not updated",
        "m_i = m_new",
        "m_i = tl.maximum(m_i, tl.where(start == 0, m_new, m_i))",
        "The maximum that is kept stays the first tile's: later factors are relative to another.",
    ),
    Mutant(
        "max of the tile alone",
        "m_new = tl.maximum(m_i, tl.max(scores, axis=1))",
        "m_new = tl.max(scores, axis=1)",
        "The maximum is that of the last tile alone: it may fall, and exp(old - new) overflows.",
    ),
    Mutant(
        "last tile dropped",
        "stop = N",
        "stop = tl.maximum(N - BLOCK_N, 1)",
        "The loop ends one tile too early: the last keys are never seen.",
    ),
    Mutant(
        "padding gets weight",
        "visible = mask_n[None, :]",
        "visible = (offs_n >= 0)[None, :]",
        "Keys past the end have a score of 0 and not -inf: they take part in the softmax.",
    ),
    Mutant(
        "mask off by one",
        "offs_n[None, :] <= offs_m[:, None] + N - M",
        "offs_n[None, :] <= offs_m[:, None] + N - M + 1",
        "The causal mask is off by one: every query sees one key of its future.",
    ),
    Mutant(
        "diagonal hidden",
        "offs_n[None, :] <= offs_m[:, None] + N - M",
        "offs_n[None, :] < offs_m[:, None] + N - M",
        "A query does not see the key of its own position.",
    ),
    Mutant(
        "other corner",
        "offs_n[None, :] <= offs_m[:, None] + N - M",
        "offs_n[None, :] <= offs_m[:, None]",
        "The mask is aligned to the top left: with M ≠ N the wrong keys are hidden.",
    ),
    Mutant(
        "causal tile skipped too early",
        "stop = tl.minimum(N, first + BLOCK_M + N - M)",
        "stop = tl.minimum(N, first + BLOCK_M + N - M - BLOCK_N)",
        "The loop stops before the tile on the diagonal: the newest keys are missing.",
    ),
    Mutant(
        "no guard for hidden rows",
        "tl.where(l_i == 0.0, 1.0, l_i)[:, None]",
        "l_i[:, None]",
        "A row without a visible key is 0 / 0: NaN where zeros belong.",
    ),
    Mutant(
        "hidden NaN gets in",
        "tl.where(seen, weights * values, 0.0)",
        "tl.where(seen, weights * values, weights * values)",
        "A hidden value has weight 0, but 0 · NaN is NaN: it reaches rows that do not see it.",
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
        "column strides ignored",
        "offs_d[:, None] * stride_kd",
        "offs_d[:, None]",
        "Columns of k are assumed to lie side by side: a transposed tensor is read wrongly.",
    ),
    Mutant(
        "wrong base",
        "p = tl.exp(scores",
        "p = tl.exp2(scores",
        "exp2 is used instead of exp, and the correction still uses exp: the tiles do not match.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_tiled_attention_kernel": [
        "no scale",
        "acc not rescaled",
        "sum not rescaled",
        "max of the tile alone",
        Slip("alpha the wrong way round", "tl.exp(m_i - m_sub)", "tl.exp(m_sub - m_i)"),
        Slip(
            "guard for rows without a key left out",
            'm_sub = tl.where(m_new == float("-inf"), 0.0, m_new)',
            "m_sub = m_new",
        ),
        "padding gets weight",
        "other corner",
        "diagonal hidden",
        Slip("a vector where a column belongs", "acc = acc * alpha[:, None]", "acc = acc * alpha"),
    ],
}
