"""What the page of flash_backward measures: one function for each result."""

import functools
from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import causal_mask, make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from . import kernel
from .checks import assert_gradients, forward
from .kernel import flash_backward
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
            for deterministic in (False, True):
                options = {"causal": causal, "deterministic": deterministic}
                found = flash_backward(q, k, v, out, lse, grad_out, **options)
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
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = resolve(name)(*leaves, causal=causal)
    return functools.partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)


def _cost(case):
    """FLOPs of the five products, and the bytes that must move: five tensors in, three out."""
    B, H, N, D = case["batch"], case["heads"], case["N"], case["D"]
    pairs = N * (N + 1) // 2 if case["causal"] else N * N
    return {"flops": 10 * B * H * pairs * D, "bytes_compulsory": 8 * B * H * N * D * 2}


def _cases(lab, **axes):
    for case in lab.each(**axes):
        yield {**case, "batch": TOKENS // case["N"], "heads": COLUMNS // case["D"]}


# --8<-- [start:backward]
@measured_on("gpu")
def backward(lab):
    """Time from grad_out to the three gradients, every launch counted; others by autograd."""
    others = ["torch:cudnn", "torch:flash", "torch:flex", "flash_attention_4"]
    for case in _cases(lab, dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=LENGTHS):
        given = _problem(lab, case)
        q, k, v, *_, grad_out = given
        run = functools.partial(flash_backward, *given, causal=case["causal"])
        calls = {OURS: run, f"{OURS}, deterministic": functools.partial(run, deterministic=True)}
        for name in others:
            try:
                calls[name] = _by_autograd(name, q, k, v, grad_out, case["causal"])
            except Exception as error:  # noqa: BLE001 - what fails is named in its row
                yield {"implementation": name, **case, "error": f"{type(error).__name__}: {error}"}
        yield from lab.time(case, calls, **_cost(case))
        # --8<-- [end:backward]


# --8<-- [start:rungs]
def _one_kernel(*given, tma=True, narrow=True, apart=True, both_first=True, **options):
    """The kernel at D 128 with each of its habits, or without."""
    changed = {
        "_tile_config": lambda *_: kernel.TileConfig(64, 128, 8, 3, BOTH_FIRST=both_first),
        "TMA_ADDS": tma,
        "TMA_ROWS": kernel.TMA_ROWS if narrow else 0,
        "APART": apart,
    }
    with patch.multiple(kernel, **changed):
        return flash_backward(*given, **options)


_bare = functools.partial(_one_kernel, tma=False, narrow=False, apart=False, both_first=False)
RUNGS = {  # what changes from one rung to the next → what is launched
    "two kernels, seven products": functools.partial(two_passes, rows=32, num_warps=4),
    "twice the warps": functools.partial(two_passes, rows=32, num_warps=8),
    "one kernel, five products": _bare,
    "programs begin apart": functools.partial(_bare, apart=True),
    "dQ added by TMA": functools.partial(_bare, apart=True, tma=True),
    "in rows of 128 bytes": functools.partial(_one_kernel, both_first=False),
    "two products before P": functools.partial(_one_kernel),
    "all of it, beginning together": functools.partial(_one_kernel, apart=False),
}
# --8<-- [end:rungs]


@measured_on("gpu")
def rungs(lab):
    """The ladder at D 128, no mask."""
    for case in _cases(lab, dtype=["float16"], causal=[False], D=[128], N=[4096]):
        given = _problem(lab, case)
        calls = {f"{OURS}, {rung}": functools.partial(run, *given) for rung, run in RUNGS.items()}
        yield from lab.time(case, calls, **_cost(case))


# --8<-- [start:dq]
PRODUCT = 'dq = tl.dot(dst.T, k_tile, input_precision="ieee")'
ADDITION = """_add_to_sum(
            total, dq, b, h, first, H, M, D=D, BLOCK_M=BLOCK_M, BLOCK_D=BLOCK_D, WIDTH=ADD_WIDTH
        )"""
BEYOND = ADDITION.replace("first,", "first + num_tiles_m * BLOCK_M,")  # no such rows: TMA drops it
NEVER = "if N < 0:\n            "  # the compiler can't know, so the code stays; no GPU ever runs it
WITHOUT = {  # what is left out → pieces of kernel.py, and what replaces them
    "dQ computed, not added": [(ADDITION, BEYOND)],
    "dQ not computed": [(PRODUCT, ""), (ADDITION, f"{NEVER}{PRODUCT}\n            {ADDITION}")],
}
# --8<-- [end:dq]


@measured_on("gpu")
def dq(lab):
    """The kernel as it is, without adding dQ, and without its product: what each costs."""
    variants = {name: variant(OURS, changes) for name, changes in WITHOUT.items()}
    for case in _cases(lab, dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[4096]):
        given = _problem(lab, case)
        runs = {OURS: flash_backward, **{f"{OURS}, {name}": run for name, run in variants.items()}}
        calls = {
            name: functools.partial(run, *given, causal=case["causal"])
            for name, run in runs.items()
        }
        calls["torch:cudnn"] = _by_autograd("torch:cudnn", *given[:3], given[-1], case["causal"])
        yield from lab.time(case, calls, **_cost(case))


# --8<-- [start:registers]
@measured_on("compiler", targets=["sm_90"])
def registers(lab):
    """Registers and spills of each rung at D 128, without a mask and with one."""
    for case in lab.each(dtype=["float16"], D=[128], causal=[False, True]):
        for rung, run in RUNGS.items():
            if case["causal"] and run.func is two_passes:
                continue  # the two small kernels know no mask
            options = {"causal": True} if case["causal"] else {}
            for row in _compiled(lab, case, functools.partial(run, **options)):
                yield {**case, "rung": rung, **row}
            # --8<-- [end:registers]


def _compiled(lab, case, run):
    """What the kernels of a rung need, the two that prepare and finish left out."""
    small = {**case, "batch": 1, "heads": 1, "N": 256}
    q, k, v = lab.qkv(small)
    lse = torch.zeros(q.shape[:-1])
    for resources in lab.compiler.resources(run, (q, k, v, q, lse, q), target=lab.target):
        if resources.kernel not in ("_prepare_kernel", "_finish_kernel"):
            yield resources.as_row()
