"""The answer of the exercise: a layer whose queries and keys are frozen needs dV alone."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _values_kernel(
    q_ptr,
    k_ptr,
    do_ptr,
    lse_ptr,
    dv_ptr,
    M,
    N,
    scale,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One program computes BLOCK_N rows of dV of one head: two of the seven products."""
    head, offs_d = tl.program_id(1), tl.arange(0, D)
    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    keys = (head * N + offs_n)[:, None] * D + offs_d[None, :]  # [BLOCK_N, D]
    queries = (head * M + offs_m)[:, None] * D + offs_d[None, :]  # [BLOCK_M, D]
    k, dv = tl.load(k_ptr + keys), tl.zeros([BLOCK_N, D], tl.float32)
    for start in range(0, M, BLOCK_M):
        q, do = tl.load(q_ptr + queries + start * D), tl.load(do_ptr + queries + start * D)
        lse = tl.load(lse_ptr + head * M + start + offs_m)  # [BLOCK_M]
        p = tl.exp(tl.dot(q, k.T, input_precision="ieee") * scale - lse[:, None])
        dv = tl.dot(p.to(do.dtype).T, do, dv, input_precision="ieee")
    tl.store(dv_ptr + keys, dv.to(dv_ptr.dtype.element_ty))


def gradient_of_values(q, k, lse, grad_out):
    """grad_v of softmax(q kᵀ / √D) v: it needs neither v nor the output.

    Args:
        q, grad_out: [B, H, M, D], contiguous; M a multiple of 32; D 16, 32, 64 or 128.
        k: [B, H, N, D] likewise; N a multiple of 32.
        lse: [B, H, M] of float32, contiguous: the natural logsumexp of each row of scores.

    Returns:
        [B, H, N, D] in q's dtype.
    """
    (B, H, M, D), N = q.shape, k.shape[2]
    grad_v = torch.empty_like(k)
    _values_kernel[(N // 32, B * H)](
        q, k, grad_out, lse, grad_v, M, N, 1 / math.sqrt(D), D=D, BLOCK_M=32, BLOCK_N=32
    )
    return grad_v
