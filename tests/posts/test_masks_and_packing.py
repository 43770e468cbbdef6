"""masks_and_packing and its gradients against float64: every option, alone and together."""

import difflib
import itertools
import math
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets._lab.judge.oracle import NumericalMismatch, make_qkv
from snippets._lab.probe.compiled import Compiler
from snippets.flash_attention.kernel import TILE_CONFIGS as PLAIN_TILES
from snippets.flash_attention.kernel import flash_attention
from snippets.flash_backward import kernel as plain_backward
from snippets.flash_backward.checks import FLOAT32
from snippets.masks_and_packing import backward, exercise, kernel
from snippets.masks_and_packing.backward import masks_and_packing_backward
from snippets.masks_and_packing.checks import attend, attend_packed, visible
from snippets.masks_and_packing.kernel import masks_and_packing
from snippets.masks_and_packing.op import masked_attention
from tests.floors import some
from tests.refusals import assert_refused, each_refusal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
HALF = torch.float16
TENSORS = ("sinks", "bias")  # options with a gradient


def make(B=1, H=2, Hkv=2, M=70, N=90, D=16, dtype=HALF, seed=0):
    """q, k, v whose attention differs from the mean of v."""
    q, *_ = make_qkv(B, H, N=M, D=D, dtype=dtype, device=DEVICE, seed=seed)
    _, k, v = make_qkv(B, Hkv, M=M, N=N, D=D, dtype=dtype, device=DEVICE, seed=seed + 1)
    return q, k, v


def pack(queries, keys, H=2, Hkv=1, D=16, dtype=HALF, tail=0, seed=0):
    """q, k, v of sequences with so many rows, `tail` rows that belong to none; and their ends."""
    q, k, v = make(1, H, Hkv, sum(queries) + tail, sum(keys) + tail, D, dtype, seed)
    ends = {}
    for name, sizes in (("cu_seqlens_q", queries), ("cu_seqlens_k", keys)):
        sums = [0, *itertools.accumulate(sizes)]
        ends[name] = torch.tensor(sums, dtype=torch.int32, device=DEVICE)
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    return (q, k, v), ends


def held(name, found, want, same, *, slack=0.0):
    """Raise NumericalMismatch unless `found` is `want` within rounding.

    Allowed is twice the error of eager attention in the same dtype, one unit in the last place of
    the result, and `slack`: what float32 rounding must cost.
    """
    error = (found.double() - want).abs()
    pytorch = (same.double() - want).abs().nan_to_num(0.0).max().item()
    allowed = 2 * pytorch + torch.finfo(found.dtype).eps * want.abs().max().item() + slack
    if not (found.shape == want.shape and error.max().item() <= allowed):  # NaN fails
        at = error.flatten().nan_to_num(math.inf).argmax().item()
        raise NumericalMismatch(
            f"{name}: off by {error.flatten()[at]:.2e} at {at}, {allowed:.2e} allowed"
        )


def check(tensors, gradients=True, read=None, **options):
    """Hold output, logsumexp and gradients against float64; the kernels get `read`, if given."""
    definition = attend_packed if "cu_seqlens_q" in options else attend
    names = [name for name in TENSORS if options.get(name) is not None]

    def eager(double):
        kept = [x.detach().to(torch.float64 if double else x.dtype) for x in tensors]
        kept += [options[name].detach().to(kept[0].dtype) for name in names]
        leaves = [x.clone().requires_grad_() for x in kept]
        given = options | dict(zip(names, leaves[3:], strict=True))
        return leaves, *definition(*leaves[:3], **given)

    leaves, want, want_lse = eager(double=True)
    same_leaves, same, same_lse = eager(double=False)
    given = tensors if read is None else read
    out, lse = masks_and_packing(*given, **options, return_lse=True)
    # A score of size S is off by a few eps · S; so are, relatively, its weight and their sum.
    rounding = 4 * FLOAT32 * (1 + (options.get("softcap") or 0))
    values = tensors[2].abs().max().item()
    held("out", out, want.detach(), same.detach(), slack=rounding * values)
    hidden = want_lse == -math.inf
    if not torch.equal(lse == -math.inf, hidden):
        raise NumericalMismatch("logsumexp: other rows are without a key")
    want_lse, same_lse = want_lse.masked_fill(hidden, 0.0), same_lse.masked_fill(hidden, 0.0)
    rounding += 4 * FLOAT32 * want_lse.abs().max().item()
    held("lse", lse.masked_fill(hidden, 0.0), want_lse.detach(), same_lse.detach(), slack=rounding)
    if not gradients:
        return
    torch.manual_seed(1)
    grad_out = torch.randn(out.shape, device=DEVICE).to(out.dtype)
    grad_lse = torch.randn(lse.shape, device=DEVICE).masked_fill(hidden, 0.0)
    sums = ((want, want_lse, leaves), (same, same_lse, same_leaves))
    right, eager_s = (
        torch.autograd.grad(
            ((x * grad_out.to(x.dtype)).sum() + (y * grad_lse.to(y.dtype)).sum()), on
        )
        for x, y, on in sums
    )
    found = masks_and_packing_backward(
        *given, out, lse, grad_out, **options, grad_lse=grad_lse, want_grad_bias="bias" in names
    )
    found = [x for x in found if x is not None]
    # What Δ inherits from an output that was rounded to 16 bits, eager attention has not; and the
    # float32 rounding of dP and of the weights.
    slack = torch.finfo(out.dtype).eps * (grad_out.abs() * out.abs()).sum(-1).max().item()
    slack += 16 * rounding * grad_out.abs().sum(-1).max().item() * values
    for name, ours, good, theirs in zip("qkvsb", found, right, eager_s, strict=False):
        scale = {"q": tensors[1], "k": tensors[0]}.get(name, torch.ones(1)).abs().max().item()
        held(f"grad_{name}", ours, good.nan_to_num(0.0), theirs, slack=slack * scale)


MASKS = {
    "left": {"window": (10, None)},
    "right": {"window": (None, 5)},
    "both": {"window": (40, 3)},
    "none but its own": {"window": (0, 0)},
    "causal": {"causal": True},
    "causal window": {"causal": True, "window": (30, None)},
    "wider than all": {"window": (500, 500)},
}


@pytest.mark.numerical
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("M", "N"), [(65, 150), (150, 65), (129, 1), (1, 129), (127, 128)])
def test_windows_of_both_corners(M, N, mask, align):
    check(make(H=1, Hkv=1, M=M, N=N, D=32), gradients=(M, N) == (65, 150) or ON_GPU,
          align=align, **MASKS[mask])  # fmt: skip


@pytest.mark.numerical
@pytest.mark.parametrize("mask", ["causal window", "both"])
@pytest.mark.parametrize("D", [64, 128])
def test_windows_that_skip_whole_tiles(D, mask):
    check(make(H=2, Hkv=1, M=300, N=420, D=D), gradients=ON_GPU, **MASKS[mask])


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [HALF, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (20, 2)}], ids=str)
def test_sinks(options, dtype):
    sinks = torch.tensor([3.0, -math.inf, -2.0, 0.5], device=DEVICE)
    check(make(B=2, H=4, Hkv=2, M=70, N=40, D=24, dtype=dtype), sinks=sinks, **options)


@pytest.mark.numerical
def test_a_sink_that_takes_nearly_all():
    check(make(), sinks=torch.tensor([40.0, 12.0], device=DEVICE))
    check(make(), sinks=torch.tensor([-40.0, -12.0], device=DEVICE), scale=1.5)


@pytest.mark.numerical
@pytest.mark.parametrize("cap", [0.5, 5.0, 50.0])
def test_soft_cap(cap):
    check(make(M=40, N=130, D=64), softcap=cap, scale=0.7)
    check(make(M=40, N=130, dtype=torch.float32), softcap=cap, causal=True)


@pytest.mark.numerical
@pytest.mark.parametrize("one", [*itertools.product([False, True], repeat=3)], ids=str)
def test_a_bias_and_what_shares_it(one):
    shape = [1 if shared else size for shared, size in zip(one, (2, 2, 70), strict=True)]
    bias = torch.randn(*shape, 90, device=DEVICE).half()
    check(make(B=2, Hkv=1), bias=bias)
    check(make(B=2, Hkv=1), bias=bias.float(), causal=True, softcap=9.0, gradients=ON_GPU)


@pytest.mark.numerical
def test_a_bias_of_minus_infinity_hides_keys():
    bias = torch.zeros(1, 1, 70, 90, device=DEVICE)
    bias[..., 50:], bias[:, :, 7] = -math.inf, -math.inf
    out, lse = masks_and_packing(*make(), bias=bias, return_lse=True)
    assert (out[:, :, 7] == 0).all()
    assert (lse[:, :, 7] == -math.inf).all()
    q, k, v = make()
    check((q, k, v), bias=bias.clamp(min=-1e4), gradients=False)
    right, _ = attend(*(x.double() for x in (q, k[:, :, :50], v[:, :, :50])))
    right[:, :, 7] = 0.0
    held("out", out, right, right.half())


PACKS = {
    "one": ([70], [90]),
    "ragged": ([1, 64, 5, 130], [7, 64, 90, 1]),
    "empty ones": ([0, 33, 0, 0, 65, 0], [5, 0, 0, 64, 65, 0]),
    "one beside many": ([1, 300], [1, 300]),
    "one row each": ([1] * 70, [1] * 70),
}


@pytest.mark.numerical
@pytest.mark.parametrize("tail", [0, 70], ids=["no tail", "tail"])
@pytest.mark.parametrize("mask", [{}, *list(MASKS.values())[2:6]], ids=str)
@pytest.mark.parametrize("sizes", PACKS)
def test_packed_sequences(sizes, mask, tail):
    """What stands after the last sequence is NaN, and every neighbor's values would be wrong."""
    (q, k, v), ends = pack(*PACKS[sizes], tail=tail)
    broken = [x.clone() for x in (k, v)]
    for x in broken:
        x[ends["cu_seqlens_k"][-1] :] = math.nan
    corner = {"align": "top_left" if len(sizes) % 2 else "bottom_right"}
    check((q, k, v), **ends, **mask, **corner, read=(q, *broken),
          gradients=ON_GPU or sizes in ("ragged", "empty ones"))  # fmt: skip


@pytest.mark.numerical
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])  # by pointers, by descriptors
def test_packed_sequences_with_sinks_and_soft_cap(architecture, monkeypatch):
    for module in () if ON_GPU else (kernel, backward):
        monkeypatch.setattr(module, "_architecture", lambda device: architecture)
    tensors, ends = pack([5, 70, 0], [64, 70, 3], H=4, Hkv=2, tail=3)
    check(tensors, **ends, sinks=torch.randn(4, device=DEVICE), softcap=4.0, causal=True)


@pytest.mark.numerical
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_nan_in_the_gradient_of_padding_changes_no_bit(architecture, monkeypatch):
    for module in () if ON_GPU else (kernel, backward):
        monkeypatch.setattr(module, "_architecture", lambda device: architecture)
    tensors, ends = pack([30, 0], [40, 3], tail=70)
    options = ends | {"sinks": torch.randn(2, device=DEVICE)}
    out, lse = masks_and_packing(*tensors, **options, return_lse=True)
    grad_out = torch.randn_like(out)
    broken = grad_out.clone()
    broken[30:] = math.nan
    found, same = (
        masks_and_packing_backward(*tensors, out, lse, x, **options)[:4] for x in (grad_out, broken)
    )
    if not all(torch.equal(x, y) for x, y in zip(found, same, strict=True)):
        raise NumericalMismatch("padding's gradient changed a gradient")


@pytest.mark.numerical
@pytest.mark.parametrize("at_once", [1, 4, 10_000])
def test_packed_heads_that_start_together_are_all_there(at_once, monkeypatch):
    for module in (kernel, backward):
        monkeypatch.setattr(module, "AT_ONCE", at_once)
    tensors, ends = pack([70, 20], [70, 45], H=4, Hkv=2)
    check(tensors, causal=True, **ends)


@pytest.mark.numerical
def test_many_short_sequences():
    sizes = [i % 3 for i in range(1024 if ON_GPU else 200)]
    tensors, ends = pack(sizes, sizes, H=1)
    check(tensors, **ends, causal=True, gradients=ON_GPU)


@pytest.mark.numerical
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize("mask", [*list(MASKS)[:6]])
def test_a_key_that_no_query_sees_is_never_a_number(mask, align):
    """NaN there changes no bit of the output or of a gradient; its own gradient is zero."""
    q, k, v = make(M=40, N=150, D=64)
    seen = visible(40, 150, align=align, **MASKS[mask]).any(0)
    broken = [x.clone() for x in (k, v)]
    for x in broken:
        x[:, :, ~seen] = math.nan
    results = []
    for keys, values in ((k, v), broken):
        out, lse = masks_and_packing(q, keys, values, align=align, **MASKS[mask], return_lse=True)
        found = masks_and_packing_backward(q, keys, values, out, lse, q, align=align, **MASKS[mask])
        results.append([out, lse, *found[:3]])
    for clean, dirty in zip(*results, strict=True):
        assert torch.equal(clean, dirty)
    assert all((x[:, :, ~seen] == 0).all() for x in results[0][3:])


@pytest.mark.numerical
def test_a_neighbors_nan_changes_no_bit():
    tensors, ends = pack([30, 50, 70], [64, 40, 65])
    of_queries, of_keys = (slice(*x[1:3].tolist()) for x in ends.values())
    results = []
    for neighbors in ("numbers", "none"):
        for x, own in zip(tensors, (of_queries, of_keys, of_keys), strict=True):
            if neighbors == "none":
                x[: own.start], x[own.stop :] = math.nan, math.inf
        out, lse = masks_and_packing(*tensors, **ends, causal=True, return_lse=True)
        found = masks_and_packing_backward(*tensors, out, lse, tensors[0], **ends, causal=True)
        results.append([out[of_queries], lse[:, of_queries], found[0][of_queries]])
        results[-1] += [x[of_keys] for x in found[1:3]]
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))


@pytest.mark.numerical
def test_the_calls_on_the_page():
    q, k, v = make()
    sinks = torch.tensor([0.5, -1.0], device=DEVICE)
    rows = [x[0].transpose(0, 1)[:15] for x in (q, k, v)]
    # --8<-- [start:calls]
    cu = torch.tensor([0, 5, 6, 15], dtype=torch.int32, device=q.device)  # of 5, 1 and 9 rows
    windowed = masks_and_packing(q, k, v, causal=True, window=(63, 0), sinks=sinks)
    capped, lse = masks_and_packing(q, k, v, causal=True, softcap=50.0, return_lse=True)
    packed = masks_and_packing(*rows, causal=True, cu_seqlens_q=cu, cu_seqlens_k=cu)
    # --8<-- [end:calls]
    q, k, v, *rows = (x.double() for x in (q, k, v, *rows))
    want, _ = attend(q, k, v, causal=True, window=(63, 0), sinks=sinks)
    capped_want, lse_want = attend(q, k, v, causal=True, softcap=50.0)
    packed_want, _ = attend_packed(*rows, causal=True, cu_seqlens_q=cu, cu_seqlens_k=cu)
    for found, right in ((windowed, want), (capped, capped_want), (packed, packed_want)):
        torch.testing.assert_close(found.double(), right, atol=4e-3, rtol=0)
    torch.testing.assert_close(lse.double(), lse_want, atol=1e-4, rtol=0)


def test_ends_that_lie_are_answered_inside_the_tensors():
    """Nothing outside q, k, v and the result is read or written, whatever these make of it."""
    (q, k, v), _ = pack([64, 64], [64, 64])
    lies = [0, 200, 100], [-70, 64, 128], [30, 20, 10], [0, 2**30, 2**31 - 1], [100, 128, 128]
    lies += [1000, 1, -(2**31)], [2**31 - 1, -2, 128]
    for lie in lies:
        cu = torch.tensor(lie, dtype=torch.int32, device=DEVICE)
        room = torch.full((3 * q.numel(),), 7.0, dtype=HALF, device=DEVICE)
        with pytest.MonkeyPatch.context() as patch:
            inner = room[q.numel() : 2 * q.numel()].view(q.shape)
            patch.setattr(torch, "empty_like", lambda *_, inner=inner, **__: inner)
            masks_and_packing(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal=True)
        assert (room[: q.numel()] == 7).all()
        assert (room[2 * q.numel() :] == 7).all()


@pytest.mark.numerical
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (2, 2)]),
    M=st.integers(1, 140),
    N=st.integers(1, 140),
    D=st.sampled_from([16, 48, 64]),
    dtype=st.sampled_from([HALF, torch.bfloat16, torch.float32]),
    causal=st.booleans(),
    align=st.sampled_from(["bottom_right", "top_left"]),
    window=st.tuples(*[st.sampled_from([None, 0, 1, 17, 64, 130])] * 2),
    sink=st.sampled_from([None, 0.0, 5.0]),
    cap=st.sampled_from([None, 3.0]),
    architecture=st.sampled_from(["sm_80", "sm_90"]),
)
def test_any_combination(heads, M, N, D, dtype, causal, align, window, sink, cap, architecture):
    sinks = None if sink is None else torch.full((heads[0],), sink, device=DEVICE)
    with pytest.MonkeyPatch.context() as patch:
        if not ON_GPU:
            patch.setattr(kernel, "_architecture", lambda x: architecture)
        check(make(1, *heads, M, N, D, dtype), gradients=ON_GPU, causal=causal, align=align,
              window=window, sinks=sinks, softcap=cap)  # fmt: skip


@pytest.mark.numerical
@pytest.mark.parametrize("options", [{}, {"causal": True}], ids=str)
def test_without_options_it_is_flash_attention(options):
    tensors = make(H=2, Hkv=1, M=129, N=150, D=72)
    pairs = (f(*tensors, **options, return_lse=True) for f in (masks_and_packing, flash_attention))
    assert all(torch.equal(x, y) for x, y in zip(*pairs, strict=True))
    assert kernel.TILE_CONFIGS == PLAIN_TILES
    assert backward.TILES == plain_backward.TILES


@pytest.mark.numerical
def test_a_soft_cap_is_any_number():
    q, k, v = make()
    out, same = (masks_and_packing(q, k, v, softcap=x) for x in (np.float32(2.5), 2.5))
    assert torch.equal(out, same)


def test_the_answers_of_the_exercises():
    s = torch.randn(20, 33, device=DEVICE)
    m, n = torch.arange(20, device=DEVICE)[:, None], torch.arange(33, device=DEVICE)
    seen = (n <= m + 13) | (n < 17)
    assert torch.equal(exercise.prefix_mask(s, 17), torch.where(seen, s, 0.0))
    cu = torch.tensor([0, 5, 6, 15], dtype=torch.int32, device=DEVICE)
    tiles = [[0, 0], [0, 4], [1, 0], [2, 0], [2, 4], [2, 8], [3, 0]]
    assert exercise.tiles_of_sequences(cu, 15, 4).tolist() == tiles


def gradients_of(function, tensors):
    leaves = [x.clone().requires_grad_() for x in tensors]
    out = function(*leaves)
    return out, torch.autograd.grad(out.float().square().sum(), leaves)


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_the_op_is_one_for_compile_and_opcheck(packed):
    if packed:
        tensors, options = pack([5, 20], [9, 20])
        more = [torch.randn(2, device=DEVICE)]
    else:
        tensors, options = make(M=20, N=30), {}
        more = [torch.randn(2, device=DEVICE), torch.randn(1, 2, 1, 30, device=DEVICE)]
    names = TENSORS[: len(more)]

    def run(q, k, v, *more):
        given = options | dict(zip(names, more, strict=True))
        return masked_attention(q, k, v, causal=True, window=(7, None), softcap=9.0, **given)

    eager, compiled = (
        gradients_of(f, (*tensors, *more)) for f in (run, torch.compile(run, fullgraph=True))
    )
    assert torch.equal(eager[0], compiled[0])
    assert all(torch.equal(x, y) for x, y in zip(eager[1], compiled[1], strict=True))
    arguments = [
        *(x.clone().requires_grad_() for x in tensors), None, True, "bottom_right", 7, None,
        more[0].clone().requires_grad_(), 9.0,
        None if packed else more[1].clone().requires_grad_(),
        options.get("cu_seqlens_q"), options.get("cu_seqlens_k"),
    ]  # fmt: skip
    torch.library.opcheck(torch.ops.attention_measured.masked.default, arguments)


def test_a_compiled_call_refuses_what_a_plain_one_does():
    call = torch.compile(
        lambda *x: masked_attention(*x, window=(-1, 0)), backend="eager", fullgraph=True
    )
    with pytest.raises(ValueError, match=r"window is \(-1, 0\); allowed: two of None"):
        call(*make(M=3, N=6))


def test_the_op_refuses_a_second_derivative():
    q, k, v = (x.requires_grad_() for x in make())
    out = masked_attention(q, k, v, window=(3, 3))
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()


def test_the_gradient_of_no_bias_is_refused():
    q, k, v = make(M=3, N=6)
    lse = torch.zeros(1, 2, 3, device=DEVICE)
    error = ValueError("want_grad_bias is True, and bias None; allowed: False")
    given = {"out": q, "lse": lse, "grad_out": q, "want_grad_bias": True}
    assert_refused(error, masks_and_packing_backward, q, k, v, **given)


QUARTER = torch.tensor(0.25, device=DEVICE)  # its text names a GPU
REFUSED = {
    ValueError: {
        "window is 128; allowed: two of None and": {"window": 128},
        "window is (-1, 0)": {"window": (-1, 0)},
        "window is (2.5, 0)": {"window": (2.5, 0)},
        "sinks has shape (1,); allowed with q: (2,)": {"sinks": torch.zeros(1)},
        "softcap is 0.0; allowed: 2^-20 to 2^10": {"softcap": 0.0},
        "bias has shape (3, 6); allowed: [B or 1, H or 1, M or 1, N], and no": {
            "bias": torch.zeros(3, 6)
        },
        "(1, 1, 3, 1); allowed": {"bias": torch.zeros(1, 1, 3, 1)},
        "bias has shape (1, 1, 3, 5)": {"bias": torch.zeros(1, 1, 3, 5)},
    },
    TypeError: {
        "sinks is torch.float16": {"sinks": torch.zeros(2).half()},
        "softcap is '30'; allowed: a number": {"softcap": "30"},
        f"scale is {QUARTER!r:.40}; allowed: a number": {"scale": QUARTER},
        "bias is torch.bool": {"bias": torch.ones(1, 1, 1, 6) > 0},
    },
}
ENDS = ("cu_seqlens_q", "cu_seqlens_k")
BOTH = "allowed: both or none, [sequences + 1] each"
OF_PACKED = {
    ValueError: {
        f"cu_seqlens_k have shapes [torch.Size([2]), None]; {BOTH}": {"cu_seqlens_k": None},
        f"shapes [torch.Size([2]), torch.Size([3])]; {BOTH}": {
            "cu_seqlens_k": torch.tensor([0, 1, 2], dtype=torch.int32)
        },
        f"[torch.Size([1]), torch.Size([1])]; {BOTH}": dict.fromkeys(
            ENDS, torch.zeros(1, dtype=torch.int32)
        ),
        "bias has shape (1, 1, 1, 6)": {"bias": torch.zeros(1, 1, 1, 6)},
        "q has shape (1, 3, 2, 16); allowed: [total, heads, D]": {
            "q": torch.zeros(1, 3, 2, 16).half()
        },
    },
    TypeError: {"cu_seqlens_q is torch.int64": dict.fromkeys(ENDS, torch.tensor([0, 2]))},
}


def refused_before_a_launch(error, usual, change, rows):
    """Both by the forward and by the backward, whose logsumexp has these rows."""
    given = usual | {n: x.to(DEVICE) if hasattr(x, "to") else x for n, x in change.items()}
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((kernel, "_masks_and_packing_kernel"), (backward, "_queries_kernel")):
            patch.setattr(module, name, None)  # a launch would be a TypeError
        assert_refused(error, masks_and_packing, **given)
        with_gradients = given | {"q": given["q"].clone().requires_grad_()}
        assert_refused(error, masked_attention, **with_gradients)
        results = {"out": given["q"], "grad_out": given["q"]}
        lse = torch.zeros(rows, device=DEVICE)
        assert_refused(error, masks_and_packing_backward, **given, **results, lse=lse)


@each_refusal(REFUSED)
def test_bad_input_is_refused_before_a_launch(error, change):
    refused_before_a_launch(error, dict(zip("qkv", make(M=3, N=6), strict=True)), change, (1, 2, 3))


@each_refusal(OF_PACKED)
def test_bad_ends_are_refused_before_a_launch(error, change):
    tensors, ends = pack([3], [6])
    refused_before_a_launch(error, dict(zip("qkv", tensors, strict=True)) | ends, change, (2, 3))


def bare(ptx):
    """PTX without comments, names and line numbers."""
    text = re.sub(r"//.*|_(\w+)_kernel|\$\w+", "", ptx.partition(".section")[0])
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith((".loc", ".file", ":"))]


@pytest.mark.compiler
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_what_is_not_asked_for_costs_nothing(target, monkeypatch):
    """With all options off, PTX equals that of the plain kernels, instruction for instruction."""
    from snippets.flash_attention import kernel as plain

    for module in (kernel, plain, backward, plain_backward):
        monkeypatch.setattr(module, "_architecture", lambda device: target)
    with Compiler(120) as compiler:
        for D, causal, N in some([(64, True, 256), (128, True, 256), (128, False, 200)], 3):
            q = torch.empty(1, 2, N, D, dtype=torch.bfloat16)
            lse = torch.empty(1, 2, N)
            given, backwards = (q, q, q, q, lse, q), plain_backward.flash_backward
            pairs = [
                (plain.flash_attention, masks_and_packing, (q, q, q), {"return_lse": True}),
                (backwards, masks_and_packing_backward, given, {}),
            ]
            # On sm_100 the backward's two kernels differ in the order of a few instructions.
            for theirs, ours, tensors, options in pairs[: 1 if target == "sm_100" else 2]:
                found = [
                    compiler.resources(f, tensors, options | {"causal": causal}, target=target)
                    for f in (theirs, ours)
                ]
                for x, y in some(zip(*found, strict=True), 1):
                    assert x.error is y.error is None
                    changes = difflib.unified_diff(bare(x.ptx), bare(y.ptx), lineterm="", n=0)
                    assert not [*changes][:9], (ours.__name__, D, causal)


MOST_SPILLED = {"packed": 100, "bias": 200}  # bytes a thread; a bias in float32 takes most
OPTIONS = {
    "window": ({"causal": True, "window": (100, None)}, False),
    "sinks": ({"causal": True, "sinks": torch.empty(2)}, False),
    "soft cap": ({"softcap": 30.0}, False),
    "bias": ({"bias": torch.empty(1, 2, 200, 200)}, False),
    "packed": ({"causal": True}, True),
}


@pytest.mark.compiler
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_compiles_and_does_not_spill_much(option, target, monkeypatch):
    for module in (kernel, backward):
        monkeypatch.setattr(module, "_architecture", lambda device: target)
    options, packed = OPTIONS[option]
    if packed:
        options = options | dict.fromkeys(ENDS, torch.empty(4, dtype=torch.int32))
    with Compiler(120) as compiler:
        for D in some([64, 128], 2):
            q, lse = torch.empty(1, 2, 200, D, dtype=torch.bfloat16), torch.empty(1, 2, 200)
            if packed:
                q, lse = q[0].transpose(0, 1).contiguous(), lse[0]
            found = compiler.resources(masks_and_packing, (q, q, q), options, target=target)
            found += compiler.resources(
                masks_and_packing_backward, (q, q, q, q, lse, q),
                options | {"want_grad_bias": option == "bias"}, target=target,
            )  # fmt: skip
            for x in some(found, 3):
                assert not x.error, (x.kernel, D, x.error)
                spilled = x.spill_store_bytes or 0
                assert spilled <= MOST_SPILLED.get(option, 64), (x.kernel, D, spilled)
