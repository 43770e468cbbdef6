"""Attention with one Triton program for each query, and all keys of a head in one load.

float16, bfloat16 or float32, any strides; any GPU that Triton compiles for. All keys of a head
are one tile: at most 1,048,576 elements, fast up to about 32,768, 512 keys of 64 columns.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
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
def _vectorized_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, M, N, D, scale,  # heads, queries, keys, head dimension; factor on the scores
    BLOCK_N: tl.constexpr,  # rows of a tile: a power of two, at least N
    BLOCK_D: tl.constexpr,  # columns of a tile: a power of two, at least D
):  # fmt: skip
    """One program computes one row of the output: one query against every key of its head.

    Three loads: its query row, all keys, all values; writes one output row. Keys and values are
    whole tiles in registers, BLOCK_N · BLOCK_D elements each, spread over 128 threads. A thread
    has 255 registers at most: a larger tile spills to memory, and the gain is lost.
    """
    pid = tl.program_id(0)  # 0 … B·H·M - 1
    m = (pid % M).to(tl.int64)  # int64: an offset may pass 2^31 elements
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)

    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)  # [BLOCK_N]
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_n = offs_n < N  # keys that exist
    mask_d = offs_d < D  # columns that exist
    mask = mask_n[:, None] & mask_d[None, :]  # [BLOCK_N, BLOCK_D]
    k_tile = k_ptr + b * stride_kb + h * stride_kh
    k_tile += offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd  # addresses
    v_tile = v_ptr + b * stride_vb + h * stride_vh
    v_tile += offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd

    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm
    q = tl.load(q_row + offs_d * stride_qd, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]
    k = tl.load(k_tile, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_D]
    scores = tl.sum(q[None, :] * k, axis=1) * scale  # [BLOCK_N]: a row of k each
    scores = tl.where(mask_n, scores, float("-inf"))  # absent keys weigh exp(-inf) = 0

    weights = tl.exp(scores - tl.max(scores, axis=0))  # [BLOCK_N], the largest is exp(0) = 1
    weights = weights / tl.sum(weights, axis=0)
    weights = tl.where(scores == float("-inf"), 0.0, weights)  # not NaN, even where all are -inf

    v = tl.load(v_tile, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_D]
    out = tl.sum(weights[:, None] * v, axis=0)  # [BLOCK_D]: down the columns
    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    tl.store(out_row + offs_d * stride_od, out.to(out_ptr.dtype.element_ty), mask=mask_d)


def vectorized_attention(q, k, v, *, scale=None):
    """softmax(q kᵀ · scale) v, one program for each query, all keys in one load.

    Watch out for the cliff: a program holds next_power_of_2(N) · next_power_of_2(D) elements in
    registers. From about 32,768 of them on they spill; soon a loop over the keys is faster, and
    compiling takes seconds, then minutes.
    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762

    Args:
        q: [..., M, D]; leading dimensions are batch and heads (at most two). Any strides.
        k, v: [..., N, D], with q's leading dimensions, dtype and device.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.

    Returns:
        [..., M, D] in q's dtype. Scores, softmax and sums are float32. A row whose scores are all
        -inf is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    for error in _refusals(q, k, v, scale):
        raise error
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # views: [B, H, M or N, D]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _vectorized_attention_kernel[(B * H * M,)](
            *tensors, *(step for x in tensors for step in x.stride()), H, M, N, D, scale,
            BLOCK_N=triton.next_power_of_2(N), BLOCK_D=triton.next_power_of_2(D),
        )  # fmt: skip
    return out


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Triton allows no larger tile; registers end long before. The grid is CUDA's limit.
LIMITS = {"columns": 1_024, "elements of a tile": 1_048_576, "programs": 2**31 - 1}
INTERPRETED = triton.knobs.runtime.interpret


def _refusals(q, k, v, scale, limits=LIMITS):
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (("q", q), ("k", k), ("v", v)):
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
    for name, x in (("k", k), ("v", v)):
        if x.shape != (*heads, N, D):
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {(*heads, N, D)}")
    tile = triton.next_power_of_2(N) * triton.next_power_of_2(D)
    for (what, most), size in zip(limits.items(), (D, tile, q.numel() // D), strict=True):
        if size > most:
            yield ValueError(f"q and k ask for {size} {what}; allowed: at most {most}")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, 4, rows, 64, device=device) for rows in (16, 33, 33))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(q.double(), k.double(), v.double())
    ours, theirs = ((f(q, k, v) - want).abs() for f in (vectorized_attention, sdpa))
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * theirs.max() + 4 * torch.finfo(q.dtype).eps * want.abs().max()
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for f in (vectorized_attention, sdpa) if device == "cuda" else ():
        print(f"{f.__name__}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
