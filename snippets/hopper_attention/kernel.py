"""Attention for Hopper in Gluon: one warp loads, two or three groups of four warps compute.

float16 or bfloat16, head dimension 64 or 128, rows in multiples of 16 bytes; an H100 or H200.
Run it alone: `python kernel.py` checks it against PyTorch there, and times both.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import functools
import math
import numbers
from typing import Any, NamedTuple

import torch
import triton
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
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


class Variant(NamedTuple):
    """How the work of one program is divided."""

    CONSUMERS: int  # warpgroups that compute, CONSUMER_M queries each
    STAGES: int  # tiles of keys, and of values, that shared memory holds
    OVERLAP: bool = False  # softmax of a tile under the product with the previous tile's values
    Q_IN_REGISTERS: bool = False  # or read by the tensor cores from shared memory
    LAZY: bool = False  # sums are rescaled only once the maximum has grown by 2^GROWTH
    EXACT: bool = False  # for huge scores: they are scaled after the largest is subtracted


# D → the variants to choose from, tuned on an H200.
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
# Consumers → registers of a thread of theirs, and of the producer: of 65,536 in all.
REGISTERS = {2: (240, 24), 3: (160, 24)}


@gluon.jit(do_not_specialize=["H", "G", "M", "N", "tiles", "total", "paired", "causal_offset"])
def _hopper_attention_kernel(
    q_desc, k_desc, v_desc, out_desc,  # [B, H, M, D], [B, Hkv, N, D] twice, [B · H, M, D]
    lse_ptr,  # [B, H, M], float32, contiguous; or None
    H, G, M, N,  # heads of queries, how many of them share a head of keys; queries, keys
    tiles, total, paired,  # tiles of queries: of a head, of all, and causal: dealt in pairs
    causal_offset, scale_log2,  # causal: query m sees keys up to m + causal_offset
    CAUSAL: gl.constexpr, MASKED: gl.constexpr,  # whether some tile of keys needs a mask
    CONSUMERS: gl.constexpr, STAGES: gl.constexpr, OVERLAP: gl.constexpr,  # Variant's fields
    Q_IN_REGISTERS: gl.constexpr, LAZY: gl.constexpr, EXACT: gl.constexpr,
    CONSUMER_REGS: gl.constexpr, PRODUCER_REGS: gl.constexpr,  # registers of a thread
):  # fmt: skip
    """One program for each streaming multiprocessor takes tiles of queries until none is left.

    It reads q, k and v and writes out, all by TMA, and lse. Scores, weights and sums stay on the
    chip.
    """
    V: gl.constexpr = Variant(CONSUMERS, STAGES, OVERLAP, Q_IN_REGISTERS, LAZY, EXACT)
    prob = Problem(H, G, M, N, tiles, total, paired, causal_offset, scale_log2)
    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 1)
    k = _channel(k_desc, V.STAGES, V.CONSUMERS)
    v = _channel(v_desc, V.STAGES, V.CONSUMERS)
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape  # noqa: RUF005
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    # --8<-- [start:partitions]
    results = (out_desc, lse_ptr, out)
    channels = Channels(q, k, v)
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


LOG2_E = gl.constexpr(math.log2(math.e))  # exp(x) = 2^(x · log2(e)), and a GPU has only exp2
CONSUMER_M = gl.constexpr(64)  # queries of a consumer: what one wgmma instruction takes
BLOCK_N = gl.constexpr(128)  # keys of a tile
Q_BUFFERS = gl.constexpr(2)  # of a consumer: its next queries arrive while it computes
GROWTH = gl.constexpr(4.0)  # LAZY: the maximum lags behind by this at most, in powers of two
# All threads of the warps that come here wait for each other: Triton 3.6 and what follows.
_meet = getattr(gl, "thread_barrier", None) or gl.barrier
# TMA's copies: their names since Triton 3.8, and before.
_tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_tma_store = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


class Problem(NamedTuple):
    """What every part of the kernel knows: its parameters from H to scale_log2."""

    H: Any
    G: Any
    M: Any
    N: Any
    tiles: Any
    total: Any
    paired: Any
    causal_offset: Any
    scale_log2: Any


# --8<-- [start:channel]
class Channel(NamedTuple):
    """Buffers that one side fills and the other empties; an mbarrier of each kind for each."""

    buffers: Any
    full: Any
    empty: Any


@gluon.jit
def _channel(desc, n: gl.constexpr, readers: gl.constexpr):
    """n buffers for blocks of a descriptor: TMA fills them, every reader must release them."""
    buffers = gl.allocate_shared_memory(desc.dtype, [n] + desc.block_shape, desc.layout)  # noqa: RUF005
    return Channel(buffers, _barriers(n, 1), _barriers(n, readers))


@gluon.jit
def _barriers(n: gl.constexpr, arrivals: gl.constexpr):
    """n mbarriers in shared memory; a phase of each ends after so many arrivals."""
    barriers = gl.allocate_shared_memory(gl.int64, [n, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(n):
        mbarrier.init(barriers.index(i), count=arrivals)
    return barriers
    # --8<-- [end:channel]


class Channels(NamedTuple):
    """What the parts of a program exchange."""

    q: Any  # Q_BUFFERS buffers for each consumer
    k: Any
    v: Any


@gluon.jit
def _producer(q_desc, k_desc, v_desc, prob, channels, CAUSAL: gl.constexpr, V: gl.constexpr):
    """One warp: start every copy, in the order in which the consumers want them."""
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = _first_work(prob)
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        b = head // prob.H
        h = head % prob.H
        n, _masked = _count_key_tiles(tile, prob, CAUSAL, V)
        for warpgroup in gl.static_range(V.CONSUMERS):
            row = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
            _fill(q_desc, [b, h, row, 0], channels.q, _q_stage(warpgroup, q_count, V))
        for i in range(n):
            row = (n - 1 - i) * BLOCK_N  # the last keys first: they may need a mask
            stage = _stage(kv_count, V)
            _fill(k_desc, [b, h // prob.G, row, 0], channels.k, stage)
            _fill(v_desc, [b, h // prob.G, row, 0], channels.v, stage)
            kv_count += 1
        q_count += 1
        work_idx = _next_work(work_idx, prob, CAUSAL)


# --8<-- [start:schedule]
@gluon.jit
def _head_and_tile(work_idx, prob, CAUSAL: gl.constexpr):
    """Work item → head and tile. Causal: in pairs, long, short, long, …; the last by length."""
    head = work_idx // prob.tiles
    tile = work_idx % prob.tiles
    if CAUSAL:
        tile = gl.where(work_idx % 2 == 0, prob.tiles - 1 - tile // 2, tile // 2)
        if work_idx >= prob.paired:
            head, tile = _by_length(work_idx - prob.paired, prob)
    return head, tile


@gluon.jit
def _first_work(prob):
    """The item a program takes first: pairs come two by two."""
    return gl.program_id(0) * gl.where(prob.paired > 0, 2, 1)


@gluon.jit
def _next_work(work_idx, prob, CAUSAL: gl.constexpr):
    """The item a program takes next. Causal: the other of a pair, or there and back by length."""
    programs = gl.num_programs(0)
    next_idx = work_idx + programs
    if CAUSAL:
        pair = gl.where(work_idx % 2 == 0, work_idx + 1, work_idx + 2 * programs - 1)
        pair = gl.where(pair < prob.paired, pair, prob.paired + gl.program_id(0))
        turn = work_idx + 2 * (programs - 1 - (work_idx - prob.paired) % programs) + 1
        next_idx = gl.where(work_idx < prob.paired, pair, turn)
    return next_idx


@gluon.jit
def _count_key_tiles(tile, prob, CAUSAL: gl.constexpr, V: gl.constexpr):
    """How many tiles of keys a tile of queries visits, and how many of them need a mask."""
    end = prob.N
    seen_by_all = prob.N
    if CAUSAL:
        BLOCK_M: gl.constexpr = CONSUMER_M * V.CONSUMERS
        end = gl.minimum(prob.N, gl.maximum((tile + 1) * BLOCK_M + prob.causal_offset, 0))
        seen_by_all = gl.minimum(prob.N, gl.maximum(tile * BLOCK_M + prob.causal_offset + 1, 0))
    n = gl.cdiv(end, BLOCK_N)
    return n, n - seen_by_all // BLOCK_N
    # --8<-- [end:schedule]


@gluon.jit
def _by_length(i, prob):
    """The head and tile that come i-th, the longest first, once `paired` tiles are dealt."""
    first = prob.paired // prob.tiles  # the head whose longest and shortest tiles may be dealt
    dealt = prob.paired % prob.tiles
    long = (dealt + 1 - first * prob.tiles % 2) // 2  # so many of these are its longest
    later = prob.total // prob.tiles - first - 1  # heads of which none is
    longest = long * later  # tiles longer than what the first head has left
    same = (prob.tiles - dealt) * (later + 1)  # tiles of the lengths that all of them have
    if i < longest:
        head = first + 1 + i % later
        rank = i // later
    elif i < longest + same:
        head = first + (i - longest) % (later + 1)
        rank = long + (i - longest) // (later + 1)
    else:
        i -= prob.tiles - dealt  # as if the first head were not there
        head = first + 1 + i % later
        rank = i // later
    return head, prob.tiles - 1 - rank


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


@gluon.jit
def _consumer(
    warpgroup: gl.constexpr, results, prob, channels,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """Four warps: 64 queries of each tile, from the first product to the stored rows."""
    out_desc, lse_ptr, out_buffers = results
    D: gl.constexpr = out_desc.block_shape[2]
    q_count = 0  # tiles of queries so far
    kv_count = 0  # tiles of keys so far
    work_idx = _first_work(prob)
    while work_idx < prob.total:
        head, tile = _head_and_tile(work_idx, prob, CAUSAL)
        n, masked = _count_key_tiles(tile, prob, CAUSAL, V)
        first = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M
        offs_m = first + gl.arange(0, CONSUMER_M, gl.SliceLayout(1, SCORES_LAYOUT))
        q_stage = _q_stage(warpgroup, q_count, V)
        keys = Keys(n, masked, kv_count)
        state = _attend(offs_m, q_stage, keys, channels, prob, CAUSAL, MASKED, V)
        l_i = gl.where(state.l_i == 0.0, 1.0, state.l_i)  # no visible key: acc is 0, so is the row
        out = state.acc * gl.convert_layout(1.0 / l_i, gl.SliceLayout(1, _acc_layout(D)))[:, None]
        # The previous tile's rows must have left the buffer, and TMA must see the new ones.
        tma.store_wait(0)
        out_tile = out_buffers.index(warpgroup)
        out_tile.reshape([CONSUMER_M, D]).store(out.to(out_desc.dtype))
        fence_async_shared()
        _tma_store(out_desc, [head, first, 0], out_tile)
        if lse_ptr is not None:
            row = head.to(gl.int64) * prob.M + offs_m
            m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i
            gl.store(lse_ptr + row, (m_i + gl.log2(l_i)) / LOG2_E, mask=offs_m < prob.M)
        q_count += 1
        kv_count += n
        work_idx = _next_work(work_idx, prob, CAUSAL)
    tma.store_wait(0)  # shared memory goes with the program


class Keys(NamedTuple):
    """The tiles of keys that a tile of queries visits."""

    n: Any
    masked: Any  # so many of them, the last ones, need a mask
    before: Any  # tiles that have gone through the channels


class Queries(NamedTuple):
    """A consumer's queries of one tile."""

    tile: Any  # [CONSUMER_M, D], in registers or in shared memory
    last_key: Any  # [CONSUMER_M], the last key that each of them sees
    stage: Any  # the buffer to release


class Running(NamedTuple):
    """The online softmax over the tiles of keys so far."""

    m_i: Any  # [CONSUMER_M], the largest score; scaled, unless EXACT
    l_i: Any  # [CONSUMER_M], the sum of the weights, or [CONSUMER_M, 4]: of each thread
    acc: Any  # [CONSUMER_M, D], the same sum, of values


# Which thread holds which of a consumer's scores, [CONSUMER_M, BLOCK_N]: as wgmma does.
SCORES_LAYOUT = gl.constexpr(
    gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, int(BLOCK_N), 16]
    )
)


@gluon.constexpr_function
def _acc_layout(D):
    """The same of its sums of values, [CONSUMER_M, D]."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, D, 16])


@gluon.constexpr_function
def _left_operand(layout):
    """Where wgmma wants the left side of a product whose result has a layout."""
    return gl.DotOperandLayout(operand_index=0, parent=layout, k_width=2)


@gluon.jit
def _attend(
    offs_m, q_stage, keys, channels, prob,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """The Running of a consumer's queries over all keys that they see, with an l_i a row."""
    D: gl.constexpr = channels.q.buffers.shape[-1]
    rows: gl.constexpr = gl.SliceLayout(1, SCORES_LAYOUT)
    last_key = gl.zeros([CONSUMER_M], gl.int32, rows) + (prob.N - 1)
    if CAUSAL:
        last_key = gl.minimum(last_key, offs_m + prob.causal_offset)
    m_i = gl.full([CONSUMER_M], float("-inf"), gl.float32, rows)
    # Where there are masks, each thread keeps a sum of its own.
    if MASKED:
        l_i = gl.zeros([CONSUMER_M, 4], gl.float32, ROW_SUM_LAYOUT)
    else:
        l_i = gl.zeros([CONSUMER_M], gl.float32, rows)
    acc = gl.zeros([CONSUMER_M, D], gl.float32, _acc_layout(D))
    state = Running(m_i, l_i, acc)
    _wait_full(channels.q, q_stage)
    q_tile = channels.q.buffers.index(q_stage.index).reshape([CONSUMER_M, D])
    if V.Q_IN_REGISTERS:
        q_tile = q_tile.load(_left_operand(SCORES_LAYOUT))
    queries = Queries(q_tile, last_key, q_stage)
    if V.OVERLAP:
        if keys.n > 0:
            state = _fold_overlapped(state, queries, keys, channels, prob, CAUSAL, MASKED, V)
        else:
            _release(channels.q, q_stage)
    else:
        if keys.n > 0:
            masked = keys.masked
            if MASKED:
                # One tile with a mask, needed or not. Where the first loop below was skipped, the
                # assembler (ptxas 12.8) took the queries' descriptor from it all the same.
                masked = gl.maximum(masked, 1)
            for with_mask in gl.static_range(1, -1, -1):
                if MASKED or not with_mask:
                    begin = 0 if with_mask else masked
                    end = masked if with_mask else keys.n
                    for i in range(begin, end):
                        state = _step_sequential(
                            state, queries, keys, i, channels, prob, with_mask, V
                        )
        _release(channels.q, q_stage)
    l_i = state.l_i
    if MASKED:
        l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)
    return Running(state.m_i, l_i, state.acc)


@gluon.jit
def _fold_overlapped(
    state, queries, keys, channels, prob,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """Fold the tiles of keys, at least one, into the state: all that one tile of queries sees."""
    # The first tile has no values before it to run under.
    stage = _stage(keys.before, V)
    scores = _issue_qk(queries.tile, channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
    # Not before: a load that was issued need not have read yet. The product used its registers, so
    # it has.
    if V.Q_IN_REGISTERS:
        _release(channels.q, queries.stage)
    start = (keys.n - 1) * BLOCK_N
    p, _, m_i, l_i = _online_softmax(s, state, start, queries.last_key, prob, MASKED, V)
    if V.CONSUMERS == 3:
        p = _left_weights(p, channels.v)
    state = Running(m_i, l_i, state.acc)
    masked = gl.maximum(keys.masked, 1)
    for with_mask in gl.static_range(1, -1, -1):  # the tiles that need a mask first
        if CAUSAL or not with_mask:  # not causal: no tile but the first needs one
            begin = 1 if with_mask else masked
            end = masked if with_mask else keys.n
            for i in range(begin, end):
                p, state = _step_overlapped(
                    p, state, queries, keys, i, channels, prob, with_mask, V
                )
    if not V.Q_IN_REGISTERS:  # the last scores are done
        _release(channels.q, queries.stage)
    stage = _stage(keys.before + keys.n - 1, V)
    p = _left_weights(p, channels.v)
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc, channels.v, stage)])
    _release(channels.v, stage)
    return Running(state.m_i, state.l_i, acc)


@gluon.jit
def _step_overlapped(
    p,  # the previous tile's weights
    state, queries, keys, i, channels, prob, MASKED: gl.constexpr, V: gl.constexpr,
):  # fmt: skip
    """Fold a tile of keys into m_i and l_i, and the previous tile's values into acc."""
    start = (keys.n - 1 - i) * BLOCK_N
    stage = _stage(keys.before + i, V)
    scores = _issue_qk(queries.tile, channels.k, stage)
    p = _left_weights(p, channels.v)
    before = _stage(keys.before + i - 1, V)
    acc = _issue_pv(p, state.acc, channels.v, before)
    s = warpgroup_mma_wait(1, deps=[scores])  # products end in order: one may still run
    _release(channels.k, stage)
    p_next, alpha, m_i, l_i = _online_softmax(s, state, start, queries.last_key, prob, MASKED, V)
    # These values arrived long ago. Without a barrier here the compiler moves the wait below above
    # the exponentials, and nothing is left to run under the product.
    _wait_full(channels.v, before)
    acc, _ = warpgroup_mma_wait(0, deps=[acc, p])
    _release(channels.v, before)
    if V.CONSUMERS == 3:  # no registers to carry the weights as float32
        p_next = _left_weights(p_next, channels.v)
    return p_next, Running(m_i, l_i, _rescale(acc, alpha, V))


@gluon.jit
def _step_sequential(
    state, queries, keys, i, channels, prob, MASKED: gl.constexpr, V: gl.constexpr
):
    """Fold a tile of keys, one thing at a time. The other consumers fill the gaps."""
    start = (keys.n - 1 - i) * BLOCK_N
    stage = _stage(keys.before + i, V)
    scores = _issue_qk(queries.tile, channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release_in_passing(channels.k, stage)
    p, alpha, m_i, l_i = _online_softmax(s, state, start, queries.last_key, prob, MASKED, V)
    p = _left_weights(p, channels.v)
    acc = _rescale(state.acc, alpha, V)
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, acc, channels.v, stage)])
    _release_in_passing(channels.v, stage)
    return Running(m_i, l_i, acc)


@gluon.jit
def _issue_qk(q_tile, k, stage):
    """Start q kᵀ for a tile of keys, once it has arrived: [CONSUMER_M, BLOCK_N], float32."""
    _wait_full(k, stage)
    k_tile = k.buffers.index(stage.index)
    k_tile = k_tile.reshape([BLOCK_N, k_tile.shape[-1]]).permute((1, 0))  # [D, BLOCK_N]
    zeros = gl.zeros([CONSUMER_M, BLOCK_N], gl.float32, SCORES_LAYOUT)
    return warpgroup_mma(q_tile, k_tile, zeros, use_acc=False, is_async=True)


@gluon.jit
def _left_weights(p, v):
    """Weights in the dtype of the values, where wgmma wants the left side of their product."""
    return gl.convert_layout(p.to(v.buffers.dtype), _left_operand(_acc_layout(v.buffers.shape[-1])))


@gluon.jit
def _issue_pv(p, acc, v, stage):
    """Start acc + p v for a tile of values, once it has arrived: [CONSUMER_M, D], float32."""
    _wait_full(v, stage)
    v_tile = v.buffers.index(stage.index)
    v_tile = v_tile.reshape([BLOCK_N, v_tile.shape[-1]])  # [BLOCK_N, D]
    return warpgroup_mma(p, v_tile, acc, is_async=True)


@gluon.jit
def _online_softmax(s, state, start, last_key, prob, MASKED: gl.constexpr, V: gl.constexpr):
    """One more tile of scores: their weights p, what the old sums are worth, and m_i and l_i."""
    if MASKED:
        s = _hide(s, last_key - start, V)
    # Usually scores are scaled first: one multiply-add then scales and subtracts. But it subtracts
    # a maximum that was rounded, and where scores are huge that is far off. EXACT scales last.
    before, after = (1.0, prob.scale_log2) if V.EXACT else (prob.scale_log2, 1.0)
    m_new = gl.max(s, axis=1) * before  # [CONSUMER_M]
    if V.LAZY:  # weights may pass 1 then, by as much as the maximum lags behind
        m_new = gl.where((m_new - state.m_i) * after > GROWTH, m_new, state.m_i)
    else:
        m_new = gl.maximum(state.m_i, m_new)
    # A row that has seen no key yet subtracts 0: -inf - (-inf) would be NaN.
    m_sub = gl.where(m_new == float("-inf"), 0.0, m_new)
    p = gl.exp2((s * before - m_sub[:, None]) * after)
    alpha = gl.exp2((state.m_i - m_sub) * after)
    return p, alpha, m_new, _add_row_sums(state.l_i, alpha, p)


@gluon.jit
def _hide(s, last, V: gl.constexpr):
    """Minus infinity in the columns after `last`, [CONSUMER_M]."""
    if V.OVERLAP:  # registers to spare: each column has its number in one
        offs_n = gl.arange(0, BLOCK_N, gl.SliceLayout(0, SCORES_LAYOUT))
        s = gl.where(offs_n[None, :] <= last[:, None], s, float("-inf"))
    else:  # numbers that the instruction itself holds, and a limit for each thread
        pairs: gl.constexpr = gl.SliceLayout(3, COLUMNS_LAYOUT)
        rows: gl.constexpr = gl.SliceLayout(1, gl.SliceLayout(2, pairs))
        eights: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(2, pairs))
        threads: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, pairs))
        columns: gl.constexpr = gl.SliceLayout(
            0, gl.SliceLayout(1, gl.SliceLayout(2, COLUMNS_LAYOUT))
        )
        i = gl.arange(0, BLOCK_N // 8, eights)[None, :, None, None]
        j = gl.arange(0, 4, threads)[None, None, :, None]
        k = gl.arange(0, 2, columns)[None, None, None, :]
        last = gl.convert_layout(last, rows)[:, None, None, None]
        s = gl.convert_layout(s.reshape([CONSUMER_M, BLOCK_N // 8, 4, 2]), COLUMNS_LAYOUT)
        s = gl.where(8 * i <= last - 2 * j - k, s, float("-inf"))
        s = gl.convert_layout(s.reshape([CONSUMER_M, BLOCK_N]), SCORES_LAYOUT)
    return s


# The scores as [CONSUMER_M, 16, 4, 2], where [:, i, j, k] is column 8 i + 2 j + k: i and k say
# which register holds a score, and j which of the four threads of a row.
COLUMNS_LAYOUT = gl.constexpr(
    gl.DistributedLinearLayout(
        reg_bases=[[0, 0, 0, 1], [8, 0, 0, 0], *([0, 1 << bit, 0, 0] for bit in range(4))],
        lane_bases=[[0, 0, 1, 0], [0, 0, 2, 0], [1, 0, 0, 0], [2, 0, 0, 0], [4, 0, 0, 0]],
        warp_bases=[[16, 0, 0, 0], [32, 0, 0, 0]],
        block_bases=[],
        shape=[64, 16, 4, 2],
    )
)
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


@gluon.jit
def _add_row_sums(l_i, alpha, p):
    """l_i · alpha + the sums of the rows of p; with an l_i of [CONSUMER_M, 4], one a thread."""
    if len(l_i.shape) == 1:
        l_i = l_i * alpha + gl.sum(p, axis=1)  # the four threads of a row exchange their sums
    else:  # nothing moves: of every eight columns each of the threads has two next to each other
        own = gl.sum(gl.sum(p.reshape([CONSUMER_M, BLOCK_N // 8, 4, 2]), axis=3), axis=1)
        alpha = gl.convert_layout(alpha, gl.SliceLayout(1, ROW_SUM_LAYOUT))
        l_i = l_i * alpha[:, None] + gl.convert_layout(own, ROW_SUM_LAYOUT)
    return l_i


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
    plan, rows = _plan_of(q, k, v, scale, causal, align, return_lse)
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device) if return_lse else None
    descriptors = [Rows(x, layout) for x, layout in zip((q, k, v, out), rows, strict=True)]
    _launch(plan, *descriptors, lse)
    return (out, lse) if return_lse else out


_plans = {}  # what a call is like → its Plan, and the layouts for Rows of q, k, v and out


def _plan_of(q, k, v, scale, causal, align, return_lse):
    """What is in _plans; all that is refused is asked once for calls alike."""
    asked = scale, causal, align, return_lse
    try:
        key = (
            _facts(q), _facts(k), _facts(v), asked, *map(type, asked),  # 1 equals True
            torch.is_grad_enabled(), peek_interpreter_stack(), forward_ad._current_level,
            _multiprocessors, _variant,
        )  # fmt: skip
        return _plans[key]
    except (AttributeError, KeyError, RuntimeError, TypeError) as new_or_wrong:
        for error in _refusals(q, k, v, scale, causal, align, return_lse):
            raise error from None
        if not isinstance(new_or_wrong, KeyError):
            raise
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), N = q.shape, k.shape[2]
    scale = D**-0.5 if scale is None else float(scale)
    programs = _multiprocessors(q.device)
    variant = _variant(D, causal, M, N, B * H, programs)
    plan = _plan(q.shape, k.shape, q.dtype, variant, programs, causal, align, scale)
    layouts = [(x.shape, x.stride()) for x in (q, k, v)] + [((B * H, M, D), (M * D, D, 1))]
    rows = [
        (*layout, block, ROWS_LAYOUT[len(block)])
        for layout, block in zip(layouts, plan.blocks, strict=True)
    ]
    if len(_plans) == 4096:
        _plans.clear()
    return _plans.setdefault(key, (plan, rows))


def _facts(x):
    """All that a refusal or a plan may ask of a tensor: one that is not dense has none of it."""
    memory = x.data_ptr() % 16, x.is_neg(), x.shape, x.stride()
    return type(x), x.dtype, x.device, x.requires_grad, memory


@functools.lru_cache(maxsize=1024)
def _variant(D, causal, M, N, heads, programs):
    """The Variant that is done first: as many rounds of tiles as the busiest program takes."""

    def microseconds(candidate):
        variant, (alone, each) = candidate
        total = heads * -(-M // (CONSUMER_M.value * variant.CONSUMERS))
        keys, rounds = N, -(-total // programs)
        if causal and total > programs:  # dealt evenly: the mean counts, and a part of a tile
            keys = (N - M // 2 if M <= N else N * N // (2 * M)) + BLOCK_N.value
            rounds = total / programs
        return rounds * (alone + each * -(-keys // BLOCK_N.value))

    # Of D 128 there is one variant, and no time counts.
    return min(zip(VARIANTS[D], TILE_TIMES[causal], strict=False), key=microseconds)[0]


def _paired(total, tiles, programs):
    """How many causal tiles of `total` are dealt in pairs, a multiple of two for each program.

    The longest tile of a head that is left and the shortest are as much work as any other pair,
    and few heads are in progress at a time: their keys stay in L2. But the last round of pairs is
    rarely full, so the last tiles go by length.
    """
    return max(0, total // (2 * programs) - 1 - tiles // 64) * 2 * programs


class Plan(NamedTuple):
    """What a launch needs besides its tensors. Only shapes and options decide it."""

    programs: int
    blocks: tuple  # what a copy by TMA moves of q, k, v and out: [1, …, rows, D]
    sizes: tuple  # the kernel's parameters from H to scale_log2
    constants: tuple  # from CAUSAL on: a kernel is compiled for each set of them, and ...
    kind: str  # ... for each dtype and D


@functools.lru_cache(maxsize=1024)
def _plan(shape_q, shape_k, dtype, variant, programs, causal, align, scale):
    """The Plan of a call. Calls repeat their shapes, so it is worked out once for each."""
    (B, H, M, D), (_, Hkv, N, _) = shape_q, shape_k
    tiles = -(-M // (CONSUMER_M.value * variant.CONSUMERS))
    total = B * H * tiles
    paired = _paired(total, tiles, programs) if causal else 0
    causal_offset = N - M if align == "bottom_right" else 0
    scale_log2 = scale * LOG2_E.value
    sizes = H, H // Hkv, M, N, tiles, total, paired, causal_offset, scale_log2
    masked = causal or N % BLOCK_N.value != 0
    constants = causal, masked, *variant._replace(EXACT=scale > 1), *REGISTERS[variant.CONSUMERS]
    rows, keys = [CONSUMER_M.value, D], [1, 1, BLOCK_N.value, D]
    blocks = [1, 1, *rows], keys, keys, [1, *rows]
    return Plan(min(programs, total), blocks, sizes, constants, str((dtype, D, constants)))


_compiled = {}  # all that Triton compiles a kernel for → the kernel


def _launch(plan, *tensors):
    """Launch the kernel of a Plan; tensors are its parameters from q_desc to lse_ptr.

    Triton asks of each argument of each call whether it is the kernel for it that is compiled
    already. That takes longer than the launch, so here a kernel is found by what matters alone.
    No size matters: the kernel is not specialized on any.
    """
    (*_, lse), base = tensors, tensors[0].base
    if base.is_cuda and base.device.index != torch.cuda.current_device():
        with torch.cuda.device(base.device):
            return _launch(plan, *tensors)
    run, result = triton.knobs.runtime, lse if lse is None else lse.data_ptr() % 16
    key = base.device, plan.kind, result, run.debug, triton.knobs.compilation.instrumentation_mode
    arguments = *tensors, *plan.sizes, *plan.constants
    kernel = _compiled.get(key)
    # A profiler's hooks are Triton's to call: each takes time, even where there is nothing to do.
    hooks = [getattr(x, "calls", True) for x in (run.launch_enter_hook, run.launch_exit_hook)]
    if kernel is None or any(hooks):
        for x in tensors[:4]:  # who looks at a launch finds the memory in its descriptor's shape
            x.base = x.base.as_strided(x.shape, x.strides)
        kernel = _hopper_attention_kernel[(plan.programs,)](*arguments)
        if isinstance(kernel, CompiledKernel):
            _compiled[key] = kernel
        return
    stream = triton.runtime.driver.active.get_current_stream(base.device.index)
    about = stream, kernel.function, kernel.packed_metadata, None, None, None
    kernel.run(plan.programs, 1, 1, *about, *arguments)


@functools.cache
def _multiprocessors(device):
    return torch.cuda.get_device_properties(device).multi_processor_count


# How TMA lays rows of 16-bit numbers into shared memory, for wgmma to read; by rank.
ROWS_LAYOUT = {
    rank: gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=rank)
    for rank in (3, 4)
}


class Rows(TensorDescriptor):
    """A descriptor; Triton would check it here, which takes longer than all else about it."""

    def __init__(self, base, layout):
        self.base, (self.shape, self.strides, self.block_shape, self.layout) = base, layout


def _describe(x, block):
    """What TMA needs to move a block of x, some rows of a head: it stops where the head ends."""
    return Rows(x, (x.shape, x.stride(), block, ROWS_LAYOUT[len(block)]))


DTYPES = (torch.float16, torch.bfloat16)


@functools.cache
def _capability(device):
    return torch.cuda.get_device_capability(device)


def _refusals(q, k, v, scale, causal, align, return_lse):
    """What the kernel cannot do, in order: which argument, what came, what is allowed."""
    if peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
    for name, x in (("causal", causal), ("return_lse", return_lse)):
        if not isinstance(x, bool):
            yield TypeError(f"{name} is {x!r}; allowed: True, False")
    if not isinstance(align, str) or align not in ("bottom_right", "top_left"):
        yield ValueError(f"align is {align!r}; allowed: 'bottom_right', 'top_left'")
    if scale is not None and (isinstance(scale, bool) or not isinstance(scale, numbers.Real)):
        yield TypeError(f"scale is {scale!r:.40}; allowed: a number or None")
    if scale is not None and not scale >= 2.0**-64 <= 1 / scale:  # float16 cannot hold 2.0**64
        yield ValueError(f"scale is {scale!r:.40}; allowed: 2^-64 to 2^64")
    yield from _layout_refusals(q, k, v)


def _layout_refusals(q, k, v):
    """The same of dtypes, shapes, strides and device."""
    for name, x in (("q", q), ("k", k), ("v", v)):
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
    for name, x in (("k", k), ("v", v)):
        if x.shape != keys:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed with q: {keys}")
    if heads and heads[-1] % heads_k[-1]:
        yield ValueError(f"q has {heads[-1]} heads and k {heads_k[-1]}; allowed: a multiple of k's")
    if max(q.numel(), k.numel()) // D >= 2**31:
        yield ValueError(f"q and k have shapes {q.shape} and {k.shape}; allowed: under 2^31 rows")
    if q.device.type != "cuda" or torch.version.hip or _capability(q.device) != (9, 0):
        yield ValueError(f"q is on {q.device}; allowed: an H100 or H200")


def main():
    """Check the kernel against PyTorch in float64, and time both."""
    if not torch.cuda.is_available() or _capability(torch.device("cuda")) != (9, 0):
        print("NOT CHECKED: this kernel needs an H100 or H200; Triton's interpreter has no Gluon")
        return 1
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, rows, 64, device="cuda").half() for rows in (200, 333, 333))
    sdpa = torch.nn.functional.scaled_dot_product_attention
    want = sdpa(q.double(), k.double(), v.double())
    ours, theirs = ((f(q, k, v) - want).abs() for f in (hopper_attention, sdpa))
    allowed = 2 * theirs.max() + torch.finfo(q.dtype).eps * want.abs().max()  # both round alike
    print(f"q {(*q.shape,)}, k and v {(*k.shape,)}, {q.dtype}")
    print(f"difference from float64: {ours.max():.1e} at most, {ours.mean():.1e} on average")
    for f in (hopper_attention, sdpa):
        print(f"{f.__name__}: {triton.testing.do_bench(lambda f=f: f(q, k, v)) * 1000:.1f} µs")
    print("OK" if ours.max() <= allowed else f"WRONG: more than {allowed:.1e} is not rounding")
    return int(ours.max() > allowed)


if __name__ == "__main__":
    raise SystemExit(main())
