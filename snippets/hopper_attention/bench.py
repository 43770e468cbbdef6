"""What the page of hopper_attention measures: one function for each result."""

import contextlib
import itertools
import random
from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, causal_mask, deviation, make_qkv
from snippets._lab.measure.competitors import resolve, same_work
from snippets._lab.rooms import measured_on

from . import kernel, sass
from .diagram import rows as picture
from .kernel import VARIANTS, Variant, hopper_attention
from .on_cpu import played
from .protocol import protocol_mutants as judged_mistakes

OURS = "hopper_attention"


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    with played(hopper_attention) if device == "cpu" else contextlib.nullcontext():
        for dtype, D, (M, N) in itertools.product(
            kernel.DTYPES, kernel.WIDTHS, ((1, 65), (130, 384), (257, 130))
        ):
            q, k, v = make_qkv(1, 2, M=M, N=N, D=D, dtype=dtype, device=device)
            mask = causal_mask(M, N, device=device)
            for rows, causal in zip(VARIANTS[D], (False, True), strict=True):
                for chosen in rows:
                    out = with_variant(hopper_attention, chosen)(q, k, v, causal=causal)
                    assert_attention(out, q, k, v, mask=mask if causal else None)


# --8<-- [start:forward]
@measured_on("gpu")
def forward(lab):
    """Time beside PyTorch's backends and the series' Triton kernel, the same number of tokens."""
    axes = {"causal": [False, True], "D": [64, 128], "N": [1024, 4096, 16_384]}
    for case in lab.each(dtype=["bfloat16", "float16"], **axes):
        names = [OURS, "flash_attention", "torch:cudnn", "torch:flash"]
        if case["dtype"] == "float16" and case["N"] != 4096:
            continue  # as bfloat16
        if case["dtype"] == "bfloat16" and case["N"] == 4096:
            names.append("torch:flex")  # compiles for every shape
        yield from lab.time_attention(same_work(case), names)
        # --8<-- [end:forward]


# --8<-- [start:changes]
ONE_TILE = (  # as many programs as tiles, each takes one
    "step = 2 if causal and total > programs else 1", "step, programs = 1, total",
)  # fmt: skip
IN_ORDER = [  # every program takes tiles as they come, the longest of a head first
    ("step = 2 if causal and total > programs else 1", "step = 1"),
    ("tile = gl.where(tile % 2 == 0, p.tiles - 1 - tile // 2, tile // 2)",
     "tile = p.tiles - 1 - tile"),
]  # fmt: skip
UNMOVED = ("REGISTERS = {2: (240, 24), 3: (160, 24)}", "REGISTERS = {2: (168, 168)}")
UNHELD = (  # the barrier that keeps the compiler from waiting early
    "    mbarrier.wait(v.full.index((count - 1) % V.STAGES), (count - 1) // V.STAGES & 1)\n"
    "    acc, _ =",
    "    acc, _ =",
)
BY_THREADS = [  # rows stored from registers, not by the copy engine
    ("        tma.store_wait(0)\n", ""),
    ("        mine = out_buffers.index(who)\n"
     "        mine.reshape([ROWS, D]).store(out.to(dtype))\n"
     "        fence_async_shared()\n"
     "        tma.async_copy_shared_to_global(out_desc, [head, first, 0], mine)\n",
     "        own = first + gl.arange(0, ROWS, gl.SliceLayout(1, acc_layout))\n"
     "        offs_d = gl.arange(0, D, gl.SliceLayout(0, acc_layout))\n"
     "        at = (head.to(gl.int64) * p.M + own)[:, None] * D + offs_d[None, :]\n"
     "        gl.store(out_ptr + at, out.to(dtype), mask=(own < p.M)[:, None])\n"),
    ("    out_desc, lse_ptr, out_buffers = results\n",
     "    out_desc, out_ptr, lse_ptr, out_buffers = results\n"),
    ("v_desc,\n    out_desc,", "v_desc,\n    out_desc, out_ptr,"),
    ("results = (out_desc, lse_ptr, out)", "results = (out_desc, out_ptr, lse_ptr, out)"),
    ("_describe(out.view(B * H, M, D), ROWS.value), lse,",
     "_describe(out.view(B * H, M, D), ROWS.value), out, lse,"),
]  # fmt: skip
# --8<-- [end:changes]
# --8<-- [start:further_changes]
PACKED = [  # weights are rounded to 16 bits before they are carried to the next step
    ("    mbarrier.wait(v.full.index((count - 1) % V.STAGES)",
     "    e_next = gl.convert_layout(e_next.to(k.buffers.dtype), e_layout)\n"
     "    mbarrier.wait(v.full.index((count - 1) % V.STAGES)"),
    ("                masked = gl.maximum(masked, 1)\n",
     "                e = gl.convert_layout(e.to(dtype), e_layout)\n"
     "                masked = gl.maximum(masked, 1)\n"),
]  # fmt: skip
OTHER_SUMS = [  # kept by each thread where the kernel shares them, shared where it keeps them
    ("if MASKED:\n            l_i = gl.zeros", "if not MASKED:\n            l_i = gl.zeros"),
    (
        "if MASKED:\n            l_i = gl.convert_layout",
        "if not MASKED:\n            l_i = gl.convert_layout",
    ),
]
DIVIDED = ("acc * gl.convert_layout(1.0 / l_i, ", "acc / gl.convert_layout(l_i, ")
POLYNOMIAL = ("    e = gl.exp2(s * p.scale_log2 - m_sub[:, None])", """\
    e = gl.inline_asm_elementwise(  # one of four without the unit that knows exp2
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
        "=f,=f,=f,=f,f,f,f,f", [s * p.scale_log2 - m_sub[:, None]],
        dtype=gl.float32, is_pure=True, pack=4,
    )""")  # fmt: skip
# --8<-- [end:further_changes]


# --8<-- [start:rungs]
ALONE, OVERLAP = Variant(0, 2, 2, False, False, False), Variant(0, 2, 2, True, False, False)
IN_TURN, QUERIES = OVERLAP._replace(PING_PONG=True), OVERLAP._replace(Q_IN_REGISTERS=True)
THREE = Variant(0, 3, 2, False, False, False)
RUNGS = {  # texts of kernel.py that change, and the variant
    "a warp that loads": ([ONE_TILE], ALONE),
    "no registers moved": ([ONE_TILE, UNMOVED], ALONE),
    "softmax under the product": ([ONE_TILE], OVERLAP),
    "undone by the compiler": ([ONE_TILE, UNHELD], OVERLAP),
    "in turn": ([ONE_TILE], IN_TURN),
    "programs that stay": (IN_ORDER, IN_TURN),
    "causal tiles in pairs": ([], IN_TURN),
    "queries in registers": ([], QUERIES),
    "three consumers": ([], THREE),
    "sums the other way": (OTHER_SUMS, IN_TURN),
    "stored by the threads": (BY_THREADS, IN_TURN),
    "a division for each element": ([DIVIDED], IN_TURN),
    "weights packed at once": (PACKED, IN_TURN),
    "exp2 by a polynomial": ([POLYNOMIAL], IN_TURN),
    "tiles of 64 keys": ([], IN_TURN._replace(BLOCK_N=64, STAGES=4)),
}
FOR_64 = ("queries in registers", "three consumers")
# --8<-- [end:rungs]


def with_variant(launcher, chosen):
    """The launcher (the page's, or a variant of it) with this Variant and not its table's."""
    names = launcher.__globals__

    def launch(*tensors, **options):
        table, names["_variant"] = names["_variant"], lambda *_: chosen
        try:
            return launcher(*tensors, **options)
        finally:
            names["_variant"] = table

    return launch


def rung(name):
    """The launcher of a rung."""
    changes, chosen = RUNGS[name]
    return with_variant(variant(OURS, changes) if changes else hopper_attention, chosen)


def rungs_of(D):
    """The rungs at a head dimension: at D 128 the registers for some are not there."""
    return {name: rung(name) for name in RUNGS if D == 64 or name not in FOR_64}


@measured_on("gpu")
def rungs(lab):
    """One step further at a time, then steps back and aside, each correct, all in turn."""
    launchers = {D: rungs_of(D) for D in kernel.WIDTHS}
    for D, causal in itertools.product(kernel.WIDTHS, (False, True)):
        q, k, v = make_qkv(1, 2, N=384, D=D, dtype=torch.bfloat16, device="cuda")
        mask = causal_mask(384, 384, device="cuda") if causal else None
        for launcher in launchers[D].values():
            assert_attention(launcher(q, k, v, causal=causal), q, k, v, mask=mask)
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[1024, 4096]):
        yield from lab.time_attention(same_work(case), [OURS, "torch:cudnn"], launchers[case["D"]])


@measured_on("gpu")
def roofline(lab):
    """Time over length, as flash_attention's."""
    for case in lab.each(dtype=["bfloat16"], D=[128], N=[128, 256, 512, 1024, 2048, 4096, 8192]):
        case = {**case, "batch": 4, "heads": 16}
        yield from lab.time_attention(case, [OURS, "flash_attention", "torch:cudnn"])


@measured_on("gpu")
def ragged(lab):
    """Lengths that fill no tile, and shared heads of keys, beside the next round case."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], batch=[4],
                         heads=[16], N=[1000, 1024, 4095, 4096]):  # fmt: skip

        def shared(q, k, v, **options):
            return hopper_attention(q, k[:, ::4], v[:, ::4], **options)

        yield from lab.time_attention(case, [OURS], {"four query heads share keys": shared})


@measured_on("gpu")
def error(lab):
    """Distance from float64, largest and mean, beside PyTorch's own in the same dtype."""
    names = [OURS, "flash_attention", "torch:flash", "torch:cudnn", "torch:eager"]
    for case in lab.each(dtype=["float16", "bfloat16"], D=[64, 128], N=[256, 1024, 4096]):
        q, k, v = lab.qkv({**case, "batch": 1, "heads": 2})
        for name in names:
            found = deviation(resolve(name)(q, k, v), q, k, v)
            yield {"implementation": name, **case, "largest": found.largest, "mean": found.mean}


def configurations():
    """(D, causal, ragged, Variant): each row of the table, also with a last tile not filled."""
    for D, causal in itertools.product(kernel.WIDTHS, (False, True)):
        for chosen, ragged in itertools.product(VARIANTS[D][causal], (False, True)):
            if not (causal and ragged):  # a causal kernel has masks in any case
                yield D, causal, ragged, chosen


def compiled(compiler, launcher, D, causal, ragged, chosen):
    """The kernel that a launcher would launch, compiled ahead of time for Hopper."""
    q, k, v = make_qkv(1, 2, M=1024, N=1000 if ragged else 1024, D=D, dtype=torch.bfloat16)
    names = launcher.__globals__
    assumed = {"_refuse": lambda *_: None, "_multiprocessors": lambda _: 132, "_variant":
               lambda *_: chosen}  # fmt: skip
    with patch.dict(names, assumed):
        (found,) = compiler.resources(launcher, (q, k, v), {"causal": causal}, target="sm_90")
    return found


@measured_on("compiler", targets=["sm_90"])
def resources(lab):
    """Registers, spills, shared memory, and the exponentials that run under a product."""
    cases = {f"D {D}, {causal}, {ragged}, {V}": (D, causal, ragged, V)
             for D, causal, ragged, V in configurations()}  # fmt: skip
    for step in lab.each(configuration=list(cases)):
        D, causal, ragged, chosen = cases[step["configuration"]]
        found = compiled(lab.compiler, hopper_attention, D, causal, ragged, chosen)
        yield {"D": D, "causal": causal, "ragged": ragged, **chosen._asdict(),
               **found.as_row(), **sass.in_loops(found.sass())}  # fmt: skip


SHAPES = 125  # of each dtype, head dimension and mask: 1000 in all


# --8<-- [start:fuzz]
@measured_on("gpu")
def fuzz(lab):
    """Random lengths, heads, alignments and variants: how much of the allowed error is used."""
    for case in lab.each(dtype=["float16", "bfloat16"], D=[64, 128], causal=[False, True]):
        draw, used = random.Random(f"{case}"), []
        for seed in range(SHAPES):
            M, N, G = draw.randint(1, 400), draw.randint(1, 400), draw.choice((1, 2, 4))
            q, k, v = make_qkv(draw.randint(1, 2), 4, M=M, N=N, D=case["D"], seed=seed,
                               dtype=getattr(torch, case["dtype"]), device="cuda")  # fmt: skip
            options = {"align": draw.choice(("bottom_right", "top_left"))} if case["causal"] else {}
            mask = causal_mask(M, N, device="cuda", **options) if case["causal"] else None
            launch = with_variant(
                hopper_attention, draw.choice(VARIANTS[case["D"]][case["causal"]])
            )
            out = launch(q, k[:, ::G], v[:, ::G], causal=case["causal"], **options)
            k, v = (x[:, ::G].repeat_interleave(G, dim=1) for x in (k, v))
            found = deviation(out, q, k, v, mask=mask)
            used.append(found.largest / found.allowed)
        wrong = sum(not x <= 1.0 for x in used)  # NaN is wrong
        yield {**case, "shapes": SHAPES, "wrong": wrong, "largest_share_of_allowed": max(used)}
        # --8<-- [end:fuzz]


@measured_on("interpreter")
def protocol_mutants(lab):
    """What the simulation of the barriers says to kernels with a mistake among them."""
    yield from judged_mistakes(lab)


@measured_on("interpreter")
def protocol(lab):
    """Who signals whom over three tiles of keys, of two consumers that take turns."""
    yield from picture(IN_TURN, tiles=3)


@measured_on("interpreter")
def timeline_alone(lab):
    """Who works when: product, softmax, product."""
    yield from picture(ALONE)


@measured_on("interpreter")
def timeline_overlap(lab):
    """Who works when, with the softmax under the product."""
    yield from picture(OVERLAP)


@measured_on("interpreter")
def timeline_turns(lab):
    """Who works when, with the softmax under the product and consumers in turn."""
    yield from picture(IN_TURN)


@measured_on("interpreter")
def timeline_three(lab):
    """Who works when: three consumers, one thing after the other, at D 64."""
    yield from picture(THREE, D=64)
