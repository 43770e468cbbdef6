"""The exercise's answer: the kernel also returns how spread each row of weights is, its entropy."""

import torch
import triton
import triton.language as tl

from .kernel import _refusals


@triton.jit
def _weights_and_entropy_kernel(
    q_ptr, k_ptr, out_ptr, entropy_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_ob, stride_oh, stride_om, stride_on,
    H, M, N, D, first_sees, scale,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One program computes one row of weights and that row's entropy, both from the same scores."""
    pid = tl.program_id(0)
    m = (pid % M).to(tl.int64)
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)

    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)
    mask_d = offs_d < D
    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm
    q = tl.load(q_row + offs_d * stride_qd, mask=mask_d, other=0.0).to(tl.float32)

    visible = tl.minimum(first_sees + m, N)
    slots = tl.arange(0, BLOCK_N)
    scores = tl.full([BLOCK_N], float("-inf"), tl.float32)
    k_row = k_ptr + b * stride_kb + h * stride_kh + offs_d * stride_kd
    for n in range(visible):
        k = tl.load(k_row, mask=mask_d, other=0.0).to(tl.float32)
        scores = tl.where(slots == n, tl.sum(q * k, axis=0) * scale, scores)
        k_row += stride_kn

    shifted = scores - tl.where(visible > 0, tl.max(scores, axis=0), 0.0)  # [BLOCK_N], ≤ 0
    weights = tl.exp(shifted)
    total = tl.maximum(tl.sum(weights, axis=0), 1.0)
    weights = weights / total
    # log weight = shifted - log total, so -Σ w log w = log total - Σ w · shifted: no log of
    # a weight that rounded to 0. Unseen keys hold -inf, and 0 · -inf is NaN: 0 for them.
    seen = tl.where(slots < visible, shifted, 0.0)
    entropy = tl.log(total) - tl.sum(weights * seen, axis=0)
    tl.store(entropy_ptr + pid.to(tl.int64), entropy)

    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    weights = weights.to(out_ptr.dtype.element_ty)
    tl.store(out_row + slots.to(tl.int64) * stride_on, weights, mask=slots < N)


def attention_weights(q, k, *, scale=None, causal=False, align="bottom_right"):
    """Weights [..., M, N] and the entropy of each row in nats, float32 [..., M].

    Contract as in kernel.py. The entropy is 0 for a query that sees one key or none.
    """
    for error in _refusals(q, k, scale, causal, align):
        raise error
    out = torch.empty(*q.shape[:-1], k.shape[-2], dtype=q.dtype, device=q.device)
    entropy = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, out)]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    first_sees = N if not causal else 1 if align == "top_left" else 1 + N - M
    scale = D**-0.5 if scale is None else float(scale)
    with torch.cuda.device_of(q):
        _weights_and_entropy_kernel[(B * H * M,)](
            *tensors, entropy, *(step for x in tensors for step in x.stride()),
            H, M, N, D, first_sees, scale,
            BLOCK_N=triton.next_power_of_2(N), BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
    return out, entropy
