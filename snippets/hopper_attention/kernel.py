"""Attention for Hopper in Gluon: one warp loads, two or three groups of four warps compute.

Run it alone: `python kernel.py` checks it against PyTorch on an H100 or H200, which it needs.
Part of *Attention, Measured*, MIT licence. Needs torch >= 2.11 and triton >= 3.6.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

LOG2_E = gl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
DTYPES = (torch.float16, torch.bfloat16)
WIDTHS = (64, 128)  # head dimensions
ROWS = gl.constexpr(64)  # queries of a consumer: what one tensor-core instruction of Hopper takes
# A number for each of the four threads that share a row of scores, held by that thread.
FOUR = gl.constexpr(gl.DistributedLinearLayout(
    [[8, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], [[16, 0], [32, 0]], [], [64, 4],
))  # fmt: skip


# --8<-- [start:variant]
class Variant(NamedTuple):
    """How the work of one program is divided."""

    KEYS: int  # the fewest that it is for
    CONSUMERS: int  # groups of four warps that compute, 64 queries each
    STAGES: int  # tiles of keys, and of values, that shared memory holds
    OVERLAP: bool  # softmax of a tile under the product with the values of the tile before
    PING_PONG: bool  # consumers issue their products in turn
    Q_IN_REGISTERS: bool  # or read by the tensor cores from shared memory
    BLOCK_N: int = 128  # keys of a tile
    # --8<-- [end:variant]


# --8<-- [start:table]
# D → for full and for causal attention: how, from how many keys on.
VARIANTS = {
    64: (
        (Variant(1, 2, 3, True, False, True), Variant(2048, 3, 2, False, False, False)),
        (Variant(1, 2, 3, True, True, True),),
    ),
    128: ((Variant(1, 2, 2, True, True, False),), (Variant(1, 2, 2, True, True, False),)),
}
CONFIGURATIONS = {"_variant": VARIANTS}  # what a test may choose instead: all of it
# --8<-- [end:table]


class Problem(NamedTuple):
    """What every part of the kernel knows."""

    H: Any  # heads of queries
    G: Any  # how many of them share a head of keys
    M: Any  # queries
    N: Any  # keys
    tiles: Any  # of queries, of a head
    total: Any  # tiles of all heads and batches
    step: Any  # tiles that a program takes in a row
    shift: Any  # causal: query n sees keys up to n + shift
    scale_log2: Any


# --8<-- [start:channel]
class Channel(NamedTuple):
    """Buffers that one side fills and the other empties; an mbarrier of each kind for each."""

    buffers: Any
    full: Any
    empty: Any


@gluon.jit
def _barriers(n: gl.constexpr, arrivals: gl.constexpr):
    """n mbarriers in shared memory; a phase of each ends after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(barriers.index(i), count=arrivals)
    return barriers


@gluon.jit
def _channel(desc, n: gl.constexpr, readers: gl.constexpr):
    """n buffers for blocks of a descriptor: the copy engine fills, every reader must release."""
    buffers = gl.allocate_shared_memory(desc.dtype, [n] + desc.block_shape, desc.layout)  # noqa: RUF005
    return Channel(buffers, _barriers(n, 1), _barriers(n, readers))


@gluon.jit
def _fill(desc, coordinates, channel, i, phase):
    """Start a copy into buffer i; the producer's side of a channel."""
    mbarrier.wait(channel.empty.index(i), phase ^ 1)  # passes at once in the first phase
    mbarrier.expect(channel.full.index(i), desc.block_type.nbytes)  # the copy arrives with these
    tma.async_copy_global_to_shared(
        desc, coordinates, channel.full.index(i), channel.buffers.index(i)
    )
    # --8<-- [end:channel]


# --8<-- [start:schedule]
@gluon.jit
def _tile(ticket, p, CAUSAL: gl.constexpr):
    """Ticket → head and tile: causal alternates the longest tile left with the shortest."""
    head = ticket // p.tiles
    tile = ticket % p.tiles
    if CAUSAL:
        tile = gl.where(tile % 2 == 0, p.tiles - 1 - tile // 2, tile // 2)
    return head, tile


@gluon.jit
def _next(ticket, p):
    """The ticket a program takes next: `step` in a row, then those of the other programs pass."""
    return ticket + gl.where((ticket + 1) % p.step == 0, (gl.num_programs(0) - 1) * p.step + 1, 1)


@gluon.jit
def _keys(tile, p, CAUSAL: gl.constexpr, TILE: gl.constexpr, BLOCK_N: gl.constexpr):
    """How many tiles of keys a tile of queries visits, and how many of them need a mask."""
    end = p.N
    seen_by_all = p.N
    if CAUSAL:
        end = gl.minimum(p.N, gl.maximum((tile + 1) * TILE + p.shift, 0))
        seen_by_all = gl.minimum(p.N, gl.maximum(tile * TILE + p.shift + 1, 0))
    n = gl.cdiv(end, BLOCK_N)
    return n, n - seen_by_all // BLOCK_N
    # --8<-- [end:schedule]


# --8<-- [start:producer]
@gluon.jit
def _producer(q_desc, k_desc, v_desc, p, channels, CAUSAL: gl.constexpr, V: gl.constexpr):
    """One warp: start every copy, in the order in which the consumers want them."""
    q, k, v, _turns = channels
    turn = 0  # tiles of queries so far
    count = 0  # tiles of keys so far
    ticket = gl.program_id(0) * p.step
    while ticket < p.total:
        head, tile = _tile(ticket, p, CAUSAL)
        b = head // p.H
        h = head % p.H
        n, _masked = _keys(tile, p, CAUSAL, ROWS * V.CONSUMERS, V.BLOCK_N)
        for who in gl.static_range(V.CONSUMERS):
            row = (tile * V.CONSUMERS + who) * ROWS
            _fill(q_desc, [b, h, row, 0], q, who, turn & 1)
        for i in range(n):
            row = (n - 1 - i) * V.BLOCK_N  # the last keys first: they may need a mask
            stage = count % V.STAGES
            phase = count // V.STAGES & 1
            _fill(k_desc, [b, h // p.G, row, 0], k, stage, phase)
            _fill(v_desc, [b, h // p.G, row, 0], v, stage, phase)
            count += 1
        turn += 1
        ticket = _next(ticket, p)
        # --8<-- [end:producer]


# --8<-- [start:products]
@gluon.jit
def _start_scores(q_tile, k, count, s_layout: gl.constexpr, V: gl.constexpr):
    """Start q kᵀ for a tile of keys, once it has arrived: [ROWS, BLOCK_N], float32."""
    stage = count % V.STAGES
    mbarrier.wait(k.full.index(stage), count // V.STAGES & 1)
    k_tile = k.buffers.index(stage)
    k_tile = k_tile.reshape([V.BLOCK_N, k_tile.shape[-1]]).permute((1, 0))  # [D, BLOCK_N]
    zeros = gl.zeros([ROWS, V.BLOCK_N], gl.float32, s_layout)
    return warpgroup_mma(q_tile, k_tile, zeros, use_acc=False, is_async=True)


@gluon.jit
def _start_values(e, acc, v, count, V: gl.constexpr):
    """Start acc + e v for a tile of values, once it has arrived: [ROWS, D], float32."""
    stage = count % V.STAGES
    mbarrier.wait(v.full.index(stage), count // V.STAGES & 1)
    v_tile = v.buffers.index(stage)
    v_tile = v_tile.reshape([V.BLOCK_N, v_tile.shape[-1]])  # [BLOCK_N, D]
    return warpgroup_mma(e, v_tile, acc, is_async=True)


@gluon.jit
def _release(channel, count, V: gl.constexpr):
    """A consumer no longer reads what a channel held."""
    mbarrier.arrive(channel.empty.index(count % V.STAGES), count=1)
    # --8<-- [end:products]


# --8<-- [start:sums]
@gluon.jit
def _summed(l_i, alpha, e):
    """l_i · alpha + the sums of the rows of e; with an l_i of [ROWS, 4] a sum for each thread."""
    if len(l_i.shape) == 1:
        l_i = l_i * alpha + gl.sum(e, axis=1)  # the four threads of a row exchange their sums
    else:  # nothing moves: of every eight columns each of the threads has two next to each other
        own = gl.sum(gl.sum(e.reshape([ROWS, e.shape[1] // 8, 4, 2]), axis=3), axis=1)
        alpha = gl.convert_layout(alpha, gl.SliceLayout(1, FOUR))
        l_i = l_i * alpha[:, None] + gl.convert_layout(own, FOUR)
    return l_i
    # --8<-- [end:sums]


# --8<-- [start:softmax]
@gluon.jit
def _softmax(s, m_i, l_i, start, last_key, p, MASKED: gl.constexpr, s_layout: gl.constexpr):
    """Running softmax over one more tile of scores: e, what the old sums are worth, m_i, l_i."""
    if MASKED:
        offs_n = gl.arange(0, s.shape[1], gl.SliceLayout(0, s_layout))
        s = gl.where(offs_n[None, :] <= (last_key - start)[:, None], s, float("-inf"))
    m_new = gl.maximum(m_i, gl.max(s, axis=1) * p.scale_log2)  # [ROWS]
    # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
    m_sub = gl.where(m_new == float("-inf"), 0.0, m_new)
    e = gl.exp2(s * p.scale_log2 - m_sub[:, None])
    alpha = gl.exp2(m_i - m_sub)
    return e, alpha, m_new, _summed(l_i, alpha, e)
    # --8<-- [end:softmax]


# --8<-- [start:step]
@gluon.jit
def _step(
    q_tile, e, acc, m_i, l_i, start, count, last_key, p, k, v, turns, who: gl.constexpr,
    MASKED: gl.constexpr, s_layout: gl.constexpr, e_layout: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """Fold a tile of keys into m_i and l_i, and the values of the tile before into acc."""
    if V.PING_PONG:  # mine: the other consumer has issued its products and does its softmax
        mbarrier.wait(turns.index(who), count & 1)
    scores = _start_scores(q_tile, k, count, s_layout, V)
    e = gl.convert_layout(e.to(k.buffers.dtype), e_layout)
    acc = _start_values(e, acc, v, count - 1, V)
    if V.PING_PONG:
        mbarrier.arrive(turns.index((who + 1) % V.CONSUMERS), count=1)
    s = warpgroup_mma_wait(1, deps=[scores])  # products end in order: one may still run
    _release(k, count, V)
    e_next, alpha, m_i, l_i = _softmax(s, m_i, l_i, start, last_key, p, MASKED, s_layout)
    # These values arrived long ago. Without a barrier here the compiler moves the wait below above
    # the exponentials, and nothing is left to run under the product.
    mbarrier.wait(v.full.index((count - 1) % V.STAGES), (count - 1) // V.STAGES & 1)
    acc, _ = warpgroup_mma_wait(0, deps=[acc, e])
    _release(v, count - 1, V)
    alpha = gl.convert_layout(alpha, gl.SliceLayout(1, e_layout.parent))
    return e_next, acc * alpha[:, None], m_i, l_i
    # --8<-- [end:step]


# --8<-- [start:step_alone]
@gluon.jit
def _step_alone(
    q_tile, acc, m_i, l_i, start, count, last_key, p, k, v,
    MASKED: gl.constexpr, s_layout: gl.constexpr, e_layout: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """The same without overlap: product, softmax, product. The other consumers fill the gaps."""
    s = warpgroup_mma_wait(0, deps=[_start_scores(q_tile, k, count, s_layout, V)])
    _release(k, count, V)
    e, alpha, m_i, l_i = _softmax(s, m_i, l_i, start, last_key, p, MASKED, s_layout)
    e = gl.convert_layout(e.to(k.buffers.dtype), e_layout)
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, e_layout.parent))[:, None]
    acc = warpgroup_mma_wait(0, deps=[_start_values(e, acc, v, count, V)])
    _release(v, count, V)
    return acc, m_i, l_i
    # --8<-- [end:step_alone]


# --8<-- [start:consumer]
@gluon.jit
def _consumer(
    who: gl.constexpr, results, p, channels, CAUSAL: gl.constexpr, MASKED: gl.constexpr,
    V: gl.constexpr,
):  # fmt: skip
    """Four warps: 64 queries of each tile, from the first product to the stored rows."""
    out_desc, lse_ptr, out_buffers = results
    q, k, v, turns = channels
    D: gl.constexpr = out_desc.block_shape[2]
    dtype: gl.constexpr = out_desc.dtype
    s_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, V.BLOCK_N, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    e_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    turn = 0
    count = 0
    ticket = gl.program_id(0) * p.step
    while ticket < p.total:
        head, tile = _tile(ticket, p, CAUSAL)
        n, masked = _keys(tile, p, CAUSAL, ROWS * V.CONSUMERS, V.BLOCK_N)
        first = (tile * V.CONSUMERS + who) * ROWS
        offs_m = first + gl.arange(0, ROWS, rows)
        last_key = gl.zeros([ROWS], gl.int32, rows) + (p.N - 1)  # the last that a query sees
        if CAUSAL:
            last_key = gl.minimum(last_key, offs_m + p.shift)
        m_i = gl.full([ROWS], float("-inf"), gl.float32, rows)  # largest score so far
        # The sum of exp2(score - m_i) so far; in a kernel with masks, of each of a row's threads.
        if MASKED:
            l_i = gl.zeros([ROWS, 4], gl.float32, FOUR)
        else:
            l_i = gl.zeros([ROWS], gl.float32, rows)
        acc = gl.zeros([ROWS, D], gl.float32, acc_layout)  # the same sum, of values

        mbarrier.wait(q.full.index(who), turn & 1)
        q_tile = q.buffers.index(who).reshape([ROWS, D])
        if V.Q_IN_REGISTERS:
            q_tile = q_tile.load(gl.DotOperandLayout(0, s_layout, 2))
            mbarrier.arrive(q.empty.index(who), count=1)
        # --8<-- [end:consumer]
        # --8<-- [start:overlapping]
        if V.OVERLAP:
            if n > 0:
                # The first tile has no values before it to run under.
                if V.PING_PONG:
                    mbarrier.wait(turns.index(who), count & 1)
                scores = _start_scores(q_tile, k, count, s_layout, V)
                if V.PING_PONG:
                    mbarrier.arrive(turns.index((who + 1) % V.CONSUMERS), count=1)
                s = warpgroup_mma_wait(0, deps=[scores])
                _release(k, count, V)
                start = (n - 1) * V.BLOCK_N
                e, _, m_i, l_i = _softmax(s, m_i, l_i, start, last_key, p, MASKED, s_layout)
                masked = gl.maximum(masked, 1)
                if CAUSAL:  # else no tile but the first needs a mask
                    for i in range(1, masked):
                        start = (n - 1 - i) * V.BLOCK_N
                        e, acc, m_i, l_i = _step(
                            q_tile, e, acc, m_i, l_i, start, count + i, last_key, p, k, v, turns,
                            who, True, s_layout, e_layout, V,
                        )  # fmt: skip
                for i in range(masked, n):
                    start = (n - 1 - i) * V.BLOCK_N
                    e, acc, m_i, l_i = _step(
                        q_tile, e, acc, m_i, l_i, start, count + i, last_key, p, k, v, turns, who,
                        False, s_layout, e_layout, V,
                    )  # fmt: skip
                if not V.Q_IN_REGISTERS:  # the last scores are done: the next queries may come
                    mbarrier.arrive(q.empty.index(who), count=1)
                e = gl.convert_layout(e.to(dtype), e_layout)
                acc = warpgroup_mma_wait(0, deps=[_start_values(e, acc, v, count + n - 1, V)])
                _release(v, count + n - 1, V)
            elif not V.Q_IN_REGISTERS:
                mbarrier.arrive(q.empty.index(who), count=1)
        # --8<-- [end:overlapping]
        # --8<-- [start:one_by_one]
        else:
            if MASKED:
                for i in range(0, masked):
                    start = (n - 1 - i) * V.BLOCK_N
                    acc, m_i, l_i = _step_alone(
                        q_tile, acc, m_i, l_i, start, count + i, last_key, p, k, v,
                        True, s_layout, e_layout, V,
                    )  # fmt: skip
            for i in range(masked, n):
                start = (n - 1 - i) * V.BLOCK_N
                acc, m_i, l_i = _step_alone(
                    q_tile, acc, m_i, l_i, start, count + i, last_key, p, k, v,
                    False, s_layout, e_layout, V,
                )  # fmt: skip
            if not V.Q_IN_REGISTERS:
                mbarrier.arrive(q.empty.index(who), count=1)
        # --8<-- [end:one_by_one]
        # --8<-- [start:store]
        if MASKED:
            l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)
        l_i = gl.where(l_i == 0.0, 1.0, l_i)  # no visible key: acc is zero, and so is the row
        out = acc * gl.convert_layout(1.0 / l_i, gl.SliceLayout(1, acc_layout))[:, None]
        tma.store_wait(0)  # the rows of the tile before have left their buffer
        mine = out_buffers.index(who)
        mine.reshape([ROWS, D]).store(out.to(dtype))
        fence_async_shared()  # the copy engine must see what these warps wrote
        tma.async_copy_shared_to_global(out_desc, [head, first, 0], mine)
        if lse_ptr is not None:
            row = head.to(gl.int64) * p.M + offs_m
            gl.store(lse_ptr + row, (m_i + gl.log2(l_i)) / LOG2_E, mask=offs_m < p.M)
        turn += 1
        count += n
        ticket = _next(ticket, p)
    tma.store_wait(0)  # shared memory goes with the program
    # --8<-- [end:store]


# --8<-- [start:kernel]
@gluon.jit(do_not_specialize=["H", "G", "M", "N", "tiles", "total", "step", "shift"])
def _hopper_attention_kernel(
    q_desc, k_desc, v_desc,  # of [B, H, M, D] and [B, Hkv, N, D]
    out_desc,  # of [B · H, M, D]
    lse_ptr,  # [B, H, M], contiguous, or None
    H, G, M, N, tiles, total, step, shift, scale_log2,  # see Problem
    CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,  # whether some tile of keys needs a mask
    CONSUMERS: gl.constexpr, STAGES: gl.constexpr, OVERLAP: gl.constexpr,  # see Variant
    PING_PONG: gl.constexpr, Q_IN_REGISTERS: gl.constexpr, BLOCK_N: gl.constexpr,
    MANY: gl.constexpr, FEW: gl.constexpr,  # registers of a thread of a consumer, of the producer
    num_warps: gl.constexpr,
):  # fmt: skip
    """One program for each multiprocessor takes tiles of queries until none is left."""
    V: gl.constexpr = Variant(0, CONSUMERS, STAGES, OVERLAP, PING_PONG, Q_IN_REGISTERS, BLOCK_N)
    p = Problem(H, G, M, N, tiles, total, step, shift, scale_log2)
    q = _channel(q_desc, V.CONSUMERS, 1)
    k = _channel(k_desc, V.STAGES, V.CONSUMERS)
    v = _channel(v_desc, V.STAGES, V.CONSUMERS)
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape  # noqa: RUF005
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    turns = _barriers(V.CONSUMERS, 1)  # ping-pong: a phase of turns[who] ends when it is its turn
    if V.PING_PONG:
        mbarrier.arrive(turns.index(0), count=1)
    # --8<-- [end:kernel]
    # --8<-- [start:partitions]
    results = (out_desc, lse_ptr, out)
    channels = (q, k, v, turns)
    # The four warps that run this are the first consumer; the others are started beside them.
    if V.CONSUMERS == 2:
        gl.warp_specialize(
            [
                (_consumer, (0, results, p, channels, CAUSAL, MASKED, V)),
                (_consumer, (1, results, p, channels, CAUSAL, MASKED, V)),
                (_producer, (q_desc, k_desc, v_desc, p, channels, CAUSAL, V)),
            ],
            [4, 1],
            [MANY, FEW],
        )
    else:
        gl.warp_specialize(
            [
                (_consumer, (0, results, p, channels, CAUSAL, MASKED, V)),
                (_consumer, (1, results, p, channels, CAUSAL, MASKED, V)),
                (_consumer, (2, results, p, channels, CAUSAL, MASKED, V)),
                (_producer, (q_desc, k_desc, v_desc, p, channels, CAUSAL, V)),
            ],
            [4, 4, 1],
            [MANY, MANY, FEW],
        )
    # --8<-- [end:partitions]


# --8<-- [start:launcher]
def hopper_attention(q, k, v, *, scale=None, causal=False, align="bottom_right", return_lse=False):
    """softmax(q kᵀ · scale) v with Hopper's copy engine, barriers and asynchronous tensor cores.

    Source: Shah et al. 2024, https://arxiv.org/abs/2407.08608, sections 3.1 and 3.2

    Args:
        q: [..., H, M, D], float16 or bfloat16; D 64 or 128; H and a batch may be left out. The D
            columns of a row lie side by side, other strides are multiples of 16 bytes.
        k, v: [..., Hkv, N, D], H a multiple of Hkv: groups of query heads share a head of keys.
        scale: positive factor on the scores; 1/√D if None.
        causal: query n sees the keys up to n + N - M; those without any get zeros.
        align: where the triangle of visible keys sits if M ≠ N: "bottom_right", as above, or
            "top_left": query n sees the keys up to n.
        return_lse: also return the natural logarithm of the sum of exp(score), -inf for no key.

    Returns:
        [..., H, M, D] in q's dtype; with return_lse also [..., H, M] in float32.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    # --8<-- [end:launcher]
    # --8<-- [start:launch]
    _refuse(q, k, v, causal, align)
    scale = _scale_or_default(scale, q.shape[-1])
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), (_, Hkv, N, _) = q.shape, k.shape
    variant = _variant(D, causal, N)
    tiles = triton.cdiv(M, ROWS.value * variant.CONSUMERS)
    total, programs = B * H * tiles, _multiprocessors(q.device)
    # A pair of causal tiles, the longest left and the shortest, is as much work as any other pair.
    step = 2 if causal and total > programs else 1
    with torch.cuda.device_of(q):  # launch where the tensors are
        _hopper_attention_kernel[(min(programs, triton.cdiv(total, step)),)](
            _describe(q, ROWS.value), _describe(k, variant.BLOCK_N), _describe(v, variant.BLOCK_N),
            _describe(out.view(B * H, M, D), ROWS.value), lse,
            H, H // Hkv, M, N, tiles, total, step, N - M if align == "bottom_right" else 0,
            scale * LOG2_E.value, causal, causal or N % variant.BLOCK_N != 0,
            *variant[1:], *REGISTERS[variant.CONSUMERS], num_warps=4,
        )  # fmt: skip
    return (out, lse) if return_lse else out
    # --8<-- [end:launch]


# --8<-- [start:registers]
# Consumers → registers of a thread of theirs, and of the producer: 65,536 in all.
REGISTERS = {2: (240, 24), 3: (160, 24)}
# --8<-- [end:registers]


def _variant(D, causal, N):
    """The last Variant for a problem that is for so many keys."""
    return [variant for variant in VARIANTS[D][causal] if variant.KEYS <= N][-1]


def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


def _describe(x, rows):
    """What the copy engine needs to move `rows` rows of a head: it stops where the head ends."""
    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=x.dim())
    return TensorDescriptor.from_tensor(x, [*(1,) * (x.dim() - 2), rows, x.shape[-1]], layout)


# --8<-- [start:refusals]
def _refuse(q, k, v, causal, align):
    """Raise for what the kernel cannot do: which argument, what came, what is allowed."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}; it must be a torch.Tensor")
        if x.dtype not in DTYPES:
            raise TypeError(
                f"{name} is {x.dtype}; float16 and bfloat16 are allowed, flash_attention takes more"
            )
        if x.dtype != q.dtype:
            raise TypeError(f"{name} is {x.dtype} but q is {q.dtype}; cast them to one dtype")
        if x.device != q.device:
            raise ValueError(f"{name} is on {x.device} but q is on {q.device}; move one of them")
        if not 2 <= x.dim() <= 4 or x.numel() == 0:
            raise ValueError(f"{name} has shape {tuple(x.shape)}; allowed are 2 to 4 sizes above 0")
        if x.stride(-1) != 1:
            raise ValueError(f"{name} has strides {x.stride()}; the last must be 1")
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name} requires grad and there is no backward; use torch.no_grad()")
        steps = [step * x.element_size() for step in x.stride()[:-1]]
        if x.data_ptr() % 16 or any(step % 16 or step <= 0 for step in steps):
            raise ValueError(
                f"{name} starts at {x.data_ptr():#x} with strides {x.stride()}; the copy engine "
                "needs multiples of 16 bytes above 0, flash_attention takes any"
            )
    # --8<-- [end:refusals]
    # --8<-- [start:refused_shapes]
    D, heads, heads_kv = q.shape[-1], q.shape[-3:-2], k.shape[-3:-2]
    if D not in WIDTHS:
        raise ValueError(f"q has head dimension {D}; 64 and 128 are allowed, see flash_attention")
    if k.shape != (*q.shape[:-3], *heads_kv, k.shape[-2], D):
        raise ValueError(f"k has shape {tuple(k.shape)}, which does not fit q, {tuple(q.shape)}")
    if v.shape != k.shape:
        raise ValueError(f"v has shape {tuple(v.shape)}; it must be k's, {tuple(k.shape)}")
    if heads and heads[0] % heads_kv[0]:
        raise ValueError(f"q has {heads[0]} heads and k {heads_kv[0]}; a multiple is allowed")
    if not isinstance(causal, bool):
        raise TypeError(f"causal is a {type(causal).__name__}; True and False are allowed")
    if align not in ("bottom_right", "top_left"):
        raise ValueError(f"align is {align!r}; 'bottom_right' and 'top_left' are allowed")
    if q.device.type != "cuda" or torch.version.hip:
        raise ValueError(f"q is on {q.device}; an H100 or H200 is allowed, see flash_attention")
    if (found := torch.cuda.get_device_capability(q.device)) != (9, 0):
        raise ValueError(f"q is on a GPU of capability {found}; (9, 0) is, see flash_attention")
    # --8<-- [end:refused_shapes]


def _scale_or_default(scale, D):
    """The scale as a float, 1/√D for None; raise for what is not a positive number."""
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, (int, float)):
        raise TypeError(f"scale is a {type(scale).__name__}; a positive number or None is allowed")
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"scale is {scale}; it must be positive and finite")
    return float(scale)


def main():
    """Check the kernel against eager PyTorch in float64, and time both."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        print("NOT CHECKED: this kernel needs an H100 or H200; Triton's interpreter has no Gluon")
        return 1
    torch.manual_seed(0)
    q = torch.randn(2, 4, 200, 64, device="cuda").half()  # [B, H, M, D]
    k, v = torch.randn(2, 2, 2, 333, 64, device="cuda").half()  # [B, Hkv, N, D] each
    heads = q.double(), *(x.double().repeat_interleave(2, dim=1) for x in (k, v))
    want = (heads[0] @ heads[1].mT / math.sqrt(64)).softmax(-1) @ heads[2]
    error = (hopper_attention(q, k, v).double() - want).abs()
    pytorch = functools.partial(torch.nn.functional.scaled_dot_product_attention, enable_gqa=True)
    torch_error = (pytorch(q, k, v).double() - want).abs().max()
    allowed = 2 * torch_error + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {tuple(q.shape)}, k and v {tuple(k.shape)}, {q.dtype}")
    print(f"difference from float64: largest {error.max():.1e}, mean {error.mean():.1e}")
    print(f"PyTorch's own difference: largest {torch_error:.1e}")
    print("OK" if error.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    for name, attention in (("hopper_attention", hopper_attention), ("PyTorch", pytorch)):
        ms = triton.testing.do_bench(lambda f=attention: f(q, k, v), return_mode="median")
        print(f"{name}: {ms * 1000:.1f} µs")
    return 0 if error.max() <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
