"""The exercises' answers: no transpose, the product reads k with its two strides swapped."""

import torch
import triton
import triton.language as tl

from .kernel import INTERPRETED, _launch, _refusals, _run_matmul, _run_softmax

BLOCK_M, BLOCK_N = 16, 32  # a tile of scores


@triton.jit
def _scores_kernel(
    q_ptr, k_ptr, out_ptr,  # q [B, H, M, D], k [B, H, N, D], out [B, H, M, N]
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_ob, stride_oh, stride_om, stride_on,
    H, M, N, D, scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    UPCAST: tl.constexpr,  # bfloat16 in the interpreter, whose tl.dot gets it wrong
):  # fmt: skip
    """One program computes one tile of scale · q kᵀ from rows of q and of k, as they lie.

    Reads BLOCK_M rows of q and BLOCK_N rows of k once, writes its tile of scores once.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    matrix = tl.program_id(0) // (tiles_m * tiles_n)
    b, h = (matrix // H).to(tl.int64), (matrix % H).to(tl.int64)
    offs_m = (tile // tiles_n).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (tile % tiles_n).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    mask_m, mask_n, mask_d = offs_m < M, offs_n < N, offs_d < D

    q_tile = q_ptr + b * stride_qb + h * stride_qh
    q_tile += offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qd  # [BLOCK_M, BLOCK_D]
    q = tl.load(q_tile, mask=mask_m[:, None] & mask_d[None, :], other=0.0)
    k_tile = k_ptr + b * stride_kb + h * stride_kh
    k_tile += offs_d[:, None] * stride_kd + offs_n[None, :] * stride_kn  # [BLOCK_D, BLOCK_N]
    k = tl.load(k_tile, mask=mask_d[:, None] & mask_n[None, :], other=0.0)
    if UPCAST:
        q, k = q.to(tl.float32), k.to(tl.float32)
    scores = tl.dot(q, k, input_precision="ieee") * scale  # [BLOCK_M, BLOCK_N]

    out = out_ptr + b * stride_ob + h * stride_oh
    out += offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    tl.store(out, scores.to(out_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_n[None, :])


def _refuse(q, k, v, scale):
    tensors = {"q": q, "k": k, "v": v}
    for error in _refusals(tensors, "MD ND ND", "MN MD", row="N", scale=scale):
        raise error


def scores(q, k, *, scale=None):
    """q kᵀ · scale without a copy of k; contract as in kernel.py.

    Args:
        q: [..., M, D]; k: [..., N, D]
        scale: 1/√D where it is None.

    Returns:
        [..., M, N] in float32.
    """
    _refuse(q, k, k, scale)
    shape = (*q.shape[:-1], k.shape[-2])
    q, k = (x[(None,) * (4 - x.dim())] for x in (q, k))
    (B, H, M, D), N = q.shape, k.shape[-2]
    out = q.new_empty(B, H, M, N, dtype=torch.float32)
    _launch(
        _scores_kernel, (BLOCK_M, BLOCK_N), (q, k, out), M=M, N=N, D=D,
        scale=D**-0.5 if scale is None else float(scale),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        BLOCK_D=max(16, triton.next_power_of_2(D)),  # tl.dot needs 16
        UPCAST=INTERPRETED and q.dtype == torch.bfloat16,
    )  # fmt: skip
    return out.view(shape)


def composed_attention(q, k, v, *, scale=None):
    """softmax(q kᵀ · scale) v without a copy of k; contract as in kernel.py."""
    _refuse(q, k, v, scale)
    shape = q.shape
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), N = q.shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    out, scores = q.new_empty(B, H, M, D), q.new_empty(B, H, M, N, dtype=torch.float32)
    weights = scores.view(q.dtype)[..., :N]

    _run_matmul(q, k.mT, scores, scale)  # a view: strides swapped, no copy
    _run_softmax(scores, weights)
    _run_matmul(weights, v, out)
    return out.view(shape)
