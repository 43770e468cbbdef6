"""ring_attention on two, three and four processes against float64, and what it refuses."""

import contextlib
import functools
import os
import random
import re
import signal
import threading
import time
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist

from snippets._lab.child import Ended
from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets._lab.measure.session import Lab
from snippets._lab.probe.compiled import SHARED_LIMIT
from snippets._warps.launch import OnGpu
from snippets.flash_backward.checks import eager_gradients
from snippets.ring_attention import (
    bench,
    copies,
    drawings,
    exchange,
    figures,
    kernel,
    model,
    on_cpu,
    op,
    trials,
)
from snippets.ring_attention.checks import HUGE, assert_huge_steps, assert_ring, assert_steps
from snippets.ring_attention.exchange import ulysses_attention, unshard
from snippets.ring_attention.mutants import STEP_MUTANTS
from snippets.ring_attention.ranks import Failure, Ranks
from snippets.ring_attention.ring import (
    LAYOUTS,
    TRITON,
    Ring,
    _plan,
    blocks,
    positions,
    ring_attention,
    shard,
)
from tests.floors import some
from tests.posts import fused
from tests.refusals import assert_refused, each_refusal

SIZES = [2, 3, 4]
ON_GPU = torch.cuda.is_available()
COMPILER_SECONDS = 60
pytestmark = pytest.mark.skipif(ON_GPU, reason="bench.check holds the GPUs to the same")


class Case(NamedTuple):
    """A call that all ranks make, and the shape of what they share."""

    causal: bool
    layout: str
    dtype: torch.dtype = torch.float32
    L: int = 18  # rows of a rank
    D: int = 16
    H: int = 2
    Hkv: int = 2
    B: int = 1
    scale: float | None = None


CASES = [
    Case(True, "zigzag"),
    Case(True, "contiguous"),
    Case(False, "zigzag"),
    Case(True, "zigzag", torch.float16, H=4, Hkv=2),
    Case(False, "contiguous", torch.float16, L=9, Hkv=1, B=2),
    Case(True, "zigzag", L=70, D=24, Hkv=1, scale=0.7),
    Case(True, "contiguous", torch.bfloat16, L=70, D=128, H=1, Hkv=1),
]


def whole(case, size):
    """q, k, v and grad_out of a case, the same in every process."""
    options = {"D": case.D, "dtype": case.dtype}
    N = case.L * size
    q, _, grad_out = make_qkv(case.B, case.H, N=N, **options)
    _, k, v = make_qkv(case.B, case.Hkv, M=1, N=N, seed=1, **options)
    return q, k, v, grad_out


# What ranks are told to do.


def attend(case, attention=ring_attention):
    """The whole output and gradients, put together from the shards of all ranks."""
    q, k, v, grad_out = whole(case, dist.get_world_size())
    layout = {"layout": case.layout}
    local = [shard(x, **layout).requires_grad_() for x in (q, k, v)]
    out = attention(*local, causal=case.causal, scale=case.scale, **layout)
    found = out.detach(), *torch.autograd.grad(out, local, shard(grad_out, **layout))
    parts = [unshard(x, **layout) for x in found]
    return [x.float().numpy() for x in parts] if dist.get_rank() == 0 else None


@pytest.fixture(scope="module", params=SIZES)
def ranks(request):
    with Ranks(request.param) as found:
        yield found


def check(ranks, case, *attention):
    found = ranks.run(attend, case, *attention)[0]
    given = whole(case, ranks.size)
    tensors = [torch.from_numpy(x).to(case.dtype) for x in found]
    assert_ring(tensors, *given, causal=case.causal, scale=case.scale)


@pytest.mark.numerical
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ring_attention_and_its_gradients(ranks, case):
    check(ranks, case)


@pytest.mark.numerical
@pytest.mark.parametrize("layout", ["zigzag", "contiguous"])
def test_ulysses_attention_and_its_gradients(ranks, layout):
    check(ranks, Case(True, layout, L=10, H=2 * ranks.size, Hkv=ranks.size), ulysses_attention)


def eager_heads(q, k, v, *, causal, scale):
    """Another attention for ulysses_attention."""
    hidden = ~causal_mask(q.shape[-2], k.shape[-2])
    return (q @ k.mT * scale).masked_fill(hidden, float("-inf")).softmax(-1) @ v


def ulysses_with_eager(*tensors, **options):
    return ulysses_attention(*tensors, attention=eager_heads, **options)


def norm_of_a_gradient():
    heads = dist.get_world_size()
    q, k, v, _ = whole(Case(True, "zigzag", L=4, H=heads, Hkv=heads), 1)
    q.requires_grad_()
    for attention, told in ((None, "no second derivative"), (eager_heads, None)):
        out = ulysses_attention(q, k, v, attention=attention)
        (grad,) = torch.autograd.grad(out.pow(2).sum(), q, create_graph=True)
        with pytest.raises(RuntimeError, match=told) if told else contextlib.nullcontext():
            assert torch.autograd.grad(grad.pow(2).sum(), q)[0].abs().max() > 0


def test_ulysses_differentiates_twice_or_says_that_it_cannot(ranks):
    ranks.run(norm_of_a_gradient)


def test_ulysses_takes_another_attention(ranks):
    check(ranks, Case(True, "zigzag", L=6, H=ranks.size, Hkv=ranks.size), ulysses_with_eager)


def ulysses_in_disorder(*tensors, **options):
    """Rows go home in the order of positions, not of shards."""
    back = exchange._exchange_back
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_exchange_back", lambda x, ring, order: back(x, ring, None))
        return ulysses_attention(*tensors, **options)


def test_heads_exchanged_without_the_order_of_their_rows_are_rejected(ranks):
    with pytest.raises(NumericalMismatch):
        check(ranks, Case(True, "zigzag", L=6, H=ranks.size, Hkv=ranks.size), ulysses_in_disorder)


# The steps of a ring without messages: kernel.py's, and the one for Hopper as a stand-in plays it.

STEPS = {
    "one rank": {"ranks": 1, "L": 200},
    "zigzag": {"ranks": 2},
    "zigzag, D 128": {"ranks": 3, "L": 258, "D": 128, "H": 1},
    "contiguous": {"ranks": 2, "L": 130, "H": 4, "Hkv": 2, "layout": "contiguous"},
    "no mask": {"ranks": 3, "L": 130, "causal": False},
    "whole tiles": {"ranks": 2, "L": 256, "D": 128, "H": 1, "causal": False},
}


@pytest.mark.numerical
@pytest.mark.parametrize("ring", STEPS)
def test_the_steps_of_ring_attention(ring):
    assert_steps(kernel._launch_step, **STEPS[ring])


@pytest.mark.parametrize("ring", STEPS)
@pytest.mark.parametrize("programs", [1, 3])
def test_the_step_for_hopper(ring, programs):
    with on_cpu.played(programs=programs):
        assert_steps(op.hopper_step, **STEPS[ring])


with_each_scale = pytest.mark.parametrize("scale", HUGE)


@pytest.mark.numerical
@with_each_scale
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_the_steps_with_huge_scores(dtype, causal, scale):
    with fused.multiply_add():
        assert_huge_steps(kernel._launch_step, 2, dtype=dtype, causal=causal, scale=scale)


@with_each_scale
@pytest.mark.parametrize("causal", [True, False])
def test_the_step_for_hopper_with_huge_scores(causal, scale):
    with on_cpu.played():
        assert_huge_steps(op.hopper_step, 2, causal=causal, scale=scale)


@pytest.mark.parametrize("step", [kernel._launch_step, op.hopper_step], ids=["Triton", "Hopper"])
def test_ordinary_steps_do_not_pay_for_huge_scores(step, monkeypatch):
    """16 bits and a scale of at most 1: the kernel has its multiply-add."""
    seen = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *flat, **tile: seen.append(flat[-1 if tile else -3])

    monkeypatch.setattr(kernel, "_ring_attention_kernel", Kernel())
    monkeypatch.setattr(op, "_hopper_step_kernel", Kernel())
    monkeypatch.setattr(op, "_multiprocessors", lambda device: 132)
    q, k, v = make_qkv(1, 2, N=8, D=64, dtype=torch.float16)
    sums = torch.empty(q.shape), *torch.empty(2, *q.shape[:-1])
    state = *sums, torch.empty_like(q), torch.empty(q.shape[:-1])
    for scale in (2.0**-64, 0.5, 1.0, 1.001, 2.0**64):
        step(q, k, v, state, kernel.Step(0, 0, 8, 0, 8, True, 8), scale, first=True)
    assert seen == [False] * 3 + [True] * 2


def attend_on_hopper(case):
    with on_cpu.played():
        return attend(case, trials.ring_attention)


def test_the_composed_launcher_takes_the_step_for_hopper(ranks):
    case = Case(True, "zigzag", torch.float16, L=70, D=64, Hkv=1)
    found = ranks.run(attend_on_hopper, case)[0]
    tensors = [torch.from_numpy(x).to(case.dtype) for x in found]
    assert_ring(tensors, *whole(case, ranks.size), causal=True)


def test_the_composed_launcher_takes_the_triton_step_elsewhere(ranks):
    check(ranks, Case(True, "zigzag", torch.float16, L=10, D=64), trials.ring_attention)


def test_hopper_steps_are_for_what_they_can_compute(monkeypatch):
    capability = {"is": (9, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability["is"])
    monkeypatch.setattr(kernel, "_architecture", kernel._architecture.__wrapped__)

    def chosen(dtype=torch.bfloat16, D=128, cut=slice(None)):
        x = torch.zeros(1, 2, 8, D, dtype=dtype)[..., cut]
        return op._local(*[x.as_subclass(OnGpu)] * 3)

    assert chosen() is op.HOPPER
    assert chosen(torch.float16, 64) is op.HOPPER
    assert chosen(torch.float32) is TRITON
    assert chosen(D=96) is TRITON
    assert chosen(cut=slice(1, 65)) is TRITON  # TMA wants multiples of 16 bytes
    assert op._local(*[torch.zeros(1, 2, 8, 64).half()] * 3) is TRITON
    capability["is"] = (10, 0)
    assert chosen() is TRITON


@pytest.mark.parametrize("mutant", STEP_MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mistake_in_the_step_for_hopper_is_found(mutant):
    assert on_cpu.judge(mutant)


def test_the_step_for_hopper_is_found_right_and_so_is_a_change_without_harm():
    assert not on_cpu.judge()
    assert not on_cpu.judge(
        STEP_MUTANTS[0]._replace(old="m_ptr + row, state.m_i", new="m_ptr + row, state.m_i + 0")
    )


def hopper_step_of(q, k, v, D, causal, first):
    acc, (m_i, l_i, lse) = torch.empty(q.shape), torch.empty(3, *q.shape[:-1])
    step = kernel.Step(0, 0, q.shape[2], 0, k.shape[2], causal, q.shape[2] // 2)
    state = acc, m_i, l_i, torch.empty_like(q), lse
    op.hopper_step(q, k, v, state, step, D**-0.5, first=first)


@pytest.mark.compiler
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("D", [64, 128])
def test_the_step_for_hopper_compiles_as_meant(D, causal, first, compiler, monkeypatch):
    monkeypatch.setitem(op.hopper_step.__globals__, "_multiprocessors", lambda device: 132)
    q, k, v = torch.zeros(3, 1, 2, 4096, D, dtype=torch.bfloat16, device="cpu")
    arguments = q, k, v, D, causal, first
    (launch,) = compiler.launches(hopper_step_of, arguments, {}, target="sm_90")
    found = compiler.compiled(launch)
    assert found.error is None, found
    assert found.tensor_core == "wgmma"
    assert found.shared_bytes <= SHARED_LIMIT["sm_90"]
    assert "serialized" not in found.said
    loops = op.loops(found.sass())
    assert [loop.masked for loop in loops] == ([True, False] if causal else [False]) * 2
    for loop in loops:  # what is carried is read and written outside of them
        assert not loop.local, "a register is spilled where the time goes"
        # At D 128 the factors of the two rows of a thread may come after the product.
        assert loop.exponentials - loop.under_products <= 2 * (D == 128)


# Blocks that are copied: who may write where, and when.


class Memory:
    """What symmetric memory is to some threads that play ranks: buffers, and signals."""

    patience = 10.0  # seconds

    def __init__(self, size):
        self.size, self.changed = size, threading.Condition()
        self.buffers = {}
        self.pads = torch.zeros(size, 4, size, dtype=torch.int32)

    def until(self, rank, channel, source, value):
        with self.changed:
            place = self.pads[rank, channel]
            assert self.changed.wait_for(lambda: place[source] == 1 - value, self.patience), "late"
            place[source] = value
            self.changed.notify_all()


class Handle:
    def __init__(self, memory, rank):
        self.memory, self.rank = memory, rank

    def get_buffer(self, rank, shape, dtype, offset):
        return self.memory.buffers[rank][offset : offset + shape.numel()].view(shape)

    def get_signal_pad(self, rank, shape, dtype):
        return self.memory.pads[rank]

    def put_signal(self, rank, channel, timeout):
        self.memory.until(rank, channel, self.rank, 1)

    def wait_signal(self, rank, channel, timeout):
        self.memory.until(self.rank, channel, rank, 0)


class Stream:
    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass


def blocks_seen(size, calls, monkeypatch, seed=0):
    """What each rank holds at each step of some calls: [size, calls · size] numbers of ranks."""
    memory, order = Memory(size), random.Random(seed)
    memory.buffers = {r: torch.full((1024,), float("nan")) for r in range(size)}
    monkeypatch.setattr(copies, "_rooms", {})
    monkeypatch.setattr(copies.symmetric, "empty", lambda n, dtype, device: None)
    monkeypatch.setattr(copies.symmetric, "rendezvous", lambda x, group: Handle(memory, group))
    for name in ("Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())

    def tell(room, b):
        with memory.changed:
            assert room.flags[b].item() == 0, "nobody has waited for the last one"
            room.flags[b].fill_(1)
            memory.changed.notify_all()

    monkeypatch.setattr(copies.Room, "tell", tell)
    seen = [[] for _ in range(size)]

    def play(rank):
        try:
            steps(rank)
        except AssertionError as error:
            seen[rank].append(str(error))

    def steps(rank):
        pause = random.Random(f"{seed} {rank}")
        for call in some(range(calls)):
            mine = torch.full((1, 1, 4 - call % 2, 2), float(10 * call + rank))
            ring = Ring(rank, size, rank)
            for k, v in copies.copied_blocks(ring, mine, mine + 0.5):
                time.sleep(pause.choice((0, 0, 0.001, 0.004)))  # a step
                assert torch.equal(k + 0.5, v)
                found = k.unique()  # once: a hasty writer may come between
                seen[rank].append(found.item() if found.numel() == 1 else None)

    threads = [threading.Thread(target=play, args=(rank,)) for rank in range(size)]
    order.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def expected(size, calls):
    return [
        [float(10 * call + (rank - t) % size) for call in range(calls) for t in range(size)]
        for rank in range(size)
    ]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_copied_blocks_arrive_in_turn_and_stay_until_they_are_read(size, monkeypatch):
    assert blocks_seen(size, 3, monkeypatch) == expected(size, 3)


def test_a_buffer_that_is_written_before_it_is_free_is_noticed(monkeypatch):
    def hasty(handle, rank, channel, timeout):
        if channel < copies.FREE:
            handle.memory.until(handle.rank, channel, rank, 0)

    monkeypatch.setattr(Memory, "patience", 0.3)
    monkeypatch.setattr(Handle, "wait_signal", hasty)
    monkeypatch.setattr(copies.Room, "free", lambda room, b: None)
    found = [blocks_seen(3, 4, monkeypatch, seed) for seed in range(2)]
    assert any(seen != expected(3, 4) for seen in found)


# Who sees what.


def scores_seen(size, length, causal, layout):
    """[N, N] of how often each query meets each key, in the order of positions."""
    rings = [Ring(rank, size) for rank in range(size)]
    where = [positions(length, group=ring, layout=layout) for ring in rings]
    met = torch.zeros(size * length, size * length, dtype=torch.int64)
    for ring in some(rings):
        for step in _plan(ring, length, causal, layout):
            rows = where[ring.rank][step.first_row : step.first_row + step.M]
            keys = where[step.source][step.first_key : step.first_key + step.N]
            seen = torch.ones(len(rows), len(keys), dtype=torch.int64)
            met[rows[:, None], keys] += seen.tril() if step.causal else seen
    return met


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_query_meets_its_keys_once(size, layout):
    N = size * 4
    assert scores_seen(size, 4, False, layout).eq(1).all()
    assert torch.equal(scores_seen(size, 4, True, layout), torch.ones(N, N).tril().long())


@pytest.mark.parametrize("size", [2, 3, 8])
def test_zigzag_gives_all_ranks_the_same_work(size):
    def work(layout):
        plans = [_plan(Ring(r, size), 8, True, layout) for r in range(size)]
        return [sum(s.M * s.N / (2 if s.causal else 1) for s in steps) for steps in plans]

    assert len(set(work("zigzag"))) == 1
    assert max(work("contiguous")) == (2 * size - 1) * min(work("contiguous"))


def test_the_drawings_show_what_is_planned():
    size = drawings.RANKS
    for rank in some(range(size)):
        ring = Ring(rank, size)
        assert drawings.chunks(rank, "zigzag") == (*positions(2, group=ring).tolist(),)
        for t, step in enumerate(some(_plan(ring, 2, True, "zigzag"))):
            first = [drawings.chunks(r, "zigzag")[0] for r in (rank, step.source)]
            assert drawings.step_of(*first, "zigzag") == t
            met = {
                (i, j): "half" if step.causal and i == j else "all"
                for i in range(step.first_row, step.first_row + step.M)
                for j in range(step.first_key, step.first_key + step.N)
                if not step.causal or j <= i
            }
            assert drawings.seen(rank, step.source) == met


def test_a_row_is_finished_at_the_last_step_that_it_sees():
    for size in (1, 2, 5):
        for layout in LAYOUTS:
            for rank in some(range(size)):
                finished = torch.zeros(8, dtype=torch.int64)
                for step in some(_plan(Ring(rank, size), 8, True, layout)):
                    rows = slice(step.first_row, step.first_row + step.M)
                    assert not finished[rows].any()
                    finished[step.first_row : step.first_row + step.done] += 1
                assert finished.eq(1).all()


def check_layouts():
    size, rank = dist.get_world_size(), dist.get_rank()
    x = torch.arange(2 * size * 3).view(1, -1, 1)
    mesh = dist.device_mesh.init_device_mesh("cpu", (size,), mesh_dim_names=("cp",))
    for layout in some(LAYOUTS):
        mine = shard(x, layout=layout, dim=1)
        assert torch.equal(mine.flatten(), positions(mine.shape[1], layout=layout))
        assert torch.equal(unshard(mine, layout=layout, group=mesh, dim=1), x)
    assert shard(x, dim=1).flatten().tolist()[:3] == [3 * rank, 3 * rank + 1, 3 * rank + 2]
    return positions(6, group=mesh["cp"]).tolist()


def test_shards_positions_and_a_mesh(ranks):
    found = ranks.run(check_layouts)
    assert sorted(at for rows in found for at in rows) == list(range(6 * ranks.size))
    assert found[0][:3] == [0, 1, 2]
    assert found[0][3:] == [6 * ranks.size - 3 + i for i in range(3)]


# What is refused, and by whom.


def call_with(changes):
    """A call in which one rank differs: rank → what it changes. Its answer is its error's text."""
    case = Case(True, "zigzag", L=4)
    q, k, v, _ = whole(case, 1)
    change = changes.get(dist.get_rank(), {})
    tensors = [x.to(change.get("dtype", x.dtype))[:, :, : change.get("L", 4)] for x in (q, k, v)]
    options = {name: change[name] for name in ("causal", "layout", "scale") if name in change}
    with pytest.raises((ValueError, TypeError)) as caught:
        ring_attention(*tensors, **options)
    return str(caught.value)


REFUSED = {
    "a wrong dtype": ({"dtype": torch.float16}, "torch.float16.*allowed.*torch.float32"),
    "a shorter shard": ({"L": 2}, r"rank 1 .*2, 2, 16.*allowed: as here, q \(1, 2, 4, 16"),
    "another mask": ({"causal": True}, "'causal': True.*allowed.*'causal': False"),
    "another layout": ({"layout": "contiguous"}, "'contiguous'.*allowed.*'zigzag'"),
    "another scale": ({"scale": 2.0}, r"'scale': 2\.0.*allowed.*'scale': 0\.25"),
    "what no rank takes": ({"dtype": torch.float64}, "rank 1 .* refuses: q is torch.float64"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_one_rank_does_wrong_all_raise(ranks, reason):
    change, words = REFUSED[reason]
    said = ranks.run(call_with, {1: change})
    assert re.search(words, said[0]), said[0]
    assert all(some(said))


def shard_of(rows):
    with pytest.raises(ValueError, match="allowed in zigzag: a multiple of") as caught:
        shard(torch.zeros(1, 1, rows, 16))
    return str(caught.value)


def too_few_heads():
    q, k, v, _ = whole(Case(True, "zigzag", L=4, H=1, Hkv=1), 1)
    with pytest.raises(ValueError, match="q has 1 heads; allowed: a multiple of"):
        ulysses_attention(q, k, v)


def test_what_does_not_divide_is_refused_on_every_rank(ranks):
    said = ranks.run(shard_of, 2 * ranks.size + 1)
    assert all(f"a multiple of {2 * ranks.size}" in text for text in some(said))
    ranks.run(too_few_heads)


ALONE = {
    TypeError: {
        "q is <class 'list'>; allowed: a dense": {"q": [1.0]},
        "q is torch.float64": {"q": torch.Tensor.double},
        "k is torch.float16 on cpu; allowed: torch.float32 on cpu": {"k": torch.Tensor.half},
        "causal is 1; allowed: True, False": {"causal": 1},
        "scale is '1'; allowed: a number or None": {"scale": "1"},
        "group is 'world'; allowed: None or, once torch.distributed": {"group": "world"},
    },
    ValueError: {
        "q has shape (2, 4, 16); allowed: 4 dimensions, none 0": {"q": lambda x: x[0]},
        "q has shape (1, 2, 0, 16); allowed: 4 dimensions, none 0": {"q": lambda x: x[:, :, :0]},
        "allowed: the last 1, others any": {"q": lambda x: x.mT.contiguous().mT},
        "q has 8 columns; allowed: 16 to 256": dict.fromkeys("qkv", lambda x: x[..., :8]),
        "k has shape (1, 2, 2, 16); allowed with q: (1, 2, 4": {"k": lambda x: x[:, :, :2]},
        "v has shape (1, 1, 4, 16); allowed with q: (1, 2, 4": {"v": lambda x: x[:, :1]},
        "q has 1 heads and k 2; allowed: a multiple of k's": {"q": lambda x: x[:, :1]},
        "q has 3 rows; allowed in zigzag: a multiple of 2": (
            dict.fromkeys("qkv", lambda x: x[:, :, :3])
        ),
        "layout is 'stripes'": {"layout": "stripes"},
        "scale is 0.0; allowed: 2^-64 to 2^64": {"scale": 0.0},
        "scale is 257.0; allowed for gradients: at most 2^8": (
            {"scale": 257.0, "v": torch.Tensor.requires_grad_}
        ),
    },
}


@each_refusal(ALONE)
def test_bad_input_is_refused_before_a_launch(error, change, monkeypatch):
    monkeypatch.setattr(kernel, "_ring_attention_kernel", None)
    q, k, v, _ = whole(Case(True, "zigzag", L=4), 1)
    values = {"q": q, "k": k, "v": v}
    values |= {n: x(values[n]) if callable(x) else x for n, x in change.items()}
    assert_refused(error, ring_attention, *[values.pop(name) for name in "qkv"], **values)


def test_positions_of_no_whole_number_are_refused():
    assert_refused(TypeError("length is 4.0; allowed: a whole number"), positions, 4.0)


def test_blocks_are_refused_without_a_ring_too():
    q, k, v, _ = whole(Case(True, "zigzag", L=4), 1)
    step = kernel.Step(0, 0, 4, 0, 4, False, 4)
    error = TypeError("k is torch.float16 on cpu; allowed: torch.float32 on cpu")
    assert_refused(error, kernel.ring_attention, q, [(k.half(), v)], [step])


def test_a_scale_too_large_for_gradients_is_taken_where_none_are_wanted():
    q, k, v, _ = whole(Case(True, "zigzag", L=4), 1)
    want = ring_attention(q, k, v, scale=257.0)
    assert_attention(want, q, k, v, scale=257.0)
    q.requires_grad_()
    with torch.no_grad():
        assert torch.equal(ring_attention(q, k, v, scale=257.0), want)


# Alone, compiled, differentiated twice; and when a rank ends.


@pytest.mark.numerical
def test_without_a_group_a_rank_has_everything():
    q, k, v, grad_out = whole(Case(True, "zigzag", L=20, Hkv=1), 1)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    out = ring_attention(*leaves, causal=True)
    found = [out.detach(), *torch.autograd.grad(out, leaves, grad_out)]
    assert_ring(found, *(x.detach() for x in (q, k, v)), grad_out, causal=True)


def test_a_sum_has_a_gradient_and_a_second_derivative_is_refused():
    q, k, v, _ = whole(Case(False, "zigzag", L=4), 1)
    q.requires_grad_()
    found = torch.autograd.grad(ring_attention(q, k, v).sum(), q, create_graph=True)[0]
    want = eager_gradients(*(x.double() for x in (q, k, v, torch.ones_like(q))))[0]
    torch.testing.assert_close(found.double(), want, rtol=1e-4, atol=1e-5)
    negated = torch._neg_view(-torch.ones_like(q))  # a view that holds the opposite sign
    assert torch.equal(torch.autograd.grad(ring_attention(q, k, v), q, negated)[0], found)
    with pytest.raises(RuntimeError, match="ring_attention has no second derivative"):
        found.sum().backward()


def test_compiled_code_calls_it_as_it_is():
    q, k, v, _ = whole(Case(True, "zigzag", L=4), 1)

    def twice(*tensors):
        return ring_attention(*tensors, causal=True) * 2

    found = torch.compile(twice, backend="eager")(q, k, v)
    assert_attention(found / 2, q, k, v, mask=causal_mask(4, 4))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="it talks to other ranks"):
        torch.compile(twice, backend="eager", fullgraph=True)(q, k, v)


def end_or_attend(validate):
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    q, k, v, _ = whole(Case(True, "zigzag", L=4), 1)
    ring_attention(q, k, v, validate=validate)


@pytest.mark.parametrize(
    ("validate", "words"),
    [(True, "could not compare its call"), (False, "could not send to the next")],
)
def test_a_rank_that_dies_stops_the_others(validate, words):
    with Ranks(3) as ranks:
        ranks.run(dist.get_rank)  # which answers once all have joined
        began = time.monotonic()
        for child in ranks.children:
            child.send((end_or_attend, (validate,)))
        with pytest.raises(Ended, match="SIGKILL"):
            ranks.children[1].receive(30)
        others = [ranks.children[at].receive(30) for at in (0, 2)]
    for found in some(others):
        assert isinstance(found, Failure)
        assert f"rank {found.rank} of the ring {words}" in found.text
        assert "may have ended" in found.text
    assert time.monotonic() - began < 20


# The bench, on processes that take the CPU for a GPU.


class Clock:
    """An event of a GPU that is done as soon as it is recorded."""

    def __init__(self, enable_timing):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return 1e3 * (other.at - self.at)


class NoFlush:
    def busy(self, ms):
        pass


def triton_step(*tensors, first, programs=None):
    kernel._launch_step(*tensors, first=first)


@pytest.fixture
def made_up_gpus(monkeypatch):
    """Two ranks that run the trials on the CPU, small; bench asks them."""
    for name, value in {"DEVICE": "cpu", "HEADS": 2, "D": 16, "Flush": NoFlush}.items():
        monkeypatch.setattr(trials, name, value)
    fakes = {"Event": Clock, "get_device_capability": lambda *_: (8, 0)}
    fakes |= {name: lambda *_: 0 for name in ("synchronize", "empty_cache")}
    for name, value in fakes.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(op, "hopper_step", triton_step)
    monkeypatch.setattr(copies, "copied_blocks", blocks)
    monkeypatch.setattr(trials, "_group_of", lambda channels: None)
    monkeypatch.setattr(trials, "_programs", lambda: 132)
    for name, value in {"LENGTHS": {8: 2, 12: 2}, "HEADS": 2, "D": 16}.items():
        monkeypatch.setattr(bench, name, value)
    with Ranks(2) as found:
        ask = functools.partial(found.run, seconds=15.0)
        monkeypatch.setattr(bench, "_ask", lambda *given, seconds=0.0: ask(*given))
        yield found


class FirstCase(Lab):
    """A lab that is in a hurry."""

    def each(self, **axes):
        yield {name: values[0] for name, values in axes.items()}


def rows_of(result):
    return [row | {"failed": bool(row.get("error"))} for row in result(FirstCase("gpu"))]


def test_the_bench_scales_and_says_what_failed(made_up_gpus):
    rows = rows_of(bench.scaling)
    timed = {r["implementation"] for r in rows if not r["failed"]}
    shared = {trials.OURS, trials.TRITON, trials.GATHER, trials.ULYSSES}
    assert timed == shared | {trials.ALONE}, rows
    said = {r["implementation"]: r["error"] for r in rows if r["failed"]}
    assert set(said) == {trials.HOPPER, trials.CUDNN, trials.THEIRS}
    ours = next(r for r in rows if r["implementation"] == trials.OURS)
    alone = next(r for r in rows if r["implementation"] == trials.ALONE)
    assert (ours["ranks"], alone["ranks"], alone["flops"] / ours["flops"]) == (2, 1, 2)


def test_the_bench_times_transfers_and_training(made_up_gpus):
    parts = rows_of(bench.overlap)
    assert {r["part"] for r in parts} == {"both", "compute only", "transfers only"}
    sent = {r["bytes_sent"] for r in parts if r["part"] == "both"}
    assert sent == {2 * 2 * 2 * 4 * 16}  # two tensors of two bytes: two heads, four rows
    trained = rows_of(bench.training)
    able = [r["implementation"] for r in trained if not r["failed"]]
    assert able == [trials.OURS, trials.TRITON]


def test_the_bench_times_ways_to_send(made_up_gpus):
    rows = rows_of(bench.ways)
    assert [r["way"] for r in rows if not r["failed"]] == list(trials.WAYS), rows


def test_one_gpu_is_no_ring():
    with pytest.raises(RuntimeError, match="needs a ring: it is measured on two GPUs or more"):
        bench._ask(trials.leave)


def test_the_simulator_knows_the_two_limits():
    wide = model.Ring(ranks=8, N=1 << 20, causal=False, link=1e15, rate=1e12)
    assert model.predicted(wide)["share"] == pytest.approx(1.0)
    narrow = wide._replace(link=1.0)
    found = model.predicted(narrow)
    assert found["total"] == pytest.approx(7 * found["message"], rel=0.01)
    rows = model.hidden_from(wide._replace(link=1e9, causal=True))
    level = model.predicted(wide._replace(N=8 * rows, link=1e9, causal=True))
    assert level["step"] == pytest.approx(level["message"])
    assert model.memory(wide) == 2 * model.memory(wide._replace(ranks=16))


def test_the_figure_of_balance_counts_what_is_planned():
    rows = list(bench.balance(Lab("interpreter")))
    zigzag = [r["share"] for r in rows if r["layout"] == "zigzag"]
    assert zigzag == pytest.approx([1.0] * 6)
    assert "ring of 4 ranks" in figures.balance(rows).finding
