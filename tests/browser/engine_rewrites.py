"""Rewrites of kernels that stay right: the engine must not call one of them wrong."""

# Room → (old, new), ten each; each replaces every occurrence.
_OF_ROWS = [  # of the kernels with a program for each query
    ("tl.program_id(0)", "tl.program_id(axis=0)"),
    ("tl.exp(", "tl.math.exp("),
    ("tl.sum(weights, axis=0)", "weights.sum(0)"),
    ("mask_d = offs_d < D", "mask_d = D > offs_d"),
    (".to(tl.float32)", ".cast(tl.float32)"),
    ('float("-inf")', '-float("inf")'),
    ("b = (pid // M // H).to(tl.int64)", "b = tl.cast(pid // (M * H), tl.int64)"),
    ("tl.max(scores, axis=0)", "scores.max(0)"),
    (
        "q_row = q_ptr + b * stride_qb + h * stride_qh",
        "q_row = h * stride_qh + (b * stride_qb + q_ptr)",
    ),
]
REWRITES = {
    "basic_attention": [
        *_OF_ROWS,
        ("tl.where(slots == n, score, scores)", "tl.where(slots != n, scores, score)"),
    ],
    "vectorized_attention": [
        *_OF_ROWS,
        ("weights[:, None] * v", "tl.expand_dims(weights, 1) * v"),
    ],
    "attention_weights": [
        *_OF_ROWS,
        ("for n in range(visible):", "for n in tl.range(0, visible, 1):"),
    ],
    "tiled_attention": [
        ("tl.cdiv(M, BLOCK_M)", "(M + BLOCK_M - 1) // BLOCK_M"),
        ("acc = acc * alpha[:, None]", "acc *= tl.expand_dims(alpha, 1)"),
        ("tl.exp(", "tl.math.exp("),
        (
            "p = tl.exp(scores - m_sub[:, None])",
            "p = tl.exp2((scores - m_sub[:, None]) * 1.4426950408889634)",
        ),
        ("tl.trans(p)[:, :, None]", "p.T[:, :, None]"),
        ("tl.trans(p)[:, :, None]", "tl.permute(p, (1, 0))[:, :, None]"),
        (
            "tl.maximum(m_i, tl.max(scores, axis=1))",
            "tl.where(m_i > scores.max(1), m_i, scores.max(1))",
        ),
        ("q = q * scale", "q = scale * q"),
        ("l_i = l_i * alpha + tl.sum(p, axis=1)", "l_i = tl.fma(l_i, alpha, p.sum(1))"),
        ("if CAUSAL:", "if CAUSAL == True:"),
    ],
    "flash_attention": [
        ("tl.cdiv(M, BLOCK_M)", "(M + BLOCK_M - 1) // BLOCK_M"),
        ("acc = acc * alpha[:, None]", "acc = alpha[:, None] * acc"),
        ("tl.exp2(", "tl.math.exp2("),
        ("k_tile.T", "tl.trans(k_tile)"),
        ("acc = tl.dot(rounded, v_tile, acc, ", "acc += tl.dot(rounded, v_tile, "),
        ("1.0 / l_i)[:, None]", "1.0 / l_i).expand_dims(1)"),
        (
            "b, h = pid // num_tiles // H, pid // num_tiles % H",
            "h = pid // num_tiles % H\n    b = pid // num_tiles // H",
        ),
        (
            "m_new = tl.maximum(m_i, tl.max(s, axis=1) * before)",
            "m_new = tl.max(s, axis=1) * before\n        m_new = tl.maximum(m_new, m_i)",
        ),
        ("l_i = l_i * alpha + row_sum", "l_i = tl.fma(l_i, alpha, row_sum)"),
        ("tl.where(l_i == 0.0, 1.0, l_i)", "tl.where(l_i != 0.0, l_i, 1.0)"),
    ],
    "composed_attention": [
        ("tl.max(x, axis=0)", "x.max(0)"),
        (
            "weights / tl.where(total == 0.0, 1.0, total)",
            "weights * (1.0 / tl.maximum(total, 1.0))",
        ),
        ("tl.trans(x)", "x.T"),
        ("acc = tl.dot(a, b, acc, ", "acc += tl.dot(a, b, "),
        ("acc = acc * scale", "acc *= scale"),
        ("(offs_k < K - k) | EVEN_K", "(offs_k + k < K) | EVEN_K"),
        ("tl.minimum(tiles_m - first, GROUP_M)", "tl.minimum(GROUP_M, tiles_m - first)"),
        ("tl.program_id(0)", "tl.program_id(axis=0)"),
        ("tl.cast(stride_ak, tl.int64) * BLOCK_K", "stride_ak * tl.cast(BLOCK_K, tl.int64)"),
        ("for k in range(0, K, BLOCK_K):", "for k in tl.range(0, K, BLOCK_K, num_stages=2):"),
    ],
}
