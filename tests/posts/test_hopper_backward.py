"""hopper_backward against float64, in random orders of its events, and what it refuses.

Without an H100 or H200 its kernel runs as Python, each part of a program in turn with the others.
"""

import contextlib
import heapq
import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snippets._lab.judge.oracle import NumericalMismatch, causal_mask, make_qkv
from snippets._warps import gluon, launch
from snippets.flash_backward.checks import error_of_weights
from snippets.hopper_backward import bench, drawings, kernel, op
from snippets.hopper_backward.kernel import VARIANTS, hopper_backward
from snippets.hopper_backward.op import assert_gradients, forward
from tests.floors import some

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
DEVICE = "cuda" if HOPPER else "cpu"
LENGTHS = [300, 257, 129, 128, 127, 65, 64, 63, 2, 1]
PAIRS = list(itertools.product(LENGTHS, repeat=2))
MASKS = [None, "bottom_right", "top_left"]
CELLS = list(itertools.product((64, 128), (torch.float16, torch.bfloat16), MASKS))
CELLS = [(which, *cell) for which, cell in enumerate(CELLS)]


@pytest.fixture(autouse=True)
def played():
    """Without a Hopper GPU the kernel's functions run as Python."""
    with contextlib.nullcontext() if HOPPER else launch.played(hopper_backward):
        yield


def heads(M, N, D, *, H=2, Hkv=None, B=1, dtype=torch.float16, seed=0):
    """q and grad_out of H heads, k and v of Hkv heads."""
    options = {"dtype": dtype, "device": DEVICE}
    q, _, grad_out = make_qkv(B, H, N=M, D=D, seed=seed, **options)
    _, k, v = make_qkv(B, Hkv or H, M=1, N=N, D=D, seed=seed + 1, **options)
    return q, k, v, grad_out


def surrounded(x):
    """The same rows, at the start of memory that is NaN: what is read beyond them shows."""
    *lead, rows, D = x.shape
    memory = torch.full((*lead, rows + 130, D), math.nan, dtype=x.dtype, device=x.device)
    memory[..., :rows, :] = x
    return memory[..., :rows, :]


def check(q, k, v, grad_out, *, align=None, scale=None, grad_lse=None):
    """Run forward and backward and hold the gradients against float64."""
    mask, options = None, {}
    if align is not None:
        mask = causal_mask(q.shape[-2], k.shape[-2], align=align, device=q.device)
        options = {"causal": True, "align": align}
    out, lse = forward(q, k, v, scale=scale, mask=mask)
    options |= {"scale": scale, "grad_lse": grad_lse}
    found = hopper_backward(q, k, v, out, lse, grad_out, **options)
    assert_gradients(found, q, k, v, grad_out, scale=scale, mask=mask, grad_lse=grad_lse)
    return found


@pytest.mark.numerical
@pytest.mark.parametrize(("which", "D", "dtype", "align"), CELLS)
def test_equals_float64(which, D, dtype, align):
    for M, N in some(PAIRS if HOPPER else PAIRS[which :: 2 * len(CELLS)]):
        check(*map(surrounded, heads(M, N, D, H=2, Hkv=1, dtype=dtype)), align=align)


@pytest.mark.numerical
@pytest.mark.parametrize("align", MASKS)
@pytest.mark.parametrize("D", VARIANTS)
def test_many_tiles_in_many_orders(D, align):
    """Stages are used again and again, by heads that share keys, whoever is slow."""
    for H in (2, 3):  # each launch has an order of its own
        check(*heads(380, 200, D, H=H, Hkv=1), align=align)


@pytest.mark.numerical
@pytest.mark.parametrize("name", [name for name, rung in bench.RUNGS.items() if rung.right])
def test_every_rung_that_is_right(name):
    rung = bench.RUNGS[name]
    for D in some(rung.widths):
        run = bench._launcher(rung, D)
        q, k, v, grad_out = heads(200, 140, D)
        mask = causal_mask(200, 140, device=DEVICE)
        out, lse = forward(q, k, v, mask=mask)
        with contextlib.nullcontext() if HOPPER else launch.played(run.__wrapped__):
            found = run(q, k, v, out, lse, grad_out, causal=True)
        assert_gradients(found, q, k, v, grad_out, mask=mask)


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_a_gradient_for_the_logsumexp(D):
    q, k, v, grad_out = heads(140, 70, D, Hkv=1)
    check(q, k, v, grad_out, grad_lse=grad_out[..., 0].float())


@pytest.mark.numerical
@pytest.mark.parametrize(("H", "Hkv"), [(4, 2), (6, 2), (4, 4)])
def test_groups_of_heads_share_keys(H, Hkv):
    check(*heads(140, 130, 64, H=H, Hkv=Hkv, B=2))
    check(*heads(70, 130, 128, H=H, Hkv=Hkv), align="bottom_right")


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_large_scores_and_scales(D):
    for spread, scale in ((30.0, None), (3.0, 2.0), (3.0, 1e-3)):
        q, k, v, grad_out = heads(70, 150, D)
        check((q / 3 * spread).to(q.dtype), k, v, grad_out, scale=scale, align="bottom_right")


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_weights_at_the_largest_scale_for_gradients(D):
    """Of normal rows they are off by less than a hundredth."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, D, D, generator=generator).half().to(DEVICE)
    error, _ = error_of_weights(hopper_backward, q, k, 2.0**8)
    assert 2**-13 < error < 2**-7


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_low_scores_leave_keys_beyond_the_last_alone(D):
    q, k, v, grad_out = heads(3, 37, D)
    check(q.abs() * 10, -k.abs() * 10, v, grad_out)  # exp of minus such a logsumexp overflows


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_queries_without_a_key_and_keys_without_a_query(D):
    grad_q, *_ = check(*heads(300, 10, D, dtype=torch.bfloat16), align="bottom_right")
    assert (grad_q[:, :, :290] == 0).all()
    found = check(*heads(10, 300, D, dtype=torch.bfloat16), align="top_left")
    for x in some(found[1:]):
        assert (x[:, :, 10:] == 0).all()


@pytest.mark.numerical
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_strides_and_ranks(rank):
    lead = (2, 2)[: rank - 2]
    packed = torch.randn(*lead, 70, 4, 64, device=DEVICE).half()  # strides of 4 · 64 between rows
    check(*packed.unbind(-2))


@pytest.mark.numerical
def test_rows_with_gaps_of_sixteen_bytes():
    wide = torch.randn(4, 2, 2, 70, 72, device=DEVICE).half()  # 9 times 16 bytes to the next row
    check(*wide[..., 8:].unbind())


@pytest.mark.numerical
def test_gradients_lie_in_memory_as_their_tensors_do():
    """A model's heads are beside each other: its gradients then need no copy."""
    every = torch.randn(2, 70, 8, 64, device=DEVICE).half()  # [B, N, heads, D]
    q, k, v, grad_out = (x.transpose(1, 2) for x in every.split((4, 1, 1, 2), dim=2))
    grad_out = grad_out.repeat(1, 2, 1, 1)
    for x in some(check(q, k, v, grad_out)):
        assert x.transpose(1, 2).is_contiguous()
    for x in some(check(*(x.contiguous() for x in (q, k, v)), grad_out)):
        assert x.is_contiguous()


@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_gradients_are_added_to_given_tensors(D):
    for M, N, align in ((70, 330, None), (140, 130, "bottom_right")):
        q, k, v, grad_out = heads(M, N, D, H=4, Hkv=2, B=2)
        mask = causal_mask(M, N, device=DEVICE) if align else None
        out, lse = forward(q, k, v, mask=mask)
        into = [torch.full(x.shape, 0.25, device=DEVICE) for x in (q, k, v)]
        found = hopper_backward(q, k, v, out, lse, grad_out, causal=align is not None, into=into)
        assert all(a is b for a, b in zip(found, into, strict=True))
        assert_gradients([x - 0.25 for x in found], q, k, v, grad_out, mask=mask)


@pytest.mark.numerical
def test_gradients_are_added_where_heads_and_batch_are_left_out():
    q, k, v, grad_out = (x[0, 0] for x in heads(70, 130, 64))
    out, lse = forward(q, k, v)
    into = [torch.zeros(x.shape, device=DEVICE) for x in (q, k, v)]
    assert_gradients(hopper_backward(q, k, v, out, lse, grad_out, into=into), q, k, v, grad_out)


@pytest.mark.numerical
@pytest.mark.parametrize("together", [1, 2, 3, 4])
def test_heads_that_are_worked_on_together(together, monkeypatch):
    monkeypatch.setattr(kernel, "_together", lambda *_: together)
    check(*heads(130, 260, 64, H=6, Hkv=3), align="bottom_right")
    check(*heads(70, 130, 128, H=1, B=5))


@pytest.mark.numerical
@given(
    M=st.integers(1, 300),
    N=st.integers(1, 300),
    D=st.sampled_from(sorted(VARIANTS)),
    group=st.sampled_from([1, 2, 3]),
    align=st.sampled_from(MASKS),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
    seed=st.integers(0, 99),
)
@settings(max_examples=200 if HOPPER else 12)
def test_any_problem(M, N, D, group, align, dtype, seed):
    check(*heads(M, N, D, H=2 * group, Hkv=2, dtype=dtype, seed=seed), align=align)


def test_the_bench_checks_what_it_measures():
    bench.check(DEVICE)


@pytest.fixture
def forward_played():
    """The same for the forward that autograd joins it to."""
    with contextlib.nullcontext() if HOPPER else launch.played(op.hopper_attention):
        yield


def test_autograd_joins_forward_and_backward(forward_played):
    q, k, v, grad_out = heads(70, 130, 64, dtype=torch.bfloat16)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    found = torch.autograd.grad(op.attention(*leaves, causal=True), leaves, grad_out)
    summed = torch.autograd.grad(op.attention(*leaves).sum(), leaves)
    out, lse = op.attention(*leaves, return_lse=True)
    grad_lse = grad_out[..., 0].float()
    both = torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse))
    plain = [x.detach() for x in leaves]
    assert_gradients(found, *plain, grad_out, mask=causal_mask(70, 130, device=DEVICE))
    assert_gradients(summed, *plain, torch.ones_like(grad_out))
    assert_gradients(both, *plain, grad_out, grad_lse=grad_lse)


def test_the_op_compiles_as_a_whole(forward_played):
    q, k, v, grad_out = heads(70, 40, 64, H=1, dtype=torch.bfloat16)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    compiled = torch.compile(
        lambda *x: op.attention(*x, causal=True) * 2, fullgraph=True, backend="aot_eager"
    )
    found = torch.autograd.grad(compiled(*leaves), leaves, grad_out / 2)
    mask = causal_mask(70, 40, device=DEVICE)
    assert_gradients(found, *(x.detach() for x in leaves), grad_out, mask=mask)


def test_a_fixed_order_of_additions_is_refused():
    q, k, v, _ = heads(4, 4, 64)
    with pytest.raises(ValueError, match="hopper_backward has no fixed order; use flash_backward"):
        op.attention(q, k, v, deterministic=True)


# The order of programs.

MULTIPROCESSORS = 132  # of an H100 or H200, each with a program at a time


def launched(q, k, **options):
    """What hopper_backward gives _launch for each of its kernels, of tensors of any device."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_refusals", lambda *_: ())
        patch.setattr(kernel, "_launch", lambda *given: found.append(given))
        hopper_backward(q, k, k, q, q[..., 0], q, **options)
    return some(found, 3)


def shares(*shape, D=64, **options):
    """(head of keys, tile, steps) of each program, in the order in which they start."""
    B, H, Hkv, M, N = shape
    q, k = (
        torch.empty(B, h, n, D, dtype=torch.bfloat16, device="meta") for h, n in ((H, M), (Hkv, N))
    )
    _, (_, programs, _, _, sizes, constants), _ = launched(q, k, **options)
    source = Path(kernel.__file__).read_text("utf-8")
    one = gluon.Program(source, 0, programs)
    found = []
    for one.number in range(programs):
        work = one.names["_work"](one.names["Problem"](*sizes), kernel.Variant(*constants[:-2]))
        found.append((int(work.b * Hkv + work.hk), int(work.tile), int(work.steps)))
    return found


def rounds(steps):
    """When the last program ends, over the earliest possible: each goes where one ends first."""
    free = [0] * MULTIPROCESSORS
    for count in steps:
        heapq.heapreplace(free, free[0] + count)
    # Of the 133 longest two share a multiprocessor, of the 265 longest three.
    longest = sorted(steps, reverse=True)[::MULTIPROCESSORS]
    shared = [(i + 1) * count for i, count in enumerate(longest)]
    return max(free) / max(sum(steps) / MULTIPROCESSORS, *shared)


@given(
    B=st.integers(1, 3),
    Hkv=st.integers(1, 5),
    M=st.integers(1, 900),
    N=st.integers(1, 900),
    together=st.integers(1, 16),
    align=st.sampled_from(MASKS),
)
@settings(max_examples=50)
def test_every_tile_of_every_head_has_a_program(B, Hkv, M, N, together, align):
    options = {"causal": align is not None, "align": align or "bottom_right"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_together", lambda *_: together)
        found = shares(B, 2 * Hkv, Hkv, M, N, **options)
    tiles = itertools.product(range(B * Hkv), range(-(-N // 128)))
    assert sorted((head, tile) for head, tile, _ in found) == sorted(tiles)


# (B, H, Hkv, M, N, D) with a causal mask: of a language model, of the bench, and with M ≠ N.
LAYERS = [(16_384 // N, 8, 2, N, N, 64) for N in (512, 1024, 2048, 4096, 8192)]
TIMED = [(16_384 // N, 2048 // D, 2048 // D, N, N, D) for N in (1024, 4096) for D in VARIANTS]
UNEVEN = [(1, 32, 8, 2048, 6000, 128), (3, 12, 12, 5000, 1000, 64), (7, 5, 1, 3000, 3000, 64)]


@pytest.mark.parametrize("shape", LAYERS + TIMED + UNEVEN, ids=str)
def test_no_long_program_starts_when_most_are_done(shape):
    *sizes, D = shape
    steps = [steps for _, _, steps in shares(*sizes, D=D, causal=True)]
    assert len(steps) > MULTIPROCESSORS or max(steps) > min(steps)
    assert rounds(steps) < 1.1


@pytest.mark.parametrize("shape", LAYERS, ids=str)
def test_in_order_of_heads_the_last_programs_take_half_as_long_again(shape, monkeypatch):
    """What the order is for: the same programs, one head after the other."""
    monkeypatch.setattr(kernel, "_together", lambda *_: 1)
    *sizes, D = shape
    assert rounds([steps for _, _, steps in shares(*sizes, D=D, causal=True)]) > 1.4


def test_heads_are_worked_on_together_within_l2():
    """Or as many as it takes for two programs on each multiprocessor."""
    sizes = itertools.product((1, 512, 4096, 2**17), VARIANTS, (1, 7, 512), (1, 8, 1024))
    for M, D, heads_kv, tiles in some(list(sizes)):
        assert kernel._together(False, M, D, heads_kv, tiles) == 1
        count = kernel._together(True, M, D, heads_kv, tiles)
        assert 1 <= count <= heads_kv
        assert count * M * D * 8 <= kernel.L2_BYTES or (count - 1) * tiles < 2 * MULTIPROCESSORS
        assert count == heads_kv or count * tiles >= 2 * MULTIPROCESSORS


# What is launched.


class Compiled:
    """What Triton returns from a launch of its own; later launches go to it directly."""

    def __init__(self):
        self.given = []

    def __getitem__(self, grid):
        return lambda *given: self.given.append((grid, given))


def compiles(monkeypatch):
    """A kernel that counts what is compiled, a Compiled each."""
    monkeypatch.setattr(kernel, "CompiledKernel", Compiled)
    monkeypatch.setattr(kernel, "_compiled", {})
    found = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *_: found.append(Compiled()) or found[-1]

    return Kernel(), found


def test_a_kernel_is_compiled_once_for_all_sizes(monkeypatch):
    plain, found = compiles(monkeypatch)
    x = torch.zeros(4, 64).half()
    for size in (1, 16, 17):
        kernel._launch(plain, size, x, (x, None), (size,), (64,))
    (one,) = found
    assert one.given == [((size, 1, 1), (x, None, size, 64)) for size in (16, 17)]


def test_a_kernel_is_compiled_again_for_what_triton_specializes_on(monkeypatch):
    plain, _ = compiles(monkeypatch)
    other, _ = compiles(monkeypatch)
    half, numbers = torch.zeros(4, 64).half(), torch.zeros(9)
    first = (plain, half, numbers, (64,))
    several = [
        first,
        (other, half, numbers, (64,)),
        (plain, half.bfloat16(), numbers, (64,)),
        (plain, torch.zeros(4, 128).half(), numbers, (64,)),
        (plain, half, numbers[1:], (64,)),  # 4 bytes past a multiple of 16
        (plain, half, None, (64,)),
        (plain, half, numbers, (128,)),
        (plain, half.to("meta"), numbers, (64,)),
    ]
    for kind, q, pointer, constants in several:
        kernel._launch(kind, 1, q, (pointer,), (1,), constants)
    assert len(kernel._compiled) == len(several)
    monkeypatch.setattr(kernel.triton.knobs.runtime, "debug", True)
    kind, q, pointer, constants = first
    kernel._launch(kind, 1, q, (pointer,), (1,), constants)
    assert len(kernel._compiled) == len(several) + 1
    assert sum(len(one.given) for one in kernel._compiled.values()) == 0


def test_what_the_interpreter_returns_is_not_kept(monkeypatch):
    monkeypatch.setattr(kernel, "_compiled", {})
    check(*heads(10, 10, 64))
    assert HOPPER or not kernel._compiled


KERNELS = [kernel._prepare_kernel, kernel._hopper_backward_kernel, kernel._finish_kernel]


@pytest.mark.parametrize("added", [False, True])
def test_each_parameter_is_given(added):
    """By place; what their order is, the numbers say."""
    q = torch.empty(1, 2, 4, 64, dtype=torch.bfloat16, device="meta")
    found = launched(q, q, into=[q.float()] * 3 if added else None)
    for function, (_, _, _, tensors, sizes, constants) in zip(KERNELS, found, strict=True):
        assert len(function.arg_names) == len([*tensors, *sizes, *constants])


def test_a_hang_is_told_and_not_waited_for(monkeypatch):
    """The stand-in itself: a barrier that nobody reaches ends the launch."""
    if HOPPER:
        pytest.skip("the GPU runs the kernel")
    monkeypatch.setattr(gluon, "LANES", 31)  # one thread never arrives
    with pytest.raises(NumericalMismatch, match="nobody can go on"):
        check(*heads(10, 10, 64))


def test_the_model_of_time_runs_one_product_at_a_time():
    spans = drawings.modeled(4, later=300)
    products = sorted(x[1:] for x in spans if x[0] == "tensor cores")
    assert len(products) == 2 * 4 * 5
    for (_, end, _), (start, _, _) in itertools.pairwise(some(products, 40)):
        assert end <= start
