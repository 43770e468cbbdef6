"""Attention for Hopper in Gluon: one warp loads, two or three groups of four warps compute.

Run it alone: `python kernel.py` checks it against PyTorch on an H100 or H200, which it needs.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextlib
import functools
import math
import numbers
from typing import Any, NamedTuple

import torch
import triton
from triton.compiler import CompiledKernel
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
MAX_SCALE = 2.0**64  # and at least 1 / MAX_SCALE: scores of float16 stay within float32's range
CONSUMER_M = gl.constexpr(64)  # queries of a consumer: what one wgmma instruction takes
GROWTH = gl.constexpr(4.0)  # LAZY: the maximum lags behind by this at most, in powers of two
Q_BUFFERS = gl.constexpr(2)  # of a consumer: its next queries arrive while it computes
# All threads of the warps that come here wait for each other: Triton 3.6 and what follows.
_meet = getattr(gl, "thread_barrier", None) or gl.barrier
# TMA's copies: their names since Triton 3.8, and before.
_tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
# A number for each of the four threads that share a row of scores, held by that thread.
ROW_SUM_LAYOUT = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[8, 0]],
        lane_bases=[[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]],
        block_bases=[],
        shape=[64, 4],
    )
)


class Variant(NamedTuple):
    """How the work of one program is divided."""

    CONSUMERS: int  # warpgroups that compute, CONSUMER_M queries each
    STAGES: int  # tiles of keys, and of values, that shared memory holds
    OVERLAP: bool = False  # softmax of a tile under the product with the previous tile's values
    PING_PONG: bool = False  # consumers issue their products in turn
    Q_IN_REGISTERS: bool = False  # or read by the tensor cores from shared memory
    BLOCK_N: int = 128  # keys of a tile
    LAZY: bool = False  # sums are rescaled only once the maximum has grown by a factor of 16
    EXACT: bool = False  # for huge scores: they are scaled after the largest is subtracted


# --8<-- [start:table]
# D → the variants to choose from.
VARIANTS = {
    64: (
        Variant(CONSUMERS=2, STAGES=3, OVERLAP=True, Q_IN_REGISTERS=True),
        Variant(CONSUMERS=3, STAGES=3),
        Variant(CONSUMERS=3, STAGES=3, OVERLAP=True, LAZY=True),
    ),
    128: (Variant(CONSUMERS=2, STAGES=2, OVERLAP=True, LAZY=True),),
}
CONFIGURATIONS = {"_variant": VARIANTS}  # what a test may choose instead: all of it
# Whether causal → of each variant for D 64 the microseconds of a tile of queries, and those of each
# tile of keys that it visits, on an H200.
TILE_TIMES = {
    False: ((0.5, 1.18), (0.45, 1.54), (1.4, 1.50)),
    True: ((1.5, 0.99), (5.1, 1.39), (6.6, 1.62)),
}
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
    by_length: Any  # causal: tiles are dealt by their length, those of all heads together
    causal_offset: Any  # causal: query m sees keys up to m + causal_offset
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
    """n buffers for blocks of a descriptor: TMA fills them, every reader must release them."""
    buffers = gl.allocate_shared_memory(desc.dtype, [n] + desc.block_shape, desc.layout)  # noqa: RUF005
    return Channel(buffers, _barriers(n, 1), _barriers(n, readers))
    # --8<-- [end:channel]


class Channels(NamedTuple):
    """What the parts of a program exchange."""

    q: Any  # Q_BUFFERS buffers for each consumer
    k: Any
    v: Any
    order_barriers: Any  # ping-pong: a phase of a consumer's ends when it is its turn


# --8<-- [start:stage]
class Stage(NamedTuple):
    """A buffer of a channel, and the parity of the phase that its barriers are in."""

    index: Any
    phase: Any


@gluon.jit
def _stage(count, V: gl.constexpr):
    """The buffer that a tile of keys goes through, from the number of tiles before it."""
    return Stage(count % V.STAGES, count // V.STAGES & 1)


@gluon.jit
def _q_stage(warpgroup: gl.constexpr, count, V: gl.constexpr):
    """The buffer that a consumer's queries go through, from its number of tiles before these."""
    return Stage(warpgroup + V.CONSUMERS * (count % Q_BUFFERS), count // Q_BUFFERS & 1)


@gluon.jit
def _fill(desc, coordinates, channel, stage):
    """Start a copy into a buffer; the producer's side of a channel."""
    # Passes at once in the first phase.
    mbarrier.wait(channel.empty.index(stage.index), stage.phase ^ 1)
    full = channel.full.index(stage.index)
    mbarrier.expect(full, desc.block_type.nbytes)  # the copy arrives with these
    _tma_load(desc, coordinates, full, channel.buffers.index(stage.index))


@gluon.jit
def _wait_full(channel, stage):
    """A consumer waits until a copy has arrived."""
    mbarrier.wait(channel.full.index(stage.index), stage.phase)


@gluon.jit
def _release(channel, stage):
    """A consumer no longer reads what a buffer held."""
    mbarrier.arrive(channel.empty.index(stage.index), count=1)


@gluon.jit
def _release_in_passing(channel, stage):
    """The same, but Gluon puts no barrier for all four warps before what follows."""
    _meet()  # one before it there must be: all of them have read
    mbarrier.expect(channel.empty.index(stage.index), 0)
    # --8<-- [end:stage]


# --8<-- [start:schedule]
@gluon.jit
def _head_and_tile(work_idx, prob, CAUSAL: gl.constexpr):
    """Work item → head and tile: causal has the longest first, or pairs: long, short, long, …"""
    head = work_idx // prob.tiles
    tile = work_idx % prob.tiles
    if CAUSAL:
        tile = gl.where(tile % 2 == 0, prob.tiles - 1 - tile // 2, tile // 2)
        heads = prob.total // prob.tiles
        head = gl.where(prob.by_length, work_idx % heads, head)
        tile = gl.where(prob.by_length, prob.tiles - 1 - work_idx // heads, tile)
    return head, tile


@gluon.jit
def _next_work(work_idx, prob):
    """The item a program takes next: `step` in a row, then those of the other programs pass."""
    programs = gl.num_programs(0)
    others = (programs - 1) * prob.step
    if_by_length = 2 * (programs - 1 - work_idx % programs)  # there and back: long, then short
    others = gl.where(prob.by_length, if_by_length, others)
    last_in_row = (work_idx + 1) % prob.step == 0
    return work_idx + gl.where(last_in_row, others + 1, 1)


@gluon.jit
def _count_key_tiles(
    tile, prob, CAUSAL: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr
):
    """How many tiles of keys a tile of queries visits, and how many of them need a mask."""
    end = prob.N
    seen_by_all = prob.N
    if CAUSAL:
        end = gl.minimum(prob.N, gl.maximum((tile + 1) * BLOCK_M + prob.causal_offset, 0))
        seen_by_all = gl.minimum(prob.N, gl.maximum(tile * BLOCK_M + prob.causal_offset + 1, 0))
    n = gl.cdiv(end, BLOCK_N)
    return n, n - seen_by_all // BLOCK_N
    # --8<-- [end:schedule]


@gluon.jit
def _producer(q_desc, k_desc, v_desc, prob, channels, CAUSAL: gl.constexpr, V: gl.constexpr):
    """One warp: start every copy, in the order in which the consumers want them."""
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = gl.program_id(0) * prob.step
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        b = head // prob.H
        h = head % prob.H
        n, _masked = _count_key_tiles(tile, prob, CAUSAL, CONSUMER_M * V.CONSUMERS, V.BLOCK_N)
        for warpgroup in gl.static_range(V.CONSUMERS):
            row = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
            _fill(q_desc, [b, h, row, 0], channels.q, _q_stage(warpgroup, q_count, V))
        for i in range(n):
            row = (n - 1 - i) * V.BLOCK_N  # the last keys first: they may need a mask
            stage = _stage(kv_count, V)
            _fill(k_desc, [b, h // prob.G, row, 0], channels.k, stage)
            _fill(v_desc, [b, h // prob.G, row, 0], channels.v, stage)
            kv_count += 1
        q_count += 1
        work_idx = _next_work(work_idx, prob)


# --8<-- [start:state]
class Queries(NamedTuple):
    """A consumer's queries of one tile."""

    warpgroup: Any  # which consumer
    tile: Any  # [CONSUMER_M, D], in registers or in shared memory
    last_key: Any  # [CONSUMER_M], the last key that each of them sees


class Running(NamedTuple):
    """The online softmax over the tiles of keys so far."""

    m_i: Any  # [CONSUMER_M], the largest score; scaled, unless EXACT
    l_i: Any  # [CONSUMER_M], the sum of the weights, or [CONSUMER_M, 4]: of each thread
    acc: Any  # [CONSUMER_M, D], the same sum, of values
    # --8<-- [end:state]


# --8<-- [start:layouts]
@gluon.constexpr_function
def _scores_layout(V):
    """Which thread holds which of a consumer's scores, [CONSUMER_M, BLOCK_N]: as wgmma does."""
    return gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, V.BLOCK_N, 16]
    )


@gluon.constexpr_function
def _acc_layout(D):
    """The same of its sums of values, [CONSUMER_M, D]."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])


@gluon.constexpr_function
def _left_operand(layout):
    """Where wgmma wants the left side of a product whose result has a layout."""
    return gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)
    # --8<-- [end:layouts]


@gluon.constexpr_function
def _columns_layout(V):
    """The scores as [CONSUMER_M, BLOCK_N / 8, 4, 2], where [:, i, j, k] is column 8 i + 2 j + k.

    i and k say which register holds a score, and j which of the four threads of a row.
    """
    eights = int(V.BLOCK_N) // 8
    return gl.DistributedLinearLayout(
        reg_bases=[
            [0, 0, 0, 1],
            [8, 0, 0, 0],
            *([0, 1 << bit, 0, 0] for bit in range(eights.bit_length() - 1)),
        ],
        lane_bases=[[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[64, eights, 4, 2],
    )


# --8<-- [start:products]
@gluon.jit
def _issue_qk(q_tile, k, stage, V: gl.constexpr):
    """Start q kᵀ for a tile of keys, once it has arrived: [CONSUMER_M, BLOCK_N], float32."""
    _wait_full(k, stage)
    k_tile = k.buffers.index(stage.index)
    k_tile = k_tile.reshape([V.BLOCK_N, k_tile.shape[-1]]).permute((1, 0))  # [D, BLOCK_N]
    zeros = gl.zeros([CONSUMER_M, V.BLOCK_N], gl.float32, _scores_layout(V))
    return warpgroup_mma(q_tile, k_tile, zeros, use_acc=False, is_async=True)


@gluon.jit
def _issue_pv(p, acc, v, stage, V: gl.constexpr):
    """Start acc + p v for a tile of values, once it has arrived: [CONSUMER_M, D], float32."""
    _wait_full(v, stage)
    v_tile = v.buffers.index(stage.index)
    v_tile = v_tile.reshape([V.BLOCK_N, v_tile.shape[-1]])  # [BLOCK_N, D]
    return warpgroup_mma(p, v_tile, acc, is_async=True)
    # --8<-- [end:products]


# --8<-- [start:turns]
@gluon.jit
def _wait_for_turn(order_barriers, count, warpgroup: gl.constexpr, V: gl.constexpr):
    """Ping-pong: until the other consumer has issued its products and does its softmax."""
    if V.PING_PONG:
        mbarrier.wait(order_barriers.index(warpgroup), count & 1)


@gluon.jit
def _pass_turn(order_barriers, warpgroup: gl.constexpr, V: gl.constexpr):
    """Ping-pong: it is the next consumer's turn to issue products."""
    if V.PING_PONG:
        mbarrier.arrive(order_barriers.index((warpgroup + 1) % V.CONSUMERS), count=1)
        # --8<-- [end:turns]


@gluon.jit
def _add_row_sums(l_i, alpha, p):
    """l_i · alpha + the sums of the rows of p; with an l_i of [CONSUMER_M, 4], one a thread."""
    if len(l_i.shape) == 1:
        l_i = l_i * alpha + gl.sum(p, axis=1)  # the four threads of a row exchange their sums
    else:  # nothing moves: of every eight columns each of the threads has two next to each other
        own = gl.sum(gl.sum(p.reshape([CONSUMER_M, p.shape[1] // 8, 4, 2]), axis=3), axis=1)
        alpha = gl.convert_layout(alpha, gl.SliceLayout(1, ROW_SUM_LAYOUT))
        l_i = l_i * alpha[:, None] + gl.convert_layout(own, ROW_SUM_LAYOUT)
    return l_i


@gluon.jit
def _hide(s, last, V: gl.constexpr):
    """Minus infinity in the columns after `last`, [CONSUMER_M]."""
    if V.OVERLAP:  # registers to spare: each column has its number in one
        offs_n = gl.arange(0, V.BLOCK_N, gl.SliceLayout(0, _scores_layout(V)))
        s = gl.where(offs_n[None, :] <= last[:, None], s, float("-inf"))
    else:  # numbers that the instruction itself holds, and a limit for each thread
        layout: gl.constexpr = _columns_layout(V)
        rows: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
        eights: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
        threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
        pairs: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
        i = gl.arange(0, V.BLOCK_N // 8, eights)[None, :, None, None]
        j = gl.arange(0, 4, threads)[None, None, :, None]
        k = gl.arange(0, 2, pairs)[None, None, None, :]
        last = gl.convert_layout(last, rows)[:, None, None, None]
        s = gl.convert_layout(s.reshape([CONSUMER_M, V.BLOCK_N // 8, 4, 2]), layout)
        s = gl.where(8 * i <= last - 2 * j - k, s, float("-inf"))
        s = gl.convert_layout(s.reshape([CONSUMER_M, V.BLOCK_N]), _scores_layout(V))
    return s


@gluon.jit
def _online_softmax(s, m_i, l_i, start, last_key, prob, MASKED: gl.constexpr, V: gl.constexpr):
    """One more tile of scores: their weights p, what the old sums are worth, and m_i and l_i."""
    if MASKED:
        s = _hide(s, last_key - start, V)
    # Usually scores are scaled first: one multiply-add then scales and subtracts. But it subtracts
    # a maximum that was rounded, and where scores are huge that is far off. EXACT scales last.
    before, after = (1.0, prob.scale_log2) if V.EXACT else (prob.scale_log2, 1.0)
    m_new = gl.max(s, axis=1) * before  # [CONSUMER_M]
    if V.LAZY:  # weights may pass 1 then, by as much as the maximum lags behind
        m_new = gl.where((m_new - m_i) * after > GROWTH, m_new, m_i)
    else:
        m_new = gl.maximum(m_i, m_new)
    # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
    m_sub = gl.where(m_new == float("-inf"), 0.0, m_new)
    p = gl.exp2((s * before - m_sub[:, None]) * after)
    alpha = gl.exp2((m_i - m_sub) * after)
    return p, alpha, m_new, _add_row_sums(l_i, alpha, p)


# --8<-- [start:rescale]
@gluon.constexpr_function
def _unless_all_are_one(n):
    """PTX and its operands: n numbers times n factors, skipped where all of a warp's are 1."""
    factors = 2 * n  # the operand that is the first of them, after the results and the numbers
    # A thread holds numbers of two rows in turn, two of each: all its factors are among the first.
    skip = (
        ".reg .pred p;",
        f"setp.neu.f32 p, ${factors}, 0f3F800000;",
        f"setp.neu.or.f32 p, ${factors + 2}, 0f3F800000, p;",
        "vote.sync.any.pred p, p, 0xffffffff;",
        "@!p bra UNCHANGED;",
    )
    products = (f"mul.f32 ${i}, ${i}, ${factors + i};" for i in range(n))
    outputs, inputs = ["=f"] * n, [*map(str, range(n)), *["f"] * n]  # "3" is where output 3 is
    return "\n".join(["{", *skip, *products, "UNCHANGED:", "}"]), ",".join(outputs + inputs)


@gluon.jit
def _rescale(acc, alpha, V: gl.constexpr):
    """acc · alpha for each row, [CONSUMER_M, D]; LAZY: nothing, while the maxima of a warp stay."""
    alpha = gl.convert_layout(alpha, gl.SliceLayout(1, _acc_layout(acc.shape[1])))[:, None]
    if V.LAZY:
        n: gl.constexpr = acc.shape[1] // 2  # numbers of each of 128 threads
        ptx: gl.constexpr = _unless_all_are_one(n)
        acc = gl.inline_asm_elementwise(
            ptx[0], ptx[1], [acc, alpha], dtype=gl.float32, is_pure=True, pack=n
        )
    else:
        acc = acc * alpha
    return acc
    # --8<-- [end:rescale]


@gluon.jit
def _step_overlapped(
    p,  # the previous tile's weights
    state,
    queries,
    start,
    count,
    channels,
    prob,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """Fold a tile of keys into m_i and l_i, and the previous tile's values into acc."""
    _wait_for_turn(channels.order_barriers, count, queries.warpgroup, V)
    stage = _stage(count, V)
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    acc_layout: gl.constexpr = _acc_layout(state.acc.shape[1])
    p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
    before = _stage(count - 1, V)
    acc = _issue_pv(p, state.acc, channels.v, before, V)
    _pass_turn(channels.order_barriers, queries.warpgroup, V)
    s = warpgroup_mma_wait(1, deps=[scores])  # products end in order: one may still run
    _release(channels.k, stage)
    p_next, alpha, m_i, l_i = _online_softmax(
        s, state.m_i, state.l_i, start, queries.last_key, prob, MASKED=MASKED, V=V
    )
    # These values arrived long ago. Without a barrier here the compiler moves the wait below above
    # the exponentials, and nothing is left to run under the product.
    _wait_full(channels.v, before)
    acc, _ = warpgroup_mma_wait(0, deps=[acc, p])
    _release(channels.v, before)
    if V.CONSUMERS == 3:  # no registers to carry the weights as float32
        p_next = gl.convert_layout(p_next.to(channels.v.buffers.dtype), _left_operand(acc_layout))
    return p_next, Running(m_i, l_i, _rescale(acc, alpha, V))


# --8<-- [start:fold_overlapped]
@gluon.jit
def _fold_overlapped(
    state,
    queries,
    q_stage,
    n,
    masked,
    kv_count,
    channels,
    prob,
    CARRIED: gl.constexpr,  # whether acc may hold something already
    CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """Fold n tiles of keys, at least one, into the state: all that one tile of queries sees."""
    # The first tile has no values before it to run under.
    _wait_for_turn(channels.order_barriers, kv_count, queries.warpgroup, V)
    stage = _stage(kv_count, V)
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    _pass_turn(channels.order_barriers, queries.warpgroup, V)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
    # Not before: a load that was issued need not have read yet. The product used its registers, so
    # it has.
    if V.Q_IN_REGISTERS:
        _release(channels.q, q_stage)
    start = (n - 1) * V.BLOCK_N
    p, alpha, m_i, l_i = _online_softmax(
        s, state.m_i, state.l_i, start, queries.last_key, prob, MASKED=MASKED, V=V
    )
    acc = state.acc
    acc_layout: gl.constexpr = _acc_layout(acc.shape[1])
    if CARRIED:  # what was carried here is under the common maximum from now on
        acc = _rescale(acc, alpha, V)
    if V.CONSUMERS == 3:
        p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
    state = Running(m_i, l_i, acc)
    # --8<-- [end:fold_overlapped]
    # --8<-- [start:fold_overlapped_tiles]
    masked = gl.maximum(masked, 1)
    for with_mask in gl.static_range(1, -1, -1):  # the tiles that need a mask first
        if CAUSAL or not with_mask:  # not causal: no tile but the first needs one
            begin = 1 if with_mask else masked
            end = masked if with_mask else n
            for i in range(begin, end):
                p, state = _step_overlapped(
                    p,
                    state,
                    queries,
                    start=(n - 1 - i) * V.BLOCK_N,
                    count=kv_count + i,
                    channels=channels,
                    prob=prob,
                    MASKED=with_mask,
                    V=V,
                )
    if not V.Q_IN_REGISTERS:  # the last scores are done
        _release(channels.q, q_stage)
    p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
    stage = _stage(kv_count + n - 1, V)
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc, channels.v, stage, V)])
    _release(channels.v, stage)
    return Running(state.m_i, state.l_i, acc)
    # --8<-- [end:fold_overlapped_tiles]


@gluon.jit
def _step_sequential(
    state,
    queries,
    start,
    count,
    channels,
    prob,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """The same without overlap: product, softmax, product. The other consumers fill the gaps."""
    stage = _stage(count, V)
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release_in_passing(channels.k, stage)
    p, alpha, m_i, l_i = _online_softmax(
        s, state.m_i, state.l_i, start, queries.last_key, prob, MASKED=MASKED, V=V
    )
    acc_layout: gl.constexpr = _acc_layout(state.acc.shape[1])
    p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
    acc = _rescale(state.acc, alpha, V)
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, acc, channels.v, stage, V)])
    _release_in_passing(channels.v, stage)
    return Running(m_i, l_i, acc)


# --8<-- [start:consumer]
@gluon.jit
def _consumer(
    warpgroup: gl.constexpr,
    results,
    prob,
    channels,
    CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
    V: gl.constexpr,
):
    """Four warps: 64 queries of each tile, from the first product to the stored rows."""
    out_desc, lse_ptr, out_buffers = results
    D: gl.constexpr = out_desc.block_shape[2]
    dtype: gl.constexpr = out_desc.dtype
    s_layout: gl.constexpr = _scores_layout(V)
    acc_layout: gl.constexpr = _acc_layout(D)
    rows: gl.constexpr = gl.SliceLayout(1, s_layout)
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = gl.program_id(0) * prob.step
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        n, masked = _count_key_tiles(tile, prob, CAUSAL, CONSUMER_M * V.CONSUMERS, V.BLOCK_N)
        first = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
        offs_m = first + gl.arange(0, CONSUMER_M, rows)
        last_key = gl.zeros([CONSUMER_M], gl.int32, rows) + (prob.N - 1)
        if CAUSAL:
            last_key = gl.minimum(last_key, offs_m + prob.causal_offset)
        m_i = gl.full([CONSUMER_M], float("-inf"), gl.float32, rows)
        # Where there are masks, each thread keeps a sum of its own.
        if MASKED:
            l_i = gl.zeros([CONSUMER_M, 4], gl.float32, ROW_SUM_LAYOUT)
        else:
            l_i = gl.zeros([CONSUMER_M], gl.float32, rows)
        acc = gl.zeros([CONSUMER_M, D], gl.float32, acc_layout)
        state = Running(m_i, l_i, acc)
        # --8<-- [end:consumer]
        # --8<-- [start:queries]
        q_stage = _q_stage(warpgroup, q_count, V)
        _wait_full(channels.q, q_stage)
        q_tile = channels.q.buffers.index(q_stage.index).reshape([CONSUMER_M, D])
        if V.Q_IN_REGISTERS:
            q_tile = q_tile.load(_left_operand(s_layout))
        queries = Queries(warpgroup, q_tile, last_key)
        # --8<-- [end:queries]
        if V.OVERLAP:
            if n > 0:
                state = _fold_overlapped(
                    state,
                    queries,
                    q_stage,
                    n,
                    masked,
                    kv_count,
                    channels,
                    prob,
                    CARRIED=False,
                    CAUSAL=CAUSAL,
                    MASKED=MASKED,
                    V=V,
                )
            else:
                _release(channels.q, q_stage)
        # --8<-- [start:one_by_one]
        else:
            if n > 0:
                if MASKED:
                    # One tile with a mask, needed or not. Where the first loop below was skipped,
                    # the assembler (ptxas 12.8) took the queries' descriptor from it all the same.
                    masked = gl.maximum(masked, 1)
                for with_mask in gl.static_range(1, -1, -1):
                    if MASKED or not with_mask:
                        begin = 0 if with_mask else masked
                        end = masked if with_mask else n
                        for i in range(begin, end):
                            state = _step_sequential(
                                state,
                                queries,
                                start=(n - 1 - i) * V.BLOCK_N,
                                count=kv_count + i,
                                channels=channels,
                                prob=prob,
                                MASKED=with_mask,
                                V=V,
                            )
            _release(channels.q, q_stage)
        # --8<-- [end:one_by_one]
        # --8<-- [start:store]
        l_i = state.l_i
        if MASKED:
            l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)
        l_i = gl.where(l_i == 0.0, 1.0, l_i)  # no visible key: acc is zero, and so is the row
        out = state.acc * gl.convert_layout(1.0 / l_i, gl.SliceLayout(1, acc_layout))[:, None]
        # The previous tile's rows must have left the buffer, and TMA must see the new ones.
        tma.store_wait(0)
        out_tile = out_buffers.index(warpgroup)
        out_tile.reshape([CONSUMER_M, D]).store(out.to(dtype))
        fence_async_shared()
        _tma_store(out_desc, [head, first, 0], out_tile)
        if lse_ptr is not None:
            row = head.to(gl.int64) * prob.M + offs_m
            m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i
            gl.store(lse_ptr + row, (m_i + gl.log2(l_i)) / LOG2_E, mask=offs_m < prob.M)
        q_count += 1
        kv_count += n
        work_idx = _next_work(work_idx, prob)
    tma.store_wait(0)  # shared memory goes with the program
    # --8<-- [end:store]


# --8<-- [start:kernel]
@gluon.jit(
    do_not_specialize=["H", "G", "M", "N", "tiles", "total", "step", "by_length", "causal_offset"]
)
def _hopper_attention_kernel(
    q_desc,
    k_desc,
    v_desc,
    out_desc,
    lse_ptr,
    H,
    G,
    M,
    N,
    tiles,
    total,
    step,
    by_length,
    causal_offset,
    scale_log2,
    CAUSAL: gl.constexpr,
    MASKED: gl.constexpr,
    CONSUMERS: gl.constexpr,
    STAGES: gl.constexpr,
    OVERLAP: gl.constexpr,
    PING_PONG: gl.constexpr,
    Q_IN_REGISTERS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    LAZY: gl.constexpr,
    EXACT: gl.constexpr,
    CONSUMER_REGS: gl.constexpr,
    PRODUCER_REGS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """One program for each streaming multiprocessor takes tiles of queries until none is left.

    It reads q [B, H, M, D] and k, v [B, Hkv, N, D] and writes out [B · H, M, D], all by TMA, and
    lse [B, H, M], contiguous, unless that is None. Scores, weights and sums stay on the chip.
    H to scale_log2 are Problem's fields, CONSUMERS to EXACT Variant's; MASKED says whether some
    tile of keys needs a mask, and the REGS are registers of a thread.
    """
    # --8<-- [end:kernel]
    # --8<-- [start:memory]
    V: gl.constexpr = Variant(
        CONSUMERS=CONSUMERS,
        STAGES=STAGES,
        OVERLAP=OVERLAP,
        PING_PONG=PING_PONG,
        Q_IN_REGISTERS=Q_IN_REGISTERS,
        BLOCK_N=BLOCK_N,
        LAZY=LAZY,
        EXACT=EXACT,
    )
    prob = Problem(H, G, M, N, tiles, total, step, by_length, causal_offset, scale_log2)
    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 1)
    k = _channel(k_desc, V.STAGES, V.CONSUMERS)
    v = _channel(v_desc, V.STAGES, V.CONSUMERS)
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape  # noqa: RUF005
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    order_barriers = _barriers(V.CONSUMERS, 1)
    if V.PING_PONG:  # the first turn is the first consumer's
        mbarrier.arrive(order_barriers.index(0), count=1)
    # --8<-- [end:memory]
    # --8<-- [start:partitions]
    results = (out_desc, lse_ptr, out)
    channels = Channels(q, k, v, order_barriers)
    # The four warps that run this are the first consumer; the others are started beside them.
    gl.warp_specialize(
        [
            (_consumer, (part, results, prob, channels, CAUSAL, MASKED, V))
            if part < V.CONSUMERS
            else (_producer, (q_desc, k_desc, v_desc, prob, channels, CAUSAL, V))
            for part in (0, 1, 2, 3)[: V.CONSUMERS + 1]
        ],
        [4] * (V.CONSUMERS - 1) + [1],
        [CONSUMER_REGS] * (V.CONSUMERS - 1) + [PRODUCER_REGS],
    )
    # --8<-- [end:partitions]


# --8<-- [start:launcher]
def hopper_attention(q, k, v, *, scale=None, causal=False, align="bottom_right", return_lse=False):
    """softmax(q kᵀ · scale) v with Hopper's TMA, barriers and asynchronous tensor cores.

    Source: Shah et al. 2024, https://arxiv.org/abs/2407.08608, sections 3.1 and 3.2

    Args:
        q: [..., H, M, D], float16 or bfloat16; D 64 or 128; H and a batch may be left out. The D
            columns of a row lie side by side, other strides are multiples of 16 bytes.
        k, v: [..., Hkv, N, D], H a multiple of Hkv: groups of query heads share a head of keys.
        scale: factor on the scores, from 2^-64 to 2^64; 1/√D if None. With one of at most 1, no
            product of a query and a key times it may pass 2^27: beyond, rounding on a GPU may end
            in NaN or zeros.
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
    # --8<-- [start:prepare]
    _check_inputs(q, k, v, causal, align, return_lse)
    scale = _scale_or_default(scale, q.shape[-1])
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    if q.dim() < 4:
        q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), (_, Hkv, N, _) = q.shape, k.shape
    programs = _multiprocessors(q.device)
    variant = _variant(D, causal, M, N, B * H, B * Hkv, programs)
    plan = _plan(q.shape, k.shape, q.dtype, variant, programs, causal, align, scale)
    # --8<-- [end:prepare]
    # --8<-- [start:launch]
    tensors = dict(
        q_desc=_describe(q, plan.q_block),
        k_desc=_describe(k, plan.kv_block),
        v_desc=_describe(v, plan.kv_block),
        out_desc=_describe(out.view(B * H, M, D), plan.out_block),
        lse_ptr=lse,
    )
    with _device_of(q):
        _launch(plan, tensors)
    return (out, lse) if return_lse else out
    # --8<-- [end:launch]


# --8<-- [start:plan]
class Plan(NamedTuple):
    """What a launch needs besides its tensors. Only shapes and options decide it."""

    programs: int
    q_block: list  # what a copy by TMA moves: [1, 1, rows, D]
    kv_block: list
    out_block: list  # [1, rows, D]
    sizes: dict  # the kernel's parameters from H to scale_log2
    constants: dict  # from CAUSAL to num_warps: a kernel is compiled for each set of them
    kind: tuple  # of all this, what Triton compiles a kernel for


@functools.lru_cache(maxsize=1024)
def _plan(shape_q, shape_k, dtype, variant, programs, causal, align, scale):
    """The Plan of a call. Calls repeat their shapes, so it is worked out once for each."""
    (B, H, M, D), (_, Hkv, N, _) = shape_q, shape_k
    tiles = -(-M // (CONSUMER_M.value * variant.CONSUMERS))
    total = B * H * tiles
    step, by_length = _order(causal, total, B * Hkv, programs)
    consumer_regs, producer_regs = REGISTERS[variant.CONSUMERS]
    # --8<-- [end:plan]
    # --8<-- [start:plan_parameters]
    sizes = dict(
        H=H,
        G=H // Hkv,
        M=M,
        N=N,
        tiles=tiles,
        total=total,
        step=step,
        by_length=by_length,
        causal_offset=N - M if align == "bottom_right" else 0,
        scale_log2=scale * LOG2_E.value,
    )
    constants = dict(
        CAUSAL=causal,
        MASKED=causal or N % variant.BLOCK_N != 0,
        CONSUMERS=variant.CONSUMERS,
        STAGES=variant.STAGES,
        OVERLAP=variant.OVERLAP,
        PING_PONG=variant.PING_PONG,
        Q_IN_REGISTERS=variant.Q_IN_REGISTERS,
        BLOCK_N=variant.BLOCK_N,
        LAZY=variant.LAZY,
        EXACT=scale > 1,
        CONSUMER_REGS=consumer_regs,
        PRODUCER_REGS=producer_regs,
        num_warps=4,
    )
    blocks = [1, 1, CONSUMER_M.value, D], [1, 1, variant.BLOCK_N, D], [1, CONSUMER_M.value, D]
    kind = (dtype, D, *constants.values())
    return Plan(min(programs, -(-total // step)), *blocks, sizes, constants, kind)
    # --8<-- [end:plan_parameters]


# --8<-- [start:compiled]
_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(plan, tensors):
    """Launch the kernel of a Plan; tensors are its parameters from q_desc to lse_ptr.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    No size matters: the kernel is not specialized on any.
    """
    lse = tensors["lse_ptr"]
    key = (
        tensors["q_desc"].base.device,
        plan.kind,
        triton.knobs.runtime.debug,
        triton.knobs.compilation.instrumentation_mode,
        lse if lse is None else lse.data_ptr() % 16,
    )
    sizes, constants = plan.sizes, plan.constants
    kernel = _compiled.get(key)
    if kernel is not None:
        kernel[(plan.programs, 1, 1)](*tensors.values(), *sizes.values(), *constants.values())
        return
    kernel = _hopper_attention_kernel[(plan.programs,)](**tensors, **sizes, **constants)
    if isinstance(kernel, CompiledKernel):
        _compiled[key] = kernel
    # --8<-- [end:compiled]


# --8<-- [start:registers]
# Consumers → registers of a thread of theirs, and of the producer: of 65,536 in all.
REGISTERS = {2: (240, 24), 3: (160, 24)}
# --8<-- [end:registers]


# --8<-- [start:choice]
def _order(causal, total, kv_heads, programs):
    """How many tiles of queries each program takes in a row, and whether by length."""
    if not causal or total <= programs:
        return 1, False
    # By length programs work on all heads at once. Where four or more share the keys of a head,
    # these are still read a few times only. Else pairs: the longest tile of a head that is left
    # and the shortest are as much work as any other pair.
    return (1, True) if 4 * kv_heads <= programs else (2, False)


@functools.lru_cache(maxsize=1024)
def _variant(D, causal, M, N, heads, kv_heads, programs):
    """The Variant that is done first: as many rounds of tiles as the busiest program takes."""

    def microseconds(candidate):
        variant, (alone, each) = candidate
        total = heads * -(-M // (CONSUMER_M.value * variant.CONSUMERS))
        step, by_length = _order(causal, total, kv_heads, programs)
        keys = N  # that the longest tile visits; of others the mean counts, and a part of a tile
        if step == 2 or by_length:
            keys = (N - M // 2 if M <= N else N * N // (2 * M)) + variant.BLOCK_N
        rounds = total / programs if by_length else step * -(-total // (step * programs))
        return rounds * (alone + each * -(-keys // variant.BLOCK_N))

    # Of D 128 there is one variant, and no time counts.
    return min(zip(VARIANTS[D], TILE_TIMES[causal], strict=False), key=microseconds)[0]
    # --8<-- [end:choice]


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


@functools.cache
def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


# --8<-- [start:descriptors]
# How TMA lays rows of 16-bit numbers into shared memory, for wgmma to read; by rank.
ROWS_LAYOUT = {
    rank: gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank)
    for rank in (3, 4)
}


class Rows(TensorDescriptor):
    """A descriptor of a tensor that _check_inputs has accepted."""

    def __post_init__(self):
        """Triton would check it again here, which takes longer than all else about it."""


def _describe(x, block):
    """What TMA needs to move a block of x, some rows of a head: it stops where the head ends."""
    return Rows(x, x.shape, x.stride(), block, ROWS_LAYOUT[len(block)])
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
        *steps, last = x.stride()
        if last != 1:
            raise ValueError(f"{name} has strides {x.stride()}; the last must be 1")
        if x.data_ptr() % 16 or math.gcd(*steps) * x.itemsize % 16 or 0 in steps:
            raise ValueError(
                f"{name} starts at {x.data_ptr():#x} with strides {x.stride()}; TMA needs "
                "multiples of 16 bytes above 0, flash_attention takes any"
            )
    shape, shape_k = tuple(q.shape), tuple(k.shape)
    batch, heads, D = shape[:-3], shape[-3:-2], shape[-1]
    if D not in WIDTHS:
        raise ValueError(f"q has head dimension {D}; 64 and 128 are allowed, see flash_attention")
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
    if q.device.type != "cuda" or torch.version.hip:
        raise ValueError(f"q is on {q.device}; the kernel needs an H100 or H200")
    if (found := _capability(q.device)) != (9, 0):
        raise ValueError(
            f"q is on a GPU of capability {found}; (9, 0) is allowed, see flash_attention"
        )


def _check_mask(causal, align="bottom_right"):
    """Raise for a mask that is none of the three."""
    if not isinstance(causal, bool):
        raise TypeError(f"causal has type {_type_name(causal)}; it must be a bool, True or False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        raise ValueError(f"align is {align!r}; it must be 'bottom_right' or 'top_left'")


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
