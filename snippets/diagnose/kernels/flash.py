"""FlashAttention with tl.dot: pointers that move on, exp2, groups of query heads, causal."""

import torch
import triton
import triton.language as tl


@triton.jit
def _flash(
    q,
    k,
    v,
    o,
    H,
    GROUP,
    N_CTX_Q,
    N_CTX_K,
    qk_scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    IS_CAUSAL: tl.constexpr,
):
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z = off_hz // H
    off_h = off_hz % H
    off_kv = off_h // GROUP
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D)
    d_ok = offs_d < HEAD_DIM
    m_ok = offs_m < N_CTX_Q
    q_ptrs = q + (off_hz * N_CTX_Q + offs_m[:, None]) * HEAD_DIM + offs_d[None, :]
    q_tile = tl.load(q_ptrs, mask=m_ok[:, None] & d_ok[None, :], other=0.0)
    first = (off_z * (H // GROUP) + off_kv) * N_CTX_K * HEAD_DIM
    k_ptrs = k + first + offs_d[:, None] + offs_n[None, :] * HEAD_DIM
    v_ptrs = v + first + offs_n[:, None] * HEAD_DIM + offs_d[None, :]
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    qk_scale *= 1.44269504
    last = offs_m + N_CTX_K - N_CTX_Q
    for start_n in range(0, N_CTX_K, BLOCK_N):
        n_ok = start_n + offs_n < N_CTX_K
        k_tile = tl.load(k_ptrs, mask=d_ok[:, None] & n_ok[None, :], other=0.0)
        qk = tl.dot(q_tile, k_tile, input_precision="ieee") * qk_scale
        qk = tl.where(n_ok[None, :], qk, float("-inf"))
        if IS_CAUSAL:
            qk = tl.where(last[:, None] >= start_n + offs_n[None, :], qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        m_safe = tl.where(m_ij == float("-inf"), 0.0, m_ij)
        p = tl.math.exp2(qk - m_safe[:, None])
        alpha = tl.math.exp2(m_i - m_safe)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v_tile = tl.load(v_ptrs, mask=n_ok[:, None] & d_ok[None, :], other=0.0)
        acc = tl.dot(p.to(v_tile.dtype), v_tile, acc, input_precision="ieee")
        m_i = m_ij
        k_ptrs += BLOCK_N * HEAD_DIM
        v_ptrs += BLOCK_N * HEAD_DIM
    acc = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    o_ptrs = o + (off_hz * N_CTX_Q + offs_m[:, None]) * HEAD_DIM + offs_d[None, :]
    tl.store(o_ptrs, acc.to(o.type.element_ty), mask=m_ok[:, None] & d_ok[None, :])


def flash(q, k, v, is_causal=False, sm_scale=None):
    Z, H, N_CTX_Q, HEAD_DIM = q.shape
    N_CTX_K = k.shape[-2]
    if sm_scale is None:
        sm_scale = HEAD_DIM**-0.5
    q, k, v = (x.contiguous() for x in (q, k, v))
    o = torch.empty(q.shape, device=q.device, dtype=q.dtype)
    BLOCK_M, BLOCK_N = 64, 32
    grid = (triton.cdiv(N_CTX_Q, BLOCK_M), Z * H)
    _flash[grid](
        q,
        k,
        v,
        o,
        H,
        H // k.shape[1],
        N_CTX_Q,
        N_CTX_K,
        sm_scale,
        HEAD_DIM=HEAD_DIM,
        BLOCK_D=max(16, triton.next_power_of_2(HEAD_DIM)),
        BLOCK_M=BLOCK_M,
        BLOCK_N=BLOCK_N,
        IS_CAUSAL=is_causal,
    )
    return o
