"""What a model does beside attention, in one order of additions however many rows there are.

A product of fixed tiles, never split along K; RMSNorm and log-softmax, one program a row. Forward
only. Needs torch >= 2.11 and triton >= 3.6.
"""

import torch
import triton
import triton.language as tl

UPCAST = tl.constexpr(triton.knobs.runtime.interpret)  # which cannot compute with bfloat16
TILE = 64  # rows, columns and terms of one product; no size of a tensor changes it


# --8<-- [start:product]
@triton.jit(do_not_specialize=["M", "N", "K", "stride_x", "stride_w"])
def _linear_kernel(
    x_ptr, w_ptr, out_ptr,  # [M, K], [N, K], [M, N] without gaps
    M, N, K, stride_x, stride_w,  # step to the next row; columns are contiguous
    TILE: tl.constexpr,
):  # fmt: skip
    """One program computes a tile of x wᵀ and adds its terms from the first to the last."""
    num_tiles = tl.cdiv(N, TILE)
    offs_m = (tl.program_id(0) // num_tiles * TILE + tl.arange(0, TILE)).to(tl.int64)  # [TILE]
    offs_n = (tl.program_id(0) % num_tiles * TILE + tl.arange(0, TILE)).to(tl.int64)  # [TILE]
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, K, TILE):
        offs_k = start + tl.arange(0, TILE)  # [TILE]
        mask_k = (offs_k < K)[None, :]
        x_tile, w_tile = x_ptr + offs_m[:, None] * stride_x, w_ptr + offs_n[:, None] * stride_w
        x = tl.load(x_tile + offs_k[None, :], mask=(offs_m < M)[:, None] & mask_k, other=0.0)
        w = tl.load(w_tile + offs_k[None, :], mask=(offs_n < N)[:, None] & mask_k, other=0.0)
        if UPCAST:
            x, w = x.to(tl.float32), w.to(tl.float32)
        acc = tl.dot(x, w.T, acc, input_precision="ieee")
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    out_tile = out_ptr + offs_m[:, None] * N + offs_n[None, :]
    tl.store(out_tile, acc.to(out_ptr.dtype.element_ty), mask=mask)


def linear(x, weight):
    """x [..., K] times weight [N, K] transposed, in x's dtype: F.linear without a bias."""
    if x.shape[-1] != weight.shape[-1] or x.dtype != weight.dtype or weight.stride(-1) != 1:
        what = f"{x.dtype} {(*x.shape,)} and {weight.dtype} {(*weight.shape,)}"
        raise ValueError(f"x and weight are {what}; allowed: one dtype, [..., K] and [N, K]")
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    (M, K), N = rows.shape, len(weight)
    out = x.new_empty(*x.shape[:-1], N)
    programs = triton.cdiv(M, TILE) * triton.cdiv(N, TILE)
    with torch.cuda.device_of(x):
        _linear_kernel[(programs,)](
            rows, weight, out, M, N, K, K, weight.stride(0), TILE=TILE, num_warps=4, num_stages=4
        )
    return out


# --8<-- [end:product]


@triton.jit
def _rms_norm_kernel(x_ptr, weight_ptr, out_ptr, eps, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """One program normalizes one row."""
    row, offs = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    x = tl.load(x_ptr + row * D + offs, mask=offs < D, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / D + eps)
    weight = tl.load(weight_ptr + offs, mask=offs < D, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * D + offs, x * scale * weight, mask=offs < D)


def rms_norm(x, normalized_shape, weight, eps):
    """F.rms_norm over the last dimension, in float32."""
    D = x.shape[-1]
    if tuple(normalized_shape) != (D,) or not x.is_contiguous():
        raise ValueError(
            f"x has shape {(*x.shape,)}; allowed: contiguous [..., {normalized_shape}]"
        )
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _rms_norm_kernel[(x.numel() // D,)](
            x, weight, out, eps, D=D, BLOCK_D=triton.next_power_of_2(D), num_warps=4
        )
    return out


@triton.jit
def _log_softmax_kernel(x_ptr, out_ptr, D: tl.constexpr, BLOCK_D: tl.constexpr):
    """One program computes the logarithms of one row's probabilities."""
    row, offs = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK_D)
    x = tl.load(x_ptr + row * D + offs, mask=offs < D, other=float("-inf"))
    x -= tl.max(x, axis=0)
    tl.store(out_ptr + row * D + offs, x - tl.log(tl.sum(tl.exp(x), axis=0)), mask=offs < D)


def log_softmax(x, dim=-1):
    """Logarithms of the softmax over the last dimension of float32 x."""
    if dim != -1 or x.dtype != torch.float32:
        raise ValueError(f"x is {x.dtype}, dim {dim}; allowed: float32, the last dimension")
    x, D = x.contiguous(), x.shape[-1]
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _log_softmax_kernel[(x.numel() // D,)](
            x, out, D=D, BLOCK_D=triton.next_power_of_2(D), num_warps=4
        )
    return out
