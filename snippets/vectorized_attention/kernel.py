"""Attention with one Triton program for each query, and all keys of a head in one load.

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
MAX_TILE = 1_048_576  # Triton allows no larger tile; registers end long before (see the page)
MAX_HEAD_DIM = 1_024
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range


@triton.jit
def _vectorized_attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr,  # pointers to the first element of each tensor
    stride_qb, stride_qh, stride_qm, stride_qd,  # step to the next batch, head, row, column
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, M, N, D,  # heads, queries, keys, head dimension
    scale,
    BLOCK_N: tl.constexpr,  # rows of a tile: a power of two, at least N
    BLOCK_D: tl.constexpr,  # columns of a tile: a power of two, at least D
):  # fmt: skip
    """One program computes one row of the output: one query against every key of its head.

    Three loads: its query row, all keys, all values; writes one output row. Keys and values are
    whole tiles in registers, BLOCK_N · BLOCK_D elements each, spread over 128 threads. A thread
    has 255 registers at most: a larger tile spills to memory, and the gain is lost.
    """
    # --8<-- [start:which_query]
    pid = tl.program_id(0)  # 0 … B·H·M - 1
    m = (pid % M).to(tl.int64)  # int64: an offset may pass 2^31 elements
    h = (pid // M % H).to(tl.int64)
    b = (pid // M // H).to(tl.int64)
    # --8<-- [end:which_query]

    # --8<-- [start:grid]
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)  # [BLOCK_N]
    offs_d = tl.arange(0, BLOCK_D).to(tl.int64)  # [BLOCK_D]
    mask_n = offs_n < N  # keys that exist
    mask_d = offs_d < D  # columns that exist
    mask = mask_n[:, None] & mask_d[None, :]  # [BLOCK_N, BLOCK_D]
    k_tile = k_ptr + b * stride_kb + h * stride_kh
    k_tile += offs_n[:, None] * stride_kn + offs_d[None, :] * stride_kd  # addresses
    v_tile = v_ptr + b * stride_vb + h * stride_vh
    v_tile += offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd
    # --8<-- [end:grid]

    # --8<-- [start:scores]
    q_row = q_ptr + b * stride_qb + h * stride_qh + m * stride_qm
    q = tl.load(q_row + offs_d * stride_qd, mask=mask_d, other=0.0).to(tl.float32)  # [BLOCK_D]
    k = tl.load(k_tile, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_D]
    scores = tl.sum(q[None, :] * k, axis=1) * scale  # [BLOCK_N]: a row of k each
    scores = tl.where(mask_n, scores, float("-inf"))  # absent keys weigh exp(-inf) = 0
    # --8<-- [end:scores]

    # --8<-- [start:softmax]
    weights = tl.exp(scores - tl.max(scores, axis=0))  # [BLOCK_N], the largest is exp(0) = 1
    weights = weights / tl.sum(weights, axis=0)
    weights = tl.where(scores == float("-inf"), 0.0, weights)  # not NaN, even where all are -inf
    # --8<-- [end:softmax]

    # --8<-- [start:values]
    v = tl.load(v_tile, mask=mask, other=0.0).to(tl.float32)  # [BLOCK_N, BLOCK_D]
    out = tl.sum(weights[:, None] * v, axis=0)  # [BLOCK_D]: down the columns
    out_row = out_ptr + b * stride_ob + h * stride_oh + m * stride_om
    tl.store(out_row + offs_d * stride_od, out.to(out_ptr.dtype.element_ty), mask=mask_d)
    # --8<-- [end:values]


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
    _check_inputs(q, k, v)
    _check_tile(*k.shape[-2:])
    scale = _scale_or_default(scale, q.shape[-1])
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    tensors = [x[(None,) * (4 - x.dim())] for x in (q, k, v, out)]  # views: [B, H, M or N, D]
    strides = [step for x in tensors for step in x.stride()]
    B, H, M, D = tensors[0].shape
    N = k.shape[-2]
    block_n, block_d = triton.next_power_of_2(N), triton.next_power_of_2(D)
    with torch.cuda.device_of(q):  # launch where the tensors are; does nothing for a CPU tensor
        _vectorized_attention_kernel[(B * H * M,)](
            *tensors, *strides, H=H, M=M, N=N, D=D, scale=scale, BLOCK_N=block_n, BLOCK_D=block_d
        )
    return out


def _check_inputs(q, k, v):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    _check_tensors(2, q=q, k=k, v=v)
    if q.shape[-1] > MAX_HEAD_DIM:
        raise ValueError(f"q has head dimension {q.shape[-1]}; at most {MAX_HEAD_DIM} is allowed")
    if k.shape != (*q.shape[:-2], k.shape[-2], q.shape[-1]):
        want = _fit(*q.shape[:-2], "N", q.shape[-1])
        raise ValueError(f"k has shape {tuple(k.shape)}; with q {tuple(q.shape)} it must be {want}")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must be k's, {tuple(k.shape)}")
    programs = q.numel() // q.shape[-1]
    if programs > MAX_PROGRAMS:
        shape = tuple(q.shape)
        raise ValueError(
            f"q has shape {shape}: {programs} programs; at most {MAX_PROGRAMS} are allowed"
        )
    _check_device("q", q)


def _check_tile(N, D):
    """Raise if Triton would refuse to compile a tile of all keys."""
    rows, columns = triton.next_power_of_2(N), triton.next_power_of_2(D)
    if rows * columns > MAX_TILE:
        raise ValueError(
            f"k has {N} keys of {D} columns, a tile of {rows} x {columns} = "
            f"{rows * columns} elements; at most {MAX_TILE} are allowed"
        )


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
    q = torch.randn(2, 4, 16, 64, device=device)  # [B, H, M, D]
    k, v = torch.randn(2, 2, 4, 33, 64, device=device)  # [B, H, N, D] each; 33 fills no tile
    want = (q.double() @ k.double().mT / math.sqrt(64)).softmax(-1) @ v.double()
    error = (vectorized_attention(q, k, v).double() - want).abs()
    torch_error = (torch.nn.functional.scaled_dot_product_attention(q, k, v) - want).abs().max()
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * torch_error + 4 * torch.finfo(q.dtype).eps * want.abs().max()
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {q.dtype} on {device}")
    print(f"difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}")
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if error.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        for name, attention in (
            ("vectorized_attention", vectorized_attention),
            ("PyTorch", torch.nn.functional.scaled_dot_product_attention),
        ):
            ms = triton.testing.do_bench(lambda f=attention: f(q, k, v), return_mode="median")
            print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if error.max() <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
