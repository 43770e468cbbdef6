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
    TypeError: {
        "q is <class 'list'>; allowed: a dense torch.Tensor": {"q": [1.0]},
        "k is torch.bfloat16 on {device}; allowed: torch.float16 on {device}": {
            "k": torch.Tensor.bfloat16
        },
        "lse is torch.float16 on {device}": {"lse": torch.Tensor.half},
        "out is torch.bfloat16": {"out": torch.Tensor.bfloat16},
        "causal is 1; allowed: True, False": {"causal": 1},
        "scale is '1'; allowed: a number or None": {"scale": "1"},
        "into is (1, 2); allowed: three tensors, for q, k and v, or None": {"into": (1, 2)},
        "into[0] is torch.float16": {"into": [torch.zeros(1, dtype=torch.float16)] * 3},
    },
    ValueError: {
        "lse has shape (1, 4, 3)": {"lse": lambda x: x[..., :3]},
        "contiguous": {"lse": lambda x: x.mT.contiguous().mT},
        "out has shape (1, 4, 3, {D}); allowed with q and k: (1, 4, 4, {D})": {
            "out": lambda x: x[..., :3, :]
        },
        "q has 3 heads and k 2; allowed: a multiple of k's": {
            name: lambda x: x[:, :3] for name in ("q", "out", "lse", "grad_out")
        },
        "k has shape (1, 2, 0, {D}); allowed: 2 to 4 dimensions, none 0": {
            "k": lambda k: k[:, :, :0]
        },
        "k has shape (2, 2, 6, {D}); allowed with q and k: (1, 2, 6, {D})": {
            "k": lambda k: torch.cat([k, k])
        },
        "k requires grad, but has no backward; allowed: torch.no_grad()": {
            "k": torch.Tensor.requires_grad_
        },
        "align is 'middle'; allowed: 'bottom_right', 'top_left'": {"align": "middle"},
        "scale is 0.0; allowed for gradients: 2^-64 to": {"scale": 0.0},
        "scale is 257.0; allowed for gradients: 2^-64 to 2^8": {"scale": 257.0},
    },
}
EXPANDED = {"grad_out": lambda x: x[:1, :1, :1, :1].expand(x.shape)}
OF_ONE = {
    "flash_backward": {
        TypeError: {
            "q is torch.float64; allowed: (torch.float16, torch.bfloat16, torch.float32)": {
                "q": torch.Tensor.double
            }
        },
        ValueError: {
            "q has 8 columns; allowed: 16 to 256 in steps of 8": {"q": lambda q: q[..., :8]},
            "; allowed: the last 1, others any": EXPANDED,
        },
    },
    "hopper_backward": {
        TypeError: {
            "q is torch.float32; allowed: (torch.float16, torch.bfloat16)": {
                "q": torch.Tensor.float
            },
            "grad_lse is torch.float16": {"grad_lse": torch.zeros(4, 4).half()},
        },
        ValueError: {
            "(1024, 0, 0, 0); allowed: the last 1, else multiples of 16 bytes": EXPANDED,
            "(1024, 256, 0, 1); allowed: the last 1, else multiples of 16 bytes": {
                "grad_out": lambda x: x[:, :, :1].expand(x.shape)
            },
            "k starts at ": {"k": lambda k: torch.cat([k, k[..., :4]], -1)[..., :64]},
            "q has 32 columns; allowed: (64, 128)": {"q": lambda q: q[..., :32]},
            "into[1] has shape (1, 2, 5, 64)": {
                "into": lambda: [torch.zeros(1, *x, 64) for x in ((4, 4), (2, 5), (2, 6))]
            },
            "into[0] has shape (1, 4, 4, 64) and strides (2048, 512, 128, 1)": {
                "into": lambda: [torch.zeros(1, 4, 4, 128)[..., :64], *torch.zeros(2, 1, 2, 6, 64)]
            },
        },
    },
}
CASES = [
    pytest.param(room, kind(text), changes, id=f"{room}: {text}")
    for room in WIDTHS
    for table in (REFUSED, OF_ONE[room])
    for kind, said in table.items()
    for text, changes in said.items()
]


@pytest.mark.parametrize(("room", "error", "changes"), CASES)
def test_bad_input_is_refused_before_a_launch(room, error, changes):
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
