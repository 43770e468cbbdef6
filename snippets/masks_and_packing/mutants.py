"""Wrong variants of kernel.py and backward.py: mistakes people make with masks and packing."""

from snippets._lab.judge.mutants import Mutant

BACKWARD = "backward.py"

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
        '"scale_log2": (D**-0.5 if scale is None else float(scale)) * LOG2_E.value',
        '"scale_log2": LOG2_E.value',
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
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
        "mask off by one",
        "limits = [None if right is None else corner + right, ",
        "limits = [None if right is None else corner + right + 1, ",
        "The causal mask is off by one: a query sees one key of its future.",
    ),
    Mutant(
        "last tile dropped",
        "unmasked_end, end = N, N",
        "unmasked_end, end = N, N // BLOCK_N * BLOCK_N",
        "The keys after the last whole tile never arrive.",
    ),
    Mutant(
        "wrong head of keys",
        "hk = h // G",
        "hk = h % (H // G)",
        "Query heads are dealt to the heads of keys in turn; they belong to them in groups.",
    ),
    Mutant(
        "window off by one",
        "seen = seen & (offs_n[None, :] >= offs_m[:, None] + left_offset)",
        "seen = seen & (offs_n[None, :] > offs_m[:, None] + left_offset)",
        "The window is one key short on its left side.",
    ),
    Mutant(
        "window without a mask",
        "if start >= unmasked_end or start < unmasked_begin:",
        "if start >= unmasked_end:",
        "Tiles that the window's left edge cuts are taken whole.",
    ),
    Mutant(
        "one tile too few",
        "begin = tl.maximum(tile_idx * BLOCK_M + left_offset, 0) // BLOCK_N * BLOCK_N",
        "begin = tl.cdiv(tl.maximum(tile_idx * BLOCK_M + left_offset, 0), BLOCK_N) * BLOCK_N",
        "The tile in which the window of the first query begins is skipped.",
    ),
    Mutant(
        "right side ignored",
        "left, right = (window[0], 0) if causal else window",
        "left, right = (window[0], 0) if causal else (window[0], None)",
        "Only the left side of the window hides keys.",
    ),
    Mutant(
        "window in the other corner",
        'corner = N - M if align == "bottom_right" and not packed else 0',
        'corner = N - M if align == "top_left" and not packed else 0',
        "Queries and keys are aligned at their first rows, and not at their last.",
    ),
    Mutant(
        "sink times scale",
        "m_i = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + h) * LOG2_E / after",
        "m_i = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + h) * scale_log2 / after",
        "The sink is multiplied by the scale of the scores; it is one already.",
    ),
    Mutant(
        "sink of the wrong head",
        "m_i = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + h) * LOG2_E / after",
        "m_i = tl.zeros([BLOCK_M], tl.float32) + tl.load(sinks_ptr + hk) * LOG2_E / after",
        "A group of query heads gets the sink of its head of keys; each has its own.",
    ),
    Mutant(
        "sink not in the sum",
        "l_i += 1.0",
        "l_i += 0.0",
        "The sink moves the maximum but takes no weight.",
    ),
    Mutant(
        "cap after the mask's scale",
        "s = _tanh(s * (scale_log2 / LOG2_E / softcap)) * softcap",
        "s = _tanh(s / softcap) * (softcap * scale_log2 / LOG2_E)",
        "Scores are capped before they are scaled.",
    ),
    Mutant(
        "bias before the scale",
        "unit = LOG2_E if SCALED else scale_log2",
        "unit = scale_log2",
        "The scores are scaled once more, together with the bias that was added to them.",
    ),
    Mutant(
        "bias of the first batch",
        "bias = bias_ptr + b.to(tl.int64) * stride_bb + h.to(tl.int64) * stride_bh",
        "bias = bias_ptr + h.to(tl.int64) * stride_bh",
        "Every batch gets the first one's bias.",
    ),
    Mutant(
        "corner of all sequences",
        "corner = N - M if BOTTOM_RIGHT else 0",
        "corner = 0",
        "In a packed batch the causal mask ignores that a sequence has more keys than queries.",
    ),
    Mutant(
        "boundary off by one",
        "begun = tl.load(cu_q_ptr + at, mask=at < high, other=0) // BLOCK + at <= tile",
        "begun = tl.load(cu_q_ptr + at, mask=at < high, other=0) // BLOCK + at < tile",
        "The first tile of a sequence is taken for one more of the sequence before it.",
    ),
    Mutant(
        "neighbor's keys",
        "N = tl.where(tile * BLOCK < M, tl.maximum(end_k - first_k, 0), 0)",
        "N = tl.where(tile * BLOCK < M, tl.maximum(all_k - first_k, 0), 0)",
        "A sequence sees the keys of all that follow it in the packed batch.",
    ),
    Mutant(
        "keys from the first sequence",
        "first_k = tl.maximum(tl.load(cu_k_ptr + low), 0)",
        "first_k = low * 0",
        "Every packed sequence reads the keys of the first, and all up to its own.",
    ),
    Mutant(
        "packed rows by heads",
        "out_row = (first_q.to(tl.int64) + offs_m) * H + h",
        "out_row = row",
        "The result is written as [heads, rows, D]; packed, it is [rows, heads, D].",
    ),
    Mutant(
        "later heads of a packed batch",
        "pid // size * together + pid % together",
        "pid // size + pid % together",
        "Of packed heads that don't start with the first, some are computed twice, some never.",
    ),
    Mutant(
        "gradients without the window",
        "seen = seen & (offs_n >= offs_m + sizes.left_offset)",
        "seen = seen & (offs_n <= sizes.N)",
        "The backward computes weights for keys that the window hid.",
        BACKWARD,
    ),
    Mutant(
        "queries after the window",
        "end_tile = tl.minimum(tl.cdiv(last_seen, C.BLOCK_M), num_tiles)",
        "end_tile = tl.minimum(last_seen // C.BLOCK_M, num_tiles)",
        "dK and dV miss the last tile of queries whose window reaches their keys.",
        BACKWARD,
    ),
    Mutant(
        "slope of the cap",
        "s, slope = tanh * (sizes.softcap * LOG2_E), 1.0 - tanh * tanh",
        "s, slope = tanh * (sizes.softcap * LOG2_E), 1.0 + tanh * 0.0",
        "The gradient passes the soft cap as if it were not there.",
        BACKWARD,
    ),
    Mutant(
        "sink's gradient turned",
        "return -p.mul_(delta).sum((0, 2))",
        "return p.mul_(delta).sum((0, 2))",
        "The sink's gradient has the wrong sign: its dP is 0, so its dS is minus P times Δ.",
        BACKWARD,
    ),
    Mutant(
        "bias's gradient of one batch",
        "batches, heads, tiles = B if ONE_BATCH else 1,",
        "batches, heads, tiles = 1,",
        "A bias that all batches share gets the gradient of the first alone.",
        BACKWARD,
    ),
    Mutant(
        "logsumexp of another sequence",
        "first_sum = (first_q // sums_block + sequence) * sums_block",
        "first_sum = sequence * 0",
        "Every packed sequence gets the sums of the first one's rows.",
        BACKWARD,
    ),
    Mutant(
        "packed keys that nobody sees",
        "PACKED and first_key + BLOCK_N > N",
        "PACKED and first_key + BLOCK_N < 0",
        "Gradients of packed keys that no query sees are what memory held before.",
        BACKWARD,
    ),
]

PLAYGROUND: dict[str, list[str]] = {
    "kernel.py:_masks_and_packing_kernel": [
        "mean of V",
        "max not subtracted",
        "accumulator not rescaled",
        "window off by one",
        "window without a mask",
        "one tile too few",
        "sink times scale",
        "sink not in the sum",
        "sink of the wrong head",
        "cap after the mask's scale",
    ]
}
