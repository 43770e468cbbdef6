"""What the page of hopper_backward measures: one function for each result."""

import contextlib
import functools
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import CONTROL, MutantError, variant
from snippets._lab.judge.oracle import NumericalMismatch, causal_mask, make_qkv
from snippets._lab.measure.competitors import own_layout, resolve
from snippets._lab.rooms import measured_on
from snippets._warps.interleavings import Interleavings
from snippets._warps.launch import played, traced
from snippets._warps.role_traces import Fault

from . import kernel
from .kernel import VARIANTS, hopper_backward
from .mutants import MUTANTS
from .op import assert_gradients, forward

OURS = "hopper_backward"
FA4 = "flash_attention_4"
LENGTHS = [1024, 4096, 16_384]
TOKENS, COLUMNS = 16_384, 2_048  # batch times N, and heads times D, at every length


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    with played(hopper_backward) if device == "cpu" else contextlib.nullcontext():
        for dtype in kernel.DTYPES:
            for M, N, D, causal in (
                (65, 300, 64, True),
                (300, 65, 128, True),
                (130, 70, 64, False),
            ):
                q, _, grad_out = make_qkv(1, 2, N=M, D=D, dtype=dtype, device=device)
                _, k, v = make_qkv(1, 1, M=1, N=N, D=D, dtype=dtype, device=device, seed=1)
                mask = causal_mask(M, N, device=device) if causal else None
                out, lse = forward(q, k, v, mask=mask)
                found = hopper_backward(q, k, v, out, lse, grad_out, causal=causal)
                assert_gradients(found, q, k, v, grad_out, mask=mask)


# What comes first and what later, in the same memory: another warp's barrier lies between them,
# `ds.empty`. racecheck of compute-sanitizer does not follow such barriers; interleavings.py proves
# that it suffices.
ORDERED_BY_BARRIERS = [("rows.numbers.index(index).load(", "_async_load(numbers, numbers_ptr")]


def _problem(lab, case):
    """q, k, v, out, lse and grad_out of a case: out and lse as a forward left them."""
    q, k, v = lab.qkv(case)
    out, lse = resolve("hopper_attention")(q, k, v, causal=case["causal"], return_lse=True)
    return q, k, v, out, lse, torch.randn_like(out)


def _by_autograd(attend, q, k, v, grad_out, causal):
    """The backward of somebody else's attention: autograd's, its forward run once before."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves, causal=causal)
    return functools.partial(torch.autograd.grad, out, leaves, grad_out, retain_graph=True)


def _cost(case):
    """FLOPs of the five products, and the bytes that must move: five tensors in, three out."""
    B, H, N, D = case["batch"], case["heads"], case["N"], case["D"]
    pairs = N * (N + 1) // 2 if case["causal"] else N * N
    heads = 4 * H + 4 * case.get("heads_kv", H)  # q, out and their gradients; k, v and theirs
    return {"flops": 10 * B * H * pairs * D, "bytes_compulsory": heads * B * N * D * 2}


def _cases(lab, **axes):
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=list(VARIANTS), **axes):
        yield {**case, "batch": TOKENS // case["N"], "heads": COLUMNS // case["D"]}


@measured_on("gpu")
def backward(lab):
    """Time from grad_out to the three gradients, every launch counted; others by autograd."""
    for case in _cases(lab, N=LENGTHS):
        given = _problem(lab, case)
        q, k, v, *_, grad_out = given
        calls = {
            name: functools.partial(run, *given, causal=case["causal"])
            for name, run in (
                (OURS, hopper_backward),
                ("flash_backward", resolve("flash_backward")),
            )
        }
        for name in ("torch:cudnn", "torch:flash", FA4, f"{FA4}:as ours"):
            try:
                own = own_layout(name, q, k, v, grad_out)
                calls[name] = _by_autograd(resolve(name), *own, case["causal"])
            except Exception as error:  # noqa: BLE001 - what fails is named in its row
                yield {"implementation": name, **case, "error": f"{type(error).__name__}: {error}"}
        yield from lab.time(case, calls, **_cost(case))


OUR_TILE = f"{FA4}:64 queries"


@measured_on("gpu")
def tiles(lab):
    """FlashAttention-4 with its tile of 80 queries, which no tensor of Gluon has, and with ours."""
    for case in lab.each(dtype=["bfloat16"], causal=[False], D=[128], N=LENGTHS):
        case |= {"batch": TOKENS // case["N"], "heads": COLUMNS // case["D"]}
        q, k, v, *_, grad_out = _problem(lab, case)
        try:
            own = _by_autograd(resolve(FA4), *own_layout(FA4, q, k, v, grad_out), False)
        except Exception as error:  # noqa: BLE001 - what is missing is named in its row
            yield {"implementation": FA4, **case, "error": f"{type(error).__name__}: {error}"}
            continue
        calls = {FA4: own, OUR_TILE: _with_64_queries(own)}
        for found, want in zip(calls[OUR_TILE](), own(), strict=True):
            if not (found - want).double().norm() <= 0.02 * want.double().norm():
                raise NumericalMismatch("with tiles of 64 queries its gradients are others")
        yield from lab.time(case, calls, **_cost(case))


def _with_64_queries(call):
    """A backward of FlashAttention-4 with the choice its makers have for sparse blocks of 64."""
    from flash_attn.cute import interface

    choose = interface._tile_size_bwd_sm90

    def of_64(*sizes, **_):
        return choose(*sizes, sparse_block_size_q=64)

    def run():
        with patch.object(interface, "_tile_size_bwd_sm90", of_64):
            return call()

    return run


# Pieces of kernel.py and what replaces them.
FILLED = "mbarrier.arrive(channels.dq.full.index(consumer), count=1)"
ADD = "_reduce_add(sum_desc, [first + part, 0, 0], channels.dq.buffers.index(part))"
START = "dq = _issue_dq(consumer, stage, channels, V)"
ENDED = "dq, dv, _p = warpgroup_mma_wait(0 if DK_FIRST else 1, deps=[dq, dv, p])"
WAITED_FOR = [(FILLED, f"{FILLED}\n    mbarrier.wait(channels.dq.empty.index(consumer), i & 1)")]
IN_ROWS = [
    ("dq.reshape([4, 2, 8, PART // 8, 4, 2])", "dq.reshape([PART, 2, PART // 2])"),
    ("six.permute((3, 0, 2, 4, 1, 5))", "six.permute((1, 0, 2))"),
    ("[D // 8, 4, 8, 4, 2, 2]", "[D // 32, BLOCK_M, 32]"),
    ("tl.permute(six, [1, 4, 2, 0, 3, 5])", "tl.permute(six, [1, 0, 2])"),
]
DK_AT_ONCE = "if DK_FIRST:\n        dk = _issue_sum(ds, dk, channels.q, first + SUBS - 1)"
DK_LATER = (
    f"{START}\n    if not DK_FIRST:\n        dk = _issue_sum(ds, dk, channels.q, first + SUBS - 1)"
)
OTHER_ORDER = [("SUBS == 1 and V.CAUSAL", "SUBS > 1 or not V.CAUSAL")]
NO_DK = [
    (DK_AT_ONCE, "pass"),
    (DK_LATER, START),
    (ENDED, ENDED.replace("0 if DK_FIRST else 1", "0")),
]
NO_EXP2 = [("return gl.exp2(st * prob.scale_log2", "return (st * prob.scale_log2")]
NO_EXCHANGE = [("mbarrier.wait(channels.ds.full.index(stage.index), stage.phase)", "pass")]
READ_LATE = [
    ("lse_log2 = _numbers(channels.q, first)\n    mbarrier", "mbarrier"),
    (
        "_weights(st, lse_log2, first_key, row, prob, V)",
        "_weights(st, _numbers(channels.q, first), first_key, row, prob, V)",
    ),
]
NO_DQ = [
    ("SUBS == 1 and V.CAUSAL", "SUBS == 1"),  # with dK after it, ptxas crashes
    (START, "pass"),
    (ENDED, "dv, _p = warpgroup_mma_wait(0 if DK_FIRST else 1, deps=[dv, p])"),
    (
        "mbarrier.wait(channels.dq.empty.index(consumer), i & 1 ^ 1)\n    channels.dq.buffers"
        ".index(consumer).reshape([2 * PART, PART // 2]).store(_as_registers(dq))",
        "pass",
    ),
    (FILLED, "pass"),
    (f"mbarrier.wait(channels.dq.full.index(part), i & 1)\n            {ADD}", "pass"),
]


class Rung(NamedTuple):
    """The kernel with something else, or without something."""

    changes: Any = ()  # to kernel.py
    switches: Any = MappingProxyType({})  # to its Variant
    widths: Any = (64, 128)  # head dimensions at which it differs from the kernel
    right: bool = True  # whether dQ is


RUNGS = {
    "the kernel": Rung(),
    "dQ waited for": Rung(WAITED_FOR),  # its consumer goes on when the writer hands the buffer back
    "dQ in rows": Rung(IN_ROWS),  # two threads of a warp want the same banks
    "dK and dQ exchanged": Rung(OTHER_ORDER),  # dK hides dQ's store, not the exchange, or reverse
    "logsumexp read late": Rung(READ_LATE),  # when the scores are there
    "K and V from shared memory": Rung(switches={"KV_IN_REGISTERS": False}, widths=(64,)),
    "dQ not added": Rung([(ADD, "pass")], right=False),  # all but the addition
    "no dQ": Rung(NO_DQ, widths=(128,), right=False),  # four products of five; at 64 ptxas crashes
    "no dK": Rung(NO_DK, right=False),  # another four
    "no exp2": Rung(NO_EXP2, right=False),
    "no wait for dS": Rung(NO_EXCHANGE, right=False),  # of the other consumer
}


def _launcher(rung, D, **assumed):
    """A rung as a launcher of D columns, for tensors of which something may be assumed."""
    built = variant(OURS, rung.changes) if rung.changes else hopper_backward
    names = built.__globals__
    chosen = {D: names["VARIANTS"][D]._replace(**rung.switches)}

    @functools.wraps(built)
    def run(*given, **options):
        with patch.dict(names["VARIANTS"], chosen), _assuming(names, assumed):
            return built(*given, **options)

    return run


@contextlib.contextmanager
def _assuming(names, assumed):
    """Names of a kernel.py with other values for a while."""
    before = {name: names[name] for name in assumed}
    names.update(assumed)
    try:
        yield
    finally:
        names.update(before)


@measured_on("gpu")
def rungs(lab):
    """The kernel with one thing changed, at N 4096."""
    for case in _cases(lab, N=[4096]):
        given = _problem(lab, case)
        calls = {
            f"{OURS}, {name}": functools.partial(
                _launcher(rung, case["D"]), *given, causal=case["causal"]
            )
            for name, rung in RUNGS.items()
            if case["D"] in rung.widths
        }
        yield from lab.time(case, calls, **_cost(case))


IN_ORDER, AT_ONCE = "programs in order of heads", "all heads at once"
HEADS = {2: 8, 32: 32}  # heads of keys → of queries: a layer of a small model, and of a larger one


@measured_on("gpu")
def order(lab):
    """The kernel, and the same with one head after the other, or all of them at once."""
    fixed = {"D": 64, "causal": True, "dtype": "bfloat16"}
    for case in lab.each(heads_kv=list(HEADS), N=[512, 1024, 2048, 4096, 8192]):
        case |= {**fixed, "heads": HEADS[case["heads_kv"]], "batch": TOKENS // case["N"]}
        q, k, v = lab.qkv(case)
        out, lse = resolve("hopper_attention")(q, k, v, causal=True, return_lse=True)
        given = q, k, v, out, lse, torch.randn_like(out)
        every = case["batch"] * case["heads_kv"]
        others = {
            f"{OURS}, {name}": _launcher(Rung(), case["D"], _together=lambda *_, n=n: n)
            for name, n in ((IN_ORDER, 1), (AT_ONCE, every))
        }
        grouped = functools.partial(resolve("torch:cudnn"), enable_gqa=True)
        calls = {
            name: functools.partial(run, *given, causal=True)
            for name, run in {OURS: hopper_backward, **others}.items()
        }
        calls["torch:cudnn"] = _by_autograd(grouped, q, k, v, given[-1], True)
        yield from lab.time(case, calls, **_cost(case))


@measured_on("compiler", targets=["sm_90"])
def registers(lab):
    """Registers and spills of the kernel and of the rungs that are right."""
    for case in lab.each(dtype=["bfloat16"], D=list(VARIANTS), causal=[False, True]):
        q, k, v = lab.qkv({**case, "batch": 1, "heads": 1, "N": 256})
        given = (q, k, v, q, torch.zeros(q.shape[:-1]), q)
        for name, rung in RUNGS.items():
            if not rung.right or case["D"] not in rung.widths:
                continue
            run = _launcher(rung, case["D"], _refusals=lambda *_: ())  # of a CPU
            run = functools.partial(run, causal=case["causal"])
            for resources in lab.compiler.resources(run, given, target=lab.target):
                if resources.kernel == "_hopper_backward_kernel":
                    yield {**case, "rung": name, **resources.as_row()}


PLAYED = 50  # orders drawn at random, for each mistake
SIZES = {"M": 330, "N": 130}  # every buffer is used again, by two heads that share keys


def compared(launcher):
    """Events, and pairs of uses of the same memory, of all programs; Fault where order matters."""
    events = pairs = 0
    for D in VARIANTS:
        q, k = torch.zeros(2, SIZES["M"], D).half(), torch.zeros(1, SIZES["N"], D).half()
        for causal in (False, True):
            with traced(launcher) as programs:
                launcher(q, k, k, q, torch.zeros(q.shape[:-1]), q, causal=causal)
            for program in programs:
                known = Interleavings(program)
                pairs += known.faults()
                events += len(known.before)
    return {"events": events, "pairs": pairs}


@measured_on("interpreter")
def orders(lab):
    """What is said to each mistake without playing an order, and how often random orders show it.

    A mistake in what is computed is none of order: its row has no fault.
    """
    mistakes = {CONTROL: []} | {m.name: [(m.old, m.new)] for m in MUTANTS}
    for case in lab.each(mutant=list(mistakes)):
        launcher = variant(OURS, mistakes[case["mutant"]])
        try:
            row = {"fault": "", "shown": None, **compared(launcher)}
        except Fault as fault:
            shown = sum(_shows(launcher, seed) for seed in range(PLAYED))
            row = {"fault": str(fault), "shown": shown, "events": None, "pairs": None}
        if case["mutant"] == CONTROL and row["fault"]:
            raise MutantError(row["fault"])
        yield {**case, **SIZES, "played": PLAYED, **row}


def _shows(launcher, seed):
    """Whether an order drawn at random gives wrong gradients, or hangs."""
    try:
        with played(launcher, seed=1000 * seed):
            for D in VARIANTS:
                q, _, grad_out = make_qkv(1, 2, N=SIZES["M"], D=D, dtype=torch.float16)
                _, k, v = make_qkv(1, 1, M=1, N=SIZES["N"], D=D, dtype=torch.float16, seed=1)
                out, lse = forward(q, k, v)
                assert_gradients(launcher(q, k, v, out, lse, grad_out), q, k, v, grad_out)
    except NumericalMismatch:
        return True
    return False
