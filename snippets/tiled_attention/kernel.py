"""Attention for a block of queries per program: keys and values in tiles, online softmax.

float16, bfloat16 or float32, any strides, at most 256 columns, any number of keys; any GPU that
Triton compiles for. Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import math
import numbers
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

# Columns, at most → queries per program, keys per tile, warps. Chosen by the clock on an H200: of
# the tiles with which a thread multiplies 64 or 128 pairs for the scores, the fastest.
TILES = {64: (16, 32, 8), 128: (8, 32, 16), 256: (8, 8, 4)}
CONFIGURATIONS = {"_tiles": TILES}  # what the coverage grid chooses among


@triton.jit
def _tiled_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, M, N, D, scale,  # heads, queries, keys, head dimension; factor on the scores
    CAUSAL: tl.constexpr,  # query m sees keys 0 … m + N - M only
    BLOCK_M: tl.constexpr,  # queries of a program: rows of the scores
    BLOCK_N: tl.constexpr,  # keys of a tile: columns of the scores
    BLOCK_D: tl.constexpr,  # columns of q, k and v: a power of two, at least D
):  # fmt: skip
    """One program computes BLOCK_M rows of the output, for any number of keys.

    Reads its queries once and then every key and value of its head (causal: those that its last
    query sees), BLOCK_N at a time; writes its rows once. On chip: the queries, one tile of keys,
    scores and values, and for each query m_i, l_i and acc, whatever M and N are.
    """
    blocks = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B·H·blocks - 1
    first = pid % blocks * BLOCK_M
    h = (pid // blocks % H).to(tl.int64)  # int64: an offset may pass 2^31 elements
    b = (pid // blocks // H).to(tl.int64)
    offs_m = first + tl.arange(0, BLOCK_M).to(tl.int64)  # [BLOCK_M]: these queries
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_m = offs_m < M
    mask_d = offs_d < D

    q_tile = q_ptr + b * stride_qb + h * stride_qh
    q_tile += offs_d[:, None] * stride_qd + offs_m[None, :] * stride_qm
    q = tl.load(q_tile, mask=mask_d[:, None] & mask_m[None, :], other=0.0).to(tl.float32)
    q = q * scale  # [BLOCK_D, BLOCK_M]: a query is a column
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest score so far
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of exp(score - m_i) so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # values so far, weighted by exp(score - m_i)

    stop = N  # keys from here on are seen by none of these queries
    if CAUSAL:
        stop = tl.minimum(N, first + BLOCK_M + N - M)
    for start in range(0, stop, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N).to(tl.int64)  # [BLOCK_N]: these keys
        mask_n = offs_n < N
        k_tile = k_ptr + b * stride_kb + h * stride_kh
        k_tile += offs_d[:, None] * stride_kd + offs_n[None, :] * stride_kn
        k = tl.load(k_tile, mask=mask_d[:, None] & mask_n[None, :], other=0.0).to(tl.float32)
        # [BLOCK_D, BLOCK_M, BLOCK_N], summed along the first axis: mostly within a thread.
        scores = tl.sum(q[:, :, None] * k[:, None, :], axis=0)  # [BLOCK_M, BLOCK_N]
        visible = mask_n[None, :]
        if CAUSAL:
            visible = visible & (offs_n[None, :] <= offs_m[:, None] + N - M)
        scores = tl.where(visible, scores, float("-inf"))

        m_new = tl.maximum(m_i, tl.max(scores, axis=1))  # [BLOCK_M]
        # Without a key so far the largest is -inf, and -inf - -inf is NaN: subtract 0 there.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m_i - m_sub)  # what m_i stood for, in units of m_new; 0 on the first tile
        p = tl.exp(scores - m_sub[:, None])  # [BLOCK_M, BLOCK_N]
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new

        v_tile = v_ptr + b * stride_vb + h * stride_vh
        v_tile += offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
        v = tl.load(v_tile, mask=mask_n[:, None] & mask_d[None, :], other=0.0).to(tl.float32)
        weights, values = tl.trans(p)[:, :, None], v[:, None, :]  # summed over the keys, axis 0
        acc = acc * alpha[:, None]
        if CAUSAL and start + BLOCK_N > first + 1 + N - M:
            # Some query does not see the whole tile. Its weight is 0, but 0 · NaN is NaN.
            seen = tl.trans(visible)[:, :, None]
            acc += tl.sum(tl.where(seen, weights * values, 0.0), axis=0)
        else:
            acc += tl.sum(weights * values, axis=0)  # [BLOCK_M, BLOCK_D]

    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]  # no key at all: zeros
    out_tile = out_ptr + b * stride_ob + h * stride_oh
    out_tile += offs_m[:, None] * stride_om + offs_d[None, :] * stride_od
    mask = mask_m[:, None] & mask_d[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)


def tiled_attention(q, k, v, *, scale=None, causal=False):
    """softmax(q kᵀ · scale) v with a running softmax: any M and N, nothing of size M · N.

    Sources: Milakov and Gimelshein 2018, https://arxiv.org/abs/1805.02867 (the running softmax);
    Dao et al. 2022, algorithm 1, https://arxiv.org/abs/2205.14135 (tiles, m, l and the sum).

    Args:
        q: [..., M, D]; leading dimensions are batch and heads (at most two). Any strides.
        k, v: [..., N, D], with q's leading dimensions, dtype and device; D at most 256.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.
        causal: query m sees keys 0 … m + N - M only (the last query sees all keys).

    Returns:
        [..., M, D] in q's dtype. Scores, softmax and sums are float32. A row without a visible
        key, or whose scores are all -inf, is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    for error in _refusals(q, k, v, scale, causal):
        raise error
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # views: [B, H, M or N, D]
    (B, H, M, D), N = tensors[0].shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    BLOCK_M, BLOCK_N, num_warps = _tiles(D)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _tiled_attention_kernel[(B * H * triton.cdiv(M, BLOCK_M),)](
            *tensors, *(step for x in tensors for step in x.stride()), H, M, N, D, scale,
            CAUSAL=causal, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
            BLOCK_D=triton.next_power_of_2(D), num_warps=num_warps,
        )  # fmt: skip
    return out


def _tiles(D):
    """BLOCK_M, BLOCK_N and warps for D columns: the first row of TILES that is wide enough."""
    return next(tiles for widest, tiles in TILES.items() if widest >= D)


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
INTERPRETED = triton.knobs.runtime.interpret


def _refusals(q, k, v, scale, causal):
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
    if D > max(TILES):
        yield ValueError(f"q and k ask for {D} columns; allowed: at most {max(TILES)}")
    programs = math.prod(heads) * triton.cdiv(q.shape[-2], _tiles(D)[0])
    if programs > MAX_PROGRAMS:
        yield ValueError(f"q and k ask for {programs} programs; allowed: at most {MAX_PROGRAMS}")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")
    if not isinstance(causal, bool):
        yield TypeError(f"causal is {causal!r}; allowed: True, False")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, 4, rows, 64, device=device) for rows in (65, 97, 97))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(q.double(), k.double(), v.double())
    ours, theirs = ((f(q, k, v) - want).abs() for f in (tiled_attention, sdpa))
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * theirs.max() + 4 * torch.finfo(q.dtype).eps * want.abs().max()
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for f in (tiled_attention, sdpa) if device == "cuda" else ():
        print(f"{f.__name__}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
