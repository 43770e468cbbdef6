"""What the page of masks_and_packing measures: one function for each result."""

import functools
from unittest.mock import patch

import torch

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from . import checks, kernel
from .backward import masks_and_packing_backward
from .kernel import masks_and_packing

OURS, PLAIN = "masks_and_packing", "flash_attention"
WINDOWS = [None, 64, 128, 256, 512, 1024]


def check(device):
    """Raise unless output and gradients are right here; no result is stored before it passed."""
    options = {"causal": True, "window": (40, None), "softcap": 9.0}
    sinks = torch.tensor([1.0, -2.0], device=device)
    for dtype in (torch.float16, torch.float32):
        q, k, v = make_qkv(1, 2, M=70, N=150, D=64, dtype=dtype, device=device)
        out, lse = masks_and_packing(q, k, v, sinks=sinks, return_lse=True, **options)
        leaves = [x.double().requires_grad_() for x in (q, k, v, sinks)]
        want, want_lse = checks.attend(*leaves[:3], sinks=leaves[3], **options)
        found = masks_and_packing_backward(q, k, v, out, lse, q, sinks=sinks, **options)
        gradients = torch.autograd.grad(want, leaves, q.double())
        pairs = zip((out, lse, *found[:4]), (want, want_lse, *gradients), strict=True)
        for ours, right in pairs:  # a few roundings of each, and float32 sums of 150 numbers
            bound = 8 * torch.finfo(dtype).eps * right.abs().max().item() + 150 * 2.0**-23
            torch.testing.assert_close(ours.double(), right, rtol=0, atol=bound)


@measured_on("interpreter")
def visited(lab):
    """The bytes of K that one head loads, recorded while the interpreter runs the kernel."""
    from snippets._lab.probe.memory_trace import record

    N, D = 2048, 16
    q, k, v = make_qkv(1, 1, N=N, D=D, dtype=torch.float16)
    tile = kernel._tile_config("sm_80", q.dtype, D, branches=True)
    for case in lab.each(window=WINDOWS):
        size = case["window"]
        own = {"causal": True, "window": (None if size is None else size - 1, None)}
        without_tma = patch.object(kernel, "_architecture", lambda device: "sm_80")
        with without_tma, record({"q": q, "k": k, "v": v}) as trace:
            out = masks_and_packing(q, k, v, **own)
        want, _ = checks.attend(q.double(), k.double(), v.double(), **own)
        torch.testing.assert_close(out.double(), want, rtol=0, atol=4e-3)
        loaded = trace.total("load", tensor="k").bytes
        yield {
            **case,
            "N": N,
            "D": D,
            "BLOCK_M": tile.BLOCK_M,
            "BLOCK_N": tile.BLOCK_N,
            "key_bytes": loaded,
            "tiles": loaded // (tile.BLOCK_N * D * q.element_size()),
            "pairs_seen": int(checks.visible(N, N, **own).sum()),
        }


OPTIONS = {
    "none": {},
    "window": {"window": (127, None)},
    "sinks": {"sinks": torch.zeros(2)},
    "soft cap": {"softcap": 30.0},
    "bias": {"bias": torch.zeros(1, 1, 1, 256)},
    "packed": {"cu_seqlens_q": torch.tensor([0, 256]), "cu_seqlens_k": torch.tensor([0, 256])},
}


@measured_on("compiler", targets=["sm_90"])
def code(lab):
    """Instructions, registers and spills with each option, and of flash_attention."""
    from snippets._lab.probe.loops import INSTRUCTION

    plain = functools.partial(resolve(PLAIN), causal=True)
    for case in lab.each(D=[64, 128], option=["flash_attention", *OPTIONS]):
        q, k, v = make_qkv(1, 2, N=256, D=case["D"], dtype=torch.float16)
        options = {
            name: x.int() if name.startswith("cu") else x
            for name, x in OPTIONS.get(case["option"], {}).items()
        }
        if case["option"] == "packed":
            q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
        call = functools.partial(masks_and_packing, causal=True, **options)
        (found,) = lab.kernels(plain if case["option"] == PLAIN else call, q, k, v)
        row = found.as_row()
        if found.cubin:
            names = [name for _, _, name in INSTRUCTION.findall(found.sass())]
            row["instructions"] = len(names) - names.count("NOP")  # which only fill up the end
        yield case | row


@measured_on("gpu")
def windows(lab):
    """Time over the window, causal, beside FlexAttention, whose mask is built before."""
    for case in lab.each(dtype=["bfloat16"], D=[64, 128], heads=[16], N=[16384], causal=[True]):
        for size in (256, 1024, 4096, 16384):
            variants = {
                OURS: functools.partial(masks_and_packing, causal=True, window=(size - 1, None)),
                "torch:flex": flex(size, case["N"]),
            }
            for row in lab.time_attention(case, [PLAIN], variants):
                yield row | {"window": size}


def flex(size, N):
    """FlexAttention, compiled, with a causal window."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def seen(b, h, m, n):
        return (n <= m) & (n > m - size)

    mask = create_block_mask(seen, None, None, N, N, device="cuda")
    return functools.partial(torch.compile(flex_attention), block_mask=mask)
