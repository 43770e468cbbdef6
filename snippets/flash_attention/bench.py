"""What the page of flash_attention measures: one function for each result."""

import functools
import itertools
import textwrap
from unittest.mock import patch

import torch
import triton

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, causal_mask, deviation, make_qkv
from snippets._lab.measure.competitors import resolve, same_work
from snippets._lab.rooms import measured_on, source_file

from . import exercise, kernel
from .kernel import Tiles, flash_attention

OURS = "flash_attention"


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    dtypes = [torch.float16, torch.bfloat16, torch.float32]
    lengths = ((1, 65), (130, 256), (257, 130))
    for dtype, D, (M, N) in itertools.product(dtypes, (64, 128), lengths):
        q, k, v = make_qkv(1, 2, M=M, N=N, D=D, dtype=dtype, device=device)
        assert_attention(flash_attention(q, k, v), q, k, v)
        mask = causal_mask(M, N, device=device)
        assert_attention(flash_attention(q, k, v, causal=True), q, k, v, mask=mask)
        assert_attention(exercise.flash_attention(q, k, v), q, k, v)


# --8<-- [start:forward]
@measured_on("gpu")
def forward(lab):
    """Time beside PyTorch's backends, the same number of tokens at every length."""
    axes = {"dtype": ["bfloat16", "float16"], "causal": [False, True], "D": [64, 128]}
    for case in lab.each(**axes, N=[1024, 4096, 16_384]):
        names = [OURS, "torch:cudnn", "torch:flash"]
        if case["dtype"] == "bfloat16":
            names.append("torch:flex")  # compiles for every shape, the same for both
        yield from lab.time_attention(same_work(case), names)
        # --8<-- [end:forward]


# --8<-- [start:two_loops]
def in_two_loops():
    """The text of the loop, and the text of two: without a mask as far as possible, then with."""
    text = source_file(OURS).read_text(encoding="utf-8")
    loop = text[text.index("    for start in tl.range(") : text.index("    return acc, l_i, m_i\n")]
    two = loop.replace("(0, end,", "(first, last,").replace("start >= full:", "second:")
    return loop, (
        "    for second in tl.static_range(2 if MASKED else 1):\n"
        "        first = full if second else 0\n"
        "        last = full if MASKED and not second else end\n"
    ) + textwrap.indent(two, "    ")
    # --8<-- [end:two_loops]


# --8<-- [start:order]
ROUNDED, SUMMED = "rounded = p.to(q.dtype)", "l_i = l_i * alpha + row_sum"
PRODUCT = 'acc = tl.dot(rounded, v_tile, acc, input_precision="ieee")'
OTHER_ORDER = [  # the order in which one would write it: sum, correction, rounding, product
    (ROUNDED, SUMMED),
    (f"{PRODUCT}\n        {SUMMED}", f"{ROUNDED}\n        {PRODUCT}"),
]
# --8<-- [end:order]


# --8<-- [start:rungs]
PLAIN = Tiles(64, 64, 4, 3)  # for both head dimensions, no spills and no warp specialisation
NO_BRANCH = [  # the mask on every tile, if there is one
    ("if MASKED and WARP_SPECIALIZE:", "if False:"),
    ("elif MASKED and start >= full:", "elif MASKED:"),
]
RUNGS = {  # what a step changes: texts of kernel.py, and tiles
    "exp by e": (
        [("p = tl.exp2(s * scale_log2 - m_sub[:, None])",
          "p = tl.exp((s * scale_log2 - m_sub[:, None]) / LOG2_E)"),
         ("alpha = tl.exp2(m_i - m_sub)", "alpha = tl.exp((m_i - m_sub) / LOG2_E)")], PLAIN),
    "a mask on every tile": (
        [("elif MASKED and start >= full:", "elif True:")], PLAIN),
    "two loops": ([in_two_loops()], PLAIN),
    "lines in another order": (OTHER_ORDER, PLAIN),
    "pointers": ([("described := _can_describe(architecture, q, k, v)", "described := False")],
                 PLAIN),
    "shortest rows first": ([("tile = tiles - 1 - tile", "tile = tile + 0")], PLAIN),
    "heads side by side": (
        [("    tile = pid % tiles\n", "    tile = pid // (tl.num_programs(0) // tiles)\n"),
         ("b, h = pid // tiles // H, pid // tiles % H",
          "b, h = pid % (tl.num_programs(0) // tiles) // H, pid % H")], PLAIN),
    "nothing in flight": ([], PLAIN._replace(num_stages=1)),
    "all of the above": ([], PLAIN),
    "taller tiles": ([], PLAIN._replace(BLOCK_M=128)),
    "large tiles": ([], Tiles(128, 128, 8, 2)),
    "warp specialisation": (
        [*NO_BRANCH, ("tiles.warp_specialize and not causal", "tiles.warp_specialize")],
        Tiles(128, 128, 4, 2, True)),
}  # fmt: skip
# --8<-- [end:rungs]


def with_tiles(launcher, tiles):
    """The launcher (the page's, or a variant of it) with these tiles and not its table's."""
    names = getattr(launcher, "__wrapped__", launcher).__globals__

    def launch(*tensors, **options):
        chosen, names["_tiles"] = names["_tiles"], lambda *_: tiles
        try:
            return launcher(*tensors, **options)
        finally:
            names["_tiles"] = chosen

    return launch


def rung(name):
    """The launcher of a rung."""
    changes, tiles = RUNGS[name]
    return with_tiles(variant(OURS, changes) if changes else flash_attention, tiles)


@measured_on("gpu")
def ladder(lab):
    """One step taken back at a time, and three steps further, each correct, all in turn."""
    rungs = {name: rung(name) for name in RUNGS}
    for launcher in rungs.values():
        for causal in (False, True):
            q, k, v = make_qkv(1, 2, N=300, D=128, dtype=torch.bfloat16, device="cuda")
            mask = causal_mask(300, 300, device="cuda") if causal else None
            assert_attention(launcher(q, k, v, causal=causal), q, k, v, mask=mask)
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[4096]):
        yield from lab.time_attention(same_work(case), [OURS, "torch:cudnn"], rungs)


# --8<-- [start:sweep]
SWEEP = [
    *itertools.starmap(Tiles, itertools.product([128], [64, 128], [4, 8], [2, 3])),
    *(Tiles(64, 64, 4, stages) for stages in (2, 3, 4)),
    *(Tiles(64, 128, 4, stages) for stages in (2, 3)),
    *(Tiles(128, 32, 4, 4), Tiles(256, 64, 8, 2)),
    *(Tiles(128, *tile, True) for tile in ((64, 4, 2), (128, 4, 2), (128, 4, 3))),
]
# --8<-- [end:sweep]


@measured_on("gpu")
def sweep(lab):
    """Time of every tile that fits the GPU, at a short and a longer length."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[64, 128], N=[1024, 16_384]):
        case = same_work(case)
        launchers = {tiles: with_tiles(flash_attention, tiles) for tiles in SWEEP}
        tensors = lab.qkv(case)
        reasons = {t: why_not(case, tensors, t, launcher) for t, launcher in launchers.items()}
        fits = {label(t): launcher for t, launcher in launchers.items() if not reasons[t]}
        timed = {row["implementation"]: row for row in lab.time_attention(case, [OURS], fits)}
        yield timed[OURS]
        for tiles, reason in reasons.items():
            row = timed.get(label(tiles)) or {"implementation": label(tiles), "error": reason}
            yield {**row, **case, **tiles._asdict()}


def why_not(case, tensors, tiles, launcher):
    """Why a launcher with these tiles cannot run this case on the GPU at hand; "" if it can."""
    if tiles.warp_specialize and case["causal"]:
        return "not divided among warps: the loop holds a branch"
    try:
        launcher(*tensors, causal=case["causal"])
    except triton.runtime.errors.OutOfResources as error:
        return f"{error}".partition(". Reducing")[0]
    except RuntimeError as error:  # a pass of the compiler gave up
        return f"does not compile: {error}".splitlines()[0]
    return ""


def label(tiles):
    """What the rows of a tile are called."""
    special = ", specialised" if tiles.warp_specialize else ""
    return f"{tiles.BLOCK_M} × {tiles.BLOCK_N}, {tiles.num_warps} warps, " \
        f"{tiles.num_stages} stages{special}"  # fmt: skip


def resources_of(lab, case):
    """What compiling for a case gives, ahead of time; few programs are enough."""
    call = functools.partial(flash_attention, causal=case["causal"])
    target = lab.target
    small = {**case, "batch": 1, "heads": 2, "N": 1024}
    with patch.object(kernel, "_architecture", lambda x: target):
        (found,) = lab.compiler.resources(call, lab.qkv(small), target=target)
    return found.as_row()


@measured_on("compiler")
def resources(lab):
    """Registers, spills and shared memory of the rows of TILES that the target has."""
    target = lab.target
    widths = list(kernel.TILES[target])
    for case in lab.each(dtype=["float16", "float32"], causal=[False, True], D=widths):
        yield {**case, **resources_of(lab, case)}


@measured_on("gpu")
def kernels(lab):
    """Every kernel of the series on the same work: 8 heads, N 1024, D 64."""
    earlier = ["basic_attention", "vectorized_attention:exercise", "composed_attention"]
    names = [*earlier, "tiled_attention", OURS, "torch:eager", "torch:sdpa", "torch:cudnn"]
    for case in lab.each(dtype=["float16"], heads=[8], D=[64], N=[1024, 4096]):
        yield from lab.time_attention(case, names)


@measured_on("gpu")
def roofline(lab):
    """Time over length for the roofline: intensity grows with M; one query has next to none."""
    for case in lab.each(dtype=["bfloat16"], D=[128], N=[128, 256, 512, 1024, 2048, 4096, 8192]):
        case = {**case, "batch": 4, "heads": 16}
        names = [OURS, "torch:cudnn"] + ["torch:eager"] * (case["M"] <= 4096)
        yield from lab.time_attention(case, names)
    for case in lab.each(dtype=["bfloat16"], D=[128], M=[1], N=[4096, 16_384]):
        yield from lab.time_attention({**case, "batch": 8, "heads": 16}, [OURS, "torch:sdpa"])


@measured_on("gpu")
def ragged(lab):
    """Lengths that fill no tile, and shared heads of keys, beside the next round case."""
    for case in lab.each(dtype=["bfloat16"], causal=[False, True], D=[128], batch=[4], heads=[16],
                         N=[1000, 1024, 4095, 4096]):  # fmt: skip

        def shared(q, k, v, **options):
            return flash_attention(q, k[:, ::4], v[:, ::4], **options)

        yield from lab.time_attention(case, [OURS], {"four query heads share keys": shared})


@measured_on("gpu", "interpreter")
def error(lab):
    """Distance from float64, largest and mean, beside PyTorch's own in the same dtype."""
    gpu = lab.place == "gpu"
    names = ["torch:math", "torch:flash", "torch:cudnn", "torch:efficient", "torch:eager"]
    dtypes = ["float16", "bfloat16", "float32"]
    for case in lab.each(dtype=dtypes, D=[64, 128], N=[256, 1024, 4096] if gpu else [256]):
        q, k, v = lab.qkv({**case, "batch": 1, "heads": 2})
        for name in (OURS, *(names if gpu else ["torch:eager"])):
            if case["dtype"] == "float32" and name in ("torch:flash", "torch:cudnn"):
                continue  # 16 bits only
            found = deviation(resolve(name)(q, k, v), q, k, v)
            yield {
                "implementation": name, **case, "largest": found.largest, "mean": found.mean,
            }  # fmt: skip


@measured_on("gpu")
def memory(lab):
    """Bytes allocated while a call runs, beyond its inputs: the result, and nothing of N × N."""
    for case in lab.each(dtype=["bfloat16"], heads=[8], D=[64],
                         N=[1024, 4096, 16_384, 65_536]):  # fmt: skip
        q, k, v = lab.qkv(case)
        for name in (OURS, *(["torch:eager"] if case["N"] <= 16_384 else [])):
            call = resolve(name)
            call(q[:, :64], k[:, :64], v[:, :64])  # compiles, and takes its workspace
            torch.cuda.synchronize()
            before = torch.cuda.memory_allocated()
            torch.cuda.reset_peak_memory_stats()
            out = call(q, k, v)
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
            yield {"implementation": name, **case, "peak_bytes": peak,
                   "result_bytes": out.numel() * out.element_size()}  # fmt: skip
            del out


EXAMPLES = {"every key": False, "causal": True}
COLUMNS = 4  # of 16, for a player that fits a page


def example():
    """q [1, 1, 8, 16], k and v [1, 1, 14, 16] in steps of 0.1, float16."""
    q, k, v = make_qkv(1, 1, M=8, N=14, D=16, seed=147, spread=1.5)
    return [((x * 10).round() / 10).half() for x in (q, k, v)]


# --8<-- [start:steps]
@measured_on("interpreter")
def steps(lab):
    """The kernel's own variables, tile by tile, for queries 0 to 3."""
    from snippets._lab.probe.variables import softmax_steps, watch

    launcher = with_tiles(flash_attention, Tiles(4, 4, 4, 1))  # four queries, four keys
    names = ["start", "s", "m_i", "alpha", "p", "l_i", "acc", "scale_log2", "full"]
    q, k, v = example()
    for case in lab.each(example=list(EXAMPLES)):
        causal = EXAMPLES[case["example"]]
        with watch(kernel._attend, names) as turns:
            out = launcher(q, k, v, causal=causal)
        assert_attention(out, q, k, v, mask=causal_mask(8, 14) if causal else None)
        program = (1, 0, 0) if causal else (0, 0, 0)  # causal: the last rows start first
        mine = [turn for turn in turns if turn.program == program]
        for turn in mine[1:]:  # what the running maximum is compared with, in base 2
            turn.values["scores"] = turn.values["s"] * turn.values["scale_log2"]
        recorded = softmax_steps(mine, program, keys=14)
        last = recorded[-1]
        divided = torch.tensor(last["acc"]) / torch.tensor(last["l"])[:, None]
        if not torch.equal(divided.half(), out[0, 0, :4]):
            raise RuntimeError("the last step divided by l is not what the launcher returned")
        for row in recorded:
            shown = {name: [x[:COLUMNS] for x in row[name]] for name in ("acc", "acc_before")}
            yield case | row | shown | {"masked": row["start"] >= mine[0].values["full"]}
        yield case | {"base": "2", "queries": 4, "keys": 14, "tile": 4, "columns": COLUMNS,
                      "result": out[0, 0, :4, :COLUMNS].tolist()}  # fmt: skip
        # --8<-- [end:steps]
