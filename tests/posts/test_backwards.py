"""What both backwards refuse before anything is launched."""

import contextlib

import pytest
import torch

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.rooms import load
from snippets._warps import launch
from snippets.flash_backward.checks import forward
from tests.posts.test_launchers import HOPPER, ON_GPU, no_launch
from tests.refusals import assert_refused

WIDTHS = {"flash_backward": 16, "hopper_backward": 64}
REFUSED = {
    "a list": ({"q": [1.0]}, TypeError("q is <class 'list'>; allowed: a dense torch.Tensor")),
    "two dtypes": (
        {"k": lambda k: k.bfloat16()},
        TypeError("k is torch.bfloat16 on {device}; allowed: torch.float16 on {device}"),
    ),
    "lse of 16 bits": ({"lse": lambda x: x.half()}, TypeError("lse is torch.float16 on {device}")),
    "lse too short": ({"lse": lambda x: x[..., :3]}, ValueError("lse has shape (1, 4, 3)")),
    "lse with gaps": ({"lse": lambda x: x.mT.contiguous().mT}, ValueError("contiguous")),
    "out too short": (
        {"out": lambda x: x[..., :3, :]},
        ValueError("out has shape (1, 4, 3, {D}); allowed with q and k: (1, 4, 4, {D})"),
    ),
    "out of another dtype": ({"out": lambda x: x.bfloat16()}, TypeError("out is torch.bfloat16")),
    "an expanded gradient": (
        {"grad_out": lambda x: x[:1, :1, :1, :1].expand(x.shape)},
        ValueError("; allowed: the last 1, else multiples of 16 bytes"),
    ),
    "heads that do not divide": (
        {name: lambda x: x[:, :3] for name in ("q", "out", "lse", "grad_out")},
        ValueError("q has 3 heads and k 2; allowed: a multiple of k's"),
    ),
    "no keys": (
        {"k": lambda k: k[:, :, :0]},
        ValueError("k has shape (1, 2, 0, {D}); allowed: 2 to 4 dimensions, none 0"),
    ),
    "a gradient": (
        {"k": lambda k: k.requires_grad_()},
        ValueError("k requires grad, but has no backward; allowed: torch.no_grad()"),
    ),
    "causal as a number": ({"causal": 1}, TypeError("causal is 1; allowed: True, False")),
    "an unknown corner": (
        {"align": "middle"},
        ValueError("align is 'middle'; allowed: 'bottom_right', 'top_left'"),
    ),
    "a scale of 0": ({"scale": 0.0}, ValueError("scale is 0.0; allowed for gradients: 2^-64 to")),
    "a scale too large for gradients": (
        {"scale": 257.0},
        ValueError("scale is 257.0; allowed for gradients: 2^-64 to 2^8"),
    ),
    "a scale of text": ({"scale": "1"}, TypeError("scale is '1'; allowed: a number or None")),
    "two tensors to add to": (
        {"into": (1, 2)},
        TypeError("into is (1, 2); allowed: three tensors, for q, k and v, or None"),
    ),
    "16 bits to add to": (
        {"into": [torch.zeros(1, dtype=torch.float16)] * 3},
        TypeError("into[0] is torch.float16"),
    ),
}
OF_ONE = {
    "flash_backward": {
        "float64": (
            {"q": lambda q: q.double()},
            TypeError(
                "q is torch.float64; allowed: (torch.float16, torch.bfloat16, torch.float32)"
            ),
        ),
        "a narrow head": (
            {"q": lambda q: q[..., :8]},
            ValueError("q has 8 columns; allowed: 16 to 256 in steps of 8"),
        ),
        "an expanded gradient": (
            {"grad_out": lambda x: x[:1, :1, :1, :1].expand(x.shape)},
            ValueError("; allowed: the last 1, others any"),
        ),
        "keys of another batch": (
            {"k": lambda k: torch.cat([k, k])},
            ValueError("k has shape (2, 2, 6, 16); allowed with q and k: (1, 2, 6, 16)"),
        ),
    },
    "hopper_backward": {
        "float32": (
            {"q": lambda q: q.float()},
            TypeError("q is torch.float32; allowed: (torch.float16, torch.bfloat16)"),
        ),
        "the gradient of lse of 16 bits": (
            {"grad_lse": torch.zeros(4, 4).half()},
            TypeError("grad_lse is torch.float16"),
        ),
        "one row for all": (
            {"grad_out": lambda x: x[:, :, :1].expand(x.shape)},
            ValueError("; allowed: the last 1, else multiples of 16 bytes"),
        ),
        "rows that TMA cannot find": (
            {"k": lambda k: torch.cat([k, k[..., :4]], -1)[..., :64]},
            ValueError("k starts at "),
        ),
        "another head": (
            {"q": lambda q: q[..., :32]},
            ValueError("q has 32 columns; allowed: (64, 128)"),
        ),
        "keys of another batch": (
            {"k": lambda k: torch.cat([k, k])},
            ValueError("k has shape (2, 2, 6, 64); allowed with q and k: (1, 2, 6, 64)"),
        ),
        "gradients to add to that are too short": (
            {"into": lambda: [torch.zeros(1, *x, 64) for x in ((4, 4), (2, 5), (2, 6))]},
            ValueError("into[1] has shape (1, 2, 5, 64)"),
        ),
        "gaps between rows that are added to": (
            {
                "into": lambda: [
                    torch.zeros(1, 4, 4, 128)[..., :64],
                    *torch.zeros(2, 1, 2, 6, 64),
                ]
            },
            ValueError("into[0] has shape (1, 4, 4, 64) and strides (2048, 512, 128, 1)"),
        ),
    },
}
CASES = [(room, case) for room in WIDTHS for case in REFUSED | OF_ONE[room]]


@pytest.mark.parametrize(("room", "case"), CASES)
def test_bad_input_is_refused_before_a_launch(room, case):
    changes, error = (REFUSED | OF_ONE[room])[case]
    run = getattr(load(room, "kernel"), room)
    here = ON_GPU if room == "flash_backward" else HOPPER
    options = {"D": WIDTHS[room], "dtype": torch.float16, "device": "cuda" if here else "cpu"}
    q, _, grad_out = make_qkv(1, 4, N=4, **options)
    _, k, v = make_qkv(1, 2, M=1, N=6, **options)
    out, lse = forward(q, k, v)
    values = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "grad_out": grad_out}
    with torch.device(options["device"]):
        for name, change in changes.items():
            given = [values[name]] if name in values else []
            values[name] = change(*given) if callable(change) else change
    with contextlib.ExitStack() as stack:
        if room == "hopper_backward" and not HOPPER:
            stack.enter_context(launch.played(run))
        stack.enter_context(no_launch(room))
        device = "cuda:0" if room == "hopper_backward" else q.device  # or played as there
        said = type(error)(f"{error}".format(device=device, D=q.shape[-1]))
        assert_refused(said, run, *[values.pop(name) for name in [*values][:6]], **values)
