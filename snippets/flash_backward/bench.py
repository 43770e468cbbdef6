"""What the page of flash_backward measures: one function for each result."""

import functools
from unittest.mock import MagicMock, patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import NumericalMismatch, causal_mask, make_qkv
from snippets._lab.measure.competitors import TUTORIAL, own_layout, resolve, tutorial_backward
from snippets._lab.measure.session import why_not
from snippets._lab.rooms import measured_on

from . import kernel, one_pass
from .checks import assert_gradients, forward
from .kernel import Tile, flash_backward
from .two_passes import two_passes

OURS = "flash_backward"
LENGTHS = [1024, 4096, 16_384]
TOKENS, COLUMNS = 16_384, 2_048  # batch times N, and heads times D, at every length


def check(device):
    """Raise unless the kernels are right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, N, D, causal in ((65, 130, 64, True), (130, 65, 128, True), (33, 70, 40, False)):
            q, _, grad_out = make_qkv(1, 2, N=M, D=D, dtype=dtype, device=device)
            _, k, v = make_qkv(1, 1, M=1, N=N, D=D, dtype=dtype, device=device, seed=1)
            mask = causal_mask(M, N, device=device) if causal else None
            out, lse = forward(q, k, v, mask=mask)
            run = functools.partial(flash_backward, q, k, v, out, lse, grad_out, causal=causal)
            found = run()
            if not all(map(torch.equal, found, run())):
                raise NumericalMismatch("two runs of flash_backward differ")
            assert_gradients(found, q, k, v, grad_out, mask=mask)
            tile = ONE_PASS[D] if dtype != torch.float32 and D in ONE_PASS else None
            given = q, k, v, out, lse, grad_out
            found = one_pass.one_pass(*given, causal=causal, tile=tile)
            assert_gradients(found, q, k, v, grad_out, mask=mask)
    q, k, v = make_qkv(1, 1, N=128, D=64, dtype=torch.float16, device=device)
    out, lse = forward(q, k, v)
    assert_gradients(two_passes(q, k, v, out, lse, v, rows=32, block=64), q, k, v, v)


def _problem(lab, case):
    """q, k, v, out, lse and grad_out of a case: out and lse as a forward left them."""
    q, k, v = lab.qkv(case)
    attend = resolve("flash_attention")
    out, lse = attend(q, k, v, causal=case["causal"], return_lse=True)
    return q, k, v, out, lse, torch.randn_like(out)


def _by_autograd(name, q, k, v, grad_out, causal):
    """The backward of somebody else's attention: autograd's, its forward run once before."""
    *own, grad_out = own_layout(name, q, k, v, grad_out)
    leaves = [x.detach().requires_grad_() for x in own]
    out = resolve(name)(*leaves, causal=causal)
    return functools.partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)


def _checked(call, ours):
    """The call, if its gradients are ours: a script that somebody brought along may be any."""
    for name, found, want in zip("qkv", call(), ours(), strict=True):
        share = ((found - want).double().norm() / want.double().norm()).item()
        if not share <= 0.01:  # both round to 16 bits; written so that NaN fails
            raise NumericalMismatch(f"grad_{name} is off by {share:.1%} of its norm")
    return call


def _cost(case):
    """FLOPs of the five products, and the bytes that must move: five tensors in, three out."""
    B, H, N, D = case["batch"], case["heads"], case["N"], case["D"]
    pairs = N * (N + 1) // 2 if case["causal"] else N * N
    return {"flops": 10 * B * H * pairs * D, "bytes_compulsory": 8 * B * H * N * D * 2}


def _cases(lab, **axes):
    for case in lab.each(**axes):
        yield {**case, "batch": TOKENS // case["N"], "heads": COLUMNS // case["D"]}


@measured_on("gpu")
def backward(lab):
    """Time from grad_out to the three gradients, every launch counted; others by autograd.

    In float16 beside the tutorial, which takes no other dtype.
    """
    others = {
        "bfloat16": ["torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"],
        "float16": ["torch:cudnn", TUTORIAL],
    }
    for case in _cases(lab, dtype=[*others], causal=[False, True], D=[64, 128], N=LENGTHS):
        given = _problem(lab, case)
        q, k, v, *_, grad_out = given
        run = functools.partial(flash_backward, *given, causal=case["causal"])
        calls = {OURS: run}
        for name in others[case["dtype"]]:
            try:
                if name == TUTORIAL:
                    calls[name] = _checked(tutorial_backward(*given, causal=case["causal"]), run)
                else:
                    calls[name] = _by_autograd(name, q, k, v, grad_out, case["causal"])
            except Exception as error:  # noqa: BLE001 - what fails is named in its row
                yield {"implementation": name, **case, "error": why_not(error)}
        yield from lab.time(case, calls, **_cost(case))


LARGE = Tile(64, 128, 8, 3)  # 128 keys of a program, on eight warps
SMALL = Tile(64, 64, 4, 2)  # half of it: two programs fit on a multiprocessor
QUERIES = Tile(128, 64, 8, 3)
KEPT = Tile(64, 64, 4, 3, KEEP=True)


def _with(keys, queries, *given, **options):
    """The launcher with these tiles."""
    with patch.object(kernel, "_tiles", lambda *_: (keys, queries)):
        return flash_backward(*given, **options)


def _one_pass(*given, tma=True, narrow=True, apart=True, **options):
    """One pass with each of its habits, or without."""
    rows = one_pass.TMA_ROWS if narrow else 0
    with patch.multiple(one_pass, TMA_ADDS=tma, TMA_ROWS=rows, APART=apart):
        return one_pass.one_pass(*given, **options, tile=LARGE)


RUNGS = {  # what changes from one rung to the next → what is launched
    "two kernels, seven products": functools.partial(two_passes, rows=32, num_warps=4),
    "twice the warps": functools.partial(two_passes, rows=32, num_warps=8),
    "one kernel, five products": functools.partial(_one_pass, tma=False, narrow=False, apart=False),
    "programs begin apart": functools.partial(_one_pass, tma=False, narrow=False),
    "dQ added by TMA": functools.partial(_one_pass, narrow=False),
    "in rows of 128 bytes": _one_pass,
    "two kernels again": functools.partial(_with, LARGE, QUERIES),
    "two programs at a time": functools.partial(_with, SMALL, QUERIES),
    "queries in registers": functools.partial(_with, SMALL, KEPT),
    "rung six, beginning together": functools.partial(_one_pass, apart=False),
}


@measured_on("gpu")
def rungs(lab):
    """The ladder at D 128, no mask."""
    for case in _cases(lab, dtype=["float16"], causal=[False], D=[128], N=[4096]):
        given = _problem(lab, case)
        calls = {f"{OURS}, {rung}": functools.partial(run, *given) for rung, run in RUNGS.items()}
        yield from lab.time(case, calls, **_cost(case))


ADDITION = "_add_to_sum(total, dq, b, h, first, sizes, WIDTH, C)"
BEYOND = ADDITION.replace("first", "first + sizes.M")  # no such rows: TMA drops it
ONE_PASS = {64: Tile(64, 64, 4, 3), 128: LARGE}  # D → the fastest tile of one pass


def _alone(name, *given, tiles, causal):
    """One of the two launches of a call, by its kernel, to be repeated alone."""
    own, seen = getattr(kernel, name), MagicMock()
    with patch.multiple(kernel, **{name: seen, "_tiles": lambda *_: tiles}):
        flash_backward(*given, causal=causal)
    launched = seen.__getitem__.return_value.call_args
    return functools.partial(own[seen.__getitem__.call_args.args[0]], *launched[0], **launched[1])


def _parts(*given, causal):
    """Name → (products of five, call): two passes, each alone, one pass, and without its parts."""
    dtype, D = given[0].dtype, given[0].shape[-1]
    own, one = kernel._tiles("sm_90", dtype, D, causal), ONE_PASS[D]
    unadded = variant(OURS, [(ADDITION, BEYOND)], "one_pass")
    keys = functools.partial(_alone, "_flash_backward_kernel", *given, causal=causal)
    queries = _alone("_grad_q_kernel", *given, tiles=own, causal=causal)
    options = {"causal": causal, "tile": one}
    return {
        "two passes": (5, functools.partial(flash_backward, *given, causal=causal)),
        "dK and dV alone": (4, keys(tiles=own)),
        "dQ alone": (3, queries),
        "one pass": (5, functools.partial(one_pass.one_pass, *given, **options)),
        "one pass, dQ not added": (5, functools.partial(unadded, *given, **options)),
        "one pass, no dQ": (4, keys(tiles=(one, own[1]))),
    }


@measured_on("gpu")
def dq(lab):
    """What dQ costs in a kernel of its own, and what it costs one pass."""
    for case in _cases(lab, dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[4096]):
        given = _problem(lab, case)
        parts = _parts(*given, causal=case["causal"])
        calls = {f"{OURS}, {name}": call for name, (_, call) in parts.items()}
        calls["torch:cudnn"] = _by_autograd("torch:cudnn", *given[:3], given[-1], case["causal"])
        work = {f"{OURS}, {name}": products for name, (products, _) in parts.items()}
        for row in lab.time(case, calls, **_cost(case)):
            if "flops" in row:
                row["flops"] = row["flops"] * work.get(row["implementation"], 5) // 5
            yield row


@measured_on("compiler", targets=["sm_90"])
def registers(lab):
    """Registers and spills of each rung at D 128, without a mask and with one."""
    for case in lab.each(dtype=["float16"], D=[128], causal=[False, True]):
        for rung, run in RUNGS.items():
            if case["causal"] and getattr(run, "func", run) is two_passes:
                continue  # the two small kernels know no mask
            options = {"causal": True} if case["causal"] else {}
            for row in _compiled(lab, case, functools.partial(run, **options)):
                yield {**case, "rung": rung, **row}


def _compiled(lab, case, run):
    """What the kernels of a rung need, the two that prepare and finish left out."""
    small = {**case, "batch": 1, "heads": 1, "N": 256}
    q, k, v = lab.qkv(small)
    lse = torch.zeros(q.shape[:-1])
    for resources in lab.compiler.resources(run, (q, k, v, q, lse, q), target=lab.target):
        if resources.kernel not in ("_prepare_kernel", "_finish_kernel"):
            yield resources.as_row()
