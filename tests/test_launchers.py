"""What every attention launcher owes its caller: the contract of design.md §3, a line of it a test.

A room joins by itself: its launcher is called like the room and takes q and k. What it can be asked
for is read from its signature and its kernel.py; LAUNCHERS says what is not written there. The
numerical tests judge the room's mutants, together with those of the room's own file.
"""

import contextlib
import inspect
import math
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
import pytest
import torch

from snippets._lab.judge.grid import attention_rooms
from snippets._lab.judge.oracle import assert_attention, assert_weights, causal_mask, make_qkv
from snippets._lab.rooms import interpreted, load, room_file, rooms

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
    negative_scale: bool = True
    least_rank: int = 2
    refuses_other_rank: bool = True  # False: keys of a lower rank end in a bare IndexError
    far_apart: bool = True  # offsets of 2^31 elements, as far as a CPU can play them
    dtype: torch.dtype = torch.float32


LAUNCHERS = {
    "composed_attention": Launcher(least_rank=1),  # one query may be a vector
    "tiled_attention": Launcher(M=18, N=50),
    "flash_attention": Launcher(
        M=70,
        N=150,
        widths=(16, 24, 40, 72, 128, 136, 256),
        columns_apart=False,
        negative_scale=False,
        refuses_other_rank=False,
    ),
    "hopper_attention": Launcher(
        M=70,
        N=200,
        D=64,
        widths=(64, 128),
        columns_apart=False,
        rows_alike=False,
        negative_scale=False,
        refuses_other_rank=False,
        far_apart=False,
        dtype=torch.float16,
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
        with load(room, "simulator.on_cpu").played(launcher(room)):
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


def test_all_launchers_are_here():
    assert len(ROOMS) >= 7
    assert set(LAUNCHERS) <= set(ROOMS)


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
        with pytest.raises(ValueError, match=r"q has strides .*; the last must be 1"):
            call(room, q, k, v)
    else:
        check(room, q, k, v)


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


@pytest.mark.numerical
@each(lambda room: [None, 1.0, 0.3, 2, -0.5])
def test_scale(room, case):
    tensors = make(room)
    if (case or 1) > 0 or of(room).negative_scale:
        check(room, *tensors, scale=case)
    else:
        with pytest.raises(ValueError, match=r"scale is -0.5; it must be positive"):
            call(room, *tensors, scale=case)


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
def test_a_query_that_sees_no_key_gets_zeros(room):
    out = call(room, *make(room, 2, M=40, N=9), causal=True)
    assert (out[:, :31] == 0).all()
    assert (out[:, 31:] != 0).any(-1).all()


@with_every_launcher
def test_zero_scores_weigh_all_keys_alike(room):
    q, k, v = make(room, 1, 2, M=3)
    out = call(room, torch.zeros_like(q), k, v)
    if "v" in parameters(room):
        want = v.double().mean(-2, keepdim=True).expand(q.shape)
    else:
        want = torch.full(out.shape, 1 / k.shape[-2], dtype=torch.float64, device=out.device)
    torch.testing.assert_close(out, want.to(out.dtype))


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
    assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))


# Playing Gluon's kernel takes threads, to which "no gradient" would have to be said again.
@pytest.mark.parametrize("room", [room for room in ROOMS if interpreted(room) or HOPPER])
def test_gradient_is_allowed_where_none_is_recorded(room):
    q, k, v = make(room, M=2)
    with torch.no_grad():
        check(room, q.requires_grad_(), k, v)


# What is refused.


def ones(room, *shape, dtype=None, device=None, **options):
    device = device or device_of(room)
    return torch.ones(shape, dtype=dtype or of(room).dtype, device=device, **options)


def everywhere(make_one):
    return {name: make_one(name) for name in "qkv"}


def other_dtype(room):
    return torch.bfloat16 if of(room).dtype == torch.float16 else torch.float16


# A function of the room and its D gives the arguments that are not q [2, 3, D], k, v [2, 5, D].
REFUSED = {
    "not a tensor": (lambda r, D: {"k": [1.0]}, TypeError, "k is a list"),
    "float64": (
        lambda r, D: {"q": ones(r, 2, 3, D).double()},
        TypeError,
        "q is torch.float64; float16",
    ),
    "integers": (lambda r, D: {"k": ones(r, 2, 5, D).int()}, TypeError, "k is torch.int32; float"),
    "two dtypes": (
        lambda r, D: {"k": ones(r, 2, 5, D, dtype=other_dtype(r))},
        TypeError,
        "but q is torch.float",
    ),
    "two devices": (
        lambda r, D: {"k": ones(r, 2, 5, D, device="meta")},
        ValueError,
        "k is on meta but q",
    ),
    "another device": (
        lambda r, D: everywhere(lambda _: ones(r, 2, 5, D, device="meta")),
        ValueError,
        " on meta; ",
    ),
    "no dimension": (lambda r, D: {"q": ones(r)}, ValueError, "q has shape (); "),
    "one dimension": (lambda r, D: {"q": ones(r, D)}, ValueError, "q has shape ({D},); "),
    "five dimensions": (
        lambda r, D: {"q": ones(r, 1, 1, 2, 3, D)},
        ValueError,
        "q has shape (1, 1, 2, 3, {D}); ",
    ),
    "no query": (lambda r, D: {"q": ones(r, 2, 0, D)}, ValueError, "q has shape (2, 0, {D}); "),
    "no key": (lambda r, D: {"k": ones(r, 2, 0, D)}, ValueError, "k has shape (2, 0, {D}); "),
    "no batch": (lambda r, D: {"q": ones(r, 0, 3, D)}, ValueError, "q has shape (0, 3, {D}); "),
    "other heads": (
        lambda r, D: {"k": ones(r, 3, 5, D), "v": ones(r, 3, 5, D)},
        ValueError,
        "q",
    ),
    "other rank": (lambda r, D: {"k": ones(r, 5, D), "v": ones(r, 5, D)}, ValueError, "(5, {D})"),
    "other head dimension": (
        lambda r, D: {"k": ones(r, 2, 5, 2 * D), "v": ones(r, 2, 5, 2 * D)},
        ValueError,
        "(2, 5, {2D})",
    ),
    "v unlike k": (lambda r, D: {"v": ones(r, 2, 4, D)}, ValueError, "v has shape (2, 4, {D}); it"),
    "gradient": (
        lambda r, D: {"k": ones(r, 2, 5, D, requires_grad=True)},
        ValueError,
        "k requires grad",
    ),
    "scale a string": (lambda r, D: {"scale": "1"}, TypeError, "scale is a str; a "),
    "scale a bool": (lambda r, D: {"scale": True}, TypeError, "scale is a bool; a "),
    "scale not finite": (lambda r, D: {"scale": math.nan}, ValueError, "scale is nan; it must be"),
    "scale infinite": (lambda r, D: {"scale": math.inf}, ValueError, "scale is inf; it must be"),
    "causal a number": (lambda r, D: {"causal": 1}, TypeError, "causal is a int; True"),
    "causal a mask": (
        lambda r, D: {"causal": causal_mask(3, 5)},
        TypeError,
        "; True",
    ),
    "a corner misspelt": (
        lambda r, D: {"causal": True, "align": "bottom-right"},
        ValueError,
        "align is 'bottom-right'; ",
    ),
}


def asked(room):
    """The refusals that the launcher has arguments for."""
    for case, (change, *_) in REFUSED.items():
        names = set(change(room, of(room).D)) if "causal" in case or "corner" in case else set()
        if case == "v unlike k":
            names = {"v"}
        if case == "one dimension" and of(room).least_rank < 2:
            continue
        if case == "other rank" and not of(room).refuses_other_rank:
            continue
        if names <= set(parameters(room)):
            yield case


@contextlib.contextmanager
def no_launch(room):
    """A launch would be a TypeError that names no argument."""
    module = load(room, "kernel")
    with contextlib.ExitStack() as stack:
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            stack.enter_context(patch.object(module, name, None))
        yield


@each(asked)
def test_refusals(room, case):
    change, error, message = REFUSED[case]
    D = of(room).D
    usual = {"q": ones(room, 2, 3, D), "k": ones(room, 2, 5, D), "v": ones(room, 2, 5, D)}
    arguments = usual | change(room, D)
    arguments = {name: x for name, x in arguments.items() if name in parameters(room)}
    with running(room) as run, no_launch(room), pytest.raises(error) as caught:
        run(**arguments)
    said = str(caught.value)
    assert message.replace("{D}", str(D)).replace("{2D}", str(2 * D)) in said
    assert re.search("; .|, which does not fit q, .", said), "and what is allowed"


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
@pytest.mark.parametrize("room", [room for room in ROOMS if interpreted(room)])
def test_cpu_without_the_interpreter_says_what_to_do(room, monkeypatch):
    monkeypatch.setattr(load(room, "kernel"), "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        call(room, *make(room))


# What a reader copies.


@pytest.mark.parametrize("room", KERNELS)
def test_the_file_runs_alone(room, tmp_path):
    shutil.copy(room_file(room, "kernel.py"), tmp_path)
    done = subprocess.run(
        [sys.executable, "kernel.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    if interpreted(room) or HOPPER:
        assert done.returncode == 0, done.stderr
        assert "\nOK\n" in done.stdout
        assert ("q (2, " if room in ROOMS else "x (") in done.stdout, "the shape of its input"
    else:
        assert done.returncode == 1, done.stderr
        assert "NOT CHECKED: this kernel needs an H100 or H200" in done.stdout
