"""hopper_attention against float64, what it refuses, and what it compiles to.

Triton's interpreter has no Gluon. Without an H100 or H200 the kernel's functions run as Python, in
a random order of events and on fewer shapes, and the machine code is read. Another file compares
all orders.
"""

import collections
import contextlib
import itertools
import math
import re
import types
from pathlib import Path
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets._lab.probe.compiled import SHARED_LIMIT
from snippets._warps import gluon, launch
from snippets.hopper_attention import bench, kernel
from snippets.hopper_attention.clocks import CLOCKED
from snippets.hopper_attention.in_turn import IN_TURN
from snippets.hopper_attention.kernel import VARIANTS, Variant, hopper_attention
from snippets.hopper_attention.sass import in_loops, loops
from snippets.hopper_attention.small import scores
from snippets.hopper_attention.wide import WIDE
from tests.floors import some
from tests.posts.arrivals import arrivals
from tests.refusals import assert_refused, each_refusal

ON_GPU = torch.cuda.is_available()
HOPPER = ON_GPU and torch.cuda.get_device_capability() == (9, 0)
COMPILER_SECONDS = 60
OF_256 = variant("hopper_attention", WIDE)
FAST = variant("hopper_attention", IN_TURN)
EXACT = 2 + Variant._fields.index("EXACT")  # among a plan's constants: after CAUSAL and MASKED
on_hopper = pytest.mark.skipif(not HOPPER, reason="takes minutes without an H100 or H200")
DEVICE = "cuda" if HOPPER else "cpu"
# Around one consumer's rows, one tile of keys, two and three consumers; the largest ones first:
# they reject most wrong kernels.
LENGTHS = [1000, 384, 257, 193, 192, 191, 129, 128, 127, 65, 64, 63, 2, 1]
PAIRS = [  # each length with the largest, and a quarter of the others
    (M, N)
    for (i, M), (j, N) in itertools.product(enumerate(LENGTHS), repeat=2)
    if i * j == 0 or (i + j) % 4 == 0
]
FEW_PAIRS = [(M, LENGTHS[(5 * i + 1) % len(LENGTHS)]) for i, M in enumerate(LENGTHS)]
ROWS = [
    pytest.param(D, causal, chosen, id=f"{D}-{'causal' if causal else 'full'}-{name}")
    for D, causal in itertools.product(VARIANTS, (False, True))
    for chosen in VARIANTS[D]
    for name in [f"{chosen.CONSUMERS}{'-overlap' * chosen.OVERLAP}"]
]


@pytest.fixture
def played():
    """Without a Hopper GPU the kernel's functions run as Python, in a random order of events."""
    with contextlib.nullcontext() if HOPPER else launch.played(hopper_attention):
        yield


def check(q, k, v, *, causal=False, align="bottom_right", scale=None, lse=False):
    """Hold the result against float64; query heads that share keys get a copy each there."""
    options = {"causal": causal, "align": align, "scale": scale}
    out = hopper_attention(q, k, v, return_lse=lse, **options)
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = None
    if causal:
        mask = causal_mask(q.shape[2], k.shape[2], align=align, device=q.device)
    if lse:
        out, sums = out
        assert_logsumexp(sums, q, k, scale=scale, mask=mask)
    return assert_attention(out, q, k, v, scale=scale, mask=mask)


def assert_logsumexp(found, q, k, *, scale=None, mask=None):
    """Allowed is what the oracle allows for scores: a few units in the last place of float32."""
    q, k, scale = q.double(), k.double(), scale or 1 / math.sqrt(q.shape[-1])
    scores = q @ k.mT * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    want = scores.logsumexp(-1)
    allowed = 4 * torch.finfo(torch.float32).eps * ((q.abs() @ k.abs().mT).max() * scale + 1)
    error = torch.where(found == want, 0.0, (found.double() - want).abs())  # -inf is -inf
    if not error.max() <= allowed:
        raise NumericalMismatch(
            f"logsumexp: largest difference {error.max():.2e} is above the allowed {allowed:.2e}"
        )


def surrounded(x):
    """The same rows, at the start of memory that is NaN: what is read beyond them shows."""
    *lead, rows, D = x.shape
    memory = torch.full((*lead, rows + 200, D), math.nan, dtype=x.dtype, device=x.device)
    memory[..., :rows, :] = x
    return memory[..., :rows, :]


def heads(M, N, D, *, H=2, Hkv=None, B=1, dtype=torch.float16, seed=0):
    """q of H heads, k and v of Hkv heads."""
    q, *_ = make_qkv(B, H, M=M, N=1, D=D, dtype=dtype, device=DEVICE, seed=seed)
    _, k, v = make_qkv(B, Hkv or H, M=1, N=N, D=D, dtype=dtype, device=DEVICE, seed=seed + 1)
    return q, k, v


# One dtype comes with the logsumexp, the other without: each pair of dtype and lse is compiled, and
# compiling takes longer than running.


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_equals_float64(D, causal, chosen, dtype, monkeypatch):
    monkeypatch.setattr(kernel, "_variant", lambda *_: chosen)
    q, k, v = heads(max(LENGTHS), max(LENGTHS), D, dtype=dtype)
    for M, N in PAIRS if HOPPER else FEW_PAIRS[dtype is torch.bfloat16 :: 2]:
        tensors = [surrounded(q[:, :, :M]), *(surrounded(x[:, :, :N]) for x in (k, v))]
        for align in ("bottom_right", "top_left")[: 2 if causal and M != N else 1]:
            check(*tensors, causal=causal, align=align, lse=dtype is torch.bfloat16)


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_huge_scores(D, causal, chosen, dtype, monkeypatch):
    """Scores are whole numbers, so float32 holds them; scaled they lie around 2^28 and above."""
    monkeypatch.setattr(kernel, "_variant", lambda *_: chosen)
    shapes = [(1, 2, n, D) for n in (130, 300, 300)]
    q, k, v = (torch.randint(-8, 9, shape, device=DEVICE).to(dtype) for shape in shapes)
    q[:, 1], k[:, 1] = q[:, 1].abs(), -k[:, 1].abs()  # all maxima are below 0
    for scale in (2.0**64, 1.9 * 2.0**30, 1.3 * 2.0**17):
        check_huge(q, k, v, causal=causal, scale=scale)


def check_huge(q, k, v, *, causal=False, scale):
    """As check, where PyTorch in q's dtype ends in NaN: weights, sums and result are rounded."""
    out, sums = hopper_attention(q, k, v, causal=causal, scale=scale, return_lse=True)
    mask = causal_mask(q.shape[2], k.shape[2], device=q.device) if causal else None
    assert_logsumexp(sums, q, k, scale=scale, mask=mask)
    scores = q.double() @ k.double().mT * scale
    if causal:
        scores = scores.masked_fill(~mask, -math.inf)
    error = (out.double() - scores.softmax(-1) @ v.double()).abs().max()
    allowed = 2 * torch.finfo(q.dtype).eps * v.double().abs().max()
    if not error <= allowed:
        raise NumericalMismatch(f"difference {error:.1e} at {scale}, allowed {allowed:.1e}")


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("falls", [False, True], ids=["rising", "falling"])
def test_maxima_that_become_huge_or_ordinary(falls, sign):
    """From one tile of keys to the next; what was summed before must neither stay nor overflow."""
    q, k, v = heads(64, 640, 64)
    q[:], k[:] = 0, 0
    q[..., 0] = 8 * sign
    rise = torch.linspace(0, 12, 640, device=DEVICE).exp2().to(k.dtype)
    k[..., 0] = rise.flip(0) if falls else rise
    for scale in (1.1, 1.1 * 2.0**14, 1.9 * 2.0**18, 2.0**20):
        check_huge(q, k, v, scale=scale)


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_up_to_a_scale_of_one_scores_may_reach_the_limit(sign):
    """The launcher allows products of 2^27: these are a little smaller."""
    q, k, v = heads(64, 640, 64)
    q[:], k[:] = 0, 0
    q[..., 0] = 65_344 * sign
    k[..., 0] = 2048 + torch.randint(-3, 3, k.shape[:-1], device=DEVICE).to(k.dtype)
    for scale in (1.0, 0.77):
        check_huge(q, k, v, scale=scale)


def test_huge_scores_must_be_scaled_last():
    """What a GPU makes of them otherwise: the stand-in for it does not round what it subtracts."""
    q, k, v = (torch.randint(-8, 9, (1, 1, n, 64)).half() for n in (64, 300, 300))
    outs = []
    for exact in (True, False):
        changed = variant("hopper_attention", [("EXACT=scale > 1", f"EXACT={exact}")])
        with launch.played(changed):
            outs += [changed(q, k, v, scale=s) for s in (2.0, 1.9 * 2.0**30)]
    exact, first = outs[:2], outs[2:]
    torch.testing.assert_close(exact[0], first[0], rtol=0, atol=2e-3)
    assert exact[1].isfinite().all()
    assert not (first[1] - exact[1]).abs().max() <= 1


@pytest.mark.usefixtures("played")
def test_ordinary_calls_do_not_pay_for_huge_scores(monkeypatch):
    """A scale of at most 1: the kernel has its multiply-add."""
    seen = []
    monkeypatch.setattr(kernel, "_launch", lambda plan, *_: seen.append(plan.constants[EXACT]))
    for scale in (None, 2.0**-64, 0.5, 1, 1.0, 1.001, 2, 2.0**64):
        hopper_attention(*heads(3, 5, 64), scale=scale)
    assert seen == [False] * 5 + [True] * 3


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize(("H", "Hkv"), [(4, 2), (6, 2), (3, 1), (4, 4)])
def test_groups_of_heads_share_keys(H, Hkv):
    check(*heads(140, 200, 64, H=H, Hkv=Hkv, B=2))
    check(*heads(140, 200, 128, H=H, Hkv=Hkv, B=2), causal=True)


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("programs", [1, 2, 5, 100] if HOPPER else [2])
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_few_programs_take_all_tiles_in_rounds(D, causal, chosen, programs, monkeypatch):
    monkeypatch.setattr(kernel, "_variant", lambda *_: chosen)
    monkeypatch.setattr(kernel, "_multiprocessors", lambda device: programs)
    for M, N in ((300, 260), (500, 130)):  # two to four tiles of queries in each head
        check(*heads(M, N, D, H=3, B=3 if HOPPER else 1), causal=causal)


@on_hopper
@pytest.mark.numerical
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", VARIANTS)
def test_more_tiles_than_multiprocessors(D, causal):
    """An odd number of tiles in each head: pairs of causal tiles reach over two heads."""
    q, k, v = heads(600, 600, D, H=81, B=2)
    assert kernel._multiprocessors(q.device) * 3 < 81 * 2 * 5
    check(q, k, v, causal=causal)
    first, second = (hopper_attention(q, k, v, causal=causal) for _ in range(2))
    if not torch.equal(first, second):
        raise NumericalMismatch("two calls with the same tensors give different results")


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_scores_of_ten_thousand(D, causal, chosen, monkeypatch):
    monkeypatch.setattr(kernel, "_variant", lambda *_: chosen)
    # Few rows: in none may eager float16 take the second largest score for the largest.
    q, k, v = heads(3, 300, D)
    q = (q / q.norm(dim=-1, keepdim=True) * 300).half()
    k = (k / k.norm(dim=-1, keepdim=True) * 300).half()
    assert (q.double() @ k.double().mT).abs().max() > 1e4
    check(q, k, v, causal=causal, scale=1.0)


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("rising", [True, False], ids=["rising", "falling"])
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_the_maximum_moves_in_every_tile_or_never(D, causal, chosen, rising, monkeypatch):
    monkeypatch.setattr(kernel, "_variant", lambda *_: chosen)
    q, k, v = heads(70, 800, D)
    k = (k.abs() * torch.linspace(0, 5, 800, device=DEVICE)[:, None]).half()
    k = k.sort(2, descending=not rising).values
    check(q.abs(), k, v, causal=causal)


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@pytest.mark.parametrize("D", VARIANTS)
def test_strides(D):
    """As models store them: heads beside each other, and q, k and v in one tensor."""
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in heads(200, 200, D, B=2, H=3))
    assert not q.is_contiguous()
    check(q, k, v, causal=True)
    packed = torch.stack((q, k, v), dim=3)  # [B, H, N, 3, D]
    check(*packed.unbind(3))
    wide = torch.full((2, 3, 200, D + 48), math.nan, dtype=q.dtype, device=q.device)
    wide[..., 8 : 8 + D] = q
    check(wide[..., 8 : 8 + D], k[:, :, 8:150], v[:, :, 8:150])


@pytest.mark.usefixtures("played")
@pytest.mark.numerical
@settings(max_examples=100 if HOPPER else 12)  # a thousand more are a result of the bench
@given(
    B=st.integers(1, 3),
    H=st.sampled_from([(1, 1), (2, 1), (2, 2), (6, 3)]),
    M=st.integers(1, 520),
    N=st.integers(1, 520),
    D=st.sampled_from(sorted(VARIANTS)),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
    mask=st.sampled_from([None, "bottom_right", "top_left"]),
    row=st.integers(0, 1),
    programs=st.sampled_from([1, 3, 132]),
    seed=st.integers(0, 99),
)
def test_any_shape(B, H, M, N, D, dtype, mask, row, programs, seed):
    tensors = heads(M, N, D, H=H[0], Hkv=H[1], B=B, dtype=dtype, seed=seed)
    rows = VARIANTS[D]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_variant", lambda *_: rows[row % len(rows)])
        patch.setattr(kernel, "_multiprocessors", lambda device: programs)
        check(
            *tensors,
            causal=mask is not None,
            align=mask or "bottom_right",
            lse=dtype is torch.bfloat16,
        )


@pytest.mark.parametrize("name", bench.RUNGS)
def test_every_rung_is_attention(name):
    if not HOPPER and name == "exp2 by a polynomial":
        pytest.skip("its assembly needs a GPU")
    rung = bench.RUNGS[name]
    launcher = variant("hopper_attention", rung.changes) if rung.changes else hopper_attention
    q, k, v = heads(300, 260, 64, dtype=torch.bfloat16)
    with contextlib.nullcontext() if HOPPER else launch.played(launcher):
        out = bench._with_variant(launcher, rung.variant)(q, k, v, causal=True)
    assert_attention(out, q, k, v, mask=causal_mask(300, 260, device=q.device))


@pytest.mark.numerical
@settings(max_examples=200 if HOPPER else 12)
@given(
    G=st.sampled_from([1, 2]),
    M=st.integers(1, 300),
    N=st.integers(1, 300),
    dtype=st.sampled_from([torch.float16, torch.bfloat16]),
    mask=st.sampled_from([None, "bottom_right", "top_left"]),
    programs=st.sampled_from([1, 3, 132]),
)
def test_the_file_for_256_columns_is_attention(G, M, N, dtype, mask, programs):
    q, k, v = heads(M, N, 256, H=2, Hkv=2 // G, B=2, dtype=dtype)
    options = {"causal": True, "align": mask} if mask else {}
    with (
        mock.patch.dict(OF_256.__globals__, {"_multiprocessors": lambda device: programs})
        if HOPPER
        else launch.played(OF_256, programs=programs)
    ):
        out, sums = OF_256(q, k, v, return_lse=True, **options)
    k, v = (x.repeat_interleave(G, dim=1) for x in (k, v))
    mask = causal_mask(M, N, align=mask, device=q.device) if mask else None
    assert_logsumexp(sums, q, k, mask=mask)
    assert_attention(out, q, k, v, mask=mask)


# The table, and what is launched.


@pytest.mark.parametrize(
    ("causal", "M", "N", "heads", "consumers"),
    [
        (False, 1, 1, 1, 2),
        (False, 1024, 1024, 32, 2),  # two rounds: 256 tiles of 128 queries, or 192 of 192
        (False, 1024, 1024, 512, 3),  # level: the last of six tiles of 192 is a third empty
        (False, 4096, 4096, 128, 3),
        (False, 4096, 4096, 8, 2),  # two rounds: 256 tiles of 128 queries, or 176 of 192
        (False, 4096, 4096, 6, 3),  # 132 tiles of 192 queries: one round
        (False, 4096, 4096, 3, 2),
        (False, 16_384, 16_384, 8, 3),
        (False, 128, 10**6, 132, 2),
        # Under a causal mask taller tiles pay later.
        *[(True, 1024, 1024, 512, 2), (True, 4096, 4096, 128, 2), (True, 8192, 8192, 8, 2)],
        *[(True, 16_384, 16_384, 8, 3), (True, 16_384, 16_384, 32, 3)],
    ],
)
def test_the_variant_that_takes_the_least_time(causal, M, N, heads, consumers):
    chosen = kernel._variant(64, causal, M, N, heads, programs=132)
    assert consumers == chosen.CONSUMERS


@given(M=st.integers(1, 10**5), N=st.integers(1, 10**5), heads=st.integers(1, 4800))
def test_a_choice_is_one_of_the_table(M, N, heads):
    for D, causal in itertools.product(VARIANTS, (False, True)):
        assert kernel._variant(D, causal, M, N, heads, 132) in VARIANTS[D]


def test_the_table_knows_every_problem():
    assert len({row.id for row in ROWS}) == len(ROWS), "cases are told apart by it"
    assert {len(times) for times in kernel.TILE_TIMES.values()} == {len(VARIANTS[64])}
    assert len(VARIANTS[128]) == 1, "its times would have to be another's"
    for rows in VARIANTS.values():
        assert len(set(rows)) == len(rows)
        for row in rows:
            of_consumer, of_producer = kernel.REGISTERS[row.CONSUMERS]
            # Of 65,536 registers; the warp that loads counts as four.
            assert 128 * (row.CONSUMERS * of_consumer + of_producer) <= 65_536


Launched = collections.namedtuple("Launched", ["programs", "given"])


def launched(q, k, v, *, programs=132, **options):
    """What hopper_attention would launch, on tensors of the CPU: programs, argument → value."""
    found = []

    class Kernel:
        def __getitem__(self, grid):
            return lambda *args, **kwargs: found.append(
                Launched(*grid, dict(zip(names, args, strict=False)) | kwargs)
            )

    names = kernel._hopper_attention_kernel.arg_names
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "_refusals", lambda *_: ())
        patch.setattr(kernel, "_multiprocessors", lambda device: programs)
        patch.setattr(kernel, "_hopper_attention_kernel", Kernel())
        hopper_attention(q, k, v, **options)
    return found[0]


def zeros(H, M, N, D=64, **options):
    q, k, v = (torch.zeros(1, H, n, D, dtype=torch.float16) for n in (M, N, N))
    return launched(q, k, v, **options)


def test_the_mask_is_compiled_only_where_a_tile_needs_it():
    assert not zeros(1, 100, 256).given["MASKED"]
    assert zeros(1, 100, 257).given["MASKED"]
    assert zeros(1, 100, 256, causal=True).given["MASKED"]


def as_python(programs=1, program=0):
    """The kernel's functions as Python runs them."""
    return gluon.Program(Path(kernel.__file__).read_text("utf-8"), program, programs).names


def schedule(H, N, programs=132, causal=True, **changes):
    """What the kernel's functions ask for, and the (head, tile)s that each program takes."""
    started, given = zeros(H, N, N, programs=programs, causal=causal)
    prob = types.SimpleNamespace(**given | changes)
    found = []
    for program in range(started):
        names = as_python(started, program)
        found.append([])
        work_idx = names["_first_work"](prob)
        while work_idx < prob.total:
            found[-1].append(names["_head_and_tile"](work_idx, prob, causal))
            work_idx = names["_next_work"](work_idx, prob, causal)
    return prob, found


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("programs", [1, 2, 7, 132])
@pytest.mark.parametrize(("H", "N"), [(1, 1), (3, 700), (5, 1000), (81, 600), (33, 1700)])
def test_every_tile_is_taken_once(H, N, programs, causal):
    prob, found = schedule(H, N, programs, causal)
    assert len(found) <= programs
    tiles = itertools.product(range(H), range(prob.tiles))
    assert sorted(itertools.chain(*found)) == sorted(tiles)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize(("M", "N"), [(1, 1), (500, 130), (130, 500), (384, 384), (257, 1000)])
def test_the_tiles_of_keys_that_a_tile_visits(M, N, align, causal):
    """Against the mask: every key that is seen is visited, and what is hidden is masked."""
    _, given = zeros(1, M, N, causal=causal, align=align)
    prob = types.SimpleNamespace(**given)
    BLOCK_M, BLOCK_N = 64 * given["CONSUMERS"], kernel.BLOCK_N.value
    chosen = Variant(given["CONSUMERS"], given["STAGES"])
    count = as_python()["_count_key_tiles"]
    hidden = ~causal_mask(M, N, align=align) if causal else torch.zeros(M, N, dtype=torch.bool)
    for tile in some(range(prob.tiles)):
        rows = hidden[tile * BLOCK_M : (tile + 1) * BLOCK_M]
        visited, masked = count(tile, prob, causal, chosen)
        assert rows[:, visited * BLOCK_N :].all(), "a key beyond the last visited tile is seen"
        assert 0 <= masked <= visited
        assert not rows[:, : (visited - masked) * BLOCK_N].any(), "a tile needs a mask"
        assert (visited - masked) * BLOCK_N <= N
        if visited and tile < M // BLOCK_M:  # of a tile with fewer queries more is visited
            assert not rows[:, (visited - 1) * BLOCK_N :].all(), "nobody sees the last tile"


def test_pairs_of_causal_tiles_are_equal_work():
    prob, found = schedule(40, 4096)
    rounds = prob.paired // len(found)
    assert rounds >= 4
    count = as_python()["_count_key_tiles"]
    for taken in found:
        work = [count(tile, prob, True, bench.ALONE)[0] for _, tile in taken[:rounds]]
        assert len({one + two for one, two in zip(work[::2], work[1::2], strict=True)}) == 1
    assert max(work) > 3 * min(work)


@pytest.mark.parametrize(
    ("heads", "N", "most"),
    [(24, 2048, 1.1), (16, 16_384, 1.02), (64, 4096, 1.02), (200, 2100, 1.03)],
)
def test_the_last_rounds_are_shared_out_better_by_length(heads, N, most):
    """The busiest program's tiles of keys, beside the mean, and the same of pairs alone."""
    prob, ours = schedule(heads, N)
    _, pairs = schedule(heads, N, paired=prob.total)
    busiest = []
    for found in (ours, pairs):
        visited = [sum(tile + 1 for _, tile in taken) for taken in found]
        busiest.append(max(visited) * len(visited) / sum(visited))
    assert busiest[0] <= most < busiest[1]


def test_few_heads_are_in_progress_at_a_time():
    """Else L2 could not hand their keys to several programs: pairs first, unless there are few."""
    assert kernel._paired(64 * 32, 32, 132) == 6 * 264
    assert kernel._paired(16 * 128, 128, 132) == 4 * 264
    assert kernel._paired(24 * 16, 16, 132) == 0


# What is refused.


def ones(*shape):
    return torch.ones(*shape, dtype=torch.float16)


def qkv(**changes):
    """Arguments that an H100 would accept, with some replaced."""
    return {"q": ones(1, 2, 3, 64), "k": ones(1, 2, 5, 64), "v": ones(1, 2, 5, 64)} | changes


REFUSED = {
    TypeError: {f"q is torch.float32; allowed: {kernel.DTYPES}": {"q": ones(1, 2, 3, 64).float()}},
    ValueError: {
        "with strides (640, 320, 1, 5); allowed: the last 1": {"v": ones(1, 2, 64, 5).mT},
        "strides (576, 288, 96, 1); allowed: the last 1, else multiples of 16 bytes": {
            "q": ones(1, 2, 3, 96)[..., 1:65]
        },
        "k starts at": {"k": ones(1, 2, 5, 68)[..., :64]},
        "q starts at": {"q": ones(1, 2, 1, 64).expand(1, 2, 3, 64)},
        "q has 96 columns; allowed: (64, 128)": dict.fromkeys("qkv", ones(1, 1, 2, 96)),
        "q has 256 columns": dict.fromkeys("qkv", ones(1, 1, 2, 256)),
        "q is on cpu; allowed: an H100 or H200": {},
    },
}


@pytest.fixture
def nothing_is_launched(monkeypatch):
    monkeypatch.setattr(kernel, "_plans", {})  # other GPUs took the same tensors
    monkeypatch.setattr(kernel, "_hopper_attention_kernel", None)  # a launch would be a TypeError


@each_refusal(REFUSED)
def test_refusals(error, change, nothing_is_launched):
    assert_refused(error, hopper_attention, **qkv(**change))


def qkv_on(capability, monkeypatch, **changes):
    monkeypatch.setattr(kernel, "_capability", lambda device: capability)
    return {n: x.as_subclass(launch.OnGpu) if n in "qkv" else x for n, x in qkv(**changes).items()}


@pytest.mark.parametrize(
    ("capability", "hip"),
    [((8, 0), None), ((8, 9), None), ((10, 0), None), ((12, 0), None), ((9, 4), "6.4")],
)
def test_other_gpus_are_refused(capability, hip, nothing_is_launched, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", hip)
    with pytest.raises(ValueError, match="q is on cuda:0; allowed: an H100 or H200"):
        hopper_attention(**qkv_on(capability, monkeypatch))


def test_what_none_of_the_refusals_catches_is_accepted(monkeypatch):
    arguments = qkv_on((9, 0), monkeypatch)
    rows = [ones(5, 64).as_subclass(launch.OnGpu)] * 3
    assert not [*kernel._refusals(*arguments.values(), None, False, "top_left", False)]
    assert not [*kernel._refusals(*rows, 2.0**64, True, "bottom_right", True)]


# The machine code, compiled ahead of time.

ahead_of_time = pytest.mark.skipif(ON_GPU, reason="compiles ahead of time, without a GPU")
# Scores of 256 keys fill all registers.
TOO_WIDE = Variant(CONSUMERS=2, STAGES=1, OVERLAP=True)
LONG = {D: rows[-1] for D, rows in FAST.__globals__["VARIANTS"].items()}  # for long rows
KEYS_256 = ("BLOCK_N = gl.constexpr(128)", "BLOCK_N = gl.constexpr(256)")
CASES = {  # name → texts to change, D, causal, how, N
    f"{row.id}, {N} keys": ([], *row.values, N)
    for row in ROWS
    for N in ([4096] if row.values[1] else [4096, 4100])
}
CASES |= {
    f"256, {'causal' if causal else 'full'}, {N} keys": (WIDE, 256, causal, VARIANTS[128][0], N)
    for causal, N in ((False, 4096), (False, 4100), (True, 4096))
}
CASES |= {
    f"{D} fast, {'causal' if causal else 'full'}": (IN_TURN, D, causal, LONG[D], 4096)
    for D, causal in itertools.product(LONG, (False, True))
}
UNHELD = {
    f"{row.id}, not held": ([bench.UNHELD], *row.values, 4096)
    for row in ROWS
    if row.values[2].OVERLAP and not row.values[1]
}
HELD = ("else:\n            _wait_full(channels.q, queries.stage)", "else:\n            pass")
UNHELD["128 fast, not held"] = ([*IN_TURN, HELD], 128, False, LONG[128], 4096)
RUNGS = {
    f"rung {name}": (rung.changes, 64, True, rung.variant, 4096)
    for name, rung in bench.RUNGS.items()
}
KEYS_128 = [*WIDE, ("BLOCK_N = gl.constexpr(64)", "BLOCK_N = gl.constexpr(128)")]
CONTROL = {
    "too wide": ([KEYS_256], 128, False, TOO_WIDE, 4096),
    "not in pairs": (bench.APART[64]["weights not in pairs"], 64, True, LONG[64], 4096),
    "256 columns, 128 keys": (KEYS_128, 256, False, TOO_WIDE._replace(LAZY=True), 4096),
}
UNMOVED = {
    f"{step}, {D}, registers not moved": ([bench.UNMOVED], D, False, chosen, 4096)
    for step, chosen in (("one", bench.ALONE), ("two", bench.OVERLAP))
    for D in VARIANTS
}


@pytest.fixture(scope="module")
def machine_code(compiler):
    """Case → resources of the kernel that would be launched."""
    cases = CASES | UNHELD | RUNGS | CONTROL | UNMOVED
    launches = [launch_of(compiler, *case) for case in cases.values()]
    return dict(zip(cases, map(compiler.compiled, launches), strict=True))


def launch_of(compiler, changes, D, causal, chosen, N, scale=None, of=None):
    q, k, v = (torch.zeros(1, 2, n, D, dtype=torch.bfloat16) for n in (4096, N, N))
    launcher = variant("hopper_attention", changes) if changes else of or hopper_attention
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(launcher.__globals__, "_refusals", lambda *_: ())
        patch.setitem(launcher.__globals__, "_multiprocessors", lambda device: 132)
        launcher = bench._with_variant(launcher, chosen)
        options = {"causal": causal, "scale": scale, "return_lse": scale is not None}
        (found,) = compiler.launches(launcher, (q, k, v), options, target="sm_90")
    return found


def serialized(found):
    """Whether ptxas gave up on products that run beside other work (its message C7510 and on)."""
    return "serialized" in found.said


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("case", CASES)
def test_every_row_of_the_table_compiles_as_meant(case, machine_code):
    found, (changes, D, causal, chosen, N) = machine_code[case], CASES[case]
    BLOCK_N = 64 if D == 256 else kernel.BLOCK_N.value
    assert found.error is None, found
    assert found.tensor_core == "wgmma"
    assert found.shared_bytes <= SHARED_LIMIT["sm_90"]
    assert not serialized(found), found.said
    ragged = N % BLOCK_N != 0
    if causal or ragged:  # what a mask needs is spilled for the time of a loop
        assert found.spill_store_bytes <= 64, found
    else:
        assert found.spill_store_bytes == found.spill_load_bytes == 0, found
    found = loops(found.sass())
    # Where steps overlap, the first one stands before the loops: enough for a tile that is cut off.
    with_a_mask = causal or (ragged and not chosen.OVERLAP)
    of_each = [True, False] if with_a_mask else [False]
    assert [loop.masked for loop in found] == of_each * chosen.CONSUMERS
    for loop in found:
        assert loop.products == D // 16 + BLOCK_N // 16  # scores, and values
        # 64 · BLOCK_N scores and two rows in 128 threads
        assert loop.exponentials == BLOCK_N // 2 + 2
        assert loop.masked or not loop.local, "a register is spilled where the time goes"
        # All of them run under the product with the values, or none does. Of a lazy kernel the two
        # factors of a thread may come later: they are used after it. In turn, three consumers do
        # without. In the fast file ptxas leaves up to nine weights for later, too.
        left = loop.exponentials - loop.under_products
        under = chosen.OVERLAP and (changes is not IN_TURN or chosen.CONSUMERS == 2)
        late = 9 if changes is IN_TURN else 2 * chosen.LAZY
        assert left <= late if under else loop.under_products == 0


PLAIN = [  # a kernel that knows no huge scores
    ("(m_new - state.m_i) * after > GROWTH", "m_new - state.m_i > GROWTH"),
    ("gl.max(s, axis=1) * before", "gl.max(s, axis=1) * prob.scale_log2"),
    ("gl.exp2((state.m_i - m_sub) * after)", "gl.exp2(state.m_i - m_sub)"),
    (
        "gl.exp2((s * before - m_sub[:, None]) * after)",
        "gl.exp2(s * prob.scale_log2 - m_sub[:, None])",
    ),
    ("m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i", "m_i = state.m_i"),
]


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("D", VARIANTS)
def test_the_small_kernel_copies_by_tma_and_multiplies_by_wgmma(D, compiler):
    x = torch.zeros(512, D).half()
    (found,) = compiler.resources(scores, (x, x), target="sm_90")
    assert found.error is None
    assert (found.tensor_core, found.spill_store_bytes) == ("wgmma", 0)
    assert len(re.findall(r"UTMALDG\.2D", found.sass())) == 3  # queries, the first keys, the next


@pytest.mark.compiler
@ahead_of_time
def test_reading_the_clock_leaves_the_loops_as_they_are(monkeypatch, compiler):
    launcher, chosen = variant("hopper_attention", CLOCKED), VARIANTS[128][0]
    monkeypatch.setitem(launcher.__globals__, "CLOCKS", torch.zeros(8, dtype=torch.int32))
    launches = [launch_of(compiler, (), 128, False, chosen, 4096, of=x) for x in (None, launcher)]
    plain, clocked = (compiler.compiled(x) for x in launches)
    assert loops(plain.sass()) == loops(clocked.sass())
    reads = len(re.findall(r"CS2R\.32", clocked.sass()))
    assert reads >= chosen.CONSUMERS * 12 + 9, "a mark is not in the machine code"


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize(("D", "causal", "chosen"), ROWS)
def test_ordinary_calls_have_the_code_of_a_kernel_without_huge_scores(D, causal, chosen, compiler):
    plain, ordinary, exact = (
        compiler.compiled(launch_of(compiler, changes, D, causal, chosen, 4096, scale=scale))
        for changes, scale in ((PLAIN, 1.0), ((), 1.0), ((), 1.1))
    )
    assert plain.sass() == ordinary.sass() != exact.sass()
    assert exact.spill_store_bytes <= ordinary.spill_store_bytes


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("case", CASES)
def test_whoever_arrives_speaks_for_all_its_warps(case, machine_code):
    """The simulator takes a group of warps as one; this is what entitles it to."""
    changes, *_, chosen, _ = CASES[case]
    found = arrivals(machine_code[case].ptx, products=changes is IN_TURN)
    assert all(met for _, met in some(found, 2 * chosen.CONSUMERS)), found


def test_an_arrival_before_the_others_is_seen():
    met = "ld.shared.b32 %r1, [%r2];\nbar.sync 2, 128;\n.loc 1 2 3\n@%p mbarrier.arrive.shared::cta"
    early = met.replace("bar.sync 2, 128;\n", "")
    late = met.replace(".loc", "ld.shared.b32 %r3, [%r2];\n.loc")
    whole = early.replace("ld.shared.b32 %r1", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1}")
    seen = [[x for _, x in arrivals(ptx)] for ptx in (met, early, late, whole)]
    assert seen == [[True], [False], [False], [False]]
    for bytes_, found in ((0, seen), (8192, [[]] * 4)):  # expecting nothing is arriving
        said = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], {bytes_};"
        of = (ptx.replace("mbarrier.arrive.shared::cta", said) for ptx in (met, early, late, whole))
        assert [[x for _, x in arrivals(ptx)] for ptx in of] == found
    for last, ended in (("wait_group", True), ("commit_group", False), ("mma_async", False)):
        ptx = f"{met}\nwgmma.{last}.sync.aligned 0;\n@%p mbarrier.arrive.shared::cta"
        assert [x for _, x in arrivals(ptx, products=True)] == [True, ended]


@pytest.mark.compiler
@ahead_of_time
def test_weights_in_pairs_are_not_taken_apart(machine_code):
    """PRMT takes 16 bits of two registers each."""
    cases = "64 fast, causal", "not in pairs"
    pairs, apart = (machine_code[case].sass().count("PRMT") for case in cases)
    assert pairs < 32 < 384 <= apart  # 64 a step, of two loops for each of three consumers


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("case", UNHELD)
def test_without_the_barrier_nothing_runs_under_the_product(case, machine_code):
    """The line of _step_overlapped that looks useless: without it the compiler waits too early."""
    found = in_loops(machine_code[case].sass())
    assert found["exponentials"] == 66
    assert found["exponentials_under_products"] == 0


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("case", RUNGS)
def test_every_rung_compiles(case, machine_code):
    found = machine_code[case]
    assert found.error is None, found
    assert not serialized(found), found.said
    under = in_loops(found.sass())["exponentials_under_products"]
    overlaps = RUNGS[case][3].OVERLAP and bench.UNHELD not in RUNGS[case][0]
    assert (under > 0) == overlaps


@pytest.mark.compiler
@ahead_of_time
def test_a_kernel_without_registers_enough_is_noticed(machine_code):
    found = machine_code["too wide"]
    assert serialized(found), found.said
    assert found.spill_store_bytes > 1000
    assert any(loop.local for loop in loops(found.sass()))


@pytest.mark.compiler
@ahead_of_time
def test_256_columns_have_no_registers_for_128_keys(machine_code):
    found = machine_code["256 columns, 128 keys"]
    assert found.spill_store_bytes > 500
    assert sum(loop.local for loop in loops(found.sass())) > 100


@pytest.mark.compiler
@ahead_of_time
@pytest.mark.parametrize("case", UNMOVED)
def test_step_two_needs_the_registers_that_are_moved(case, machine_code):
    found = machine_code[case]
    assert found.error is None, found
    least, most = (200, 2000) if case.startswith("two") else (0, 0)
    assert least <= found.spill_store_bytes <= most, found


def test_machine_code_without_a_loop_is_refused():
    with pytest.raises(ValueError, match="no loop holds a tensor-core instruction"):
        loops("        /*0000*/                   HGMMA.64x128x16.F32 R24, gdesc[UR32], RZ ;\n")


def test_every_rung_has_a_base_that_exists_and_the_way_up_is_in_order():
    place = {rung: i for i, rung in enumerate(bench.RUNGS)}
    first, *others = bench.RUNGS
    assert not bench.RUNGS[first].base
    for rung in others:
        assert place[bench.RUNGS[rung].base] < place[rung]
    way_up = [rung for rung in bench.RUNGS if bench.RUNGS[rung].way_up]
    assert way_up[0] == first
    steps = dict(zip(way_up[1:], way_up, strict=False))
    steps["causal tiles in pairs"] = "softmax under the product"  # of two steps at once
    assert {rung: bench.RUNGS[rung].base for rung in way_up[1:]} == steps
