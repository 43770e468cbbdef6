"""Attention out of three Triton kernels: a transpose, a matrix product and a row softmax.

float16, bfloat16 or float32, any strides and columns, at most 32,768 keys; any GPU that Triton
compiles for. Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import numbers
import os
from collections import namedtuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

# --8<-- [start:tiles]
# Rows and columns of the result, a step along K, warps, steps in flight, and the shortest K
# that pays: below it a product mostly writes, and small programs side by side do that better.
Tile = namedtuple("Tile", "BLOCK_M BLOCK_N BLOCK_K num_warps num_stages min_K")
TENSOR_CORE_TILES = (  # float16 and bfloat16: the first that fits, see _choose_tile
    Tile(128, 256, 64, num_warps=8, num_stages=3, min_K=256),
    Tile(128, 128, 64, num_warps=4, num_stages=3, min_K=128),
    Tile(128, 64, 64, num_warps=4, num_stages=4, min_K=1),
    Tile(64, 64, 64, num_warps=4, num_stages=4, min_K=1),
    Tile(16, 64, 64, num_warps=4, num_stages=4, min_K=1),
)
FLOAT32_TILES = (  # tensor cores would cut float32 to TF32: these use multiply-adds
    Tile(128, 128, 16, num_warps=8, num_stages=3, min_K=1),
    Tile(64, 64, 16, num_warps=4, num_stages=3, min_K=1),
    Tile(16, 64, 16, num_warps=4, num_stages=3, min_K=1),
)
ENOUGH_PROGRAMS = 128  # about the streaming multiprocessors of a large GPU
TRANSPOSE_TILE = 64  # a square of 64 × 64, for every dtype
# By the longest row, which lives in registers: at most 32 numbers a thread.
SOFTMAX_WARPS = {1024: 4, 2048: 8, 4096: 16, 8192: 8, 16_384: 16, 32_768: 32}
# --8<-- [end:tiles]
CONFIGURATIONS = {"_choose_tile": {"float16": TENSOR_CORE_TILES, "float32": FLOAT32_TILES}}

# The kernels know matrices only: M rows, N columns, and in a product K, which is summed. That M
# counts queries and N keys is the launcher's business.


@triton.jit
def _matrix(ptr, index, H, stride_b, stride_h):
    """Pointer to matrix number `index` of [B, H, …]; int64: an offset may pass 2^31 elements."""
    return ptr + (index // H).to(tl.int64) * stride_b + (index % H).to(tl.int64) * stride_h


@triton.jit
def _transpose_kernel(
    x_ptr, out_ptr,  # x [B, H, M, N], out [B, H, N, M]
    stride_xb, stride_xh, stride_xm, stride_xn,
    stride_ob, stride_oh, stride_on, stride_om,
    H, M, N,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """One program moves one square tile: reads it once, writes its transpose once.

    In between its threads exchange elements in shared memory, so both sides touch whole rows.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    matrix = tl.program_id(0) // (tiles_m * tiles_n)
    offs_m = (tile // tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    offs_n = (tile % tiles_n).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask_m, mask_n = offs_m < M, offs_n < N

    x = _matrix(x_ptr, matrix, H, stride_xb, stride_xh)
    x += offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn
    x = tl.load(x, mask=mask_m[:, None] & mask_n[None, :])  # [BLOCK, BLOCK]

    out = _matrix(out_ptr, matrix, H, stride_ob, stride_oh)
    # Swapped twice: the coordinates of the tile here, those inside it by tl.trans.
    out += offs_n[:, None] * stride_on + offs_m[None, :] * stride_om
    tl.store(out, tl.trans(x), mask=mask_n[:, None] & mask_m[None, :])


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, out_ptr,  # a [B, H, M, K], b [B, H, K, N], out [B, H, M, N]
    stride_ab, stride_ah, stride_am, stride_ak,
    stride_bb, stride_bh, stride_bk, stride_bn,
    stride_ob, stride_oh, stride_om, stride_on,
    H, M, N, K, scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,  # tile rows that are walked together
    EVEN_K: tl.constexpr,  # K is a multiple of BLOCK_K: no mask along K
    UPCAST: tl.constexpr,  # bfloat16 in the interpreter, whose tl.dot gets it wrong
):  # fmt: skip
    """One program computes one tile of scale · a b, the sums on chip in float32.

    Reads BLOCK_M rows of a and BLOCK_N columns of b once, writes its tile of out once.
    """
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    tile = tl.program_id(0) % (tiles_m * tiles_n)
    matrix = tl.program_id(0) // (tiles_m * tiles_n)
    # Down GROUP_M tile rows, then one column on: neighbors share rows of a and columns of b.
    first = tile // (GROUP_M * tiles_n) * GROUP_M
    height = tl.minimum(tiles_m - first, GROUP_M)  # the last group may be lower
    tile_m = first + tile % (GROUP_M * tiles_n) % height
    tile_n = tile % (GROUP_M * tiles_n) // height

    offs_m = tile_m.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n.to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K).to(tl.int64)
    mask_m, mask_n = offs_m < M, offs_n < N
    a_tile = _matrix(a_ptr, matrix, H, stride_ab, stride_ah)
    a_tile += offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak  # [BLOCK_M, BLOCK_K]
    b_tile = _matrix(b_ptr, matrix, H, stride_bb, stride_bh)
    b_tile += offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn  # [BLOCK_K, BLOCK_N]

    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for k in range(0, K, BLOCK_K):
        mask_k = (offs_k < K - k) | EVEN_K  # EVEN_K is known when compiling: no mask is left
        a = tl.load(a_tile, mask=mask_m[:, None] & mask_k[None, :], other=0.0)
        b = tl.load(b_tile, mask=mask_k[:, None] & mask_n[None, :], other=0.0)
        if UPCAST:
            a, b = a.to(tl.float32), b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision="ieee")  # ieee: float32 is not cut to TF32
        a_tile += tl.cast(stride_ak, tl.int64) * BLOCK_K
        b_tile += tl.cast(stride_bk, tl.int64) * BLOCK_K

    out = _matrix(out_ptr, matrix, H, stride_ob, stride_oh)
    out += offs_m[:, None] * stride_om + offs_n[None, :] * stride_on
    acc = acc * scale  # once for each element, on chip: no pass over memory for it
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_n[None, :])


@triton.jit
def _softmax_kernel(
    x_ptr, out_ptr,  # [B, H, M, N] each; may be the same memory
    stride_xb, stride_xh, stride_xm, stride_xn,
    stride_ob, stride_oh, stride_om, stride_on,
    H, M, N,
    BLOCK_N: tl.constexpr,  # a power of two, at least N
):  # fmt: skip
    """One program computes one row: reads it once, writes it once, in between it stays on chip."""
    m = (tl.program_id(0) % M).to(tl.int64)
    matrix = tl.program_id(0) // M
    offs_n = tl.arange(0, BLOCK_N).to(tl.int64)
    mask_n = offs_n < N
    x = _matrix(x_ptr, matrix, H, stride_xb, stride_xh)
    x += m * stride_xm + offs_n * stride_xn
    x = tl.load(x, mask=mask_n, other=float("-inf")).to(tl.float32)  # exp(-inf) = 0: no weight

    # The maximum needs all of the row: it is loaded before anything is stored in its place.
    largest = tl.max(x, axis=0)
    largest = tl.where(largest == float("-inf"), 0.0, largest)  # -inf - (-inf) is NaN
    weights = tl.exp(x - largest)
    total = tl.sum(weights, axis=0)  # at least 1, or 0 in a row of -inf alone
    weights = weights / tl.where(total == 0.0, 1.0, total)

    out = _matrix(out_ptr, matrix, H, stride_ob, stride_oh)
    out += m * stride_om + offs_n * stride_on
    tl.store(out, weights.to(out_ptr.dtype.element_ty), mask=mask_n)


def _launch(kernel, block, tensors, **options):
    """Launch a program for each block of rows and columns of the last tensor, the result."""
    B, H, rows, columns = tensors[-1].shape
    programs = B * H * triton.cdiv(rows, block[0]) * triton.cdiv(columns, block[1])
    strides = [stride for x in tensors for stride in x.stride()]
    with torch.cuda.device_of(tensors[0]):  # where they are; does nothing for a CPU
        kernel[(programs,)](*tensors, *strides, H=H, **options)


def _run_transpose(x, out):
    (_, _, M, N), block = x.shape, TRANSPOSE_TILE
    _launch(_transpose_kernel, (block, block), (x, out), M=M, N=N, BLOCK=block)


def _run_matmul(a, b, out, scale=1.0):
    (B, H, M, K), N = a.shape, b.shape[-1]
    tile = _choose_tile(B * H, M, N, K, a)
    _launch(
        _matmul_kernel, tile[:2], (a, b, out), M=M, N=N, K=K, scale=scale,
        BLOCK_M=tile.BLOCK_M, BLOCK_N=tile.BLOCK_N, BLOCK_K=tile.BLOCK_K, GROUP_M=8,
        EVEN_K=K % tile.BLOCK_K == 0, UPCAST=INTERPRETED and a.dtype == torch.bfloat16,
        num_warps=tile.num_warps, num_stages=tile.num_stages,
    )  # fmt: skip


def _run_softmax(x, out):
    (_, _, M, N), block = x.shape, triton.next_power_of_2(x.shape[-1])
    warps = next(warps for longest, warps in SOFTMAX_WARPS.items() if N <= longest)
    _launch(_softmax_kernel, (1, N), (x, out), M=M, N=N, BLOCK_N=block, num_warps=warps)


def _choose_tile(matrices, M, N, K, a):
    """The first tile that pays, is not twice the result, and leaves enough programs."""
    gpu = torch.cuda.get_device_properties(a.device) if a.device.type == "cuda" else None
    # Before capability 8.0 Triton uses no tensor core.
    cores = a.dtype != torch.float32 and (gpu is None or gpu.major >= 8)
    for tile in TENSOR_CORE_TILES if cores else FLOAT32_TILES:
        programs = matrices * triton.cdiv(M, tile.BLOCK_M) * triton.cdiv(N, tile.BLOCK_N)
        stages = min(tile.num_stages, triton.cdiv(K, tile.BLOCK_K))
        staged = stages * (tile.BLOCK_M + tile.BLOCK_N) * tile.BLOCK_K * a.element_size()
        fits = gpu is None or staged <= gpu.shared_memory_per_block_optin
        fits = fits and tile.BLOCK_M < 2 * M and tile.BLOCK_N < 2 * N
        if fits and K >= tile.min_K and programs >= ENOUGH_PROGRAMS:
            break  # otherwise the last one is taken
    return tile._replace(num_stages=stages)


def composed_attention(q, k, v, *, scale=None):
    """softmax(q kᵀ · scale) v from a transpose, a product, a softmax and another product.

    Args:
        q: [D] or [..., M, D]; leading dimensions are batch and heads, at most two.
        k, v: [..., N, D], with q's leading dimensions, dtype and device. Any strides.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None.

    Returns:
        q's shape and dtype. Scores, softmax and sums are float32; weights are rounded to q's
        dtype before they meet v. A row whose scores are all -inf is 0. Takes memory for kᵀ and for
        M · N float32 scores.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Vaswani et al. 2017, section 3.2.1, https://arxiv.org/abs/1706.03762
    """
    tensors = {"q": q, "k": k, "v": v}  # their rows and columns; those of kᵀ, scores and output
    for error in _refusals(tensors, "MD ND ND", "DN MN MD", row="N", scale=scale):
        raise error
    shape = q.shape
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))  # views: [B, H, M or N, D]
    (B, H, M, D), N = q.shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    k_t, out = q.new_empty(B, H, D, N), q.new_empty(B, H, M, D)
    scores = q.new_empty(B, H, M, N, dtype=torch.float32)
    weights = scores.view(q.dtype)[..., :N]  # no new memory: each row where its scores were

    _run_transpose(k, k_t)
    _run_matmul(q, k_t, scores, scale)
    _run_softmax(scores, weights)
    _run_matmul(weights, v, out)
    return out.view(shape)


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
INTERPRETED = triton.knobs.runtime.interpret


def _refusals(tensors, forms, results="", row="", scale=None):
    """What the kernels cannot do, in order: which argument, what came, what is allowed.

    `forms` names the rows and columns of each tensor and `results` those of each launch; `row` is
    the size that a softmax goes along, and with one the first tensor may be a vector.
    """
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    (first, q), least, sizes = next(iter(tensors.items())), 1 if row else 2, {}
    for (name, x), form in zip(tensors.items(), forms.split(), strict=True):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype not in DTYPES:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
        if (x.dtype, x.device) != (q.dtype, q.device):
            yield TypeError(f"{name} is {x.dtype} on {x.device}; allowed: {q.dtype} on {q.device}")
        if not least <= x.dim() <= 4 or x.numel() == 0:
            shape = f"{(*x.shape,)}; allowed: {least} to 4 dimensions, none 0"
            yield ValueError(f"{name} has shape {shape}")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        sizes = dict(zip(form[::-1], x.shape[::-1], strict=False)) | sizes  # a vector has no rows
        fits = *q.shape[:-2], *(sizes.get(size, size) for size in form)
        if name != first and x.shape != fits:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with {first}: {(*fits,)}")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")
    if results and q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        needs = "a GPU, or a CPU with TRITON_INTERPRET=1"
        yield ValueError(f"{first} is on {q.device}; allowed: {needs}")
    longest = max(SOFTMAX_WARPS)
    if results and row and sizes[row] > longest:
        yield ValueError(f"{first} asks for rows of {sizes[row]}; allowed: at most {longest}")
    for rows, columns in results.split():  # a program computes 64 columns of a row, or more
        programs = q.shape[:-2].numel() * sizes.get(rows, 1) * triton.cdiv(sizes[columns], 64)
        if programs >= 2**31:  # CUDA's limit for the first grid dimension
            yield ValueError(f"{first} asks for {programs} programs; allowed: at most {2**31 - 1}")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, 4, rows, 64, device=device) for rows in (16, 33, 33))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(q.double(), k.double(), v.double())
    ours, theirs = ((f(q, k, v) - want).abs() for f in (composed_attention, sdpa))
    # Both round each float32 operation; a right kernel stays within a small multiple of PyTorch.
    allowed = 4 * theirs.max() + 4 * torch.finfo(q.dtype).eps * want.abs().max()
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for f in (composed_attention, sdpa) if device == "cuda" else ():
        print(f"{f.__name__}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
