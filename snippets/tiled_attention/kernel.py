"""Attention for a block of queries per program: keys and values in tiles, online softmax.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
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

INTERPRETED = triton.knobs.runtime.interpret
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range

# --8<-- [start:tiles]
# Columns, at most → queries per program, keys per tile, warps. Chosen by the clock on an H200: of
# the tiles with which a thread multiplies 64 or 128 pairs for the scores, the fastest.
TILES = {64: (16, 32, 8), 128: (8, 32, 16), 256: (8, 8, 4)}
# --8<-- [end:tiles]
CONFIGURATIONS = {"_tiles": TILES}  # what the coverage grid chooses among


@triton.jit
def _tiled_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, M, N, D,  # heads, queries, keys, head dimension
    scale,
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
    # --8<-- [start:which_queries]
    blocks = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B·H·blocks - 1
    first = pid % blocks * BLOCK_M
    h = (pid // blocks % H).to(tl.int64)  # int64: an offset may pass 2^31 elements
    b = (pid // blocks // H).to(tl.int64)
    offs_m = first + tl.arange(0, BLOCK_M).to(tl.int64)  # [BLOCK_M]: these queries
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_m = offs_m < M
    mask_d = offs_d < D
    # --8<-- [end:which_queries]

    # --8<-- [start:start]
    q_tile = q_ptr + b * stride_qb + h * stride_qh
    q_tile += offs_d[:, None] * stride_qd + offs_m[None, :] * stride_qm
    q = tl.load(q_tile, mask=mask_d[:, None] & mask_m[None, :], other=0.0).to(tl.float32)
    q = q * scale  # [BLOCK_D, BLOCK_M]: a query is a column
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # largest score so far
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of exp(score - m_i) so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # values so far, weighted by exp(score - m_i)
    # --8<-- [end:start]

    # --8<-- [start:visible]
    stop = N  # keys from here on are seen by none of these queries
    if CAUSAL:
        stop = tl.minimum(N, first + BLOCK_M + N - M)
    # --8<-- [end:visible]
    for start in range(0, stop, BLOCK_N):
        # --8<-- [start:scores]
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
        # --8<-- [end:scores]

        # --8<-- [start:running]
        m_new = tl.maximum(m_i, tl.max(scores, axis=1))  # [BLOCK_M]
        # Without a key so far the largest is -inf, and -inf - -inf is NaN: subtract 0 there.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp(m_i - m_sub)  # what m_i stood for, in units of m_new; 0 on the first tile
        p = tl.exp(scores - m_sub[:, None])  # [BLOCK_M, BLOCK_N]
        l_i = l_i * alpha + tl.sum(p, axis=1)
        m_i = m_new
        # --8<-- [end:running]

        # --8<-- [start:values]
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
        # --8<-- [end:values]

    # --8<-- [start:finish]
    out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]  # no key at all: zeros
    out_tile = out_ptr + b * stride_ob + h * stride_oh
    out_tile += offs_m[:, None] * stride_om + offs_d[None, :] * stride_od
    mask = mask_m[:, None] & mask_d[None, :]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)
    # --8<-- [end:finish]


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
    _check_inputs(q, k, v, causal)
    scale = _scale_or_default(scale, q.shape[-1])
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # four dimensions each
    strides = [stride for x in tensors for stride in x.stride()]
    B, H, M, D = tensors[0].shape
    BLOCK_M, BLOCK_N, num_warps = _tiles(D)
    with torch.cuda.device_of(q):  # launch where the tensors are; nothing for a CPU tensor
        _tiled_attention_kernel[(B * H * triton.cdiv(M, BLOCK_M),)](
            *tensors,
            *strides,
            H=H,
            M=M,
            N=k.shape[-2],
            D=D,
            scale=scale,
            CAUSAL=causal,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
            BLOCK_D=triton.next_power_of_2(D),
            num_warps=num_warps,
        )
    return out


def _tiles(D):
    """BLOCK_M, BLOCK_N and warps for D columns: the first row of TILES that is wide enough."""
    return next(tiles for widest, tiles in TILES.items() if widest >= D)


def _check_inputs(q, k, v, causal):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    _check_tensors(2, q=q, k=k, v=v)
    if q.shape[-1] > max(TILES):
        raise ValueError(f"q has head dimension {q.shape[-1]}; at most {max(TILES)} is allowed")
    if k.shape != (*q.shape[:-2], k.shape[-2], q.shape[-1]):
        want = _fit(*q.shape[:-2], "N", q.shape[-1])
        raise ValueError(f"k has shape {tuple(k.shape)}; with q {tuple(q.shape)} it must be {want}")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must be k's, {tuple(k.shape)}")
    programs = math.prod(q.shape[:-2]) * triton.cdiv(q.shape[-2], _tiles(q.shape[-1])[0])
    if programs > MAX_PROGRAMS:
        shape = tuple(q.shape)
        raise ValueError(
            f"q has shape {shape}: {programs} programs; at most {MAX_PROGRAMS} are allowed"
        )
    _check_mask(causal)
    _check_device("q", q)


def _check_tensors(least, **tensors):
    """Raise for tensors that no kernel here takes; all must match the first."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; instead of vmap use "
            "leading dimensions, and for gradients torch.autograd.grad"
        )
    first, like = next(iter(tensors.items()))
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
        if x.is_nested or x.layout != torch.strided:
            layout = "nested" if x.is_nested else x.layout
            raise TypeError(f"{name} is {layout}; it must be dense, torch.strided")
        if x.dtype not in DTYPES:
            raise TypeError(f"{name} is {x.dtype}; {', '.join(map(str, DTYPES))} are allowed")
        if x.dtype != like.dtype:
            raise TypeError(
                f"{name} is {x.dtype} but {first} is {like.dtype}; cast them to one dtype"
            )
        if x.device != like.device:
            raise ValueError(
                f"{name} is on {x.device} but {first} is on {like.device}; move one of them"
            )
        shape = tuple(x.shape)
        if not least <= x.dim() <= 4:
            raise ValueError(f"{name} has shape {shape}; {least} to 4 dimensions are allowed")
        if x.numel() == 0:
            raise ValueError(f"{name} has shape {shape}; no dimension may be 0")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires grad and there is no backward; use torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            raise ValueError(f"{name} is a negated view; use {name}.resolve_neg()")


def _check_mask(causal, align="bottom_right"):
    """Raise for a causal mask that is not among those of the kernel."""
    if not isinstance(causal, bool):
        raise TypeError(f"causal has type {_type_name(causal)}; it must be a bool, True or False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise ValueError(f"align is {align!r}; it must be 'bottom_right' or 'top_left'")


def _check_device(name, x):
    """Raise unless a kernel can run where x is: on a GPU, or on a CPU in the interpreter."""
    kind = x.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"{name} is on {x.device}; the kernel needs a CUDA device{hint}")


def _scale_or_default(scale, D):
    """The scale as a float, 1/√D for None; raise for what is no number or out of range."""
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise TypeError(f"scale has type {_type_name(scale)}; it must be a number or None")
    try:
        number = float(scale)
    except OverflowError:  # an integer beyond all floats
        number = math.inf
    if not 1 / MAX_SCALE <= number <= MAX_SCALE:
        raise ValueError(f"scale is {number}; it must lie between 2^-64 and 2^64")
    return number


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def _fit(*shape):
    """A shape with names for the sizes that are free, as an error shows it: (2, N, 64)."""
    return str(shape).replace("'", "")


def main():
    """Check the kernel against eager PyTorch in float64, and time both where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    q = torch.randn(2, 4, 65, 64, device=device)  # [B, H, M, D]; 65 fills no block
    k, v = torch.randn(2, 2, 4, 97, 64, device=device)  # [B, H, N, D] each; nor does 97
    want = (q.double() @ k.double().mT / math.sqrt(64)).softmax(-1) @ v.double()
    error = (tiled_attention(q, k, v).double() - want).abs()
    torch_error = (torch.nn.functional.scaled_dot_product_attention(q, k, v) - want).abs().max()
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * torch_error + 4 * torch.finfo(q.dtype).eps * want.abs().max()
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {q.dtype} on {device}")
    print(f"difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}")
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if error.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        for name, attention in (
            ("tiled_attention", tiled_attention),
            ("PyTorch", torch.nn.functional.scaled_dot_product_attention),
        ):
            ms = triton.testing.do_bench(lambda f=attention: f(q, k, v), return_mode="median")
            print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if error.max() <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
