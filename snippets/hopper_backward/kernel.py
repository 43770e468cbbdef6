"""The gradients of attention on Hopper, in Gluon: a warp loads, eight compute, a warp adds dQ.

float16 or bfloat16, 64 or 128 columns, strides that are multiples of 16 bytes; an H100 or H200. Run
it alone: `python kernel.py` checks it against PyTorch on such a GPU. `hopper_backward` launches it.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import contextlib
import functools
import math
import numbers
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton._C.libtriton import ir
from triton.compiler import CompiledKernel
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language._core import builtin
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


class Variant(NamedTuple):
    """How a program goes through the queries."""

    BLOCK_M: int  # queries of an iteration, in parts of SUB_M
    STAGES: int  # tiles of q, of dO and of dS that shared memory holds
    KV_IN_REGISTERS: bool  # or read by the tensor cores from shared memory
    CAUSAL: bool = False
    RAGGED: bool = False  # the last tile of keys has fewer of them
    ADD: bool = False  # to tensors of the caller


# D → how: BLOCK_M · D is PART · PART for each consumer. Tuned on an H200, bfloat16, 1,024 to 16,384
# keys, with and without a causal mask.
VARIANTS = {
    64: Variant(BLOCK_M=128, STAGES=2, KV_IN_REGISTERS=True),
    128: Variant(BLOCK_M=64, STAGES=2, KV_IN_REGISTERS=False),
}
REGISTERS = (240, 24)  # of a thread that computes, and of one that loads or adds
CONSUMERS = gl.constexpr(2)  # warpgroups that compute
CONSUMER_N = gl.constexpr(64)  # keys of each: what one wgmma instruction takes
SUB_M = gl.constexpr(64)  # queries whose scores a consumer holds at a time
PART = gl.constexpr(64)  # queries and columns of the part of dQ that a consumer computes
LANES = gl.constexpr(32)  # threads of a warp
LOG2_E = tl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
EIGHT = tl.constexpr(8)  # numbers of 16 bits in 16 bytes, of which all strides are multiples


class Problem(NamedTuple):
    """What every part of the kernel knows."""

    H: Any  # heads of queries
    G: Any  # how many of them share a head of keys
    M: Any  # queries
    N: Any  # keys
    tiles_m: Any  # tiles of queries, of a head
    tiles_n: Any  # tiles of keys, of a head
    heads_kv: Any  # heads of keys, of the whole batch
    together: Any  # how many of those are worked on at a time
    causal_offset: Any  # causal: query m sees keys up to m + causal_offset
    scale: Any
    scale_log2: Any


@gluon.jit(do_not_specialize=list(Problem._fields))
def _hopper_backward_kernel(
    q_desc, k_desc, v_desc, do_desc, sum_desc,
    gk, gv,  # descriptors; with ADD pointers
    lse_log2_ptr, delta_ptr,
    H, G, M, N, tiles_m, tiles_n, heads_kv, together, causal_offset, scale, scale_log2,
    BLOCK_M: gl.constexpr, STAGES: gl.constexpr, KV_IN_REGISTERS: gl.constexpr,
    CAUSAL: gl.constexpr, RAGGED: gl.constexpr, ADD: gl.constexpr,
    CONSUMER_REGS: gl.constexpr, OTHER_REGS: gl.constexpr,
):  # fmt: skip
    """One program computes 128 rows of dK and dV of one head, and their share of dQ.

    It reads k, v [B, Hkv, N, D] once, then BLOCK_M at a time the rows of q and dO [B, H, M, D] that
    see its keys, with their logsumexp and Δ [B · H, tiles_m · BLOCK_M]. It writes dK and dV, or
    with ADD adds to them, and adds to the sum of dQ, float32, two PARTs for each tile of queries.
    All goes by TMA but the logsumexp, Δ, and what ADD adds to.
    """
    V: gl.constexpr = Variant(BLOCK_M, STAGES, KV_IN_REGISTERS, CAUSAL, RAGGED, ADD)
    prob = Problem(
        H, G, M, N, tiles_m, tiles_n, heads_kv, together, causal_offset, scale, scale_log2
    )
    ds_layout: gl.constexpr = gl.NVMMASharedLayout(
        swizzle_byte_width=128, element_bitwidth=16, rank=2
    )
    ds_shape: gl.constexpr = [STAGES * CONSUMERS * BLOCK_M // SUB_M, CONSUMER_N, SUB_M]
    dq_shape: gl.constexpr = [CONSUMERS] + sum_desc.block_shape  # noqa: RUF005
    ds = gl.allocate_shared_memory(k_desc.dtype, ds_shape, ds_layout)
    dq = gl.allocate_shared_memory(gl.float32, dq_shape, sum_desc.layout)
    channels = Channels(
        k=_once(k_desc),
        v=_once(v_desc),
        q=_rows(q_desc, V),
        do=_rows(do_desc, V),
        ds=Channel(ds, _barriers(STAGES, CONSUMERS), _barriers(STAGES, CONSUMERS)),
        dq=Channel(dq, _barriers(CONSUMERS, 1), _barriers(CONSUMERS, 1)),
    )
    inputs = (q_desc, k_desc, v_desc, do_desc, lse_log2_ptr, delta_ptr)
    # The four warps that run this are the first consumer; the others are started beside them.
    gl.warp_specialize(
        [
            (_consumer, (0, (gk, gv), prob, channels, V)),
            (_consumer, (1, (gk, gv), prob, channels, V)),
            (_producer, (inputs, prob, channels, V)),
            (_writer, (sum_desc, prob, channels, V)),
        ],
        [4, 1, 1],
        [CONSUMER_REGS, OTHER_REGS, OTHER_REGS],
    )


class Channel(NamedTuple):
    """Buffers that one side fills and the other empties; an mbarrier of each kind for each."""

    buffers: Any
    full: Any
    empty: Any


class Once(NamedTuple):
    """Buffers that are filled once."""

    buffers: Any
    full: Any


class Rows(NamedTuple):
    """Tiles of q or dO, with a number for each row: its logsumexp, or its Δ."""

    tiles: Any
    numbers: Any
    full: Any


class Channels(NamedTuple):
    """What the parts of a program exchange."""

    k: Any  # a buffer for the keys of each consumer
    v: Any  # the same of values; the gradients leave through it
    q: Any  # tiles of queries, and their logsumexp
    do: Any  # of dO, and their Δ
    ds: Any  # buffers for the dSᵀ of each consumer, which both read; empty when q and dO are too
    dq: Any  # a buffer for the part of dQ of each consumer


@gluon.jit
def _barriers(n: gl.constexpr, arrivals: gl.constexpr):
    """n mbarriers in shared memory; a phase of each ends after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(barriers.index(i), count=arrivals)
    return barriers


@gluon.jit
def _once(desc):
    """A buffer for each consumer's keys or values, filled once."""
    shape: gl.constexpr = [CONSUMERS] + desc.block_shape  # noqa: RUF005
    buffers = gl.allocate_shared_memory(desc.dtype, shape, desc.layout)
    return Once(buffers, _barriers(CONSUMERS, 1))


@gluon.jit
def _rows(desc, V: gl.constexpr):
    """Buffers for tiles of q or dO: TMA arrives once, and each thread that copies numbers."""
    n: gl.constexpr = V.STAGES * V.BLOCK_M // SUB_M
    layout: gl.constexpr = gl.SwizzledSharedLayout(vec=1, per_phase=1, max_phase=1, order=[0])
    tiles = gl.allocate_shared_memory(desc.dtype, [n] + desc.block_shape, desc.layout)  # noqa: RUF005
    numbers = gl.allocate_shared_memory(gl.float32, [n, SUB_M], layout)
    return Rows(tiles, numbers, _barriers(V.STAGES, LANES + 1))


class Work(NamedTuple):
    """What a program does: a tile of keys, and the tiles of queries that see it."""

    b: Any
    hk: Any  # head of keys
    tile: Any  # of keys
    first_tile: Any  # of queries
    per_head: Any  # tiles of queries, of each of the heads
    steps: Any  # of all heads of the group


@gluon.jit
def _work(prob, V: gl.constexpr):
    """The program's share. The longest come first, so that no long one is left when most are done.

    With a mask the first keys have most work. So some heads are worked on together: the first tile
    of each, then the second of each. Programs are counted from the last one, so that a group of
    fewer heads, where one is left, goes first.
    """
    later = gl.num_programs(0) - 1 - gl.program_id(0)  # programs that start after this one
    first_head = later // (prob.together * prob.tiles_n) * prob.together
    later = later - first_head * prob.tiles_n  # of these heads
    count = gl.minimum(prob.heads_kv - first_head, prob.together)
    head = first_head + later % count
    tile = prob.tiles_n - 1 - later // count
    heads = prob.H // prob.G
    first_tile = 0
    if V.CAUSAL:  # the first with a query that sees one of the keys
        first_key = tile * CONSUMERS * CONSUMER_N
        first_tile = gl.maximum(first_key - prob.causal_offset, 0) // V.BLOCK_M
        first_tile = gl.minimum(first_tile, prob.tiles_m)
    per_head = prob.tiles_m - first_tile
    return Work(head // heads, head % heads, tile, first_tile, per_head, prob.G * per_head)


class Stage(NamedTuple):
    """A buffer of a channel, and the parity of the phase that its barriers are in."""

    index: Any
    phase: Any


@gluon.jit
def _stage(i, V: gl.constexpr):
    """The buffer that the queries of iteration i go through."""
    return Stage(i % V.STAGES, i // V.STAGES & 1)


@gluon.jit
def _queries_of(i, work, prob):
    """The head and the tile of queries of iteration i."""
    h = work.hk * prob.G + i // work.per_head
    return h, work.first_tile + i % work.per_head


@gluon.jit
def _producer(inputs, prob, channels, V: gl.constexpr):
    """One warp: start every copy, in the order in which the consumers want them."""
    q_desc, k_desc, v_desc, do_desc, lse_log2_ptr, delta_ptr = inputs
    work = _work(prob, V)
    _fill_once(k_desc, channels.k, work)
    _fill_once(v_desc, channels.v, work)
    for i in range(work.steps):
        h, tile = _queries_of(i, work, prob)
        row = ((work.b * prob.H + h).to(gl.int64) * prob.tiles_m + tile) * V.BLOCK_M
        stage = _stage(i, V)
        # Until both consumers have released the stage; in the first phase it passes at once.
        mbarrier.wait(channels.ds.empty.index(stage.index), stage.phase ^ 1)
        _fill(q_desc, work.b, h, tile, lse_log2_ptr + row, channels.q, stage, V)
        _fill(do_desc, work.b, h, tile, delta_ptr + row, channels.do, stage, V)


@gluon.jit
def _fill_once(desc, channel, work):
    """Start the copies of the program's keys, or values: those of each consumer into its buffer."""
    for part in gl.static_range(CONSUMERS):
        full = channel.full.index(part)
        at = [work.b, work.hk, (work.tile * CONSUMERS + part) * CONSUMER_N, 0]
        mbarrier.expect(full, desc.block_type.nbytes)
        _tma_load(desc, at, full, channel.buffers.index(part))


@gluon.jit
def _fill(desc, b, h, tile, numbers_ptr, rows, stage, V: gl.constexpr):
    """Start the copies of a tile and of its numbers; a barrier counts them."""
    SUBS: gl.constexpr = V.BLOCK_M // SUB_M
    full = rows.full.index(stage.index)
    each: gl.constexpr = gl.BlockedLayout([SUB_M // LANES], [LANES], [1], [0])
    offs_m = gl.arange(0, SUB_M, each)
    for sub in gl.static_range(SUBS):
        numbers = rows.numbers.index(stage.index * SUBS + sub)
        _async_load(numbers, numbers_ptr + sub * SUB_M + offs_m)
    async_copy.mbarrier_arrive(full, increment_count=False)  # each lane, when its copies are done
    mbarrier.expect(full, SUBS * desc.block_type.nbytes)
    for sub in gl.static_range(SUBS):
        at = [b, h, tile * V.BLOCK_M + sub * SUB_M, 0]
        _tma_load(desc, at, full, rows.tiles.index(stage.index * SUBS + sub))


@gluon.jit
def _writer(sum_desc, prob, channels, V: gl.constexpr):
    """One warp: add each part of dQ to the sum that all programs of the head add to."""
    work = _work(prob, V)
    for i in range(work.steps):
        h, tile = _queries_of(i, work, prob)
        first = ((work.b * prob.H + h) * prob.tiles_m + tile) * CONSUMERS
        for part in gl.static_range(CONSUMERS):
            mbarrier.wait(channels.dq.full.index(part), i & 1)
            _reduce_add(sum_desc, [first + part, 0, 0], channels.dq.buffers.index(part))
        for part in gl.static_range(CONSUMERS):
            tma.store_wait(CONSUMERS - 1 - part)  # they end in order
            mbarrier.arrive(channels.dq.empty.index(part), count=1)


@builtin
def _reduce_add(desc, coordinates, buffer, _semantic=None):
    """Start adding a buffer to a block by TMA: Gluon has no name for it before Triton 3.8."""
    at = _semantic._convert_to_ir_values(coordinates, require_i64=False)
    add = ir.DESCRIPTOR_REDUCE_KIND.ADD
    _semantic.builder.create_async_tma_reduce(add, desc.handle, at, buffer.handle)


_reduce_add = getattr(tma, "async_atomic_add", _reduce_add)
# Asynchronous copies, by threads and by TMA: their names since Triton 3.8, and before.
_async_load = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
_tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def _consumer(consumer: gl.constexpr, results, prob, channels, V: gl.constexpr):
    """Four warps: 64 keys, from the first product to the stored rows of dK and dV."""
    D: gl.constexpr = channels.k.buffers.shape[-1]
    work = _work(prob, V)
    first_key = (work.tile * CONSUMERS + consumer) * CONSUMER_N
    dk = gl.zeros([CONSUMER_N, D], gl.float32, _acc_layout(D))
    dv = gl.zeros([CONSUMER_N, D], gl.float32, _acc_layout(D))
    for part in gl.static_range(CONSUMERS):
        mbarrier.wait(channels.k.full.index(part), 0)
    mbarrier.wait(channels.v.full.index(consumer), 0)
    k_tile = _operand(channels.k.buffers.index(consumer), V)
    v_tile = _operand(channels.v.buffers.index(consumer), V)
    tile = work.first_tile
    for i in range(work.steps):
        dk, dv = _step(i, tile, dk, dv, k_tile, v_tile, first_key, consumer, prob, channels, V)
        # The next tile of queries: of all heads in a row, and without a division.
        tile = gl.where(tile + 1 == prob.tiles_m, work.first_tile, tile + 1)
    gk, gv = results
    if V.ADD:
        _add_rows(gv, dv, work, first_key, prob)
        _add_rows(gk, dk * prob.scale, work, first_key, prob)
    else:
        # No product reads this consumer's values again: the gradients leave through their buffer.
        at = [work.b, work.hk, first_key, 0]
        _store(gv, at, dv, channels.v.buffers.index(consumer))
        _store(gk, at, dk * prob.scale, channels.v.buffers.index(consumer))
        tma.store_wait(0)  # shared memory goes with the program


ST_LAYOUT = gl.constexpr(  # which thread holds which of a consumer's Sᵀ, [CONSUMER_N, SUB_M]
    gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
)


@gluon.constexpr_function
def _acc_layout(D):
    """The same of its dK and dV, [CONSUMER_N, D], and of the dQ of SUB_M queries."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])


@gluon.constexpr_function
def _left_operand(layout):
    """Where wgmma wants the left side of a product whose result has a layout."""
    return gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)


@gluon.jit
def _operand(buffer, V: gl.constexpr):
    """A consumer's keys or values, [CONSUMER_N, D], as the left side of a product."""
    tile = buffer.reshape([CONSUMER_N, buffer.shape[-1]])
    if V.KV_IN_REGISTERS:
        tile = tile.load(_left_operand(ST_LAYOUT))
    return tile


@gluon.jit
def _step(
    i, tile, dk, dv, k_tile, v_tile, first_key, consumer: gl.constexpr, prob, channels,
    V: gl.constexpr,
):  # fmt: skip
    """One tile of queries: add to dK and dV, and compute half of dQ."""
    SUBS: gl.constexpr = V.BLOCK_M // SUB_M
    dtype: gl.constexpr = channels.k.buffers.dtype
    operand: gl.constexpr = _left_operand(_acc_layout(dk.shape[1]))
    stage = _stage(i, V)
    first = stage.index * SUBS
    row = tile * V.BLOCK_M
    mbarrier.wait(channels.q.full.index(stage.index), stage.phase)
    scores = _issue_st(k_tile, channels.q, first)
    lse_log2 = _numbers(channels.q, first)
    mbarrier.wait(channels.do.full.index(stage.index), stage.phase)
    products = _issue_st(v_tile, channels.do, first)  # dPᵀ
    if SUBS > 1:
        scores_after = _issue_st(k_tile, channels.q, first + 1)
    # --8<-- [start:first_half]
    st = warpgroup_mma_wait(SUBS, deps=[scores])  # products end in order
    pt = _weights(st, lse_log2, first_key, row, prob, V)
    p = gl.convert_layout(pt.to(dtype), operand)
    dv = _issue_sum(p, dv, channels.do, first)
    dpt = warpgroup_mma_wait(SUBS, deps=[products])
    dst = (pt * (dpt - _numbers(channels.do, first)[None, :])).to(dtype)
    # dQ needs the dS of both consumers, so dS goes through shared memory.
    mine = first * CONSUMERS + consumer * SUBS
    channels.ds.buffers.index(mine).store(dst)  # free since q has come
    ds = gl.convert_layout(dst, operand)
    # --8<-- [end:first_half]
    if SUBS > 1:
        products_after = _issue_st(v_tile, channels.do, first + 1)
        dk = _issue_sum(ds, dk, channels.q, first)
        st, _p = warpgroup_mma_wait(2, deps=[scores_after, p])
        lse_log2 = _numbers(channels.q, first + 1)
        pt = _weights(st, lse_log2, first_key, row + SUB_M, prob, V)
        p = gl.convert_layout(pt.to(dtype), operand)
        dv = _issue_sum(p, dv, channels.do, first + 1)
        dpt, _ds = warpgroup_mma_wait(1, deps=[products_after, ds])
        dst = (pt * (dpt - _numbers(channels.do, first + 1)[None, :])).to(dtype)
        channels.ds.buffers.index(mine + 1).store(dst)
        ds = gl.convert_layout(dst, operand)
    # --8<-- [start:share]
    # The product for dK hides that dS is exchanged, or that dQ is stored.
    DK_FIRST: gl.constexpr = SUBS == 1 and V.CAUSAL
    if DK_FIRST:
        dk = _issue_sum(ds, dk, channels.q, first + SUBS - 1)
    fence_async_shared()
    mbarrier.arrive(channels.ds.full.index(stage.index), count=1)
    mbarrier.wait(channels.ds.full.index(stage.index), stage.phase)
    dq = _issue_dq(consumer, stage, channels, V)
    if not DK_FIRST:
        dk = _issue_sum(ds, dk, channels.q, first + SUBS - 1)
    dq, dv, _p = warpgroup_mma_wait(0 if DK_FIRST else 1, deps=[dq, dv, p])
    mbarrier.wait(channels.dq.empty.index(consumer), i & 1 ^ 1)
    channels.dq.buffers.index(consumer).reshape([2 * PART, PART // 2]).store(_as_registers(dq))
    fence_async_shared()
    mbarrier.arrive(channels.dq.full.index(consumer), count=1)
    dk, _ds = warpgroup_mma_wait(0, deps=[dk, ds])
    mbarrier.arrive(channels.ds.empty.index(stage.index), count=1)
    return dk, dv
    # --8<-- [end:share]


@gluon.jit
def _issue_st(a, rows, index):
    """Start a · rowsᵀ, for SUB_M rows of q or dO: [CONSUMER_N, SUB_M]."""
    tile = rows.tiles.index(index)
    tile = tile.reshape([SUB_M, tile.shape[-1]]).permute((1, 0))  # [D, SUB_M]
    zeros = gl.zeros([CONSUMER_N, SUB_M], gl.float32, ST_LAYOUT)
    return warpgroup_mma(a, tile, zeros, use_acc=False, is_async=True)


@gluon.jit
def _issue_sum(p, acc, rows, index):
    """Start acc + p · rows, with p in registers: [CONSUMER_N, D]."""
    tile = rows.tiles.index(index)
    return warpgroup_mma(p, tile.reshape([SUB_M, tile.shape[-1]]), acc, is_async=True)


@gluon.jit
def _numbers(rows, index):
    """The logsumexp, or the Δ, of SUB_M queries, for each column of Sᵀ."""
    return rows.numbers.index(index).load(gl.SliceLayout(0, ST_LAYOUT))


@gluon.jit
def _weights(st, lse_log2, first_key, first_query, prob, V: gl.constexpr):
    """The forward's weights, again: Pᵀ, [CONSUMER_N, SUB_M]."""
    st = _hide(st, first_key, first_query, prob, V)
    return gl.exp2(st * prob.scale_log2 - lse_log2[None, :])


@gluon.jit
def _hide(st, first_key, first_query, prob, V: gl.constexpr):
    """The scores with -inf where a query does not see a key; most tiles are as they were."""
    offs_n = first_key + gl.arange(0, CONSUMER_N, gl.SliceLayout(1, ST_LAYOUT))
    if V.RAGGED:
        st = gl.where((offs_n < prob.N)[:, None], st, float("-inf"))
    if V.CAUSAL:  # known at compile time, and what follows is not
        hidden = first_query + prob.causal_offset < first_key + CONSUMER_N - 1
        if hidden:
            st = _hide_by_columns(st, offs_n - (prob.causal_offset + first_query))
    return st


# The layout of Sᵀ as [CONSUMER_N, 8, 4, 2], where [:, i, j, k] is column 8 i + 2 j + k: i and k say
# which register holds a score, and j which of the four threads of a row.
COLUMNS_LAYOUT = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0], [0, 4, 0, 0]],
        lane_bases=[[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[64, 8, 4, 2],
    )
)


@gluon.jit
def _hide_by_columns(st, first):
    """Minus infinity in the columns before `first`, [CONSUMER_N]; no register holds a column."""
    layout: gl.constexpr = COLUMNS_LAYOUT
    rows: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    eights: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, layout)))
    threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, layout)))
    pairs: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, layout)))
    i = gl.arange(0, SUB_M // 8, eights)[None, :, None, None]
    j = gl.arange(0, 4, threads)[None, None, :, None]
    k = gl.arange(0, 2, pairs)[None, None, None, :]
    first = gl.convert_layout(first, rows)[:, None, None, None]
    st = gl.convert_layout(st.reshape([CONSUMER_N, SUB_M // 8, 4, 2]), layout)
    st = gl.where(8 * i >= first - 2 * j - k, st, float("-inf"))
    return gl.convert_layout(st.reshape([CONSUMER_N, SUB_M]), ST_LAYOUT)


@gluon.jit
def _issue_dq(consumer: gl.constexpr, stage, channels, V: gl.constexpr):
    """Start dS K for a consumer's part of dQ, [PART, PART]: its queries, or all and its columns."""
    SUBS: gl.constexpr = V.BLOCK_M // SUB_M
    sub: gl.constexpr = consumer if SUBS > 1 else 0
    column: gl.constexpr = 0 if SUBS > 1 else consumer * PART
    dq = gl.zeros([PART, PART], gl.float32, _acc_layout(PART))
    for other in gl.static_range(CONSUMERS):  # the keys of both
        ds = channels.ds.buffers.index((stage.index * CONSUMERS + other) * SUBS + sub)
        k_tile = channels.k.buffers.index(other)
        k_tile = k_tile.reshape([CONSUMER_N, k_tile.shape[-1]]).slice(column, PART, dim=1)
        dq = warpgroup_mma(ds.permute((1, 0)), k_tile, dq, use_acc=other > 0, is_async=True)
    return dq


@gluon.jit
def _as_registers(dq):
    """A part of dQ in the order in which registers hold it: no two threads want one bank.

    Row 16 i + 8 j + k and column 8 l + 2 m + n lie at warp i, thread 4 k + m; j and n say which of
    its registers, of the four for l. A thread writes those four at once. _finish_kernel sorts.
    """
    six = dq.reshape([4, 2, 8, PART // 8, 4, 2])  # [i, j, k, l, m, n]
    return six.permute((3, 0, 2, 4, 1, 5)).reshape([2 * PART, PART // 2])


@gluon.jit
def _store(desc, at, grad, buffer):
    """Start to write a consumer's rows of a gradient by TMA, through a buffer."""
    tma.store_wait(0)  # until the gradient before has left it
    buffer.reshape([CONSUMER_N, grad.shape[1]]).store(grad.to(buffer.dtype))
    fence_async_shared()
    _tma_store(desc, at, buffer)


@gluon.jit
def _add_rows(ptr, grad, work, first_key, prob):
    """Add to a consumer's rows of a float32 tensor [B, Hkv, N, D]; nobody else has them."""
    D: gl.constexpr = grad.shape[1]
    offs_n = first_key + gl.arange(0, CONSUMER_N, gl.SliceLayout(1, _acc_layout(D)))
    offs_d = gl.arange(0, D, gl.SliceLayout(0, _acc_layout(D)))
    head = work.b * (prob.H // prob.G) + work.hk
    ptr += head.to(gl.int64) * prob.N * D
    ptrs = ptr + offs_n.to(gl.int64)[:, None] * D + offs_d[None, :]  # [CONSUMER_N, D]
    mask = (offs_n < prob.N)[:, None]
    gl.store(ptrs, gl.load(ptrs, mask=mask, other=0.0) + grad, mask=mask)


STRIDES = [f"stride_{x}{dimension}" for x in "ogq" for dimension in "bhm"]
ROWS = 64  # rows of a program that prepares or finishes: those of a PART


@triton.jit(do_not_specialize=["H", "M", "padded", *STRIDES])
def _prepare_kernel(
    out_ptr, grad_out_ptr,  # [B, H, M, D]
    lse_ptr, grad_lse_ptr,  # [B, H, M], contiguous; the second may be None
    lse_log2_ptr, delta_ptr,  # written: [B, H, padded]
    sum_ptr,  # written: B · H · padded · D numbers
    stride_ob: tl.int64, stride_oh: tl.int64, stride_om: tl.int64,  # in EIGHTs
    stride_gb: tl.int64, stride_gh: tl.int64, stride_gm: tl.int64,
    H, M, padded,  # M, up to the end of the last tile
    D: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One program prepares BLOCK_M rows of one head: Δ, the sums of dO · O, and zeros for dQ."""
    num_tiles = padded // BLOCK_M
    pid = tl.program_id(0)
    head = (pid // num_tiles).to(tl.int64)
    b, h = head // H, head % H
    offs_m = pid % num_tiles * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_d = tl.arange(0, D)[None, :]
    mask_m = offs_m < M
    wide_m = offs_m.to(tl.int64)[:, None]
    out_ptrs = out_ptr + (b * stride_ob + h * stride_oh + wide_m * stride_om) * EIGHT + offs_d
    grad_ptrs = grad_out_ptr + (b * stride_gb + h * stride_gh + wide_m * stride_gm) * EIGHT + offs_d
    out = tl.load(out_ptrs, mask=mask_m[:, None], other=0.0).to(tl.float32)  # [BLOCK_M, D]
    grad_out = tl.load(grad_ptrs, mask=mask_m[:, None], other=0.0).to(tl.float32)
    lse = tl.load(lse_ptr + head * M + offs_m, mask=mask_m, other=float("-inf"))
    # A row without keys, or beyond the last, subtracts infinity: its P is zero.
    lse_log2 = tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)
    tl.store(lse_log2_ptr + head * padded + offs_m, lse_log2)
    delta = tl.sum(out * grad_out, axis=1)  # [BLOCK_M]
    if grad_lse_ptr is not None:  # the logsumexp has P as its gradient: P · (dP - Δ + its gradient)
        delta -= tl.load(grad_lse_ptr + head * M + offs_m, mask=mask_m, other=0.0)
    tl.store(delta_ptr + head * padded + offs_m, delta)
    sum_ptrs = sum_ptr + (head * padded + wide_m) * D + offs_d
    tl.store(sum_ptrs, tl.zeros([BLOCK_M, D], tl.float32))


@triton.jit(do_not_specialize=["H", "M", "padded", *STRIDES])
def _finish_kernel(
    sum_ptr,  # B · H · padded · D numbers, those of each 64 rows in the order of _as_registers
    grad_q_ptr,  # written, with ADD added to: [B, H, M, D]
    stride_qb: tl.int64, stride_qh: tl.int64, stride_qm: tl.int64,  # in EIGHTs
    H, M, padded, scale,
    D: tl.constexpr, ADD: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """One program scales BLOCK_M rows of the sum of dQ and rounds them once."""
    num_tiles = tl.cdiv(M, BLOCK_M)
    pid = tl.program_id(0)
    head = (pid // num_tiles).to(tl.int64)
    b, h = head // H, head % H
    offs_m = (pid % num_tiles * BLOCK_M + tl.arange(0, BLOCK_M))[:, None]
    offs_d = tl.arange(0, D)[None, :]
    mask_m = offs_m < M
    wide_m = offs_m.to(tl.int64)
    sum_ptr += (head * padded + pid % num_tiles * BLOCK_M) * D
    six = tl.reshape(tl.load(sum_ptr + tl.arange(0, BLOCK_M * D)), [D // 8, 4, 8, 4, 2, 2])
    grad_q = tl.reshape(tl.permute(six, [1, 4, 2, 0, 3, 5]), [BLOCK_M, D]) * scale
    ptrs = grad_q_ptr + (b * stride_qb + h * stride_qh + wide_m * stride_qm) * EIGHT + offs_d
    if ADD:
        grad_q += tl.load(ptrs, mask=mask_m, other=0.0)
    tl.store(ptrs, grad_q.to(grad_q_ptr.dtype.element_ty), mask=mask_m)


def hopper_backward(
    q, k, v, out, lse, grad_out, *,
    grad_lse=None, scale=None, causal=False, align="bottom_right", into=None,
):  # fmt: skip
    """Gradients of softmax(q kᵀ · scale) v for q, k and v, on Hopper.

    Args:
        q: [..., H, M, D], float16 or bfloat16; D 64 or 128; H and a batch may be left out. The D
            columns of a row lie side by side, other strides are multiples of 16 bytes.
        k, v: [..., Hkv, N, D], H a multiple of Hkv: groups of query heads share a head of keys.
        out: [..., H, M, D], what attention returned, in q's dtype.
        lse: [..., H, M], float32: the natural logarithm of the sum of exp(score), -inf for no key.
        grad_out: [..., H, M, D], the gradient for out, in q's dtype.
        grad_lse: [..., H, M], float32: the gradient for lse, where that was used too.
        scale, causal, align: as attention was called with; scale from 2^-64 to 2^8. Weights are
            computed from the difference of scores and lse, which float32 rounds: around scores of
            2^16 they are off by 1 to 6 %, most for wide heads, and more for larger scores.
        into: three contiguous float32 tensors of the shapes of q, k and v, to be added to.

    Returns:
        grad_q, grad_k, grad_v in the shapes and dtype of q, k and v, dimensions in the same order
        in memory (torch.empty_like); with `into` those tensors. A row without keys gets zeros.
        The sum of dQ has no fixed order: its last bits differ from call to call.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Shah et al. 2024, section B.1, https://arxiv.org/abs/2407.08608
    """
    for error in _refusals(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, into):
        raise error
    # A gradient's dimensions have the order in memory that those of its tensor have.
    grad_q, grad_k, grad_v = results = tuple(into or map(torch.empty_like, (q, k, v)))
    if q.dim() < 4:
        every = (q, k, v, out, grad_out, *results)
        lead = (None,) * (4 - q.dim())
        q, k, v, out, grad_out, grad_q, grad_k, grad_v = (x[lead] for x in every)
    (B, H, M, D), (_, Hkv, N, _) = q.shape, k.shape
    keys, add = CONSUMERS.value * CONSUMER_N.value, into is not None
    variant = VARIANTS[D]._replace(CAUSAL=causal, RAGGED=N % keys != 0, ADD=add)
    tiles_m, tiles_n = -(-M // variant.BLOCK_M), -(-N // keys)
    padded = tiles_m * variant.BLOCK_M
    lse_log2, delta = q.new_empty((2, B, H, padded), dtype=torch.float32)
    parts, shape = B * H * tiles_m * CONSUMERS.value, (2 * PART.value, PART.value // 2)
    total = q.new_empty((parts, *shape), dtype=torch.float32)  # the sum of dQ
    scale = D**-0.5 if scale is None else float(scale)
    problem = Problem(
        H, H // Hkv, M, N, tiles_m, tiles_n, heads_kv=B * Hkv,
        together=_together(causal, M, D, B * Hkv, tiles_n),
        causal_offset=N - M if align == "bottom_right" else 0,
        scale=scale, scale_log2=scale * LOG2_E.value,
    )  # fmt: skip
    with _device_of(q):
        _launch(
            _prepare_kernel, B * H * (padded // ROWS), q,
            (out, grad_out, lse, grad_lse, lse_log2, delta, total),
            (*_strides(out), *_strides(grad_out), H, M, padded), (D, ROWS),
        )  # fmt: skip
        _launch(
            _hopper_backward_kernel, B * Hkv * tiles_n, q,
            (
                *map(_describe, (q, k, v, grad_out)),
                _Rows(total, total.shape, total.stride(), [1, *shape], SUM_LAYOUT),
                *((grad_k, grad_v) if add else map(_describe, (grad_k, grad_v))),
                lse_log2, delta,
            ),
            problem, (*variant, *REGISTERS),
        )  # fmt: skip
        _launch(
            _finish_kernel, B * H * -(-M // ROWS), q,
            (total, grad_q), (*_strides(grad_q), H, M, padded, scale), (D, add, ROWS),
        )  # fmt: skip
    return results


L2_BYTES = 24 * 2**20  # of 50 MB, or 60: for what programs that run at the same time share
PROGRAMS = 264  # two for each of 132 multiprocessors


def _together(causal, M, D, heads_kv, tiles_n):
    """How many heads of keys are worked on at a time: as many as L2 holds what they share of.

    But never so few that the GPU is done with them at once.
    """
    if not causal:  # all programs are alike
        return 1
    shared = M * D * (2 + 2 + 4)  # bytes of q, dO and the sum of dQ, of one head of queries
    return min(heads_kv, max(L2_BYTES // shared, -(-PROGRAMS // tiles_n)))


def _strides(x):
    """The strides of batches, heads and rows, as _prepare_kernel and _finish_kernel take them."""
    return [step // EIGHT.value for step in x.stride()[:3]]


# How TMA lays rows of 16-bit numbers into shared memory, for wgmma to read, and takes float32.
ROWS_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
SUM_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=32, rank=3)


class _Rows(TensorDescriptor):
    """A descriptor of a tensor that was not refused, or that was made here."""

    def __post_init__(self):
        """Triton would check it again here, which takes longer than all else about it."""


def _describe(x):
    """What TMA needs to move 64 rows of a head: it stops where the head ends."""
    return _Rows(x, x.shape, x.stride(), [1, 1, SUB_M.value, x.shape[-1]], ROWS_LAYOUT)


def _device_of(x):
    """A context in which kernels are launched where x is; mostly they are in any case."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(x.device)


_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(kernel, programs, q, tensors, sizes, constants):
    """Launch a kernel of this file; tensors, sizes and constants are its arguments, in order.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    No size matters: no kernel here is specialized on any.
    """
    pointers = [x for x in tensors if not isinstance(x, _Rows)]
    key = (
        kernel, q.device, q.dtype, q.shape[-1], constants,
        *(x if x is None else x.data_ptr() % 16 == 0 for x in pointers),
        triton.knobs.runtime.debug, triton.knobs.compilation.instrumentation_mode,
    )  # fmt: skip
    found = _compiled.get(key)
    if found is not None:
        found[(programs, 1, 1)](*tensors, *sizes, *constants)
        return
    found = kernel[(programs,)](*tensors, *sizes, *constants)
    if isinstance(found, CompiledKernel):
        _compiled[key] = found


DTYPES = (torch.float16, torch.bfloat16)


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


def _refusals(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, into):
    """What the kernels cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    every = (("q", q), ("k", k), ("v", v), ("out", out), ("grad_out", grad_out))
    for name, x in every:
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
        *steps, last = x.stride()
        if last != 1 or x.data_ptr() % 16 or math.gcd(*steps) * x.itemsize % 16 or 0 in steps:
            where = f"starts at {x.data_ptr():#x} with strides {x.stride()}"
            yield ValueError(f"{name} {where}; allowed: the last 1, else multiples of 16 bytes")
    (*heads, _, D), (*heads_k, N, _) = q.shape, k.shape  # [B, H], [H] or []
    if D not in VARIANTS:
        yield ValueError(f"q has {D} columns; allowed: {(*VARIANTS,)}")
    keys = *heads[:-1], *(heads_k[-1:] or [1])[: len(heads)], N, D
    for (name, x), shape in zip(every, (q.shape, keys, keys, q.shape, q.shape), strict=True):
        if x.shape != shape:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q and k: {(*shape,)}")
    if heads and heads[-1] % heads_k[-1]:
        yield ValueError(f"q has {heads[-1]} heads and k {heads_k[-1]}; allowed: a multiple of k's")
    if max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    yield from _option_refusals(q, keys, lse, grad_lse, scale, causal, align, into)
    if q.device.type != "cuda" or torch.version.hip or _capability(q.device) != (9, 0):
        yield ValueError(f"q is on {q.device}; allowed: an H100 or H200")


def _option_refusals(q, keys, lse, grad_lse, scale, causal, align, into):
    """The same of what is float32, and of what is no tensor."""
    if into is not None and (not isinstance(into, (tuple, list)) or len(into) != 3):
        yield TypeError(f"into is {into!r:.40}; allowed: three tensors, for q, k and v, or None")
    single = [("lse", lse, q.shape[:-1])]
    single += [("grad_lse", grad_lse, q.shape[:-1])] * (grad_lse is not None)
    single += [(f"into[{i}]", x, (q.shape, keys, keys)[i]) for i, x in enumerate(into or ())]
    for name, x, shape in single:
        found = (getattr(x, "dtype", type(x)), getattr(x, "device", None))
        if not isinstance(x, torch.Tensor) or found != (torch.float32, q.device):
            yield TypeError(f"{name} is {found[0]} on {found[1]}; allowed: float32 on {q.device}")
        if x.shape != shape or not x.is_contiguous():
            found = f"shape {(*x.shape,)} and strides {x.stride()}"
            yield ValueError(f"{name} has {found}; allowed: {(*shape,)}, contiguous")
    if not isinstance(causal, bool):
        yield TypeError(f"causal is {causal!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not (scale > 0 and 2.0**-64 <= scale <= 2.0**8):
        yield ValueError(f"scale is {scale!r:.40}; allowed for gradients: 2^-64 to 2^8")


def main():
    """Check the gradients against eager PyTorch in float64, and time them."""
    if not torch.cuda.is_available() or _capability(torch.device("cuda")) != (9, 0):
        print("NOT CHECKED: this kernel needs an H100 or H200; Triton's interpreter has no Gluon")
        return 1
    torch.manual_seed(0)
    q, grad_out = torch.randn(2, 2, 4, 200, 64, device="cuda").half()  # [B, H, M, D] each
    k, v = torch.randn(2, 2, 2, 333, 64, device="cuda").half()  # [B, Hkv, N, D] each
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    scores = leaves[0] @ leaves[1].repeat_interleave(2, dim=1).mT * 64**-0.5  # [B, H, M, N]
    out = scores.softmax(-1) @ leaves[2].repeat_interleave(2, dim=1)
    want = torch.autograd.grad(out, leaves, grad_out.double())
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype}")
    given = q, k, v, out.detach().half(), scores.detach().logsumexp(-1).float(), grad_out
    found = hopper_backward(*given)
    # Each gradient is rounded once, from sums of weights that were rounded to float16 themselves.
    wrong = [
        f"grad_{name}: {error:.1e}"
        for name, ours, exact in zip("qkv", found, want, strict=True)
        if (error := (ours.double() - exact).norm() / exact.norm()) > 2 * torch.finfo(q.dtype).eps
    ]
    ms = triton.testing.do_bench(lambda: hopper_backward(*given), return_mode="median")
    print(f"hopper_backward: {ms * 1000:.1f} µs")
    print(f"WRONG: {', '.join(wrong)}" if wrong else "OK")
    return len(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
