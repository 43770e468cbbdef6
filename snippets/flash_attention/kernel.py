"""Attention on tensor cores: a block of queries for each program, keys and values tile by tile.

float16, bfloat16 or float32 (on CUDA cores), 16 to 256 columns in steps of 8, the columns of a row
side by side; NVIDIA GPUs from capability 7.5 on, AMD's gfx942.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextvars
import functools
import numbers
import os
from collections import namedtuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2


# --8<-- [start:table]
# Queries of a program, keys of an iteration, warps, iterations whose loads are in flight at once;
# and whether one warp loads while the others compute.
Tile = namedtuple("Tile", "BLOCK_M BLOCK_N num_warps num_stages warp_specialize", defaults=[False])
# Architecture → largest D that a tile is for → the tile; or two: without a causal mask, and with.
# Those of sm_90 for D 64 and 128 are the fastest that we timed on an H200; the others fit.
HOPPER_128 = Tile(128, 128, 4, 2, warp_specialize=True), Tile(64, 64, 4, 3)
TILE_CONFIGS = {
    "sm_75": {64: Tile(64, 32, 8, 1), 128: Tile(32, 32, 8, 1)},  # float16, on no tensor core
    "sm_80": {64: Tile(128, 64, 8, 3), 128: Tile(128, 64, 8, 3), 256: Tile(64, 64, 8, 2)},
    # Also 8.6 and 12.0: less shared memory.
    "sm_89": {64: Tile(128, 32, 4, 3), 128: Tile(128, 32, 8, 2), 256: Tile(64, 32, 8, 2)},
    "sm_90": {64: Tile(64, 128, 4, 2), 128: HOPPER_128, 256: Tile(128, 64, 8, 2)},
    "sm_100": {64: Tile(128, 64, 4, 3), 128: Tile(128, 128, 8, 2), 256: Tile(64, 64, 4, 2)},
    "gfx942": {64: Tile(128, 64, 4, 1), 128: Tile(128, 64, 8, 1), 256: Tile(64, 32, 8, 1)},
    # On every architecture: no tensor core keeps float32's precision.
    "float32": {64: Tile(64, 32, 8, 2), 128: Tile(32, 16, 4, 2), 256: Tile(32, 16, 8, 2)},
}
CONFIGURATIONS = {"_tile_config": TILE_CONFIGS}  # what a test may choose instead: all of it
# --8<-- [end:table]


@triton.jit(do_not_specialize=["N"])  # N = 1 as a constant crashes the assembler of Triton 3.6.0
def _flash_attention_kernel(
    q_ptr, k, v,  # k and v: descriptors of [B, Hkv, N, D], or pointers to the first element
    out_ptr, lse_ptr,  # [B, H, M, D] and, or None, [B, H, M]: contiguous
    stride_qb, stride_qh, stride_qm,  # step to the next batch, head, row; columns are contiguous
    stride_kb, stride_kh, stride_kn,
    stride_vb, stride_vh, stride_vn,
    H, G,  # heads of queries, and how many of them share a head of keys
    M, N,  # queries, keys
    causal_offset,  # with a causal mask query m sees the keys up to m + causal_offset
    scale_log2,  # scale · log2(e)
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,  # causal, or N is no multiple of BLOCK_N
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,  # a power of two, at least D
    USE_TMA: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    EXACT: tl.constexpr,  # for huge scores: they are scaled after the largest is subtracted
):  # fmt: skip
    """One program computes BLOCK_M rows of the output of one head.

    Reads its queries once and the keys and values its queries may see, BLOCK_N at a time; writes
    its rows of the output and, where asked, their logsumexp. Scores never leave the chip: acc
    [BLOCK_M, BLOCK_D], l_i and m_i stay in registers, the tiles of k and v in shared memory.
    """
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B · H · num_tiles - 1: neighbors share a head, so its k and v
    tile_idx = pid % num_tiles
    if CAUSAL:  # the last rows see most keys: start the longest work first
        tile_idx = num_tiles - 1 - tile_idx
    b, h = pid // num_tiles // H, pid // num_tiles % H
    hk = h // G  # the head of keys and values
    offs_m = tile_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]

    last_key = tl.full([BLOCK_M], N - 1, tl.int32)  # [BLOCK_M]: the last key that a query sees
    # Every query of the block sees the keys below unmasked_end; none sees a key from end on.
    unmasked_end, end = N, N
    if CAUSAL:
        last_key = tl.minimum(last_key, offs_m + causal_offset)
        unmasked_end = tl.minimum(N, tl.maximum(tile_idx * BLOCK_M + causal_offset + 1, 0))
        end = tl.minimum(N, tl.maximum((tile_idx + 1) * BLOCK_M + causal_offset, 0))
    unmasked_end = unmasked_end // BLOCK_N * BLOCK_N  # whole tiles that need no mask

    q_ptr += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    if not USE_TMA:  # from here on pointers to the head, as q
        k += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
        v += b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    if WARP_SPECIALIZE:  # a descriptor made here can be divided between the computing warps
        q = tl.make_tensor_descriptor(q_ptr, [M, D], [stride_qm, 1], [BLOCK_M, BLOCK_D])
        # A distinct expression: the compiler moves it, and offs_m must keep tile_idx * BLOCK_M.
        q_tile = q.load([(tile_idx + 1) * BLOCK_M - BLOCK_M, 0])
        q_tile = q_tile.to(tl.float32) if UPCAST and q_tile.dtype == tl.bfloat16 else q_tile
    else:
        first_row = tile_idx * BLOCK_M
        q_tile = _load_rows(
            q_ptr, b, h, first_row, M, stride_qm, D=D, BLOCK=BLOCK_M, BLOCK_D=BLOCK_D, USE_TMA=False
        )

    # --8<-- [start:attend]
    # Usually scores are scaled first: one multiply-add then scales and subtracts. But it subtracts
    # a maximum that was rounded, and where scores are huge that is far off. EXACT scales last.
    before, after = (1.0, scale_log2) if EXACT else (scale_log2, 1.0)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)  # the largest score so far, times before
    l_i = tl.zeros([BLOCK_M], tl.float32)  # sum of the weights so far
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # the same sum, of values
    tail_bias = tl.where(tl.arange(0, BLOCK_N) < N - unmasked_end, 0.0, float("-inf"))  # [BLOCK_N]
    for start in tl.range(0, end, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        k_tile = _load_rows(
            k, b, hk, start, N, stride_kn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # Q Kᵀ: [BLOCK_M, BLOCK_N], float32
        if MASKED and WARP_SPECIALIZE:  # no branch here: add 0, and in the last tile the bias
            bias = tl.maximum(tail_bias, tl.where(start < unmasked_end, 0.0, float("-inf")))
            s += bias[None, :]
        elif MASKED and start >= unmasked_end:  # the same answer for all threads
            offs_n = start + tl.arange(0, BLOCK_N)  # [BLOCK_N]
            s = tl.where(offs_n[None, :] <= last_key[:, None], s, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(s, axis=1) * before)  # [BLOCK_M]
        # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
        m_sub = tl.where(m_new == float("-inf"), 0.0, m_new)
        alpha = tl.exp2((m_i - m_sub) * after)  # what the old maximum was worth
        p = tl.exp2((s * before - m_sub[:, None]) * after)  # a multiply-add and an exp2 a score
        row_sum = tl.sum(p, axis=1)
        rounded = p.to(q_tile.dtype)  # here, and l_i last: the fastest order, as measured
        acc = acc * alpha[:, None]
        v_tile = _load_rows(
            v, b, hk, start, N, stride_vn, D=D, BLOCK=BLOCK_N, BLOCK_D=BLOCK_D, USE_TMA=USE_TMA
        )
        acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")  # acc + P V
        l_i = l_i * alpha + row_sum
        m_i = m_new
    # --8<-- [end:attend]

    l_i = tl.where(l_i == 0.0, 1.0, l_i)  # no visible key: acc is zero, and so is the row
    out = acc * (1.0 / l_i)[:, None]  # one division a row
    offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
    row = (b.to(tl.int64) * H + h) * M + offs_m  # [BLOCK_M]
    out_tile = out_ptr + row[:, None] * D + offs_d[None, :]
    mask_m = offs_m < M  # [BLOCK_M]
    mask = mask_m[:, None] & (offs_d < D)[None, :]  # [BLOCK_M, BLOCK_D]
    tl.store(out_tile, out.to(out_ptr.dtype.element_ty), mask=mask)
    if lse_ptr is not None:
        tl.store(lse_ptr + row, (m_i * after + tl.log2(l_i)) / LOG2_E, mask=mask_m)


@triton.jit
def _load_rows(
    x,  # TMA: descriptor of [B, H, rows, D]; otherwise pointer to the head's first element
    b,
    h,
    first_row,
    num_rows,
    stride_row,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_D: tl.constexpr,
    USE_TMA: tl.constexpr,
):
    """Rows first_row … first_row + BLOCK - 1 of a head, zeros beyond num_rows and D."""
    if USE_TMA:  # the hardware finds the addresses, and knows where the tensor ends
        tile = x.load([b, h, first_row, 0]).reshape([BLOCK, BLOCK_D])
    else:
        # int64: an offset may pass 2^31 elements
        offs_row = first_row + tl.arange(0, BLOCK).to(tl.int64)  # [BLOCK]
        offs_d = tl.arange(0, BLOCK_D)  # [BLOCK_D]
        mask = (offs_row < num_rows)[:, None]  # [BLOCK, 1]
        if D < BLOCK_D:
            mask = mask & (offs_d < D)[None, :]  # [BLOCK, BLOCK_D]
        tile = tl.load(x + offs_row[:, None] * stride_row + offs_d[None, :], mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST and tile.dtype == tl.bfloat16 else tile


def flash_attention(q, k, v, *, scale=None, causal=False, align="bottom_right", return_lse=False):
    """softmax(q kᵀ · scale) v on tensor cores; no matrix of scores ever exists.

    Source: Dao 2023, https://arxiv.org/abs/2307.08691, algorithm 1

    Args:
        q: [..., H, M, D], float16, bfloat16 or float32 (on CUDA cores); D 16 to 256 in steps of 8;
            H and a batch may be left out. Any strides, but the D columns of a row lie side by side.
        k, v: [..., Hkv, N, D], H a multiple of Hkv: groups of query heads share a head of keys.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None. In 16 bits, with one of at
            most 1, no product of a query and a key times it may pass 2^27: beyond, rounding on a
            GPU may end in NaN or zeros.
        causal: query m sees the keys up to m + N - M; those without any get zeros.
        align: where the triangle of visible keys sits if M ≠ N: "bottom_right", as above, or
            "top_left": query m sees the keys up to m; without causal it has no effect.
        return_lse: also return the natural logarithm of the sum of exp(score), -inf for no key.

    Returns:
        [..., H, M, D] in q's dtype; with return_lse also [..., H, M] in float32. A row without a
        visible key, or whose scores are all -inf, is 0.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    plan = _plan(q, k, v, scale, causal, align, return_lse)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    # A kernel that makes a descriptor needs memory for it; the caller's own allocator stays.
    context = contextvars.copy_context()
    context.run(triton.set_allocator, lambda size, *_: q.new_empty(size, dtype=torch.int8))
    context.run(_launch, q, k, v, out, lse, *plan)
    return (out, lse) if return_lse else out


_plans = {}  # what a call is like → its plan


def _plan(q, k, v, scale, causal, align, return_lse):
    """What a launch needs besides tensors; all that is refused is asked once for calls alike.

    Programs; their tile; shape, strides and block of k and v, if TMA loads them; the kernel's
    arguments from stride_qb on; and what Triton would compile a kernel for, of all this.
    """
    asked = scale, causal, align, return_lse
    try:
        key = (
            _facts(q), _facts(k), _facts(v), asked, *map(type, asked),  # 1 equals True
            torch.is_grad_enabled(), peek_interpreter_stack(), forward_ad._current_level,
            _architecture, _tile_config, INTERPRETED,
        )  # fmt: skip
        return _plans[key]
    except (AttributeError, KeyError, RuntimeError, TypeError) as new_or_wrong:
        for error in _refusals(q, k, v, scale, causal, align, return_lse):
            raise error from None
        if not isinstance(new_or_wrong, KeyError):
            raise
    addresses = [x.data_ptr() % 16 for x in (q, k, v)]
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), (_, Hkv, N, _), gpu = q.shape, k.shape, _architecture(q.device)
    config = _tile_config(gpu, q.dtype, D, causal)
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3]
    # Without tensor cores the tiles end in registers: pointers bring them there directly.
    use_tma = gpu in ("sm_90", "sm_100") and q.dtype != torch.float32 and not any(addresses)
    use_tma = use_tma and all(step and step * q.itemsize % 16 == 0 for step in strides)
    causal_offset = N - M if align == "bottom_right" else 0
    scale = D**-0.5 if scale is None else float(scale)
    sizes = (*strides, H, H // Hkv, M, N, causal_offset, scale * LOG2_E.value)
    masked, exact = causal or N % config.BLOCK_N != 0, q.dtype == torch.float32 or scale > 1
    tile = (*config[:2], triton.next_power_of_2(D))
    warp_specialize = use_tma and config.warp_specialize and not causal  # no loop with a branch
    constants = (D, causal, masked, *tile, use_tma, warp_specialize, exact)
    rows = [(x.shape, x.stride(), [1, 1, *tile[1:]]) for x in (k, v) if use_tma]
    kinds = [(x == 1, x % 16 == 0, x < 2**31) for x in sizes]
    kind = str((q.device, q.dtype, config, constants, addresses, kinds))  # whose hash Python keeps
    if len(_plans) == 4096:
        _plans.clear()
    programs = triton.cdiv(M, config.BLOCK_M) * H * B
    return _plans.setdefault(key, (programs, config, rows, (*sizes, *constants), kind))


def _facts(x):
    """All that a refusal or a plan may ask of a tensor: one that is not dense has none of it."""
    memory = x.data_ptr() % 16, x.is_neg(), x.shape, x.stride()
    return type(x), x.dtype, x.device, x.requires_grad, memory


_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(q, k, v, out, lse, programs, config, rows, arguments, kind):
    """Launch the kernel on tensors, as their plan says.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    """
    if q.is_cuda and q.device.index != torch.cuda.current_device():
        with torch.cuda.device(q.device):
            return _launch(q, k, v, out, lse, programs, config, rows, arguments, kind)
    addresses = [x if x is None else x.data_ptr() for x in (q, k, v, out, lse)]
    run, results = triton.knobs.runtime, [x and x % 16 for x in addresses[3:]]
    key = kind, *results, run.debug, triton.knobs.compilation.instrumentation_mode
    if rows:
        addresses[1:3] = k, v = Rows(k, rows[0]), Rows(v, rows[1])
    kernel = _compiled.get(key)
    # A profiler's hooks are Triton's to call: each takes time, even where there is nothing to do.
    hooks = [getattr(x, "calls", True) for x in (run.launch_enter_hook, run.launch_exit_hook)]
    if kernel is None or any(hooks):
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        kernel = _flash_attention_kernel[(programs,)](q, k, v, out, lse, *arguments, **options)
        # The interpreter has none; AMD's compiler asks how much memory a tensor lies in, too.
        if kernel is not None and torch.version.hip is None:
            _compiled[key] = kernel
        return
    stream = triton.runtime.driver.active.get_current_stream(q.device.index)
    about = stream, kernel.function, kernel.packed_metadata, None, None, None
    kernel.run(programs, 1, 1, *about, *addresses, *arguments)


class Rows(TensorDescriptor):
    """A descriptor; Triton would check it here, which takes longer than all else about it."""

    def __init__(self, base, layout):
        self.base, (self.shape, self.strides, self.block_shape) = base, layout


@functools.cache
def _architecture(device):
    """The part of TILE_CONFIGS for a device; the interpreter plays a Hopper GPU."""
    if device.type == "cpu" or torch.version.hip:
        return "sm_90" if device.type == "cpu" else "gfx942"
    found = torch.cuda.get_device_capability(device)
    known = {(7, 5): "sm_75", (8, 0): "sm_80", (8, 7): "sm_80", (9, 0): "sm_90", (10, 0): "sm_100"}
    return known.get(found, "sm_89" if found > (7, 5) else f"sm_{found[0]}{found[1]}")


def _tile_config(architecture, dtype, D, causal):
    """The narrowest tile that D columns fit in."""
    rows = TILE_CONFIGS["float32" if dtype == torch.float32 else architecture]
    found = rows[min(width for width in rows if D <= width)]
    return found if isinstance(found, Tile) else found[causal]


DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _refusals(q, k, v, scale, causal, align, return_lse):
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    if peek_interpreter_stack() or forward_ad._current_level >= 0:
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
        if x.stride(-1) != 1:
            yield ValueError(f"{name} has strides {x.stride()}; allowed: the last 1, others any")
    (*heads, _, D), (*heads_k, N, _) = q.shape, k.shape  # [B, H], [H] or []
    if D % 8 or not 16 <= D <= 256:
        yield ValueError(f"q has {D} columns; allowed: 16 to 256 in steps of 8")
    keys = *heads[:-1], *(heads_k[-1:] or [1])[: len(heads)], N, D
    for name, x in (("k", k), ("v", v)):
        if x.shape != keys:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {keys}")
    if heads and heads[-1] % heads_k[-1]:
        yield ValueError(f"q has {heads[-1]} heads and k {heads_k[-1]}; allowed: a multiple of k's")
    if max(q.numel() // D, N) >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    yield from _option_refusals(scale, causal, align, return_lse)
    if q.device.type != "cuda" and not (q.is_cpu and INTERPRETED):
        yield ValueError(f"q is on {q.device}; allowed: a GPU, or a CPU with TRITON_INTERPRET=1")
    gpu = _architecture(q.device)
    if D > max(TILE_CONFIGS.get(gpu, [0])) or (gpu, q.dtype) == ("sm_75", torch.bfloat16):
        needs = "sm_75 for 128 columns of float16 or float32, or a newer GPU"
        yield ValueError(f"q is {q.dtype} with {D} columns on {gpu}; allowed: {needs}")


def _option_refusals(scale, causal, align, return_lse):
    """The same of what is asked for beside the tensors."""
    for name, x in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")


def main():
    """Check the kernel against PyTorch in float64; time both where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    q, k, v = (torch.randn(2, *x, 64, device=device).half() for x in ((4, 200), (2, 333), (2, 333)))
    sdpa = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    want = sdpa(q.double(), k.double(), v.double())
    ours, theirs = ((f(q, k, v) - want).abs() for f in (flash_attention, sdpa))
    allowed = 2 * theirs.max() + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype} on {device}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for name, f in (("ours", flash_attention), ("PyTorch's", sdpa)) if device == "cuda" else ():
        print(f"{name}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
