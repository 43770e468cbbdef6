"""What the page of hopper_attention measures: one function for each result."""

import contextlib
import functools
import itertools
import random
from typing import NamedTuple
from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_attention,
    causal_mask,
    deviation,
    make_qkv,
)
from snippets._lab.measure.competitors import own_layout, resolve, same_work
from snippets._lab.measure.regimes import SUSTAINED
from snippets._lab.measure.timing import time_host
from snippets._lab.rooms import measured_on
from snippets._warps.launch import played

from . import kernel, sass
from .channel import rows as reached
from .clocks import CLOCKED, REPEATS, TILES, recorded
from .in_turn import CHAINS, DEALT, IN_TURN, LIMIT, PAIRS, SUMS, TURNS
from .kernel import VARIANTS, Variant, hopper_attention
from .protocol import protocol_mutants as judged_mistakes
from .small import scores
from .timeline import examples
from .wide import WIDE

OURS = "hopper_attention"


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    if device == "cuda":  # the page's small kernel; no simulation plays it, for it has no roles
        q, k = torch.randn(2, 512, 64, device=device).half()
        torch.testing.assert_close(scores(q, k), q.float() @ k.float().mT, rtol=1e-3, atol=1e-3)
    with played(hopper_attention) if device == "cpu" else contextlib.nullcontext():
        for dtype, D, (M, N) in itertools.product(
            kernel.DTYPES, VARIANTS, ((1, 65), (130, 384), (257, 130))
        ):
            q, k, v = make_qkv(1, 2, M=M, N=N, D=D, dtype=dtype, device=device)
            mask = causal_mask(M, N, device=device)
            for chosen, causal in itertools.product(VARIANTS[D], (False, True)):
                out = _with_variant(hopper_attention, chosen)(q, k, v, causal=causal)
                assert_attention(out, q, k, v, mask=mask if causal else None)


RIVALS = ["torch:cudnn", "torch:flash", "flash_attention_4"]  # in each dtype
AS_OURS = [f"{name}:as ours" for name in ("torch:flash", "flash_attention_3", "flash_attention_4")]


@measured_on("gpu")
def forward(lab):
    """Time beside the best there is, and the series' Triton kernel, the same number of tokens."""
    axes = {"causal": [False, True], "D": [64, 128], "N": [1024, 4096, 16_384]}
    for case in lab.each(dtype=["bfloat16", "float16"], **axes):
        names = [OURS, "flash_attention", *RIVALS]
        if case["dtype"] == "float16" and case["N"] != 4096:
            continue  # as bfloat16
        if case["dtype"] == "bfloat16":  # FlashAttention-3's wheel has no float16
            names += ["flash_attention_3", "torch:flex", *AS_OURS]
        yield from lab.time_attention(same_work(case), names)


@measured_on("gpu")
def wide(lab):
    """Heads of 256 columns, by the file for them, beside the best there is."""
    launcher = variant(OURS, WIDE)
    for dtype, causal, M, N in itertools.product(
        kernel.DTYPES, (False, True), (1, 130, 300), (65, 257, 384)
    ):
        q, k, v = make_qkv(2, 4, M=M, N=N, D=256, dtype=dtype, device="cuda")
        out = launcher(q, k[:, ::2], v[:, ::2], causal=causal)
        k, v = (x[:, ::2].repeat_interleave(2, dim=1) for x in (k, v))
        mask = causal_mask(M, N, device="cuda") if causal else None
        assert_attention(out, q, k, v, mask=mask)
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[256], N=[1024, 4096, 16_384]):
        names = ["torch:cudnn", "flash_attention_3", "flash_attention_4"]
        yield from lab.time_attention(same_work(case), names, {OURS: launcher})


FILE = "kernel_fast.py"
APART = {  # D → what is left out, one at a time, of the variant for long rows
    64: {
        "three in turn": IN_TURN,
        "in no order": [
            *IN_TURN,
            ("mbarrier.wait(turn, count & 1)", "pass"),
            ("mbarrier.expect(turn, 0)", "pass"),
        ],
        "values awaited late": [
            *IN_TURN,
            ("2:\n        if V.Q_IN_REGISTERS", "2 or True:\n        if V.Q_IN_REGISTERS"),
        ],
        "weights not in pairs": [change for change in IN_TURN if change not in PAIRS],
        "one chain": [change for change in IN_TURN if change not in CHAINS],
        "dealt as before": [change for change in IN_TURN if change != DEALT],
    },
    128: {
        "released by all warps": [
            *IN_TURN,
            ("V.Q_IN_REGISTERS:\n        _release(channel", "True:\n        _release(channel"),
        ],
        "sums that are shared": [change for change in IN_TURN if change not in SUMS],
        "numbers in registers": [change for change in IN_TURN if change != LIMIT],
        "a factor of 16": [*IN_TURN, ("GROWTH = gl.constexpr(8.0)", "GROWTH = gl.constexpr(4.0)")],
        "dealt as before": [change for change in IN_TURN if change != DEALT],
    },
}
# At D 128 the third is the second's equal or slower in each case of `forward`.
BESIDE = [OURS, "flash_attention_3", "flash_attention_4"]


@measured_on("gpu")
def in_turn(lab):
    """The last few percent, by the file for them, beside the best there is; each of them apart."""
    launcher = variant(OURS, IN_TURN)
    table = launcher.__globals__["VARIANTS"]
    apart = {
        D: {n: _with_variant(variant(OURS, x), table[D][-1]) for n, x in steps.items()}
        for D, steps in APART.items()
    }
    for D, dtype, causal, M, N in itertools.product(
        table, kernel.DTYPES, (False, True), (1, 400), (257, 384)
    ):
        q, k, v = make_qkv(2, 4, M=M, N=N, D=D, dtype=dtype, device="cuda")
        mask = causal_mask(M, N, device="cuda") if causal else None
        for call in (_with_variant(launcher, table[D][0]), *apart[D].values()):
            assert_attention(call(q, k, v, causal=causal), q, k, v, mask=mask)
    axes = {"causal": [False, True], "D": [*table], "N": [1024, 4096, 16_384]}
    for case in lab.each(dtype=["bfloat16"], **axes):
        names = BESIDE[: 3 if case["D"] == 64 else 2]
        yield from lab.time_attention(same_work(case), names, {FILE: launcher} | apart[case["D"]])


@measured_on("gpu")
def sustained(lab):
    """The same file back to back for seconds, where power is the limit.

    At D 128 also with one tile of queries fewer: where their number is odd, FlashAttention-3 does
    not load keys and values for two blocks at once by TMA's multicast.
    """
    launcher = variant(OURS, IN_TURN)
    for D, fewer in ((64, 0), (128, 0), (128, 128)):
        axes = {"causal": [False, True], "D": [D], "M": [16_384 - fewer], "N": [16_384]}
        for case in lab.each(dtype=["bfloat16"], **axes):
            yield from lab.time_attention(same_work(case), BESIDE, {FILE: launcher}, [SUSTAINED])


FA4 = "flash_attention_4"


@measured_on("gpu")
def tiles(lab):
    """FlashAttention-4 at D 256 with its tile of 80 keys, which no tensor of Gluon has, and 64."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[256], N=[1024, 4096, 16_384]):
        case = same_work(case)
        try:
            resolve(FA4)
            from flash_attn.cute import interface
        except Exception as error:  # noqa: BLE001 - what is missing is named in its row
            yield {"implementation": FA4, **case, "error": f"{type(error).__name__}: {error}"}
            continue
        q, k, v = own_layout(FA4, *lab.qkv(case))
        there = (x.transpose(1, 2) for x in (q, k, v))
        attend = functools.partial(interface._flash_attn_fwd, *there, causal=case["causal"])
        calls = {FA4: attend, f"{FA4}:64 keys": functools.partial(attend, tile_mn=(128, 64))}
        want, found = (call()[0].double() for call in calls.values())
        if not (found - want).norm() <= 0.02 * want.norm():
            raise NumericalMismatch("with tiles of 64 keys its result is another")
        M = case["N"]
        pairs = M * (M + 1) // 2 if case["causal"] else M * M
        flops = 4 * case["batch"] * case["heads"] * pairs * case["D"]
        size = 4 * q.numel() * q.element_size()
        yield from lab.time(case, calls, flops=flops, bytes_compulsory=size)


# Pieces of kernel.py and what replaces them; a text is the code alone, without comments.
PAIRED = "_paired(total, tiles, programs) if causal else 0"
PAIRS = (PAIRED, "total if causal else 0")
AS_THEY_COME = [  # head after head: program p takes tiles p, p + programs, …
    ("gl.where(prob.paired > 0, 2, 1)", "1"),
    ("gl.where(work_idx < prob.paired, pair, turn)", "work_idx + programs"),
]
ONE_TILE = [  # as many programs as tiles, each takes one
    (f"paired = {PAIRED}", "paired = programs = total"),
    *AS_THEY_COME,
]
IN_ORDER = [  # the longest of a head first
    (PAIRED, "total"),
    *AS_THEY_COME,
    (
        "tile = gl.where(work_idx % 2 == 0, prob.tiles - 1 - tile // 2, tile // 2)",
        "tile = prob.tiles - 1 - tile",
    ),
]
TWO_BARRIERS = (  # the arrival that waits for all warps, and makes what follows wait, too
    "    _meet()\n    mbarrier.expect(channel.empty.index(stage.index), 0)\n",
    "    mbarrier.arrive(channel.empty.index(stage.index), count=1)\n",
)
UNMOVED = ("REGISTERS = {2: (240, 24), 3: (160, 24)}", "REGISTERS = {2: (168, 168)}")
UNHELD = (  # the barrier that keeps the compiler from waiting early
    "_wait_full(channels.v, before)",
    "pass",
)
COUNTED = ("if V.OVERLAP:\n        offs_n = gl.arange(", "if True:\n        offs_n = gl.arange(")
KEYS_64 = ("BLOCK_N = gl.constexpr(128)", "BLOCK_N = gl.constexpr(64)")
BY_THREADS = [  # rows stored from registers, not by TMA
    (
        """\
        tma.store_wait(0)
        out_tile = out_buffers.index(warpgroup)
        out_tile.reshape([CONSUMER_M, D]).store(out.to(out_desc.dtype))
        fence_async_shared()
        _tma_store(out_desc, [head, first, 0], out_tile)
""",
        """\
        own = first + gl.arange(0, CONSUMER_M, gl.SliceLayout(1, _acc_layout(D)))
        offs_d = gl.arange(0, D, gl.SliceLayout(0, _acc_layout(D)))
        at = (head.to(gl.int64) * prob.M + own)[:, None] * D + offs_d[None, :]
        gl.store(out_ptr + at, out.to(out_desc.dtype), mask=(own < prob.M)[:, None])
""",
    ),
    (
        "out_desc, lse_ptr, out_buffers = results",
        "out_desc, out_ptr, lse_ptr, out_buffers = results",
    ),
    ("results = (out_desc, lse_ptr, out)", "results = (out_desc, out_ptr, lse_ptr, out)"),
    ("    lse_ptr,  # [B, H, M]", "    out_ptr, lse_ptr,  # [B, H, M]"),
    ("_launch(plan, *descriptors, lse)", "_launch(plan, *descriptors, out, lse)"),
]
PACKED = [  # weights are rounded to 16 bits before they are carried to the next step
    (
        "    _wait_full(channels.v, before)\n",
        "    p_next = _left_weights(p_next, channels.v)\n    _wait_full(channels.v, before)\n",
    ),
    (
        "    masked = gl.maximum(keys.masked, 1)\n",
        "    p = _left_weights(p, channels.v)\n    masked = gl.maximum(keys.masked, 1)\n",
    ),
]
OTHER_SUMS = [  # kept by each thread where the kernel shares them, shared where it keeps them
    ("if MASKED:\n        l_i = gl.zeros", "if not MASKED:\n        l_i = gl.zeros"),
    (
        "if MASKED:\n        l_i = gl.convert_layout",
        "if not MASKED:\n        l_i = gl.convert_layout",
    ),
]
DIVIDED = ("state.acc * gl.convert_layout(1.0 / l_i, ", "state.acc / gl.convert_layout(l_i, ")
POLYNOMIAL = (
    "p = gl.exp2((s * before - m_sub[:, None]) * after)",
    """p = gl.inline_asm_elementwise(  # one of four without the unit that knows exp2
        \"\"\"{
        .reg .f32 x, f, r; .reg .s32 n, bits;
        ex2.approx.ftz.f32 $0, $4;
        ex2.approx.ftz.f32 $1, $5;
        ex2.approx.ftz.f32 $2, $6;
        max.f32 x, $7, 0fC2FE0000;
        add.rm.f32 r, x, 0f4B400000;
        mov.b32 n, r;
        sub.f32 f, r, 0f4B400000;
        sub.f32 f, x, f;
        fma.rn.f32 r, f, 0f3D9DF09D, 0f3E6906A4;
        fma.rn.f32 r, r, f, 0f3F31F519;
        fma.rn.f32 r, r, f, 0f3F800000;
        shl.b32 n, n, 23;
        mov.b32 bits, r;
        add.s32 bits, bits, n;
        mov.b32 $3, bits;
        }\"\"\",
        "=f,=f,=f,=f,f,f,f,f",
        [(s * before - m_sub[:, None]) * after],
        dtype=gl.float32,
        is_pure=True,
        pack=4,
    )""",
)


class Rung(NamedTuple):
    """A kernel on the way up, or beside it, and the rung that it is compared with."""

    changes: list  # to kernel.py
    variant: Variant
    base: str = ""  # the rung it is compared with
    step: str = ""  # what one of the two has and the other has not
    has_step: bool = True  # whether it is this one
    way_up: bool = False  # built on all those before it
    causal_only: bool = False  # without a mask the two are the same kernel
    section: str = ""  # of the page's sentences about the step


ALONE = Variant(CONSUMERS=2, STAGES=2)
OVERLAP = ALONE._replace(OVERLAP=True)
LAZY = OVERLAP._replace(LAZY=True)
THREE = ALONE._replace(CONSUMERS=3, STAGES=3)
RUNGS = {
    "a warp that loads": Rung(ONE_TILE, ALONE, way_up=True),
    "no registers given to consumers": Rung(
        [*ONE_TILE, UNMOVED],
        ALONE,
        base="a warp that loads",
        step="registers moved",
        has_step=False,
        section="registers",
    ),
    "softmax under the product": Rung(
        ONE_TILE,
        OVERLAP,
        base="a warp that loads",
        step="softmax under the product",
        way_up=True,
        section="overlap",
    ),
    "undone by the compiler": Rung(
        [*ONE_TILE, UNHELD],
        OVERLAP,
        base="softmax under the product",
        step="a barrier that holds the wait",
        has_step=False,
        section="held",
    ),
    "consumers take turns": Rung(
        [*ONE_TILE, *TURNS],
        OVERLAP,
        base="softmax under the product",
        step="consumers in turn",
        section="turns",
    ),
    "programs that stay": Rung(
        IN_ORDER,
        OVERLAP,
        base="softmax under the product",
        step="programs that stay",
        way_up=True,
        section="stay",
    ),
    "causal tiles in pairs": Rung(
        [PAIRS],
        OVERLAP,
        base="softmax under the product",  # one step: the kernel has both or none
        step="programs that stay, causal tiles in pairs",
        way_up=True,
        causal_only=True,
        section="pairs",
    ),
    "the last by length": Rung(
        [],
        OVERLAP,
        base="causal tiles in pairs",
        step="the last causal tiles by length",
        way_up=True,
        causal_only=True,
        section="length",
    ),
    "sums rescaled late": Rung(
        [], LAZY, base="the last by length", step="sums rescaled late", way_up=True, section="lazy"
    ),
    "the exact maximum": Rung(
        [("GROWTH = gl.constexpr(4.0)", "GROWTH = gl.constexpr(0.0)")],
        LAZY,
        base="sums rescaled late",
        step="a maximum that may lag behind",
        has_step=False,
        section="lag",
    ),
    "queries in registers": Rung(
        [],
        OVERLAP._replace(Q_IN_REGISTERS=True),
        base="the last by length",
        step="queries in registers",
        section="queries",
    ),
    "three consumers": Rung(
        [], THREE, base="the last by length", step="three consumers", section="three"
    ),
    "three consumers that overlap": Rung(
        [],
        THREE._replace(OVERLAP=True),
        base="three consumers",
        step="overlap in three consumers",
        section="both",
    ),
    "three that also rescale late": Rung(
        [],
        THREE._replace(OVERLAP=True, LAZY=True),
        base="three consumers that overlap",
        step="sums rescaled late, in three consumers",
        section="all_three",
    ),
    "arrivals with two barriers": Rung(
        [TWO_BARRIERS],
        THREE,
        base="three consumers",
        step="arrivals with one barrier",
        has_step=False,
        section="arrivals",
    ),
    "column numbers in registers": Rung(
        [COUNTED],
        THREE,
        base="three consumers",
        step="column numbers in the instructions, under a mask",
        has_step=False,
        causal_only=True,
        section="columns",
    ),
    "row sums added the other way": Rung(
        OTHER_SUMS,
        OVERLAP,
        base="the last by length",
        step="sums kept by each thread, under a mask",
        has_step=False,
        section="sums",
    ),
    "stored by the threads": Rung(
        BY_THREADS,
        OVERLAP,
        base="the last by length",
        step="rows stored by TMA",
        has_step=False,
        section="engine",
    ),
    "one buffer of queries": Rung(
        [("Q_BUFFERS = gl.constexpr(2)", "Q_BUFFERS = gl.constexpr(1)")],
        OVERLAP,
        base="the last by length",
        step="the next queries loaded meanwhile",
        has_step=False,
        section="ahead",
    ),
    "divisions, no reciprocal": Rung(
        [DIVIDED],
        OVERLAP,
        base="the last by length",
        step="one reciprocal a row",
        has_step=False,
        section="reciprocal",
    ),
    "weights packed at once": Rung(
        PACKED,
        OVERLAP,
        base="the last by length",
        step="weights packed a step later",
        has_step=False,
        section="packed",
    ),
    "exp2 by a polynomial": Rung(
        [POLYNOMIAL],
        OVERLAP,
        base="the last by length",
        step="a quarter of exp2 by a polynomial",
        section="polynomial",
    ),
    "tiles of 64 keys": Rung(
        [KEYS_64],
        OVERLAP._replace(STAGES=4),
        base="the last by length",
        step="tiles of 64 keys",
        section="keys",
    ),
}
FOR_64 = (
    "queries in registers",
    "three consumers",
    "three consumers that overlap",
    "three that also rescale late",
    "arrivals with two barriers",
    "column numbers in registers",
)


def _with_variant(launcher, chosen):
    """The launcher (the page's, or a variant of it) with this Variant and not its table's."""
    names = launcher.__globals__

    def choose(*_):  # one function for all calls: a launcher knows its plans by it
        return chosen

    def launch(*tensors, **options):
        table, names["_variant"] = names["_variant"], choose
        try:
            return launcher(*tensors, **options)
        finally:
            names["_variant"] = table

    return launch


def _launcher(rung):
    """The launcher of a rung."""
    launcher = variant(OURS, rung.changes) if rung.changes else hopper_attention
    return _with_variant(launcher, rung.variant)


def _rungs_at(D):
    """The rungs at a head dimension: at D 128 the registers for some are not there."""
    return {name: rung for name, rung in RUNGS.items() if D == 64 or name not in FOR_64}


def _described(rows):
    """Rows of rungs with what the page says about each."""
    for row in rows:
        rung = RUNGS.get(row["implementation"])
        told = rung._asdict() if rung else {}
        yield row | {name: told[name] for name in told if name not in ("changes", "variant")}


@measured_on("gpu")
def rungs(lab):
    """One step further at a time, then steps back and aside, each correct, all in turn."""
    launchers = {
        D: {name: _launcher(rung) for name, rung in _rungs_at(D).items()} for D in VARIANTS
    }
    for D, causal in itertools.product(VARIANTS, (False, True)):
        q, k, v = make_qkv(1, 2, N=384, D=D, dtype=torch.bfloat16, device="cuda")
        mask = causal_mask(384, 384, device="cuda") if causal else None
        for launcher in launchers[D].values():
            assert_attention(launcher(q, k, v, causal=causal), q, k, v, mask=mask)
    for case in lab.each(
        dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[1024, 4096, 16_384]
    ):
        yield from _described(
            lab.time_attention(same_work(case), [OURS, "torch:cudnn"], launchers[case["D"]])
        )


ORDERS = {"in pairs": "total", "by length": "0"}  # instead of PAIRED
GRIDS = ((2048, 24), (4096, 64), (8192, 3), (16_384, 16))  # queries and keys, heads


@measured_on("gpu")
def order(lab):
    """Causal tiles dealt in pairs, by their length, or first in pairs: the kernel's way."""
    for case in lab.each(dtype=["bfloat16"], causal=[True], D=[64, 128]):
        chosen = VARIANTS[case["D"]][0]
        launchers = {
            name: _with_variant(variant(OURS, [(PAIRED, found)]), chosen)
            for name, found in ORDERS.items()
        }
        launchers["first in pairs, then by length"] = _with_variant(hopper_attention, chosen)
        for N, heads in GRIDS:
            at = {**case, "N": N, "heads": heads, "batch": 1}
            yield from lab.time_attention(at, [], launchers)


@measured_on("gpu")
def timeline(lab):
    """Cycles at which the parts of a program reach their marks, and what it costs to note them."""
    chosen, clocked = VARIANTS[128][0], variant(OURS, CLOCKED)
    launch = _with_variant(clocked, chosen)
    for case in lab.each(dtype=["bfloat16"], D=[128], N=[TILES * kernel.BLOCK_N.value]):
        marks, cycles = recorded(launch, clocked, chosen.CONSUMERS)
        yield from examples(marks, chosen)
        yield {**case, "cycles": cycles}
        case |= {"batch": 1, "heads": 8, "M": 128 * len(cycles) // REPEATS}  # 8 tiles a program
        q, k, v = (x[:, :4] for x in lab.qkv(case))
        assert_attention(launch(q, k, v), q, k, v)
        yield from lab.time_attention(case, [OURS], {"with clocks": launch})


@measured_on("gpu")
def ragged(lab):
    """Lengths that fill no tile, and shared heads of keys, beside the next round case."""
    axes = {"batch": [4], "heads": [16], "N": [1000, 1024, 4095, 4096]}
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], **axes):

        def shared(q, k, v, **options):
            return hopper_attention(q, k[:, ::4], v[:, ::4], **options)

        timed = lab.time_attention(case, [OURS], {"four query heads share keys": shared})
        for row in timed:
            group = 1 if row["implementation"] == OURS else 4
            yield row | {"heads_kv": case["heads"] // group}


def _configurations():
    """(D, causal, ragged, Variant): each row of the table, also with a last tile not filled."""
    for D, causal in itertools.product(VARIANTS, (False, True)):
        for chosen, ragged in itertools.product(VARIANTS[D], (False, True)):
            if not (causal and ragged):  # a causal kernel has masks in any case
                yield D, causal, ragged, chosen


def _compiled(compiler, launcher, D, causal, ragged, chosen):
    """The kernel that a launcher would launch, compiled ahead of time for Hopper."""
    q, k, v = make_qkv(1, 2, M=1024, N=1000 if ragged else 1024, D=D, dtype=torch.bfloat16)
    names = launcher.__globals__
    assumed = {
        "_refusals": lambda *_: (),
        "_multiprocessors": lambda _: 132,
        "_variant": lambda *_: chosen,
    }
    with patch.dict(names, assumed):
        (found,) = compiler.resources(launcher, (q, k, v), {"causal": causal}, target="sm_90")
    return found


@measured_on("compiler", targets=["sm_90"])
def resources(lab):
    """Registers, spills, shared memory, and the exponentials that run under a product."""
    cases = {
        f"D {D}, {causal}, {ragged}, {V}": (D, causal, ragged, V)
        for D, causal, ragged, V in _configurations()
    }
    for step in lab.each(configuration=list(cases)):
        D, causal, ragged, chosen = cases[step["configuration"]]
        found = _compiled(lab.compiler, hopper_attention, D, causal, ragged, chosen)
        yield {
            "D": D,
            "causal": causal,
            "ragged": ragged,
            **chosen._asdict(),
            **found.as_row(),
            **sass.in_loops(found.sass()),
        }


A_CALL = "a call"
ASKED = "launch, found by Triton"


@measured_on("gpu")
def host_time(lab):
    """What a call costs the host, whole and in parts, beside others'; the GPU's work is short."""
    names = (OURS, "flash_attention", "torch:sdpa")
    for case in lab.each(dtype=["bfloat16"], D=[64, 128]):
        case |= {"batch": 1, "heads": 8, "N": 128}
        tensors = lab.qkv(case)
        parts = [(A_CALL, name, functools.partial(resolve(name), *tensors)) for name in names]
        parts += [(part, OURS, call) for part, call in host_parts(*tensors).items()]
        calls = {(part, name): call for part, name, call in parts}
        for (part, name), taken in time_host(calls).items():
            yield {"implementation": name, "part": part, **case, **taken.as_row()}


def host_parts(q, k, v):
    """Parts of a call, to be made one at a time; and the launch without the kept kernel."""
    given = []
    with patch.object(kernel, "_launch", lambda *launch: given.append(launch)):
        hopper_attention(q, k, v)

    asked = q, k, v, None, False, "bottom_right", False
    _, rows = kernel._plan_of(*asked)

    def found_by_triton():
        kernel._compiled.clear()
        kernel._launch(*given[0])

    return {
        "refusals": lambda: [*kernel._refusals(*asked)],
        "the plan looked up": lambda: kernel._plan_of(*asked),
        "memory for the result": lambda: torch.empty_like(q),
        "four descriptors": lambda: [kernel.Rows(q, layout) for layout in rows],
        "launch": lambda: kernel._launch(*given[0]),
        ASKED: found_by_triton,
    }


SHAPES = 125  # of each dtype, head dimension and mask: 1000 in all
LONGEST = 400


@measured_on("gpu")
def fuzz(lab):
    """Random lengths, heads, alignments and variants: how much of the allowed error is used."""
    for case in lab.each(dtype=["float16", "bfloat16"], D=[64, 128], causal=[False, True]):
        draw, used = random.Random(f"{case}"), []
        for seed in range(SHAPES):
            M, N = draw.randint(1, LONGEST), draw.randint(1, LONGEST)
            G, B = draw.choice((1, 2, 4)), draw.randint(1, 2)
            dtype = getattr(torch, case["dtype"])
            q, k, v = make_qkv(B, 4, M=M, N=N, D=case["D"], dtype=dtype, device="cuda", seed=seed)
            options = {"align": draw.choice(("bottom_right", "top_left"))} if case["causal"] else {}
            mask = causal_mask(M, N, device="cuda", **options) if case["causal"] else None
            chosen = draw.choice(VARIANTS[case["D"]])
            launch = _with_variant(hopper_attention, chosen)
            out = launch(q, k[:, ::G], v[:, ::G], causal=case["causal"], **options)
            k, v = (x[:, ::G].repeat_interleave(G, dim=1) for x in (k, v))
            found = deviation(out, q, k, v, mask=mask)
            used.append(found.largest / found.allowed)
        wrong = sum(not x <= 1.0 for x in used)  # NaN is wrong
        counts = {"shapes": SHAPES, "longest": LONGEST, "wrong": wrong}
        yield {**case, **counts, "largest_share_of_allowed": max(used)}


@measured_on("interpreter")
def protocol_mutants(lab):
    """What the simulation of the barriers says to kernels with a mistake among them."""
    yield from judged_mistakes(lab)


@measured_on("interpreter")
def barriers(lab):
    """Every state of the channel of keys, with its waits and arrivals and without one of them."""
    yield from reached(lab)
