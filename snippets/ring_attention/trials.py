"""What each rank does for a measurement: it makes its part of a case, checks it, and times it.

Every function here runs on all ranks at once, in processes of their own (ranks.py).
"""

import contextlib
import functools
import gc
import time

import torch
import torch.distributed as dist
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.measure.competitors import in_a_line, resolve
from snippets._lab.measure.timing import Flush, in_turns

from . import copies, kernel, op
from .checks import HUGE, assert_huge_steps, assert_ring, assert_steps
from .exchange import alone, ulysses_attention, unshard
from .ring import Local, _plan, _ring, blocks, shard
from .ring import ring_attention as with_triton

ring_attention = functools.partial(with_triton, local=op.LOCAL)
OURS = "ring_attention"  # with local=op.LOCAL
TRITON = "ring_attention, Triton step"
ALONE = "ring_attention, one GPU"
GATHER = "ring_attention, all-gather"
ULYSSES = "ring_attention, Ulysses"
THEIRS = "torch:context_parallel"
CUDNN, HOPPER = "torch:cudnn", "hopper_attention"
TRAINED = "hopper_backward"  # and hopper_attention before it
ON_ONE = (HOPPER, TRAINED, CUDNN, ALONE)  # everything on each GPU; the others share the sequence
# Ways to send a block while a step runs, and the step alone.
STEPS, COPIES, NCCL = "steps alone", "DMA engines", "NCCL"
FEWER, TICKETS = "NCCL, fewer programs", "NCCL, a program a tile"
WAYS = (STEPS, COPIES, NCCL, FEWER, TICKETS)
CHANNELS = 4  # of NCCL, each a block of threads, where it is not left to NCCL
A_TILE_EACH = 1 << 30  # programs: more than there are tiles
HEADS, D = 16, 128
DEVICE = "cuda"

_held = {}  # of this rank: the calls of the case at hand, and the buffer that flushes L2


def check_rank(device, cases):
    """Raise unless the ring, and the exchange of heads, are right here; for bench.check."""
    size = dist.get_world_size()
    for at, (dtype, causal, layout, D, length) in enumerate(cases):
        options = {"D": D, "dtype": dtype, "device": device}
        q, _, grad_out = make_qkv(1, 2 * size, N=length * size, seed=at, **options)
        _, k, v = make_qkv(1, size, M=1, N=length * size, seed=at + 1, **options)
        for attention in (ring_attention, with_triton, ulysses_attention):
            local = [shard(x, layout=layout).requires_grad_() for x in (q, k, v)]
            out = attention(*local, causal=causal, layout=layout)
            found = out, *torch.autograd.grad(out, local, shard(grad_out, layout=layout))
            whole = [unshard(x, layout=layout) for x in found]
            assert_ring(whole, q, k, v, grad_out, causal=causal)
    if device == "cuda" and torch.cuda.get_device_capability() == (9, 0):
        for dtype, D, L in ((torch.float16, 64, 512), (torch.bfloat16, 128, 130)):
            for causal, layout in ((True, "zigzag"), (True, "contiguous"), (False, "zigzag")):
                options = {"causal": causal, "layout": layout, "device": device, "dtype": dtype}
                for programs in (None, 3, 13):  # few of them: many tiles follow each other in one
                    step = functools.partial(op.hopper_step, programs=programs)
                    assert_steps(step, 3, L=L, D=D, H=4, Hkv=2, **options)
        for step in (op.hopper_step, kernel._launch_step):  # few: each compiles kernels anew
            assert_huge_steps(step, 3, scale=HUGE[1], device=device)


def _anew(*names, N):
    """Forget the case before. Tensors [1, HEADS, N, D], the same on every rank."""
    _held.clear()
    gc.collect()
    torch.cuda.empty_cache()
    generator = torch.Generator(DEVICE).manual_seed(0)
    options = {"generator": generator, "device": DEVICE, "dtype": torch.bfloat16}
    return [torch.randn(1, HEADS, N, D, **options) for _ in names]


def _gathered(q, k, v, causal):
    """All keys and values first, then attention of this rank's two chunks of queries to them.

    q [B, H, L, D] is cut in zigzag; k and v are contiguous shards that lie as [L, B · H, D].
    """
    ring = _ring(None)
    whole = []
    for x in (k, v):
        rows = x.new_empty(ring.size * x.shape[0], *x.shape[1:])
        dist.all_gather_into_tensor(rows, x)
        whole.append(rows.movedim(0, 1)[None])  # [B, H, N, D]
    attend = resolve(_fastest())
    if not causal:
        return attend(q, *whole)
    half = q.shape[2] // 2
    chunks = ring.rank, 2 * ring.size - 1 - ring.rank
    parts = []
    for chunk, rows in zip(chunks, q.split(half, 2), strict=True):
        seen = (x[:, :, : (chunk + 1) * half] for x in whole)
        parts.append(attend(rows, *seen, causal=True))
    return torch.cat(parts, 2)


def _fastest():
    """The room whose kernel computes where the ring's own does not."""
    return HOPPER if torch.cuda.get_device_capability() == (9, 0) else "flash_attention"


def _local(q, k, v, *, causal, scale):
    """What computes for ulysses_attention."""
    return resolve(_fastest())(q, k, v, causal=causal, scale=scale)


def prepare(N, causal, names):
    """Make the calls of a case and run each once. Name → "" or why it cannot be timed."""
    q, k, v = _anew(*"qkv", N=N)
    want = alone(q, k, v, causal=causal, scale=D**-0.5)
    zigzag = [shard(x) for x in (q, k, v)]
    rows = [shard(x, layout="contiguous") for x in (q, k, v)]
    lying = [x[0].movedim(1, 0).contiguous() for x in rows[1:]]  # [L, H, D]
    options = {"causal": causal, "validate": False}
    calls = {
        HOPPER: lambda: resolve(HOPPER)(q, k, v, causal=causal),
        CUDNN: lambda: resolve(CUDNN)(q, k, v, causal=causal),
        ALONE: lambda: alone(q, k, v, causal=causal, scale=D**-0.5),
        OURS: lambda: ring_attention(*zigzag, **options),
        TRITON: lambda: with_triton(*zigzag, **options),
        GATHER: lambda: _gathered(zigzag[0], *lying, causal),
        ULYSSES: lambda: ulysses_attention(*rows, layout="contiguous", attention=_local, **options),
    }
    right = dict.fromkeys(calls, want) | dict.fromkeys((OURS, TRITON, GATHER), shard(want))
    right[ULYSSES] = shard(want, layout="contiguous")
    with torch.no_grad():
        why = {name: _why(calls[name], right[name]) for name in names}
    _held["calls"] = calls
    return why


def _why(call, want):
    """Why a call cannot be timed, "" if it can: what it raised, or that its result is another."""
    try:
        found = call()
        for one, other in zip(found, want, strict=True) if type(want) is tuple else [(found, want)]:
            # Both round the same sum to 16 bits, after rounding the weights to 16 bits.
            atol = 0.02 * other.abs().max().item()
            torch.testing.assert_close(one, other, rtol=0.02, atol=atol)
    except Exception as error:  # noqa: BLE001 - whatever it is, its row says so
        return in_a_line(error)
    return ""


def clock(names, rounds):
    """Milliseconds of each call on this rank, all ranks starting together: name → samples."""
    flush = _held.setdefault("flush", Flush())
    signal = torch.zeros(1, device=DEVICE)
    calls = _held["calls"]
    host_ms, events = {}, {name: [] for name in names}
    with torch.set_grad_enabled(_held.get("trained", False)):
        for name in names:
            torch.cuda.synchronize()
            began = time.perf_counter()
            calls[name]()
            host_ms[name] = min(20.0, (time.perf_counter() - began) * 1e3)
        for name in in_turns(names, rounds):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush.busy(2 * host_ms[name])  # meanwhile the host queues what follows
            dist.all_reduce(signal)  # nobody starts before all have come here
            start.record()
            calls[name]()
            end.record()
            events[name].append((start, end))
            torch.cuda.synchronize()
    return {name: [s.elapsed_time(e) for s, e in pairs] for name, pairs in events.items()}


def _steps_only(q, k, v, causal, local):
    """All steps of a ring on the keys that a rank has: what ring_attention launches, no message."""
    ring = _ring(None)
    B, H, L, _ = q.shape
    acc = q.new_empty(q.shape, dtype=torch.float32)
    m_i, l_i, lse = q.new_empty((3, B, H, L), dtype=torch.float32)
    state = acc, m_i, l_i, torch.empty_like(q), lse
    for t, step in enumerate(_plan(ring, L, causal, "zigzag")):
        local(q, k, v, state, step, D**-0.5, first=t == 0)


def _transfers_only(k, v):
    """All messages of a ring, and nothing between them."""
    ring = _ring(None)
    for _ in op.LOCAL.blocks(ring, k, v):
        pass


def prepare_apart(N, causal):
    """The calls whose times say how much of the transfer hides behind the compute."""
    q, k, v = (shard(x) for x in _anew(*"qkv", N=N))
    _held["calls"] = {
        "both": lambda: ring_attention(q, k, v, causal=causal, validate=False),
        "compute only": lambda: _steps_only(q, k, v, causal, op.LOCAL.forward),
        "transfers only": lambda: _transfers_only(k, v),
    }
    return list(_held["calls"])


def prepare_ways(N, causal):
    """The calls that send in different ways while hopper_step runs. Name → "" or why not."""
    q, k, v = _anew(*"qkv", N=N)
    want = shard(alone(q, k, v, causal=causal, scale=D**-0.5))
    q, k, v = (shard(x) for x in (q, k, v))
    few, all_of_them = _group_of(CHANNELS), _programs()

    def ring(blocks, programs=all_of_them, group=None):
        local = Local(functools.partial(op.hopper_step, programs=programs), None, blocks)
        options = {"causal": causal, "group": group, "validate": False}
        return with_triton(q, k, v, local=local, **options)

    calls = {
        COPIES: lambda: ring(copies.copied_blocks),
        NCCL: lambda: ring(blocks),
        FEWER: lambda: ring(blocks, all_of_them - CHANNELS, few),
        TICKETS: lambda: ring(blocks, A_TILE_EACH, few),
    }
    why = {name: _why(call, want) for name, call in calls.items()}
    steps = functools.partial(op.hopper_step, programs=all_of_them)
    _held["calls"] = {STEPS: lambda: _steps_only(q, k, v, causal, steps)} | calls
    return {STEPS: ""} | why


def _programs():
    """One for each multiprocessor."""
    return torch.cuda.get_device_properties(DEVICE).multi_processor_count


@functools.cache
def _group_of(channels):
    """All ranks once more, with so many channels of NCCL."""
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.max_ctas = channels
    return dist.new_group(pg_options=options)


def prepare_training(N, causal, names):
    """Forward and backward: calls that end with the three gradients. Name → "" or why not."""
    q, k, v, grad_out = _anew("q", "k", "v", "grad_out", N=N)
    makers = {
        CUDNN: functools.partial(resolve(CUDNN), causal=causal),
        TRAINED: functools.partial(op.on_one_gpu, causal=causal),
        OURS: functools.partial(ring_attention, causal=causal, validate=False),
        TRITON: functools.partial(with_triton, causal=causal, validate=False),
    }
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    whole = functools.partial(alone, causal=causal, scale=D**-0.5)
    want = _trained(whole, leaves, grad_out)
    calls, why = {}, {}
    for name in names:
        cut = shard if name in (OURS, TRITON) else (lambda x: x)
        leaves = [cut(x).detach().requires_grad_() for x in (q, k, v)]
        calls[name] = functools.partial(_trained, makers[name], leaves, cut(grad_out))
        why[name] = _why(calls[name], tuple(map(cut, want)))
    _held["calls"], _held["trained"] = calls, True
    return why


def _trained(attention, leaves, grad_out):
    return torch.autograd.grad(attention(*leaves), leaves, grad_out)


def prepare_theirs(N, causal):
    """PyTorch's context parallelism, entered for good: why it cannot be timed, or ""."""
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import context_parallel_unshard

    leave()
    mesh = dist.device_mesh.init_device_mesh(DEVICE, (dist.get_world_size(),))
    q, k, v = _anew(*"qkv", N=N)
    want = alone(q, k, v, causal=causal, scale=D**-0.5)
    stack = contextlib.ExitStack()
    stack.enter_context(torch.no_grad())
    stack.enter_context(sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]))
    buffers = [q, k, v]
    options = {"buffer_seq_dims": [2, 2, 2], "no_restore_buffers": set(buffers)}
    stack.enter_context(context_parallel(mesh, buffers=buffers, **options))
    _held["left"] = stack

    def call():  # by its name in the module: that is what the context replaces
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def whole():
        return context_parallel_unshard(mesh, [call()], [2])[0]

    _held["calls"] = {THEIRS: call}
    return {THEIRS: _why(whole, want)}


def leave():
    """Leave what prepare_theirs entered."""
    if "left" in _held:
        _held["left"].close()
    _held.clear()
    torch.cuda.empty_cache()
