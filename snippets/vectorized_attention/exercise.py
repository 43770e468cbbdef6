"""The exercise's answer: 32 keys at a time, with a softmax that is corrected as it goes."""

import math

import torch
import triton
import triton.language as tl

from .kernel import LIMITS, _refusals


@triton.jit
def _blocks_of_keys_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, M, N, D, scale,
    BLOCK_N: tl.constexpr,  # keys of one iteration, whatever N is
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program computes one row of the output; only BLOCK_N keys are on chip at a time."""
    pid = tl.program_id(0)  # 0 … B·H·M - 1
    m = (pid % M).to(tl.int64)
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    mask_d = offs_d < D
    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm
    q = tl.load(q_row + offs_d * stride_qd, mask=mask_d, other=0.0).to(tl.float32)

    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)  # [BLOCK_N]
    k_tile = k_ptr + b * stride_kb + h * stride_kh
    k_tile += offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd
    v_tile = v_ptr + b * stride_vb + h * stride_vh
    v_tile += offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
    largest = tl.full([], float("-inf"), tl.float32)  # of the scores seen so far
    total = tl.full([], 0.0, tl.float32)  # of their exponentials, relative to `largest`
    acc = tl.zeros([BLOCK_D], tl.float32)  # of the values, weighted by them
    for start in range(0, N, BLOCK_N):
        mask_n = start + offs_n < N  # the last block may be shorter
        mask = mask_n[:, None] & mask_d[None, :]
        k = tl.load(k_tile, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_D]
        scores = tl.where(mask_n, tl.sum(q[None, :] * k, axis=1) * scale, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=0))
        correction = tl.exp(largest - new_largest)  # exp(-inf) = 0 in the first iteration
        weights = tl.exp(scores - new_largest)  # [BLOCK_N], not yet divided by their sum
        v = tl.load(v_tile, mask=mask, other=0.0).to(tl.float32)
        acc = acc * correction + tl.sum(weights[:, None] * v, axis=0)
        total = total * correction + tl.sum(weights, axis=0)
        largest = new_largest
        k_tile += BLOCK_N * stride_kn
        v_tile += BLOCK_N * stride_vn
    out = acc / total  # the division waits until every key has been seen

    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    tl.store(out_row + offs_d * stride_od, out.to(out_ptr.dtype.element_ty), mask=mask_d)


def vectorized_attention(q, k, v, *, scale=None):
    """softmax(q kᵀ · scale) v, 32 keys at a time, any number in all; contract as in kernel.py."""
    for error in _refusals(q, k, v, scale, LIMITS | {"elements of a tile": math.inf}):
        raise error
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # views: [B, H, M or N, D]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    with torch.cuda.device_of(q):
        _blocks_of_keys_kernel[(B * H * M,)](
            *tensors, *(step for x in tensors for step in x.stride()), H, M, N, D, scale,
            BLOCK_N=32, BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
    return out
