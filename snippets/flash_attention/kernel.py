"""Attention on tensor cores: a block of queries for each program, keys and values tile by tile.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextlib
import contextvars
import functools
import math
import numbers
import os
from typing import NamedTuple

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl
from triton.compiler import CompiledKernel
from triton.tools.tensor_descriptor import TensorDescriptor

INTERPRETED = triton.knobs.runtime.interpret
UPCAST = tl.constexpr(INTERPRETED)  # the interpreter cannot compute with bfloat16
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range


class TileConfig(NamedTuple):
    """How the work of one program is cut, and on how many warps it runs."""

    BLOCK_M: int  # queries of a program
    BLOCK_N: int  # keys of an iteration
    num_warps: int  # 32 threads each
    num_stages: int  # iterations whose loads are in flight at once
    warp_specialize: bool = False  # one warp loads, the others compute


# --8<-- [start:table]
# Architecture → largest D that a row is for → tiles without a causal mask, and with one.
TILE_CONFIGS = {
    "sm_75": {  # no tensor-core instruction from Triton, and no bfloat16
        64: (TileConfig(64, 32, 8, 1), TileConfig(64, 32, 8, 1)),
        128: (TileConfig(32, 32, 8, 1), TileConfig(32, 32, 8, 1)),
    },
    "sm_80": {
        64: (TileConfig(128, 64, 8, 3), TileConfig(128, 64, 8, 3)),
        128: (TileConfig(128, 64, 8, 3), TileConfig(128, 64, 8, 3)),
        256: (TileConfig(64, 64, 8, 2), TileConfig(64, 64, 8, 2)),
    },
    "sm_89": {  # also 8.6 and 12.0: less shared memory
        64: (TileConfig(128, 32, 4, 3), TileConfig(128, 32, 4, 3)),
        128: (TileConfig(128, 32, 8, 2), TileConfig(128, 32, 8, 2)),
        256: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
    },
    "sm_90": {
        64: (TileConfig(64, 128, 4, 2), TileConfig(64, 128, 4, 2)),
        128: (TileConfig(128, 128, 4, 2, True), TileConfig(64, 64, 4, 3)),
        256: (TileConfig(128, 64, 8, 2), TileConfig(128, 64, 8, 2)),
    },
    "sm_100": {
        64: (TileConfig(128, 64, 4, 3), TileConfig(128, 64, 4, 3)),
        128: (TileConfig(128, 128, 8, 2), TileConfig(128, 128, 8, 2)),
        256: (TileConfig(64, 64, 4, 2), TileConfig(64, 64, 4, 2)),
    },
    "gfx942": {
        64: (TileConfig(128, 64, 4, 1), TileConfig(128, 64, 4, 1)),
        128: (TileConfig(128, 64, 8, 1), TileConfig(128, 64, 8, 1)),
        256: (TileConfig(64, 32, 8, 1), TileConfig(64, 32, 8, 1)),
    },
    "float32": {  # on every architecture: no tensor core keeps float32's precision
        64: (TileConfig(64, 32, 8, 2), TileConfig(64, 32, 8, 2)),
        128: (TileConfig(32, 16, 4, 2), TileConfig(32, 16, 4, 2)),
        256: (TileConfig(32, 16, 8, 2), TileConfig(32, 16, 8, 2)),
    },
}
CONFIGURATIONS = {"_tile_config": TILE_CONFIGS}  # what a test may choose instead: all of it
# --8<-- [end:table]


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
    # --8<-- [start:which_rows]
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)  # 0 … B · H · num_tiles - 1: neighbors share a head, so its k and v
    tile_idx = pid % num_tiles
    if CAUSAL:  # the last rows see most keys: start the longest work first
        tile_idx = num_tiles - 1 - tile_idx
    b, h = pid // num_tiles // H, pid // num_tiles % H
    hk = h // G  # the head of keys and values
    offs_m = tile_idx * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    # --8<-- [end:which_rows]

    # --8<-- [start:which_keys]
    last_key = tl.full([BLOCK_M], N - 1, tl.int32)  # [BLOCK_M]: the last key that a query sees
    # Every query of the block sees the keys below unmasked_end; none sees a key from end on.
    unmasked_end, end = N, N
    if CAUSAL:
        last_key = tl.minimum(last_key, offs_m + causal_offset)
        unmasked_end = tl.minimum(N, tl.maximum(tile_idx * BLOCK_M + causal_offset + 1, 0))
        end = tl.minimum(N, tl.maximum((tile_idx + 1) * BLOCK_M + causal_offset, 0))
    unmasked_end = unmasked_end // BLOCK_N * BLOCK_N  # whole tiles that need no mask
    # --8<-- [end:which_keys]

    # --8<-- [start:queries]
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
    # --8<-- [end:queries]

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
        s = tl.dot(q_tile, k_tile.T, input_precision="ieee")  # [BLOCK_M, BLOCK_N], float32
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
        acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")
        l_i = l_i * alpha + row_sum
        m_i = m_new
    # --8<-- [end:attend]

    # --8<-- [start:store]
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
    # --8<-- [end:store]


# --8<-- [start:launcher]
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
    # --8<-- [end:launcher]
    # --8<-- [start:launch]
    _check_inputs(q, k, v, causal, align, return_lse)
    scale = _scale_or_default(scale, q.shape[-1])
    architecture = _architecture(q)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    if q.dim() < 4:
        q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    config = _tile_config(architecture, q.dtype, q.shape[-1], causal)
    use_tma = _can_use_tma(architecture, q, k, v)
    strides = (q.stride(), k.stride(), v.stride())
    plan = _plan(q.shape, k.shape, strides, q.dtype, config, use_tma, causal, align, scale)
    with _device_of(q):
        if plan.constants["WARP_SPECIALIZE"]:
            _with_scratch(functools.partial(_launch, plan, q, k, v, out, lse), q.device)
        else:
            _launch(plan, q, k, v, out, lse)
    return (out, lse) if return_lse else out
    # --8<-- [end:launch]


# --8<-- [start:plan]
class Plan(NamedTuple):
    """What a launch needs besides its tensors. Only shapes, strides and options decide it."""

    programs: int
    config: TileConfig
    sizes: dict  # the kernel's parameters from stride_qb to scale_log2
    constants: dict  # from D to EXACT: a kernel is compiled for each set of them
    kind: tuple  # of all this, what Triton compiles a kernel for


@functools.lru_cache(maxsize=1024)
def _plan(shape_q, shape_k, strides, dtype, config, use_tma, causal, align, scale):
    """The Plan of a call. Calls repeat their shapes, so it is worked out once for each."""
    (B, H, M, D), (_, Hkv, N, _) = shape_q, shape_k
    (stride_qb, stride_qh, stride_qm, _), (stride_kb, stride_kh, stride_kn, _) = strides[:2]
    stride_vb, stride_vh, stride_vn, _ = strides[2]
    warp_specialize = use_tma and config.warp_specialize and not causal  # no loop with a branch
    sizes = dict(
        stride_qb=stride_qb, stride_qh=stride_qh, stride_qm=stride_qm,
        stride_kb=stride_kb, stride_kh=stride_kh, stride_kn=stride_kn,
        stride_vb=stride_vb, stride_vh=stride_vh, stride_vn=stride_vn,
        H=H, G=H // Hkv, M=M, N=N,
        causal_offset=N - M if align == "bottom_right" else 0,
        scale_log2=scale * LOG2_E.value,
    )  # fmt: skip
    constants = dict(
        D=D,
        CAUSAL=causal,
        MASKED=causal or N % config.BLOCK_N != 0,
        BLOCK_M=config.BLOCK_M,
        BLOCK_N=config.BLOCK_N,
        BLOCK_D=1 << (D - 1).bit_length(),  # the next power of two
        USE_TMA=use_tma,
        WARP_SPECIALIZE=warp_specialize,
        EXACT=dtype == torch.float32 or scale > 1,
    )
    asked = [(x == 1, x % 16 == 0, x < 2**31) for x in sizes.values()]
    kind = (dtype, config, *constants.values(), *asked)
    return Plan(-(-M // config.BLOCK_M) * H * B, config, sizes, constants, kind)
    # --8<-- [end:plan]


# --8<-- [start:compiled]
_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(plan, q, k, v, out, lse):
    """Launch the kernel of a Plan on tensors.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    """
    key = (
        q.device,
        plan.kind,
        triton.knobs.runtime.debug,
        triton.knobs.compilation.instrumentation_mode,
        *[x if x is None else x.data_ptr() % 16 for x in (q, k, v, out, lse)],
    )
    sizes, constants, config = plan.sizes, plan.constants, plan.config
    if constants["USE_TMA"]:
        block = [1, 1, config.BLOCK_N, constants["BLOCK_D"]]
        k, v = (Rows(x, x.shape, x.stride(), block) for x in (k, v))
    kernel = _compiled.get(key)
    if kernel is not None:
        kernel[(plan.programs, 1, 1)](q, k, v, out, lse, *sizes.values(), *constants.values())
        return
    kernel = _flash_attention_kernel[(plan.programs,)](
        q_ptr=q,
        k=k,
        v=v,
        out_ptr=out,
        lse_ptr=lse,
        **sizes,
        **constants,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
    )
    # The interpreter compiles none; AMD's compiler asks how much memory a tensor lies in, too.
    if isinstance(kernel, CompiledKernel) and torch.version.hip is None:
        _compiled[key] = kernel
    # --8<-- [end:compiled]


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


def _with_scratch(launch, device):
    """Launch a kernel that makes a descriptor: Triton asks for memory to put it in."""

    def run():
        triton.set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device=device))
        launch()

    contextvars.copy_context().run(run)  # in the caller's own context his allocator stays


# --8<-- [start:architecture]
ARCHITECTURES = {
    (7, 5): "sm_75",
    (8, 0): "sm_80",
    (8, 7): "sm_80",
    (9, 0): "sm_90",
    (10, 0): "sm_100",
}


def _architecture(x):
    """The part of TILE_CONFIGS for the device of x; the interpreter plays a Hopper GPU."""
    _check_device("q", x)
    if x.device.type == "cpu":
        return "sm_90"
    if torch.version.hip:
        return "gfx942"
    found = _capability(x.device)
    if found < (7, 5):
        raise ValueError(f"q is on a GPU of capability {found}; (7, 5) or newer is allowed")
    return ARCHITECTURES.get(found, "sm_89")


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


@functools.cache
def _tile_config(architecture, dtype, D, causal):
    """The TileConfig for a problem; raise where the architecture has none."""
    if dtype == torch.bfloat16 and architecture == "sm_75":
        raise TypeError("q is torch.bfloat16; torch.float16, torch.float32 are allowed on this GPU")
    widest = max(TILE_CONFIGS[architecture])
    if D > widest:
        raise ValueError(f"q has head dimension {D}; at most {widest} is allowed on this GPU")
    rows = TILE_CONFIGS["float32" if dtype == torch.float32 else architecture]
    return rows[min(width for width in rows if D <= width)][causal]
    # --8<-- [end:architecture]


# --8<-- [start:descriptors]
class Rows(TensorDescriptor):
    """A descriptor of a tensor that _can_use_tma has accepted."""

    def __post_init__(self):
        """Triton would check it again here, which takes longer than all else about it."""


def _can_use_tma(architecture, *tensors):
    """Whether TMA can load all tensors: 16-byte aligned rows, on Hopper or later."""
    # Without tensor cores the tiles end in registers: pointers bring them there directly.
    if architecture not in ("sm_90", "sm_100") or tensors[0].dtype == torch.float32:
        return False
    for x in tensors:
        steps = x.stride()[:-1]
        if x.data_ptr() % 16 or math.gcd(*steps) * x.itemsize % 16 or 0 in steps:
            return False
    return True
    # --8<-- [end:descriptors]


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


def _check_inputs(q, k, v, causal, align, return_lse=False):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    _check_tensors(2, q=q, k=k, v=v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.stride(-1) != 1:
            raise ValueError(f"{name} has strides {x.stride()}; the last must be 1")
    shape, shape_k = tuple(q.shape), tuple(k.shape)
    batch, heads, D = shape[:-3], shape[-3:-2], shape[-1]
    if D not in range(16, 257, 8):
        raise ValueError(f"q has head dimension {D}; 16 to 256 in steps of 8 are allowed")
    if len(shape_k) != len(shape) or (*shape_k[:-3], shape_k[-1]) != (*batch, D):
        want = _fit(*batch, *("Hkv" for _ in heads), "N", D)
        raise ValueError(f"k has shape {shape_k}; with q {shape} it must be {want}")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must be k's, {shape_k}")
    if heads and shape[-3] % shape_k[-3]:
        raise ValueError(
            f"q has {shape[-3]} heads and k {shape_k[-3]}; q's must be a multiple of k's"
        )
    if max(q.numel() // D, shape_k[-2]) >= 2**31:
        raise ValueError(f"q has shape {shape} and k {shape_k}; fewer than 2^31 rows are allowed")
    _check_mask(causal, align)
    if not isinstance(return_lse, bool):
        raise TypeError(
            f"return_lse has type {_type_name(return_lse)}; it must be a bool, True or False"
        )


def _check_mask(causal, align="bottom_right"):
    """Raise for a mask that is none of the three."""
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
    q = torch.randn(2, 4, 200, 64, device=device).half()  # [B, H, M, D]
    k, v = torch.randn(2, 2, 2, 333, 64, device=device).half()  # [B, Hkv, N, D] each
    heads = q.double(), *(x.double().repeat_interleave(2, dim=1) for x in (k, v))
    want = (heads[0] @ heads[1].mT / math.sqrt(64)).softmax(-1) @ heads[2]
    error = (flash_attention(q, k, v).double() - want).abs()
    pytorch = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    torch_error = (pytorch(q, k, v).double() - want).abs().max()
    allowed = 2 * torch_error + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {q.dtype} on {device}")
    print(f"difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}")
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if error.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    if device == "cuda":
        for name, attention in (("flash_attention", flash_attention), ("PyTorch", pytorch)):
            ms = triton.testing.do_bench(lambda f=attention: f(q, k, v), return_mode="median")
            print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if error.max() <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
