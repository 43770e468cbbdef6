"""What every attention launcher owes its caller: the contract of design.md §3, a line of it a test.

A room joins by itself: its launcher is called like the room and takes q and k. What it can be asked
for is read from its signature and its kernel.py; LAUNCHERS says what is not written there. The
numerical tests judge the room's mutants, together with those of the room's own file.
"""

import ast
import contextlib
import functools
import inspect
import itertools
import math
import re
import shutil
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets._lab.judge.grid import attention_rooms
from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_attention,
    assert_weights,
    causal_mask,
    eager_attention,
    eager_weights,
    make_qkv,
)
from snippets._lab.rooms import interpreted, load, room_file, rooms, source_file
from snippets._warps.launch import played
from tests.apart import python
from tests.floors import some
from tests.refusals import assert_refused

ON_GPU = torch.cuda.is_available()
HOPPER = ON_GPU and torch.cuda.get_device_capability() == (9, 0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
ROOMS = attention_rooms()
KERNELS = [room for room in rooms() if room_file(room, "kernel.py").exists()]


@dataclass(frozen=True)
class Launcher:
    """What a launcher can be asked for; unless it says otherwise, everything."""

    M: int = 3  # queries and keys of a usual problem: more than a tile, where there are tiles
    N: int = 37
    D: int = 16  # columns of it
    widths: tuple[int, ...] = (1, 3, 16, 63, 64, 65, 128, 256)
    columns_apart: bool = True  # any strides; or the columns of a row must lie side by side
    rows_alike: bool = True  # a stride of zero
    groups: bool = False  # of query heads, which share a head of keys
    least_rank: int = 2
    far_apart: bool = True  # offsets of 2^31 elements, as far as a CPU can play them
    dtype: torch.dtype = torch.float32
    most: tuple[int, ...] = (3, 70, 70)  # M, N and D of random problems; none where a room draws


LAUNCHERS = {
    "composed_attention": Launcher(least_rank=1),  # one query may be a vector
    "vectorized_attention": Launcher(most=(3, 140, 70)),
    "tiled_attention": Launcher(M=18, N=50, most=(40, 70, 140)),
    **dict.fromkeys(
        ("flash_attention", "masks_and_packing"),
        Launcher(
            M=70,
            N=150,
            widths=(16, 24, 40, 72, 128, 136, 256),
            columns_apart=False,
            groups=True,
            most=(),
        ),
    ),
    "hopper_attention": Launcher(
        M=70,
        N=200,
        D=64,
        widths=(64, 128),
        columns_apart=False,
        rows_alike=False,
        groups=True,
        far_apart=False,
        dtype=torch.float16,
        most=(),
    ),
}


def of(room):
    return LAUNCHERS.get(room, Launcher())


def launcher(room):
    return getattr(load(room, "kernel"), room)


def parameters(room):
    return inspect.signature(launcher(room)).parameters


def dtypes(room):
    return [x for x in DTYPES if x in load(room, "kernel").DTYPES]


def device_of(room):
    """Where the room's kernel runs here: Gluon's is played on a CPU if there is no Hopper GPU."""
    return "cuda" if (ON_GPU if interpreted(room) else HOPPER) else "cpu"


@contextlib.contextmanager
def running(room):
    """The launcher, ready to be called with tensors of `device_of`."""
    if interpreted(room) or HOPPER:
        yield launcher(room)
    else:
        with played(launcher(room)):
            yield launcher(room)


def call(room, q, k, v, **options):
    with running(room) as run:
        return run(q, k, v, **options) if "v" in parameters(room) else run(q, k, **options)


def check(room, q, k, v, *, causal=False, align="bottom_right", **options):
    """Hold the launcher's result against float64."""
    mask = None
    asked = dict(options)
    if causal:
        mask = causal_mask(q.shape[-2], k.shape[-2], align=align, device=q.device)
        asked["causal"] = True
        if "align" in parameters(room):
            asked["align"] = align
    out = call(room, q, k, v, **asked)
    if "v" in parameters(room):
        return assert_attention(out, q, k, v, mask=mask, **options)
    return assert_weights(out, q, k, mask=mask, **options)


def make(room, *leading, **sizes):
    """q, k and v of a problem that the launcher takes."""
    usual = {"M": of(room).M, "N": of(room).N, "D": of(room).D, "dtype": of(room).dtype}
    return make_qkv(*leading, device=device_of(room), **(usual | sizes))


def each(cases):
    """Parametrise over the rooms, and over what a function of the room gives."""
    pairs = [(room, case) for room in ROOMS for case in cases(room)]
    return pytest.mark.parametrize(("room", "case"), pairs, ids=str)


with_every_launcher = pytest.mark.parametrize("room", ROOMS)
with_every_mask = pytest.mark.parametrize(
    "room", [room for room in ROOMS if "causal" in parameters(room)]
)


@pytest.mark.numerical
@each(dtypes)
def test_dtypes(room, case):
    check(room, *make(room, 2, dtype=case))


@pytest.mark.numerical
@each(lambda room: of(room).widths)
def test_head_dimensions(room, case):
    # With few columns a small q can leave the weights almost uniform.
    check(room, *make(room, D=case, spread=9.0 if case < 8 else 3.0))


@pytest.mark.numerical
@each(lambda room: [(1, 1), (1, 129), (2, 63), (3, 64), (3, 65), (3, 127)])
def test_odd_lengths(room, case):
    M, N = case
    check(room, *make(room, M=M, N=N))


@pytest.mark.numerical
@each(lambda room: [(), (1,), (3,), (1, 1), (2, 3)])
def test_batch_and_heads(room, case):
    check(room, *make(room, *case, M=min(of(room).M, 17), N=20))


def columns_apart(x):
    return x.mT.contiguous().mT


def heads_side_by_side(x):
    """[B, H, N, D] in [B, N, H, D] memory, as models store them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


def slices(x):
    """Every second row of a tensor with three times the columns."""
    return torch.cat([x, x.flip(-1), x], -1).repeat_interleave(2, -2)[..., ::2, -x.shape[-1] :]


LAYOUTS = [columns_apart, heads_side_by_side, slices]


@pytest.mark.numerical
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda f: f.__name__)
@with_every_launcher
def test_strides_are_honoured(room, layout):
    q, k, v = (layout(x) for x in make(room, 2, 3))
    assert not k.is_contiguous()
    if layout is columns_apart and not of(room).columns_apart:
        with pytest.raises(ValueError, match=r"q .* strides .*the last (must be )?1"):
            call(room, q, k, v)
    else:
        check(room, q, k, v)


@pytest.mark.numerical
@with_every_launcher
def test_values_may_lie_otherwise_than_keys(room):
    q, k, v = make(room, 2, 3)
    check(room, heads_side_by_side(q), slices(k), v)


@pytest.mark.numerical
@pytest.mark.parametrize("room", [room for room in ROOMS if of(room).most])
@given(data=st.data())
def test_any_problem(room, data):
    """Any sizes, dtype, mask and layout."""
    M, N, D = (data.draw(st.integers(1, most)) for most in of(room).most)
    masks = [{}] + [{"causal": True}] * ("causal" in parameters(room))
    masks += [{"causal": True, "align": "top_left"}] * ("align" in parameters(room))
    options = {
        "dtype": data.draw(st.sampled_from(dtypes(room))),
        "seed": data.draw(st.integers(0, 99)),
    }
    leading = data.draw(st.lists(st.integers(1, 3), max_size=2))
    # At D 1 a small q can leave the weights almost uniform.
    tensors = make(room, *leading, M=M, N=N, D=D, spread=9.0, **options)
    if data.draw(st.booleans()):
        tensors = [columns_apart(x) for x in tensors]
    check(room, *tensors, **data.draw(st.sampled_from(masks)))


@pytest.mark.numerical
@with_every_launcher
def test_one_key_for_all_heads_by_a_stride_of_zero(room):
    q, k, v = make(room, 2, 4)
    k, v = (x[:, :1].expand(-1, 4, -1, -1) for x in (k, v))
    if of(room).rows_alike:
        check(room, q, k, v)
    else:
        with pytest.raises(ValueError, match=r"k starts at .* with strides"):
            call(room, q, k, v)


@pytest.mark.numerical
@each(dtypes)
def test_scores_of_ten_thousand(room, case):
    q, k, v = make(room, M=3, N=33, D=64, dtype=case)
    q, k = (x / x.norm(dim=-1, keepdim=True) * 300 for x in (q, k))
    scores = q.double() @ k.double().mT
    assert scores.abs().max() > 1e4
    check(room, q, k, v, scale=1.0)
    if "causal" in parameters(room):
        check(room, q, k, v, scale=1.0, causal=True)


SCALES = {
    "none": None,
    "float": 0.3,
    "int": 2,
    "numpy": np.float32(0.7),
    "half": np.float16(0.3),
    "fraction": Fraction(1, 3),
}


@pytest.mark.numerical
@each(lambda room: SCALES)
def test_scale(room, case):
    scale = SCALES[case]
    q, k, v = make(room, M=3)
    out = call(room, q, k, v, scale=scale)
    judge = assert_attention if "v" in parameters(room) else assert_weights
    judge(out, *(q, k, v)[: 2 + ("v" in parameters(room))], scale=scale and float(scale))


@pytest.mark.numerical
@each(lambda room: [False, True] if "causal" in parameters(room) else [False])
def test_the_smallest_scale_and_the_largest(room, case):
    """One makes all weights equal and the other leaves one key; -inf · 0 and inf - inf are NaN."""
    q, k, v = make(room, M=5)
    visible = causal_mask(5, k.shape[-2], device=q.device) if case else torch.ones(5, k.shape[-2])
    visible = visible.to(q.device).double()
    scores = (q.double() @ k.double().mT).masked_fill(visible == 0, -math.inf)
    one = torch.nn.functional.one_hot(scores.argmax(-1), k.shape[-2]).double()
    equal = (visible / visible.sum(-1, keepdim=True)).expand_as(one)
    options = {"causal": True} if case else {}
    for scale, weights in ((2.0**-64, equal), (2.0**64, one)):
        want, summed = weights, weights
        if "v" in parameters(room):
            want, summed = weights @ v.double(), weights @ v.double().abs()
        difference = (call(room, q, k, v, scale=scale, **options).double() - want).abs().max()
        # Weights, sums in any order, and the result are rounded.
        allowed = 2 * torch.finfo(q.dtype).eps * summed.max()
        if not difference <= allowed:
            raise NumericalMismatch(
                f"difference {difference:.1e} at {scale}, allowed {allowed:.1e}"
            )


def towering(room, *factors):
    """q, k and v in float32 whose scores are 2^126 times these factors, one for each key."""
    q, k, v = make(room, M=2, N=len(factors), dtype=torch.float32)
    q[:], k[:] = 0, 0
    q[:, 0] = 2.0**63
    k[:, 0] = torch.tensor(factors) * 2.0**63
    q[1] = -q[1]
    return q, k, v


with_float32 = pytest.mark.parametrize("room", [r for r in ROOMS if torch.float32 in dtypes(r)])


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # differences, to -inf
@with_float32
def test_scores_almost_as_large_as_float32_holds(room):
    """Up to 2^127: the largest score takes all, key 2 for one query and key 1 for the other."""
    q, k, v = towering(room, 1.0, -1.99, 1.99, 0.0, -1.5)
    one = torch.nn.functional.one_hot(torch.tensor([2, 1], device=q.device), 5).to(v.dtype)
    want = one @ v if "v" in parameters(room) else one
    torch.testing.assert_close(call(room, q, k, v, scale=1.0), want, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
@with_float32
def test_scores_too_large_for_float32_end_as_in_pytorch(room):
    """Where eager attention is NaN so are we, and where it is not we agree: 2^128 is inf."""
    q, k, v = towering(room, 1.0, -8.0, 0.5, -4.0)  # row 0 has -inf twice, row 1 inf twice
    if "v" not in parameters(room):
        want = eager_weights(q, k, scale=1.0)
    else:
        want = eager_attention(q, k, v, scale=1.0)
    assert want.isnan().any(-1).tolist() == [False, True]
    torch.testing.assert_close(call(room, q, k, v, scale=1.0), want, equal_nan=True)


def attention_of(room, name, module="kernel", **options):
    """A function of q, k and v that is not called like its room."""
    return lambda q, k, v: getattr(load(room, module), name)(q, k, v, **options)


# All that computes attention, with the room whose problems it takes.
ATTENTIONS = {room: (room, functools.partial(call, room)) for room in ROOMS} | {
    "decode_attention": ("flash_attention", attention_of("decode_attention", "decode_attention")),
    "splits": (
        "flash_attention",
        attention_of("decode_attention", "decode_attention", num_splits=3),
    ),
    "same_bits": ("flash_attention", attention_of("same_bits", "same_bits", causal=False)),
    "ring_attention": ("flash_attention", attention_of("ring_attention", "ring_attention", "ring")),
    "attention": ("flash_attention", attention_of("flash_backward", "attention", "op")),
    "composed_attention_op": (
        "composed_attention",
        attention_of("composed_attention", "composed_attention_op", "op"),
    ),
}
with_every_attention = pytest.mark.parametrize("name", ATTENTIONS)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("seen", [None, 0, -1])
@with_every_attention
def test_scores_of_minus_infinity_weigh_nothing(name, seen):
    """A row of nothing else is 0, as in PyTorch's own attention. What is NaN stays NaN."""
    room, attention = ATTENTIONS[name]
    q, k, v = make(room, 1, 2, M=of(room).N if name == "ring_attention" else 3)
    q[..., 0], k[..., 0] = 1.0, -math.inf
    q[..., 0, 0] = math.nan
    weights = torch.zeros(*q.shape[:-1], k.shape[-2], dtype=q.dtype, device=q.device)
    if seen is not None:
        k[..., seen, 0] = 0.0
        weights[..., seen] = 1.0
    # The fused ones of a GPU give NaN.
    with sdpa_kernel(SDPBackend.MATH) if ON_GPU else contextlib.nullcontext():
        pytorch = torch.nn.functional.scaled_dot_product_attention(q, k, v)[..., 1:, :]
    want = weights if "weights" in name else weights @ v
    if name in ("decode_attention", "splits"):  # earlier tokens don't see the last key
        q, want, pytorch = (x[..., [0, -1], :] for x in (q, want, pytorch))
    out = attention(q, k, v)
    assert out[..., 0, :].isnan().all()
    assert torch.equal(out[..., 1:, :], want[..., 1:, :])
    assert torch.equal(pytorch, (weights @ v)[..., 1:, :])
    k[..., 2, 1] = math.nan
    assert attention(q, k, v).isnan().all()


def dual_numbers(f, x):
    with torch.autograd.forward_ad.dual_level():
        return f(torch.autograd.forward_ad.make_dual(x, x))


TRANSFORMS = {
    "vmap": lambda f, x: torch.vmap(f)(x[None]),
    "grad": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "vjp": torch.func.vjp,
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,)),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
    "jacfwd": lambda f, x: torch.func.jacfwd(f)(x),
    "hessian": lambda f, x: torch.func.hessian(lambda y: f(y).sum())(x),
    "dual numbers": dual_numbers,
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@with_every_attention
def test_torch_func_is_refused_before_anything_runs(name, transform):
    room, attention = ATTENTIONS[name]
    q, k, v = make(room, 1, 2, M=of(room).N)
    with pytest.raises(TypeError, match=r"torch\.func cannot see into a kernel"):
        TRANSFORMS[transform](lambda x: attention(x, k, v), q)


@pytest.mark.numerical
@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize(("M", "N"), [(5, 5), (2, 9), (9, 2), (1, 6), (6, 1), (3, 65)])
@with_every_mask
def test_both_corners_of_a_causal_mask(room, M, N, align):
    tensors = make(room, 2, M=M, N=N)
    if align == "top_left" and "align" not in parameters(room):
        with pytest.raises(TypeError, match="align"):
            call(room, *tensors, causal=True, align=align)
    else:
        check(room, *tensors, causal=True, align=align)


@with_every_mask
def test_a_corner_without_a_causal_mask_has_no_effect(room):
    if "align" not in parameters(room):
        pytest.skip("its mask has one corner")
    tensors = make(room, 2, M=4)
    without = call(room, *tensors)
    assert torch.equal(call(room, *tensors, align="top_left"), without)
    assert not torch.equal(call(room, *tensors, align="top_left", causal=True), without)


@with_every_mask
def test_a_query_that_sees_no_key_gets_zeros(room):
    """Whole tiles of queries, and some rows of one."""
    out = call(room, *make(room, 2, M=200, N=9), causal=True)
    assert (out[:, :191] == 0).all()
    assert (out[:, 191:] != 0).any(-1).all()


def wide_or_not(room):
    """Columns and dtypes of a launcher that has values, and a mask that hides keys."""
    if {"v", "causal"} <= set(parameters(room)):
        yield from itertools.product((of(room).D, 128), dtypes(room))


@each(wide_or_not)
def test_a_nan_stays_where_it_belongs(room, case):
    q, k, v = make(room, 1, 1, M=150, N=150, D=case[0], dtype=case[1])
    broken = q.clone()
    broken[:, :, 7] = math.nan
    out = call(room, broken, k, v)
    assert out[:, :, 7].isnan().all()
    assert out.isnan().any(-1).sum() == 1
    broken = k.clone()
    broken[:, :, 100] = math.nan
    out = call(room, q, broken, v, causal=True)
    assert out[:, :, :100].isfinite().all(), "queries that do not see key 100"
    assert out[:, :, 100:].isnan().all()


@pytest.mark.parametrize("leading", [(), (3,)], ids=str)
@pytest.mark.parametrize("room", [room for room in ROOMS if "return_lse" in parameters(room)])
def test_the_logsumexp_has_the_rank_of_its_queries(room, leading):
    q, k, v = make(room, *leading, M=5)
    out, lse = call(room, q, k, v, return_lse=True)
    assert torch.equal(out, call(room, q, k, v))
    q, k = q.double() * q.shape[-1] ** -0.5, k.double()
    allowed = 4 * torch.finfo(torch.float32).eps * ((q.abs() @ k.abs().mT).max().item() + 1)
    want = (q @ k.mT).logsumexp(-1)
    torch.testing.assert_close(lse.double(), want, atol=allowed, rtol=0)


@pytest.mark.skipif(ON_GPU, reason="reserves memory that it never touches: a CPU's privilege")
@pytest.mark.parametrize("room", [room for room in ROOMS if of(room).far_apart])
def test_offsets_beyond_32_bits(room):
    """Row 1 of k lies 2^31 elements after row 0: a 32-bit offset would wrap around."""
    far = 2**31 + 16
    memory = torch.from_numpy(np.empty(far + 64, dtype=np.float16))
    rows = torch.as_strided(memory, (2, 16), (far, 1))
    q, k, _ = make_qkv(N=2, D=16, dtype=torch.float16)
    rows.copy_(k)
    cases = [(q, rows, rows), (rows, k, k)]
    if of(room).columns_apart:
        cases.append((q[:, :2], rows.T[:2], rows.T[:2]))
    for tensors in cases:
        check(room, *tensors)


@with_every_launcher
def test_inputs_stay_as_they_were(room):
    tensors = make(room, 2)
    before = [x.clone() for x in tensors]
    call(room, *tensors)
    assert all(torch.equal(x, y) for x, y in some(zip(tensors, before, strict=True)))


# Playing Gluon's kernel takes threads, to which "no gradient" would have to be said again.
@pytest.mark.parametrize("room", [room for room in ROOMS if interpreted(room) or HOPPER])
def test_gradient_is_allowed_where_none_is_recorded(room):
    q, k, v = make(room, M=2)
    with torch.no_grad():
        check(room, q.requires_grad_(), k, v)


# What is refused.


def ones(room, *shape):
    return torch.ones(shape, dtype=of(room).dtype, device=device_of(room))


def jagged(x):
    return torch.nested.nested_tensor([*x], layout=torch.jagged)


def on_meta(x):
    return x.to("meta")


def another_dtype(x):
    return x.bfloat16() if x.dtype == torch.float16 else x.half()


# Type of an error → all that it says, in all rooms, but for what differs from room to room → what
# it is raised for, in place of q [2, 3, D], k, v [2, 5, D]: a shape, a change, another value.
REFUSED = {
    TypeError: {
        "q is <class 'numpy.ndarray'>; allowed: a dense torch.Tensor": {"q": np.ones((2, 3))},
        "k is <class 'list'>; allowed: a dense torch.Tensor": {"k": [1.0]},
        "k is torch.sparse_coo; allowed: a dense torch.Tensor": {"k": torch.Tensor.to_sparse},
        "k is nested; allowed: a dense torch.Tensor": {
            "k": lambda x: torch.nested.nested_tensor([x[0], x[1, 1:]])
        },
        "k is nested; {dense}": {"k": jagged},
        "k is torch.quint8; allowed: {dtypes}": {
            "k": lambda x: torch.quantize_per_tensor(x.float(), 0.1, 0, torch.quint8)
        },
        "q is torch.complex64; allowed: {dtypes}": {"q": torch.Tensor.cfloat},
        "q is torch.float64; allowed: {dtypes}": {"q": torch.Tensor.double},
        "k is torch.int32; allowed: {dtypes}": {"k": torch.Tensor.int},
        "k is {other} on {device}; allowed: {dtype} on {device}": {"k": another_dtype},
        "k is {dtype} on meta; allowed: {dtype} on {device}": {"k": on_meta},
        "return_lse is 1; allowed: True, False": {"return_lse": 1},
    }
    | {
        f"causal is {x!r}; allowed: True, False": {"causal": x}
        for x in (1, np.True_, torch.ones(()))
    }
    | {
        f"scale is {x!r}; allowed: a number or None": {"scale": x}
        for x in ("1", True, torch.ones(()), Decimal(1))
    },
    ValueError: {
        "q is on meta; allowed: {needs}": dict.fromkeys("qkv", on_meta),
        "k requires grad, but has no backward; allowed: torch.no_grad()": {
            "k": torch.Tensor.requires_grad_
        },
        "k is a negated view; allowed: k.resolve_neg()": {"k": torch._neg_view},
        "align is 'bottom-right'; allowed: 'bottom_right', 'top_left'": {"align": "bottom-right"},
        "align is array([1]); allowed: 'bottom_right', 'top_left'": {"align": np.array([1])},
        "q has shape (); allowed: {least} to 4 dimensions, none 0": {"q": ()},
        "{a_vector}": {"q": ("D",)},
        "q has shape (1, 1, 2, 3, {D}); allowed: {least} to 4 dimensions, none 0": {
            "q": (1, 1, 2, 3, "D")
        },
        "q has shape (2, 0, {D}); allowed: {least} to 4 dimensions, none 0": {"q": (2, 0, "D")},
        "k has shape (2, 0, {D}); allowed: {least} to 4 dimensions, none 0": {"k": (2, 0, "D")},
        "q has shape (0, 3, {D}); allowed: {least} to 4 dimensions, none 0": {"q": (0, 3, "D")},
        "{other_heads}": dict.fromkeys("kv", (3, 5, "D")),
        "k has shape (4, 2, 5, {D}); allowed with q: (1, 2, 5, {D})": (
            {"q": (1, 2, 3, "D")} | dict.fromkeys("kv", (4, 2, 5, "D"))
        ),
        "k has shape (5, {D}); allowed with q: ({fewest}, 5, {D})": dict.fromkeys("kv", (5, "D")),
        "k has shape (1, 2, 5, {D}); allowed with q: (2, 5, {D})": (
            dict.fromkeys("kv", (1, 2, 5, "D"))
        ),
        "k has shape (2, 5, {twice_D}); allowed with q: (2, 5, {D})": (
            dict.fromkeys("kv", lambda x: torch.cat([x, x], -1))
        ),
        "v has shape (2, 4, {D}); allowed with q: (2, 5, {D})": {"v": (2, 4, "D")},
    }
    | {
        f"scale is {x!r:.40}; allowed: 2^-64 to 2^64": {"scale": x}
        for x in (math.nan, math.inf, 0, -0.5, 1e-46, 1e37, 10**400)
    },
}
CASES = {said: (kind, change) for kind, all_ in REFUSED.items() for said, change in all_.items()}


def asked(room):
    """The refusals that the launcher has arguments for."""
    without = {"v", "causal", "align", "return_lse"} - set(parameters(room))
    return [said for said in CASES if said.split()[0] not in without]


@contextlib.contextmanager
def no_launch(room):
    """A launch would be a TypeError that names no argument."""
    module = load(room, "kernel")
    with contextlib.ExitStack() as stack:
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            stack.enter_context(patch.object(module, name, None))
        yield


def sentence(room, said):
    """The error that a room should raise: its dtypes, sizes and needs in the places of `said`."""
    D, groups, dtype = of(room).D, of(room).groups, of(room).dtype
    here = interpreted(room) or HOPPER
    a_vector = f"q has shape ({D},); allowed: 2 to 4 dimensions, none 0"
    if of(room).least_rank < 2:
        a_vector = f"k has shape (2, 5, {D}); allowed with q: (5, {D})"
    other_heads = f"k has shape (3, 5, {D}); allowed with q: (2, 5, {D})"
    return said.format(
        D=D,
        twice_D=2 * D,
        dtype=dtype,
        dtypes=load(room, "kernel").DTYPES,
        other=another_dtype(torch.ones(1, dtype=dtype)).dtype,
        # Where Gluon's kernel is played, its tensors say that they are on a GPU.
        device=torch.empty(0, device=device_of(room)).device if here else "cuda:0",
        needs="a GPU, or a CPU with TRITON_INTERPRET=1" if interpreted(room) else "an H100 or H200",
        dense="allowed: a dense torch.Tensor",
        least=of(room).least_rank,
        a_vector=a_vector,
        other_heads="q has 2 heads and k 3; allowed: a multiple of k's" if groups else other_heads,
        fewest=1 if groups else 2,  # heads of keys, to go with two of queries
    )


def refused(room, case):
    """What a launcher is given in a case of `CASES`, and the error that it should raise."""
    kind, change = CASES[case]
    D = of(room).D
    given = {"q": ones(room, 2, 3, D), "k": ones(room, 2, 5, D), "v": ones(room, 2, 5, D)}
    for name, x in change.items():
        if isinstance(x, tuple):
            given[name] = ones(room, *(D if size == "D" else size for size in x))
        else:
            given[name] = x(given[name]) if callable(x) else x
    given = {name: x for name, x in given.items() if name in parameters(room)}
    return given, kind(sentence(room, case))


with_odd_tensors = pytest.mark.filterwarnings("ignore:.*(prototype stage|deprecated):UserWarning")


@with_odd_tensors
@each(asked)
def test_refusals(room, case):
    given, error = refused(room, case)
    with running(room) as run, no_launch(room):
        assert assert_refused(error, run, **given) == f"{error}"


PROGRAMS = "2147483648 programs; allowed: at most 2147483647"
# What is too much for a launcher: the shapes of q and of k and v, and what the error says.
LIMITS = [
    ("attention_weights", (2, 1025), (2, 1025), "1025 columns; allowed: at most 1024"),
    ("attention_weights", (2, 8), (16_385, 8), "16385 keys"),
    ("attention_weights", (2**31, 1), (1, 1), PROGRAMS),
    ("basic_attention", (2, 1025), (2, 1025), "1025 columns; allowed: at most 1024"),
    ("basic_attention", (2, 8), (16_385, 8), "16385 keys"),
    ("basic_attention", (2**31, 1), (1, 1), PROGRAMS),
    ("vectorized_attention", (2, 1025), (2, 1025), "1025 columns; allowed: at most 1024"),
    ("vectorized_attention", (2, 64), (16_385, 64), "2097152 elements of a tile; allowed: at most"),
    ("vectorized_attention", (2, 65), (8193, 65), "2097152 elements of a tile"),
    ("vectorized_attention", (2**31, 1), (1, 1), PROGRAMS),
    ("tiled_attention", (2, 257), (2, 257), "257 columns; allowed: at most 256"),
    ("tiled_attention", (2**35, 1), (1, 1), PROGRAMS),
    ("flash_attention", (1, 1, 2, 264), (1, 1, 2, 264), "264 columns"),
    ("flash_attention", (1, 1, 2, 8), (1, 1, 2, 8), "8 columns"),
    ("flash_attention", (1, 1, 2, 20), (1, 1, 2, 20), "in steps of 8"),
    ("flash_attention", (1, 2, 2**30, 16), (1, 2, 5, 16), "allowed: under 2^31 rows"),
]


@pytest.mark.parametrize(("room", "q", "k", "said"), LIMITS)
def test_what_is_too_much_is_refused(room, q, k, said):
    q, k = (ones(room, 1, shape[-1]).expand(shape) for shape in (q, k))
    with no_launch(room):
        assert_refused(ValueError(said), call, room, q, k, k)


def test_what_several_kernels_refuse_they_refuse_alike():
    """One condition has one error, word for word, in every kernel.py: each file stands alone."""
    said = defaultdict(lambda: defaultdict(list))
    for room in KERNELS:
        tree = ast.parse(room_file(room, "kernel.py").read_text(encoding="utf-8"))
        refusals = [x for x in tree.body if getattr(x, "name", "").endswith("_refusals")]
        assert refusals, room
        for node in [node for function in refusals for node in ast.walk(function)]:
            if isinstance(node, ast.If):
                said[ast.unparse(node.test)][ast.unparse(node.body)].append(room)
    assert [test for test, errors in said.items() if len(errors) > 1] == []
    shared = [test for test, errors in said.items() if len(*errors.values()) >= len(KERNELS) - 4]
    assert len(shared) >= 6, shared


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
@pytest.mark.parametrize("room", [room for room in ROOMS if interpreted(room)])
def test_cpu_without_the_interpreter_says_what_to_do(room, monkeypatch):
    monkeypatch.setattr(load(room, "kernel"), "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        call(room, *make(room))


# What a reader copies.


FILES = {room: room_file(room, "kernel.py") for room in KERNELS}
FILES |= {room: source_file(room) for room in ("attention_memory", "multi_head_attention")}
PRINTED = {room: [r"^q \(2, " if room in ROOMS else r"^\w+ \("] for room in KERNELS} | {
    "attention_memory": [
        r"^scores       68\.72 GB",
        r"^training: eager  282\.39 GB, counted  282\.39 GB",
        r"seen from outside  213\.67 GB",
    ],
    "multi_head_attention": [r"^x \(4, 100, 256\), 8 heads"],
}


@pytest.mark.parametrize("room", FILES)
def test_the_file_runs_alone(room, tmp_path):
    done = python(shutil.copy(FILES[room], tmp_path), cwd=tmp_path)
    if interpreted(room) or HOPPER:
        assert done.returncode == 0, done.stderr
        assert "\nOK\n" in done.stdout
        for words in PRINTED[room]:
            assert re.search(words, done.stdout, re.MULTILINE), "the shape of its input, or sizes"
    else:
        assert done.returncode == 1, done.stderr
        assert "NOT CHECKED: this kernel needs an H100 or H200" in done.stdout
