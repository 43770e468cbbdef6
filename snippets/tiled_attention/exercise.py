"""The exercise's answer: each row's logsumexp beside its result, and two results made one."""

import torch
import triton
import triton.language as tl

from .kernel import _refusals, _tiles


@triton.jit
def _with_lse_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    stride_lb, stride_lh, stride_lm,
    H, M, N, D,
    scale,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """The page's kernel without the causal mask; it also writes one number for each row."""
    blocks = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    h = (pid // blocks % H).to(tl.int64)
    b = (pid // blocks // H).to(tl.int64)
    offs_m = pid % blocks * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    mask_m = offs_m < M
    mask_d = offs_d < D
    q_tile = q_ptr + b * stride_qb + h * stride_qh
    q_tile += offs_d[:, None] * stride_qd + offs_m[None, :] * stride_qm
    q = tl.load(q_tile, mask=mask_d[:, None] & mask_m[None, :], other=0.0).to(tl.float32) * scale
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N).to(tl.int64)
        mask_n = offs_n < N
        k_tile = k_ptr + b * stride_kb + h * stride_kh
        k_tile += offs_d[:, None] * stride_kd + offs_n[None, :] * stride_kn
        k = tl.load(k_tile, mask=mask_d[:, None] & mask_n[None, :], other=0.0).to(tl.float32)
        scores = tl.sum(q[:, :, None] * k[:, None, :], axis=0)
        scores = tl.where(mask_n[None, :], scores, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m_i - m_sub)
        p = tl.exp(scores - m_sub[:, None])
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new
        v_tile = v_ptr + b * stride_vb + h * stride_vh
        v_tile += offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
        v = tl.load(v_tile, mask=mask_n[:, None] & mask_d[None, :], other=0.0).to(tl.float32)
        acc = acc * alpha[:, None] + tl.sum(tl.trans(p)[:, :, None] * v[:, None, :], axis=0)
    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]
    lse = m_i + tl.log(l_i)  # [BLOCK_M]; log(0) = -inf, a row of nothing
    lse_row = lse_ptr + b * stride_lb + h * stride_lh + offs_m * stride_lm
    tl.store(lse_row, lse, mask=mask_m)
    out_tile = out_ptr + b * stride_ob + h * stride_oh
    out_tile += offs_m[:, None] * stride_om + offs_d[None, :] * stride_od
    mask = mask_m[:, None] & mask_d[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)


def tiled_attention_with_lse(q, k, v, *, scale=None):
    """(softmax(q kᵀ · scale) v, its logsumexp [..., M] in float32); contract as in kernel.py."""
    for error in _refusals(q, k, v, scale, causal=False):
        raise error
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # four dimensions each
    tensors.append(lse[(None,) * (3 - lse.dim())])  # [B, H, M]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    BLOCK_M, BLOCK_N, num_warps = _tiles(D)
    with torch.cuda.device_of(q):
        _with_lse_kernel[(B * H * triton.cdiv(M, BLOCK_M),)](
            *tensors, *(step for x in tensors for step in x.stride()), H, M, N, D, scale,
            BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
            BLOCK_D=triton.next_power_of_2(D), num_warps=num_warps,
        )  # fmt: skip
    return out, lse


def merge(out_a, lse_a, out_b, lse_b):
    """Attention over two sets of keys from attention over each: out [..., M, D], lse [..., M]."""
    m = torch.maximum(lse_a, lse_b)
    m = m.masked_fill(m == float("-inf"), 0.0)  # a row of nothing on both sides stays one
    a, b = (lse_a - m).exp(), (lse_b - m).exp()  # [..., M]: the two l, relative to one maximum
    total = (a + b).clamp(min=torch.finfo(torch.float32).tiny)
    out = (out_a * (a / total)[..., None] + out_b * (b / total)[..., None]).to(out_a.dtype)
    return out, m + (a + b).log()
