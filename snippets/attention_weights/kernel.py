"""Attention weights with one Triton program for each query: softmax(q kᵀ · scale), row by row.

float16, bfloat16 or float32, any strides, at most 1,024 columns and 16,384 keys; any GPU that
Triton compiles for. Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import numbers
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl


@triton.jit
def _attention_weights_kernel(
    q_ptr, k_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_ob, stride_oh, stride_om, stride_on,
    # Heads, queries, keys, head dimension; how many keys query 0 sees, each later query sees one
    # more, at most N; factor on the scores.
    H, M, N, D, first_sees, scale,
    BLOCK_N: tl.constexpr,  # slots for scores: a power of two, at least N
    BLOCK_D: tl.constexpr,  # columns of a row: a power of two, at least D
):  # fmt: skip
    """One program computes one row of weights: how much one query attends to each key.

    Reads its query row once and each key row that it sees once; writes one row of N weights.
    The float32 scores stay on chip: memory sees only the finished weights.
    """
    pid = tl.program_id(0)  # 0 … B·H·M - 1
    m = (pid % M).to(tl.int64)  # int64: an offset may pass 2^31 elements
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)

    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_d = offs_d < D  # D need not be a power of two; tiles must be
    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm + offs_d * stride_qd
    q = tl.load(q_row, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]

    visible = tl.minimum(first_sees + m, N)  # keys 0 … visible - 1; none if 0 or less
    slots = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    scores = tl.full([BLOCK_N], float("-inf"), tl.float32)  # not seen: exp(-inf) = 0
    k_row = k_ptr + b * stride_kb + h * stride_kh + offs_d * stride_kd
    for n in range(visible):
        k = tl.load(k_row, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]
        score = tl.sum(q * k, axis=0) * scale
        scores = tl.where(slots == n, score, scores)  # scores[n] = score
        k_row += stride_kn

    largest = tl.max(scores, axis=0)  # -inf where no key is seen or all scores are -inf
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # -inf - (-inf) is NaN
    weights = tl.exp(scores - largest)  # [BLOCK_N], between 0 and exp(0) = 1
    total = tl.sum(weights, axis=0)  # at least 1, or 0 in such a row
    weights = weights / tl.where(total == 0.0, 1.0, total)

    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    weights = weights.to(out_ptr.dtype.element_ty)
    tl.store(out_row + slots.to(tl.int64) * stride_on, weights, mask=slots < N)


def attention_weights(q, k, *, scale=None, causal=False, align="bottom_right"):
    """softmax(q kᵀ · scale): how much each query attends to each key; rows sum to one.

    Args:
        q: [..., M, D]; leading dimensions are batch and heads (at most two). Any strides.
        k: [..., N, D], with q's leading dimensions, dtype and device.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.
        causal: hide the keys after a query's own place.
        align: the corner of [M, N] where the causal mask's diagonal ends or starts:
            "bottom_right", query m sees keys up to m + N - M, or "top_left", up to m;
            without causal it has no effect.

    Returns:
        [..., M, N] in q's dtype; scores and softmax are float32. A row without a visible key,
        or whose scores are all -inf, is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    for error in _refusals(q, k, scale, causal, align):
        raise error
    out = torch.empty(*q.shape[:-1], k.shape[-2], dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, out)]  # views: [B, H, …, …]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    first_sees = N if not causal else 1 if align == "top_left" else 1 + N - M
    scale = D**-0.5 if scale is None else float(scale)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _attention_weights_kernel[(B * H * M,)](
            *tensors, *(s for x in tensors for s in x.stride()), H, M, N, D, first_sees, scale,
            BLOCK_N=triton.next_power_of_2(N), BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
    return out


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# A row of scores lives in registers: beyond 16,384 keys it spills. The grid is CUDA's limit.
LIMITS = {"columns": 1_024, "keys": 16_384, "programs": 2**31 - 1}
INTERPRETED = triton.knobs.runtime.interpret


def _refusals(q, k, scale, causal, align):
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (("q", q), ("k", k)):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {q.dtype} on {q.device}")
        if not 2 <= x.dim() <= 4 or x.numel() == 0:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: 2 to 4 dimensions, none 0")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    *heads, N, D = *q.shape[:-2], k.shape[-2], q.shape[-1]
    if k.shape != (*heads, N, D):
        yield ValueError(f"k has shape {(*k.shape,)}; allowed with q: {(*heads, N, D)}")
    for (what, most), size in zip(LIMITS.items(), (D, N, q.numel() // D), strict=True):
        if size > most:
            yield ValueError(f"q and k ask for {size} {what}; allowed: at most {most}")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")
    if not isinstance(causal, bool):
        yield TypeError(f"causal is {causal!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")


def main():
    """Check the kernel against eager PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k = (torch.randn(2, 4, rows, 64, device=device) for rows in (16, 33))

    def eager(q, k):
        return (q @ k.mT * 64**-0.5).softmax(-1)

    want = eager(q.double(), k.double())
    ours, theirs = ((f(q, k) - want).abs() for f in (attention_weights, eager))
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * theirs.max() + 4 * torch.finfo(q.dtype).eps * want.max()
    print(f"q {(*q.shape,)}, k {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for f in (attention_weights, eager) if device == "cuda" else ():
        print(f"{f.__name__}: {triton.testing.do_bench(lambda f=f: f(q, k)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
