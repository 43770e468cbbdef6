"""Edits of kernels, most of them bad; of each Triton's own front end says whether it is."""

# Room → a piece of its kernel → what a reader may write in its place.
EDITS = {
    "basic_attention": {
        "mask_d = offs_d < D": [
            "mask_d = offs_d < DD",
        ],
        "tl.exp(scores": [
            "tl.expp(scores",
        ],
        "tl.arange(0, BLOCK_N)": [
            "tl.arange(0, N)",
            "tl.arange(0, 12)",
            "tl.arange(4, 4)",
        ],
        "slots = tl.arange(0, BLOCK_N)": [
            "slots = tl.arange(0, 2 * BLOCK_N)",
        ],
        "tl.zeros([BLOCK_D], tl.float32)": [
            "tl.zeros([D], tl.float32)",
            "tl.zeros([BLOCK_D], tl.float16)",
            "tl.zeros([BLOCK_D])",
            "tl.zeros([24], tl.float32)",
        ],
        "acc = tl.zeros([BLOCK_D], tl.float32)": [
            "acc = 0",
            "acc = 0.0",
        ],
        "for n in range(N):\n        k": [
            "for n in range(1.5):\n        k",
            "for n in slots:\n        k",
            "while True:\n        k",
            "for n in tl.static_range(N):\n        k",
        ],
        "score = tl.sum(q * k, axis=0) * scale": [
            "score = tl.sum(q * k, axis=1) * scale",
            "score = q * k * scale",
            "score = tl.dot(q, k) * scale",
            "score = (q @ k) * scale",
            "score = tl.sum(q * k, axes=0) * scale",
            "scores[n] = tl.sum(q * k, axis=0) * scale",
        ],
        "q = tl.load(q_row + offs_d * stride_qd, mask=mask_d, other=0.0)": [
            "q = tl.load(q_row + offs_d * stride_qd, other=0.0)",
            "q = tl.load(offs_d * stride_qd, mask=mask_d, other=0.0)",
            "q = tl.load(q_row, mask=mask_d, other=0.0)",
            "q = q_row[offs_d]",
        ],
        "q_row = q_ptr + b * stride_qb": [
            "q_row = q_ptr + q_ptr + b * stride_qb",
            "q_row = q_ptr * 2 + b * stride_qb",
            "q_row = q_ptr + 0.5 + b * stride_qb",
            "q_row = q_ptr + scale + b * stride_qb",
        ],
        "tl.store(out_row + offs_d * stride_od, acc.to(out_ptr.dtype.element_ty), mask=mask_d)": [
            "tl.store(out_row, acc, mask=mask_d)",
            "tl.store(out_row + offs_d * stride_od, acc, mask=offs_d)",
            "tl.store(out_row + offs_d, acc[None, :], mask=mask_d)",
            "out_row[offs_d] = acc",
            "return acc",
        ],
        "acc.to(out_ptr.dtype.element_ty)": [
            "acc.to(tl.float8)",
            "acc.to(float)",
            "acc.astype(tl.float32)",
        ],
        "weights = tl.exp(scores - largest)": [
            "weights = tl.exp(slots)",
            "weights = tl.exp(scores - max(scores))",
            "weights = math.exp(scores)",
            "weights = scores ** 2",
            "weights = scores // 2",
            "weights = ~scores",
            "weights = scores & 1",
            "weights = not scores",
            "weights = scores if N > 3 else 0.0",
            "weights = tl.where(slots < N, scores)",
            "weights = scores[0]",
            "weights = scores[:4]",
            "weights = scores.exp(",
            "weights = softmax(scores)",
            "import math",
            "weights = [x for x in scores]",
            "weights = lambda x: x",
            "weights = f'{N}'",
            "weights = {}",
            "weights, = scores",
            "weights = 'x'",
            "weights = INTERPRETED * scores",
            "if N > 3:\n        weights = scores\n    else:\n        weights = slots",
            "if N > 3:\n        weights = scores",
            "if slots > 3:\n        weights = scores\n    else:\n        weights = scores * 2",
            "if 1 < N < 3:\n        weights = scores",
            "weights = scores\n    for i in range(3):\n        break",
            "weights = scores\n    for i in range(3):\n        weights = weights[None, :]",
            "weights = scores\n    try:\n        pass\n    finally:\n        pass",
            "weights = scores\n    BLOCK_N = 3\n    weights = tl.zeros([BLOCK_N], tl.float32)",
            "weights = scores + pid_m",
            "weights = tl.exp(scores - tl.max(scores, axis=2))",
            "weights = scores + q",
            "weights = scores + tl.arange(0, 64)",
            "weights = scores.reshape(3)",
            "weights = tl.reshape(scores, [BLOCK_N, 2])",
            "weights = scores.T",
            "weights = tl.trans(scores)",
            "weights = tl.broadcast_to(scores, [4])",
            "return\n    weights = scores",
            "if N > 3:\n        return\n    weights = scores",
            "assert N > 3\n    weights = scores",
            "weights = scores\n    def f(x):\n        return x",
            "tl.static_assert(BLOCK_N == 3)\n    weights = scores",
            "weights: tl.constexpr = scores",
            "weights = tl.exp(scores.to(tl.float16))",
        ],
        "pid = tl.program_id(0)": [
            "pid = tl.program_id(3)",
            "pid = tl.program_id(N)",
            "pid = tl.program_id()",
            "pid = program_id(0)",
        ],
        "pid % M": [
            "pid % M % 0.5",
        ],
        "(pid % M).to(tl.int64)": [
            "int(pid % M)",
        ],
        "n in range(N):\n        v": [
            "n in range(N)\n        v",
        ],
        "slots = tl.arange": [
            "  slots = tl.arange",
        ],
        "acc += weight * v": [
            "acc += weight * * v",
            "acc =+ weight * v",
            "acc + weight * v",
            "acc += weight v",
            "acc -= weight * v",
            "acc += (weight * v",
            "acc @= weight",
            "acc = tl.fma(weight, v, acc)",
            "acc = acc.to(tl.float16) + weight * v",
            "acc = (acc + weight * v).to(tl.float16)",
        ],
        "BLOCK_N: tl.constexpr": [
            "BLOCK_N",
        ],
    },
    "tiled_attention": {
        "m_new = tl.maximum(m_i, tl.max(scores, axis=1))": [
            "m_new = tl.maximum(m_i, tl.max(scores, axis=1)[:, None])",
            "m_new = tl.maximum(m_i[:, None], tl.max(scores, axis=1)[None, :])",
        ],
        "p = tl.exp(scores - m_sub[:, None])": [
            "p = tl.exp(scores - m_sub)",
            "p = tl.exp(scores - m_sub[:, None, None])",
        ],
        "l_i = l_i * alpha + tl.sum(p, axis=1)": [
            "l_i = l_i * alpha + tl.sum(p)",
            "l_i = l_i * alpha + tl.sum(p, axis=0)",
        ],
        "acc = acc * alpha[:, None]": [
            "acc = acc * alpha",
            "acc = acc * alpha[None, :]",
        ],
        "stop = N ": [
            "stop = N * 1.0 ",
        ],
        "if CAUSAL:\n        stop": [
            "if CAUSAL == 1.5:\n        stop",
            "if tl.program_id(0) > 3:\n        stop",
        ],
        "stop = tl.minimum(N, first + BLOCK_M + N - M)": [
            "stop = N * 0.5",
        ],
    },
    "flash_attention": {
        's = tl.dot(q_tile, k_tile.T, input_precision="ieee")': [
            's = tl.dot(q_tile, k_tile, input_precision="ieee")',
            's = tl.dot(q_tile, k_tile.T, input_precision="exact")',
            's = tl.dot(q_tile.to(tl.float16), k_tile.T, input_precision="ieee")',
            "s = tl.dot(q_tile.to(tl.int32), k_tile.T.to(tl.int32))",
        ],
        'acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")': [
            'acc = tl.dot(rounded, v_tile, l_i, input_precision="ieee")',
            "acc = tl.dot(rounded, v_tile, acc, out_dtype=tl.float16)",
        ],
        "hk = h // G": [
            "hk = h / G",
        ],
        "rounded = p.to(q_tile.dtype)": [
            "rounded = p.to(q_tile)",
        ],
        "q_ptr, b, h, first_row, M, stride_qm, D=D": [
            "q_ptr, b, h, first_row, M, D=D",
            "q_ptr, b, h, first_row, M, stride_qm, DD=D",
        ],
        "return tile.to(tl.float32) if UPCAST": [
            "return tile.to(tl.float32) if INTERPRETED",
        ],
        "/ LOG2_E": [
            "/ DTYPES",
        ],
        "if lse_ptr is not None:": [
            "if lse_ptr:",
        ],
        'm_i = tl.full([BLOCK_M], float("-inf"), tl.float32)': [
            'm_i = tl.full([BLOCK_M], float("-info"), tl.float32)',
            "m_i = tl.full([BLOCK_M], -inf, tl.float32)",
        ],
    },
}
