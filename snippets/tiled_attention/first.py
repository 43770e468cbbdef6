"""Attention for one head with a running softmax: any number of keys, a tile at a time."""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # no GPU: the kernel runs in Triton's interpreter

import triton
import triton.language as tl


@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, M, N, scale,
                     D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]: my queries
    cols = tl.arange(0, D)
    mask_m = rows < M
    # Queries and keys lie as columns, [D, BLOCK]: products are summed along axis 0.
    q = tl.load(q_ptr + cols[:, None] + rows[None, :] * D, mask=mask_m[None, :], other=0.0)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # the largest score so far
    l_i = tl.zeros([BLOCK_M], tl.float32)  # the sum of exp(score - m_i) so far
    acc = tl.zeros([BLOCK_M, D], tl.float32)  # the values so far, weighted by exp(score - m_i)
    for start in range(0, N, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        mask_n = keys < N
        k = tl.load(k_ptr + cols[:, None] + keys[None, :] * D, mask=mask_n[None, :], other=0.0)
        scores = tl.sum(q[:, :, None] * k[:, None, :], axis=0) * scale  # [BLOCK_M, BLOCK_N]
        scores = tl.where(mask_n[None, :], scores, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        alpha = tl.exp(m_i - m_new)  # corrects what was collected with the old m_i
        p = tl.exp(scores - m_new[:, None])  # [BLOCK_M, BLOCK_N]
        l_i = l_i * alpha + tl.sum(p, axis=1)
        v = tl.load(v_ptr + keys[:, None] * D + cols[None, :], mask=mask_n[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.sum(tl.trans(p)[:, :, None] * v[:, None, :], axis=0)
        m_i = m_new
    tl.store(out_ptr + rows[:, None] * D + cols[None, :], acc / l_i[:, None], mask=mask_m[:, None])


def attention(q, k, v, BLOCK_M=16, BLOCK_N=32):
    (M, D), N = q.shape, k.shape[0]
    out = torch.empty_like(q)
    attention_kernel[(triton.cdiv(M, BLOCK_M),)](
        q, k, v, out, M, N, D**-0.5, D, BLOCK_M, BLOCK_N, num_warps=8
    )
    return out


torch.manual_seed(0)
q, k, v = torch.randn(3, 100, 64, device="cuda" if torch.cuda.is_available() else "cpu")
want = torch.softmax(q.double() @ k.double().T / 8, dim=-1) @ v.double()
print(f"largest difference from float64: {(attention(q, k, v) - want).abs().max():.1e}")
