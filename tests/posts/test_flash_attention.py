"""flash_attention against float64: every row of its table, every mask; and what it refuses."""

import contextlib
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets.flash_attention import bench, kernel
from snippets.flash_attention.kernel import TILE_CONFIGS, flash_attention
from tests import made_up
from tests.floors import some
from tests.posts import fused
from tests.refusals import assert_refused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
COMPILER_SECONDS = 60
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
ROWS = [(architecture, width) for architecture, rows in TILE_CONFIGS.items() for width in rows]


def check(q, k, v, *, causal=False, align="bottom_right", scale=None):
    """Hold the result against float64; query heads that share keys get a copy each there."""
    out = flash_attention(q, k, v, causal=causal, align=align, scale=scale)
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = None
    if causal:
        mask = causal_mask(q.shape[2], k.shape[2], align=align, device=q.device)
    return assert_attention(out, q, k, v, scale=scale, mask=mask)


@pytest.mark.numerical
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("N", AWKWARD)
def test_equals_float64(N, causal):
    for M in AWKWARD if ON_GPU else AWKWARD[::3]:
        q, k, v = make_qkv(1, 2, M=M, N=N, D=64, dtype=torch.float16, device=DEVICE, seed=1)
        check(q, k, v, causal=causal)


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("D", "dtype"),
    [(16, 0), (24, 1), (24, 2), (40, 0), (72, 1), (128, 2), (136, 0), (136, 2), (256, 1)],
)
def test_head_dimensions(D, dtype):
    dtype = DTYPES[dtype]
    q, k, v = make_qkv(1, 1, M=33, N=70, D=D, dtype=dtype, device=DEVICE)
    check(q, k, v, causal=True)


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("N", "causal"), [(256, False), (150, False), (150, True)], ids=["whole", "ragged", "causal"]
)
@pytest.mark.parametrize(("architecture", "width"), ROWS)
def test_every_row_of_the_table(architecture, width, N, causal, monkeypatch):
    """A GPU runs its own rows; the interpreter runs all, the descriptors of some included."""
    dtype = torch.float32 if architecture == "float32" else torch.float16
    if architecture != "float32" and not ON_GPU:
        monkeypatch.setattr(kernel, "_architecture", lambda x: architecture)
    elif architecture not in ("float32", kernel._architecture(torch.device(DEVICE))):
        pytest.skip(f"needs {architecture}")
    q, k, v = make_qkv(1, 1, M=65, N=N, D=width, dtype=dtype, device=DEVICE, seed=2)
    check(q, k, v, causal=causal)


@pytest.mark.numerical
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize(("M", "N"), [(65, 150), (150, 65), (129, 1), (1, 129), (127, 128)])
def test_causal_masks_of_both_corners(M, N, align):
    q, k, v = make_qkv(1, 1, M=M, N=N, D=32, dtype=torch.float16, device=DEVICE, seed=3)
    check(q, k, v, causal=True, align=align)


@pytest.mark.numerical
@pytest.mark.parametrize(("heads", "heads_kv"), [(4, 4), (4, 2), (6, 2), (3, 1)])
def test_groups_of_heads_share_keys(heads, heads_kv):
    q, *_ = make_qkv(2, heads, N=9, D=16, dtype=torch.float16, device=DEVICE)
    _, k, v = make_qkv(2, heads_kv, M=9, N=70, D=16, dtype=torch.float16, device=DEVICE, seed=4)
    check(q, k, v)


@pytest.mark.numerical
def test_logsumexp():
    q, k, v = make_qkv(1, 2, M=70, N=40, D=32, device=DEVICE)
    out, lse = flash_attention(q, k, v, causal=True, return_lse=True)
    assert torch.equal(out, flash_attention(q, k, v, causal=True))
    scores = q.double() @ k.double().mT / math.sqrt(32)
    hidden = ~causal_mask(70, 40, device=DEVICE)
    want = scores.masked_fill(hidden, -math.inf).logsumexp(-1)
    assert (want[..., :30] == -math.inf).all()
    # Scores of size 10 carry an error of a few units in the last place of float32.
    if not torch.allclose(lse.double(), want, atol=1e-5, rtol=0):
        raise NumericalMismatch(f"logsumexp is {lse[0, 0, 30]}, not {want[0, 0, 30]}, in row 30")


@pytest.mark.numerical
@pytest.mark.parametrize("D", [64, 128])
def test_keys_behind_the_last_weigh_nothing(D):
    """The zeros that fill the last tile would have a score of 0, and all others are far below."""
    q, k, v = make_qkv(1, 1, M=3, N=133, D=D, dtype=torch.float16, device=DEVICE)
    check(q.abs(), -k.abs(), v, scale=10.0)


@pytest.mark.numerical
@pytest.mark.parametrize("rising", [True, False], ids=["rising", "falling"])
def test_the_maximum_moves_in_every_tile_or_never(rising):
    q, k, v = make_qkv(1, 1, M=5, N=400, D=64, dtype=torch.float16, device=DEVICE)
    q = q.abs()
    k = (k.abs() * torch.linspace(0, 5, 400, device=DEVICE)[:, None]).half()
    k = k.sort(2, descending=not rising).values
    check(q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_heads_beside_each_other_as_models_store_them(dtype):
    tensors = make_qkv(2, 3, N=40, D=32, dtype=dtype, device=DEVICE)
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors)
    assert q.shape == (2, 3, 40, 32)  # [B, H, N, D] in [B, N, H, D] memory
    assert not q.is_contiguous()
    check(q, k, v, causal=True)


def by_descriptors(tensors, monkeypatch):
    """Whether a Hopper GPU would load these with TMA."""
    plans = []
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_architecture", lambda device: "sm_90")
        patch.setattr(kernel, "_launch", lambda *given: plans.append(given[5:]))
        flash_attention(*tensors)
    _, _, rows, _, _ = plans[0]
    return len(rows) > 0


@pytest.mark.numerical
def test_rows_that_no_descriptor_can_load(monkeypatch):
    """Rows at odd addresses, or the same row for all: loads by pointers."""
    wide = make_qkv(1, 2, N=70, D=96, dtype=torch.float16, device=DEVICE)
    for tensors in (
        [x[..., 1:33] for x in wide],
        [x[..., :32].expand(2, -1, -1, -1) for x in wide],
    ):
        assert not by_descriptors(tensors, monkeypatch)
        check(*tensors)
    assert by_descriptors([x[..., 8:40] for x in wide], monkeypatch)


@pytest.mark.numerical
@given(
    B=st.integers(1, 2),
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    M=st.integers(1, 140),
    N=st.integers(1, 140),
    D=st.sampled_from([16, 48, 64, 104]),
    dtype=st.sampled_from(DTYPES),
    mask=st.sampled_from([None, "bottom_right", "top_left"]),
    architecture=st.sampled_from(["sm_80", "sm_90"]),
    seed=st.integers(0, 99),
)
def test_any_shape(B, heads, M, N, D, dtype, mask, architecture, seed):
    H, Hkv = heads
    q, *_ = make_qkv(B, H, N=M, D=D, dtype=dtype, device=DEVICE, seed=seed)
    _, k, v = make_qkv(B, Hkv, M=M, N=N, D=D, dtype=dtype, device=DEVICE, seed=seed + 1)
    with pytest.MonkeyPatch.context() as patch:
        if not ON_GPU:
            patch.setattr(kernel, "_architecture", lambda x: architecture)
        check(q, k, v, causal=mask is not None, align=mask or "bottom_right")


@pytest.mark.skipif(ON_GPU, reason="the GPU grid runs its own large case")
def test_offsets_beyond_32_bits():
    """Row 1 of k lies 2^31 elements after row 0: a 32-bit offset would wrap around."""
    far = 2**31 + 16
    memory = torch.from_numpy(np.empty(far + 64, dtype=np.float16))  # reserved, never touched
    rows = torch.as_strided(memory, (1, 1, 2, 16), (far, far, far, 1))
    q, k, _ = make_qkv(1, 1, N=2, D=16, dtype=torch.float16)
    rows.copy_(k)
    with pytest.MonkeyPatch.context() as patch:
        for architecture in ("sm_80", "sm_90"):
            patch.setattr(kernel, "_architecture", lambda x, a=architecture: a)
            for tensors in ((q, rows, rows), (rows, k, k)):
                check(*tensors)


@pytest.mark.skipif(ON_GPU, reason="needs the interpreter")
def test_bfloat16_is_computed_in_float32_by_the_interpreter(monkeypatch):
    assert kernel.UPCAST.value is True
    q, k, v = make_qkv(1, 1, M=5, N=40, D=16, dtype=torch.bfloat16)
    check(q, k, v)
    monkeypatch.setattr(kernel.UPCAST, "value", False)
    with np.errstate(all="ignore"), pytest.raises(Exception):  # noqa: B017,PT011 - any failure
        check(q, k, v)


def qkv(**changes):
    """Valid arguments with some replaced."""
    q, k, v = make_qkv(1, 2, M=3, N=5, D=16, device=DEVICE)
    return {"q": q, "k": k, "v": v} | changes


def test_values_by_columns_are_refused(monkeypatch):
    monkeypatch.setattr(kernel, "_flash_attention_kernel", None)  # a launch would be a TypeError
    arguments = qkv(v=torch.ones(1, 2, 16, 5, device=DEVICE).mT)
    assert_refused(ValueError("v has strides (160, 80, 1, 5)"), flash_attention, **arguments)


def test_what_an_older_gpu_refuses(monkeypatch):
    monkeypatch.setattr(kernel, "_architecture", lambda x: "sm_75")
    with pytest.raises(ValueError, match=r"with 136 columns on sm_75; allowed: .*128"):
        flash_attention(*make_qkv(1, 1, N=2, D=136, dtype=torch.float16, device=DEVICE))
    with pytest.raises(
        ValueError, match=r"q is torch\.bfloat16 with .* on sm_75; allowed: .* float16 or float32"
    ):
        flash_attention(*make_qkv(1, 1, N=2, D=16, dtype=torch.bfloat16, device=DEVICE))


def test_which_rows_a_gpu_gets(monkeypatch):
    wanted = {(7, 5): "sm_75", (8, 0): "sm_80", (8, 6): "sm_89", (8, 9): "sm_89", (9, 0): "sm_90"}
    wanted |= {(10, 0): "sm_100", (12, 0): "sm_89"}
    of, device = kernel._architecture.__wrapped__, torch.device("cuda:0")  # it remembers devices
    monkeypatch.setattr(torch.version, "hip", None)
    for capability in [*wanted, (7, 0)]:
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, x=capability: x)
        assert of(device) == wanted.get(capability, of(device))
    assert of(device) not in TILE_CONFIGS
    monkeypatch.setattr(kernel, "_architecture", lambda device: "sm_70")
    with pytest.raises(ValueError, match=r"on sm_70; allowed: sm_75"):
        flash_attention(**qkv())
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert of(device) == "gfx942"


def on_huge_scores(launcher, q, k, v, scale):
    """Hold the result and its logsumexp against float64, with a GPU's fused multiply-add."""
    with contextlib.nullcontext() if ON_GPU else fused.multiply_add():
        out, lse = launcher(q, k, v, scale=scale, return_lse=True)
    scores = q.double() @ k.double().mT * scale
    want = (scores.softmax(-1) @ v.double()).to(q.dtype)
    # Weights, their sum and the result are rounded to dtype.
    allowed = 4 * torch.finfo(q.dtype).eps * v.abs().max().item()
    torch.testing.assert_close(out, want, rtol=0, atol=allowed)
    assert (want - v.double().mean(-2)).abs().max() > 8 * allowed, "the mean of V would pass"
    torch.testing.assert_close(lse, scores.logsumexp(-1).float(), rtol=2.0**-22, atol=2.0**-20)


def around(largest, dtype, sign=1):
    """q, k, v whose scores are integers around 2^22, and a scale that makes them 2^largest.

    Scores are exact in float32, in steps of 1 from a key to some, and of 2048 to others.
    """
    N = 300  # several tiles: the maximum moves
    generator = torch.Generator().manual_seed(largest)
    q, k = torch.zeros(1, 1, 3, 16), torch.zeros(1, 1, N, 16)
    q[..., 0], q[..., 1] = sign * 2048.0, 1.0
    k[..., 0] = 2048 - torch.randint(0, 3, (N,), generator=generator)
    k[..., 1] = torch.randint(0, 99, (N,), generator=generator)
    v = torch.randn(1, 1, N, 16, generator=generator)
    scale = 1.1 * 2.0 ** (largest - 22)  # no power of two: products with it are rounded
    return *(x.to(DEVICE, dtype) for x in (q, k, v)), scale


with_sixteen_bits_and_more = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32], ids=str
)


@pytest.mark.numerical
@with_sixteen_bits_and_more
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("largest", [22, 26, 27, 28, 29, 30, 34, 60, 80])
def test_huge_scores(largest, sign, dtype):
    on_huge_scores(flash_attention, *around(largest, dtype, sign))


@pytest.mark.numerical
@with_sixteen_bits_and_more
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("falls", [False, True], ids=["rising", "falling"])
def test_maxima_that_become_huge_or_ordinary(falls, sign, dtype):
    """From one tile of keys to the next; what was summed before must neither stay nor overflow."""
    q, k = torch.zeros(1, 1, 3, 16, device=DEVICE), torch.zeros(1, 1, 300, 16, device=DEVICE)
    q[..., 0] = 8 * sign
    rise = torch.linspace(0, 12, 300, device=DEVICE).exp2()
    k[..., 0] = rise.flip(0) if falls else rise
    v = torch.randn(1, 1, 300, 16, device=DEVICE)
    q, k, v = (x.to(dtype) for x in (q, k, v))
    for scale in (1.1, 1.1 * 2.0**14, 1.9 * 2.0**18, 2.0**20):
        on_huge_scores(flash_attention, q, k, v, scale)


@pytest.mark.numerical
@pytest.mark.parametrize("scale", [1.0, 0.77])
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
def test_up_to_a_scale_of_one_scores_may_reach_the_limit(sign, scale):
    """The launcher allows products of 2^27; these are the largest numbers of float16 below that."""
    q, k, v, _ = around(27, torch.float16, sign)
    q[..., 0] *= 31.9  # times 2048
    q[..., 1] = 0  # float32 holds the scores without it
    assert 2.0**26 < (q.double() @ k.double().mT).abs().max() * scale < 2.0**27
    on_huge_scores(flash_attention, q, k, v, scale)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.skipif(ON_GPU, reason="one compilation more for each; the interpreter shows it")
@with_sixteen_bits_and_more
def test_huge_scores_must_be_scaled_last(dtype):
    """What a GPU makes of them otherwise; the interpreter alone would not see it."""
    first = variant("flash_attention", [("q.dtype == torch.float32 or scale > 1", "False")])
    on_huge_scores(first, *around(22, torch.float16))
    with pytest.raises(AssertionError):
        on_huge_scores(first, *around(60, dtype))


def test_ordinary_calls_do_not_pay_for_huge_scores(monkeypatch):
    """16 bits and a scale of at most 1: the kernel has its multiply-add."""
    seen = []
    monkeypatch.setattr(kernel, "_launch", lambda *given: seen.append(given[-2][-1]))
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        q, k, v = make_qkv(1, 2, M=3, N=5, D=16, dtype=dtype, device=DEVICE)
        for scale in (None, 2.0**-64, 0.5, 1, 1.0, 1.001, 2, 2.0**64):
            flash_attention(q, k, v, scale=scale)
    ordinary = [False] * 5 + [True] * 3
    assert seen == [*ordinary, *ordinary, *[True] * 8]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", bench.RUNGS)
def test_every_rung_is_attention(name, causal):
    q, k, v = make_qkv(1, 2, N=140, D=64, dtype=torch.float16, device=DEVICE)
    out = bench.launcher_of(bench.RUNGS[name])(q, k, v, causal=causal)
    assert_attention(out, q, k, v, mask=causal_mask(140, 140, device=DEVICE) if causal else None)


@pytest.mark.parametrize("config", bench.SWEEP, ids=bench.label)
def test_every_tile_of_the_sweep_is_attention(config):
    """Warp-specialized ones without a mask, as they are not for others."""
    causal = not config.warp_specialize
    q, k, v = make_qkv(1, 1, M=140, N=256, D=32, dtype=torch.float16, device=DEVICE)
    out = bench.with_config(flash_attention, config)(q, k, v, causal=causal)
    assert_attention(out, q, k, v, mask=causal_mask(140, 256, device=DEVICE) if causal else None)


TENSOR_CORE = {"sm_75": "none", "sm_80": "mma", "sm_89": "mma", "sm_90": "wgmma"}
TENSOR_CORE |= {"sm_100": "tcgen05", "gfx942": "mfma"}


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="compiles ahead of time, without a GPU")
@pytest.mark.parametrize("architecture", TENSOR_CORE)
def test_every_row_compiles_for_its_architecture(architecture, compiler, monkeypatch):
    """No row spills registers or needs more shared memory than its GPU has."""
    monkeypatch.setattr(kernel, "INTERPRETED", True)  # tensors of a CPU
    monkeypatch.setattr(kernel, "_architecture", lambda x: architecture)
    masks = ((256, False), (250, False), (256, True))  # none, the end of the keys, causal
    for width, (N, causal) in some(itertools.product(TILE_CONFIGS[architecture], masks)):
        tensors = [torch.empty(1, 2, n, width, dtype=torch.float16) for n in (256, N, N)]
        options = {"causal": causal}
        (found,) = compiler.resources(flash_attention, tensors, options, target=architecture)
        assert found.error is None, found
        assert found.tensor_core == TENSOR_CORE[architecture]
        assert found.spill_store_bytes == 0, found


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="compiles ahead of time, without a GPU")
def test_the_tail_bias_is_added_by_the_tensor_cores(compiler, monkeypatch):
    """The page says that this sum costs no instruction."""
    monkeypatch.setattr(kernel, "INTERPRETED", True)  # tensors of a CPU
    monkeypatch.setattr(kernel, "_architecture", lambda x: "sm_90")
    additions = []
    for N in (256, 250):
        tensors = [torch.empty(1, 2, n, 128, dtype=torch.float16) for n in (256, N, N)]
        (found,) = compiler.resources(flash_attention, tensors, {}, target="sm_90")
        additions.append(found.sass().count(" FADD "))
    assert additions[0] == additions[1] > 0


PLAIN = [  # a kernel that knows no huge scores
    ("tl.max(s, axis=1) * before", "tl.max(s, axis=1) * scale_log2"),
    ("tl.exp2((m_i - m_sub) * after)", "tl.exp2(m_i - m_sub)"),
    ("tl.exp2((s * before - m_sub[:, None]) * after)", "tl.exp2(s * scale_log2 - m_sub[:, None])"),
    ("(m_i * after + tl.log2(l_i))", "(m_i + tl.log2(l_i))"),
]


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="compiles ahead of time, without a GPU")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("D", [64, 128])
def test_ordinary_calls_have_the_code_of_a_kernel_without_huge_scores(D, causal, compiler):
    tensors = [torch.empty(1, 2, 256, D, dtype=torch.float16)] * 3
    plain = variant("flash_attention", PLAIN)
    codes = []
    for launcher, scale in ((plain, 1.0), (flash_attention, 1.0), (flash_attention, 1.1)):
        options = {"causal": causal, "scale": scale, "return_lse": True}
        (found,) = compiler.resources(launcher, tensors, options, target="sm_90")
        codes.append(found.sass())
        assert found.spill_store_bytes == 0, found
    assert codes[0] == codes[1] != codes[2]


# What only a GPU measures, with a stand-in for its clock.


def cases(**axes):
    yield from (dict(zip(axes, x, strict=True)) for x in itertools.product(*axes.values()))


class Lab:
    """A lab with a stand-in clock: times grow with the work and differ between names."""

    place, target = "gpu", "sm_90"
    each = staticmethod(cases)

    def qkv(self, case):
        return ()

    def time_attention(self, case, names, variants=None):
        N, D = case["N"], case["D"]
        M = case.get("M", N)
        flops = 4.0 * case.get("batch", 1) * case.get("heads", 1) * M * N * D
        for i, name in enumerate([*names, *(variants or {})]):
            ms = flops / 5e11 * (1.5 if i else 1.0) + 1e-3
            work = {"flops": flops, "bytes_compulsory": flops / M}
            yield made_up.timed(ms, **{"implementation": name, **case, **work})


@pytest.mark.parametrize("name", ["forward", "kernels", "roofline", "sweep"])
def test_the_bench_builds_rows_and_says_what_does_not_run(name, monkeypatch):
    refused = bench.SWEEP[-1]
    monkeypatch.setattr(bench, "with_config", lambda launcher, config: config)
    monkeypatch.setattr(
        bench, "why_not", lambda case, tensors, config, _: "too large" * (config == refused)
    )
    rows = list(getattr(bench, name)(Lab()))
    errors = {row["implementation"] for row in rows if "error" in row}
    assert errors == ({bench.label(refused)} if name == "sweep" else set())
    assert {bench.OURS, "torch:cudnn"} & {row["implementation"] for row in rows}
    assert all("ms_p50" in row for row in some(rows) if "error" not in row)
