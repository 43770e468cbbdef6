"""The backward in two small kernels and seven products: whole tiles, no mask; the first rung."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _keys_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, M, N, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_N rows of dK and dV of one head, and goes through all queries."""
    head, offs_d = tl.program_id(1), tl.arange(0, D)
    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    keys = (head * N + offs_n)[:, None] * D + offs_d[None, :]  # [BLOCK_N, D]
    queries = (head * M + offs_m)[:, None] * D + offs_d[None, :]  # [BLOCK_M, D]
    k, v = tl.load(k_ptr + keys), tl.load(v_ptr + keys)
    dk, dv = tl.zeros([BLOCK_N, D], tl.float32), tl.zeros([BLOCK_N, D], tl.float32)
    for start in range(0, M, BLOCK_M):
        q, do = tl.load(q_ptr + queries + start * D), tl.load(do_ptr + queries + start * D)
        lse = tl.load(lse_ptr + head * M + start + offs_m)  # [BLOCK_M]
        delta = tl.load(delta_ptr + head * M + start + offs_m)  # [BLOCK_M]
        s = tl.dot(q, k.T, input_precision="ieee") * scale  # product 1: [BLOCK_M, BLOCK_N]
        p = tl.exp(s - lse[:, None])  # the forward's weights, again
        dv = tl.dot(p.to(do.dtype).T, do, dv, input_precision="ieee")  # product 2
        dp = tl.dot(do, v.T, input_precision="ieee")  # product 3: [BLOCK_M, BLOCK_N]
        ds = p * (dp - delta[:, None])
        dk = tl.dot(ds.to(q.dtype).T, q, dk, input_precision="ieee")  # product 4
    tl.store(dk_ptr + keys, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + keys, dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def _queries_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, M, N, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program computes BLOCK_M rows of dQ of one head, and goes through all keys."""
    head, offs_d = tl.program_id(1), tl.arange(0, D)
    offs_m, offs_n = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    keys = (head * N + offs_n)[:, None] * D + offs_d[None, :]  # [BLOCK_N, D]
    queries = (head * M + offs_m)[:, None] * D + offs_d[None, :]  # [BLOCK_M, D]
    q, do = tl.load(q_ptr + queries), tl.load(do_ptr + queries)
    lse, delta = tl.load(lse_ptr + head * M + offs_m), tl.load(delta_ptr + head * M + offs_m)
    dq = tl.zeros([BLOCK_M, D], tl.float32)
    for start in range(0, N, BLOCK_N):
        k, v = tl.load(k_ptr + keys + start * D), tl.load(v_ptr + keys + start * D)
        s = tl.dot(q, k.T, input_precision="ieee") * scale  # product 5, which is product 1 again
        p = tl.exp(s - lse[:, None])
        dp = tl.dot(do, v.T, input_precision="ieee")  # product 6, which is product 3 again
        ds = p * (dp - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")  # product 7
    tl.store(dq_ptr + queries, (dq * scale).to(dq_ptr.dtype.element_ty))


def two_passes(q, k, v, out, lse, grad_out, *, rows=32, block=128, num_warps=4):
    """Gradients of softmax(q kᵀ / √D) v for q, k and v by the kernels above; nothing is refused.

    Args:
        q, out, grad_out: [B, H, M, D] of float16 or float32, contiguous; M a multiple of `block`.
        k, v: [B, H, N, D] likewise; N a multiple of `block`; D 16, 32, 64 or 128.
        lse: [B, H, M] of float32, contiguous: the natural logsumexp of each row of scores.
        rows: queries or keys of an iteration, a divisor of `block`.
        block: keys, or queries, of a program.
        num_warps: warps of a program.

    Returns:
        grad_q, grad_k, grad_v in the dtype of q.

    Source: Dao 2023, algorithm 2, https://arxiv.org/abs/2307.08691
    """
    B, H, M, D = q.shape
    N, scale = k.shape[2], 1 / math.sqrt(D)
    delta = (out.float() * grad_out.float()).sum(-1)  # [B, H, M]
    dq, dk, dv = (torch.empty_like(x) for x in (q, k, v))
    given = q, k, v, grad_out, lse, delta
    sizes = {"D": D, "num_warps": num_warps}
    with torch.cuda.device_of(q):
        _keys_kernel[(N // block, B * H)](
            *given, dk, dv, M, N, scale, BLOCK_M=rows, BLOCK_N=block, **sizes
        )
        _queries_kernel[(M // block, B * H)](
            *given, dq, M, N, scale, BLOCK_M=block, BLOCK_N=rows, **sizes
        )
    return dq, dk, dv
