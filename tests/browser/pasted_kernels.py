"""Right kernels in three conventions that the site does not have, and mistakes to plant in them."""

TILES = """
import triton
import triton.language as tl


@triton.jit
def _fwd(Q, K, V, Out, Lse, softmax_scale,
         stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
         stride_vb, stride_vh, stride_vn, stride_ob, stride_oh, stride_om,
         nheads, seqlen_q, seqlen_k, headdim,
         IS_CAUSAL: tl.constexpr, BLOCK_HEADDIM: tl.constexpr,
         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    block, bh = tl.program_id(0), tl.program_id(1)
    batch, head = bh // nheads, bh % nheads
    rows = block * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.arange(0, BLOCK_N)
    dims = tl.arange(0, BLOCK_HEADDIM)
    q_at = Q + batch * stride_qb + head * stride_qh + rows[:, None] * stride_qm + dims[None, :]
    k_at = K + batch * stride_kb + head * stride_kh + cols[None, :] * stride_kn + dims[:, None]
    v_at = V + batch * stride_vb + head * stride_vh + cols[:, None] * stride_vn + dims[None, :]
    inside = (rows < seqlen_q)[:, None] & (dims < headdim)[None, :]
    q = tl.load(q_at, mask=inside, other=0.0)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_HEADDIM], tl.float32)
    for start in range(0, seqlen_k, BLOCK_N):
        there = start + cols < seqlen_k
        real = (dims < headdim)[:, None] & there[None, :]
        k = tl.load(k_at + start * stride_kn, mask=real, other=0.0)
        s = tl.dot(q, k, input_precision="ieee") * softmax_scale
        s = tl.where(there[None, :], s, float("-inf"))
        if IS_CAUSAL:
            seen = rows[:, None] + seqlen_k - seqlen_q >= (start + cols)[None, :]
            s = tl.where(seen, s, float("-inf"))
        higher = tl.maximum(top, tl.max(s, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        p = tl.exp(s - base[:, None])
        old = tl.exp(top - base)
        total = total * old + tl.sum(p, 1)
        real = there[:, None] & (dims < headdim)[None, :]
        v = tl.load(v_at + start * stride_vn, mask=real, other=0.0)
        acc = acc * old[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = higher
    acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    o_at = Out + batch * stride_ob + head * stride_oh + rows[:, None] * stride_om + dims[None, :]
    tl.store(o_at, acc.to(Out.dtype.element_ty), mask=inside)
    tl.store(Lse + bh * seqlen_q + rows, top + tl.log(total), mask=rows < seqlen_q)
"""

CAUSAL = """
import triton
import triton.language as tl


@triton.jit
def masked_step(acc, m, l, q, keys, values, start, q_rows, k_cols):
    scores = tl.dot(q, tl.load(keys))
    scores = tl.where(q_rows[:, None] >= start + k_cols[None, :], scores, -1.0e9)
    m_new = tl.maximum(m, tl.max(scores, axis=1))
    weights = tl.math.exp2(scores - m_new[:, None])
    shrink = tl.math.exp2(m - m_new)
    l = l * shrink + tl.sum(weights, axis=1)
    acc = tl.dot(weights.to(tl.float16), tl.load(values), acc * shrink[:, None])
    return acc, m_new, l


@triton.jit
def causal_flash(query_ptr, key_ptr, value_ptr, output_ptr, sm_scale,
                 q_stride_z, q_stride_h, q_stride_s, q_stride_d,
                 k_stride_z, k_stride_h, k_stride_s, k_stride_d,
                 v_stride_z, v_stride_h, v_stride_s, v_stride_d,
                 o_stride_z, o_stride_h, o_stride_s, o_stride_d,
                 n_ctx, kv_group_num,
                 head_dim: tl.constexpr, block_q: tl.constexpr, block_k: tl.constexpr):
    z, h, tile = tl.program_id(2), tl.program_id(1), tl.program_id(0)
    h_kv = h // kv_group_num
    first = tile * block_q
    queries = tl.make_block_ptr(query_ptr + z * q_stride_z + h * q_stride_h, (n_ctx, head_dim),
                                (q_stride_s, q_stride_d), (first, 0), (block_q, head_dim), (1, 0))
    keys = tl.make_block_ptr(key_ptr + z * k_stride_z + h_kv * k_stride_h, (head_dim, n_ctx),
                             (k_stride_d, k_stride_s), (0, 0), (head_dim, block_k), (0, 1))
    values = tl.make_block_ptr(value_ptr + z * v_stride_z + h_kv * v_stride_h, (n_ctx, head_dim),
                               (v_stride_s, v_stride_d), (0, 0), (block_k, head_dim), (1, 0))
    q = (tl.load(queries) * (sm_scale * 1.44269504)).to(tl.float16)
    m = tl.zeros([block_q], tl.float32) - float("inf")
    l = tl.zeros([block_q], tl.float32)
    acc = tl.zeros([block_q, head_dim], tl.float32)
    q_rows, k_cols = first + tl.arange(0, block_q), tl.arange(0, block_k)
    for start in range(0, first + block_q, block_k):
        acc, m, l = masked_step(acc, m, l, q, keys, values, start, q_rows, k_cols)
        keys = tl.advance(keys, (0, block_k))
        values = tl.advance(values, (block_k, 0))
    outputs = tl.make_block_ptr(output_ptr + z * o_stride_z + h * o_stride_h, (n_ctx, head_dim),
                                (o_stride_s, o_stride_d), (first, 0), (block_q, head_dim), (1, 0))
    tl.store(outputs, (acc / l[:, None]).to(tl.float16))
"""

ROWS = """
import triton
import triton.language as tl


@triton.jit
def attention_row(x1, x2, x3, y, seq_len, scaling,
                  HEAD_SIZE: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    j, c = tl.arange(0, BLOCK_SIZE), tl.arange(0, HEAD_SIZE)
    here = head * seq_len * HEAD_SIZE
    at = here + j[:, None] * HEAD_SIZE + c[None, :]
    a = tl.load(x1 + here + row * HEAD_SIZE + c)
    b = tl.load(x2 + at, mask=j[:, None] < seq_len, other=0.0)
    s = tl.sum(a[None, :] * b, axis=1) * scaling
    s = tl.where(j < seq_len, s, -float("inf"))
    e = tl.exp(s - tl.max(s, axis=0))
    w = e / tl.sum(e, axis=0)
    d = tl.load(x3 + at, mask=j[:, None] < seq_len, other=0.0)
    tl.store(y + here + row * HEAD_SIZE + c, tl.sum(w[:, None] * d, axis=0))
"""

RIGHT = {"tiles": TILES, "causal": CAUSAL, "rows": ROWS}

# Kernel, the mistake's name, old text, new text.
MISTAKES = [
    ("tiles", "no scale", " * softmax_scale", ""),
    ("tiles", "no rescale", "acc * old[:, None]", "acc"),
    ("tiles", "sum not rescaled", "total * old", "total"),
    ("tiles", "mask off by one", ">= (start + cols)", ">= (start + cols - 1)"),
    ("tiles", "top-left for bottom-right", " + seqlen_k - seqlen_q >=", " >="),
    ("tiles", "V with K's strides", "cols[:, None] * stride_vn", "cols[:, None] * stride_kn"),
    ("tiles", "first head for all", "bh // nheads, bh % nheads", "bh // nheads, bh % nheads * 0"),
    ("tiles", "last key dropped", "start + cols < seqlen_k", "start + cols < seqlen_k - 1"),
    ("causal", "wrong base", "sm_scale * 1.44269504", "sm_scale"),
    (
        "causal",
        "wrong head of keys",
        "h // kv_group_num",
        "h % (tl.num_programs(1) // kv_group_num)",
    ),
    ("causal", "own key hidden", "q_rows[:, None] >=", "q_rows[:, None] >"),
    ("causal", "scale ignored", "sm_scale * 1.44269504", "0.25 * 1.44269504"),
    ("rows", "max not subtracted", " - tl.max(s, axis=0)", ""),
    ("rows", "padding gets weight", 's = tl.where(j < seq_len, s, -float("inf"))', "s += 0"),
    ("tiles", "keys for values", "v_at = V +", "v_at = K +"),
]

# What cannot be judged, and what the page says of it: a kernel, old text, new text, an answer.
UNKNOWN = [
    ("rows", "e = tl.exp(", "e = tl.inline_asm_elementwise(", "inline_asm_elementwise: this page"),
    ("rows", "@triton.jit", "@gluon.jit", "This is Gluon"),
    ("rows", "seq_len, scaling,", "seq_len, foo, scaling,", "does not know the argument foo"),
    ("tiles", "Q, K, V, Out,", "DO, Q, K, V, Out,", "the gradient DO"),
    (
        "tiles",
        "q = tl.load(q_at, mask=inside, other=0.0)",
        "q = Q.load([0, 0])",
        "a tensor descriptor",
    ),
    ("causal", "weights.to(tl.float16)", "weights.to(tl.float8e5)", "float8e5: this page"),
]
