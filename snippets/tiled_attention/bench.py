"""What the page of tiled_attention measures: one function for each result."""

import functools
import itertools
import re

import torch
import triton

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, causal_mask, make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.probe.gpus import ARCHITECTURES
from snippets._lab.rooms import measured_on

from . import kernel
from .kernel import TILES, tiled_attention

LENGTHS = [256, 1024, 4096]
WIDTHS = [64, 128]
OURS = "tiled_attention"


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, N, D in ((1, 1, 64), (33, 65, 40), (18, 40, 128), (5, 19, 256)):
            q, k, v = make_qkv(2, M=M, N=N, D=D, dtype=dtype, device=device)
            mask = causal_mask(M, N, device=device)
            assert_attention(tiled_attention(q, k, v), q, k, v)
            assert_attention(tiled_attention(q, k, v, causal=True), q, k, v, mask=mask)


@measured_on("gpu")
def forward(lab):
    """Time of one head over length and dimension; and of 16 heads, which fill the GPU."""
    earlier = ["basic_attention", "vectorized_attention:exercise", "composed_attention"]
    names = [OURS, *earlier, "torch:sdpa"]
    for case in lab.each(dtype=["float32"], D=WIDTHS, heads=[1, 16], N=LENGTHS):
        blocks = case["heads"] * triton.cdiv(case["N"], kernel._tiles(case["D"])[0])
        for row in lab.time_attention(case, names):
            yield row | ({"programs": blocks} if row["implementation"] == OURS else {})


NO_SKIP = [("tl.minimum(N, first + BLOCK_M + N - M)", "N")]


@measured_on("gpu")
def causal(lab):
    """With and without the mask, 16 heads; and the same kernel when no tile is skipped."""
    no_skip = variant(OURS, NO_SKIP)
    sdpa = resolve("torch:sdpa")
    variants = {
        "causal": functools.partial(tiled_attention, causal=True),
        "causal, no tile skipped": functools.partial(no_skip, causal=True),
        "torch:sdpa, causal": functools.partial(sdpa, is_causal=True),
    }
    labels = {
        OURS: "every key",
        "torch:sdpa": "PyTorch, every key",
        "causal": "causal",
        "causal, no tile skipped": "causal, no tile skipped",
        "torch:sdpa, causal": "PyTorch, causal",
    }
    for case in lab.each(dtype=["float32"], D=[64], heads=[16], N=[1024, 4096]):
        for row in lab.time_attention(case, [OURS, "torch:sdpa"], variants):
            yield row | {"label": labels[row["implementation"]]}


def with_tiles(BLOCK_M, BLOCK_N, num_warps, changes=()):
    """The page's launcher with these tiles for every head dimension, and further changes."""
    chosen = "BLOCK_M, BLOCK_N, num_warps = "
    given = f"{BLOCK_M}, {BLOCK_N}, {num_warps}"
    return variant(OURS, [(f"{chosen}_tiles(D)", chosen + given), *changes])


# The same kernel with [BLOCK_M, BLOCK_N, BLOCK_D], summed along the last axis.
SUMMED_LAST = [
    (
        "tl.sum(q[:, :, None] * k[:, None, :], axis=0)",
        "tl.sum(tl.trans(q)[:, None, :] * tl.trans(k)[None, :, :], axis=2)",
    ),
    (
        "weights, values = tl.trans(p)[:, :, None], v[:, None, :]",
        "weights, values = p[:, None, :], tl.trans(v)[None, :, :]",
    ),
    ("tl.trans(visible)[:, :, None]", "visible[:, None, :]"),
    (
        "tl.sum(tl.where(seen, weights * values, 0.0), axis=0)",
        "tl.sum(tl.where(seen, weights * values, 0.0), axis=2)",
    ),
    ("tl.sum(weights * values, axis=0)", "tl.sum(weights * values, axis=2)"),
]


# Tiles with which neither order spills: the two kernels differ in what the order costs only.
NO_SPILLS = {64: (16, 16, 8), 128: (16, 8, 8), 256: (8, 8, 8)}


def orders(D):
    """The two kernels that differ in the order of their axes, by the axis that is summed."""
    return {"first": with_tiles(*NO_SPILLS[D]), "last": with_tiles(*NO_SPILLS[D], SUMMED_LAST)}


@measured_on("gpu")
def axes(lab):
    """Time and instructions of the two orders of axes, with the same tiles."""
    for case in lab.each(dtype=["float32"], D=list(TILES), heads=[16], N=[1024]):
        launchers = orders(case["D"])
        counts = {
            order: compiled(lab, launcher, case | {"causal": False})
            for order, launcher in launchers.items()
        }
        for row in lab.time_attention(case, [], launchers):
            yield {"tile": label(*NO_SPILLS[case["D"]]), **counts[row["implementation"]], **row}


@measured_on("gpu", "compiler")
def resources(lab):
    """Registers, spills and instructions of every row of TILES."""
    for case in lab.each(D=list(TILES), dtype=["float32", "float16"], causal=[False, True]):
        if case["dtype"] == "float16" and case["causal"]:
            continue  # as float32, one more conversion
        BLOCK_M, BLOCK_N, _ = TILES[case["D"]]
        found = compiled(lab, tiled_attention, case)
        yield {**case, "BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, **found}


def compiled(lab, launcher, case):
    """What compiling the kernel for a case gives, with counts of its machine instructions."""
    tensors = lab.qkv(case | {"N": 512})
    call = functools.partial(launcher, causal=case["causal"])
    (found,) = lab.kernels(call, *tensors)
    code = found.sass() if found.cubin else ""
    limits = ARCHITECTURES.get(lab.target or this_gpu())
    return found.as_row() | {
        "threads": 32 * found.num_warps,
        "multiprocessor_registers": limits.registers if limits else None,
        "instructions": len(INSTRUCTION.findall(code)),
        "multiply_adds": code.count(" FFMA"),
        "shuffles": code.count(" SHFL"),
        "barriers": code.count(" BAR.SYNC"),
        "global_loads": code.count(" LDG"),
    }


# A line of machine code: its address, perhaps a condition, its name; not the padding at the end.
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+ )?(?!NOP)[A-Z]", re.MULTILINE)


def this_gpu():
    """The target to compile for on a GPU: "sm_90"."""
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


PAIRS = (64, 128)  # multiplied by a thread for the scores of a tile


def sweep(D):
    """(queries, keys, warps) of the tiles worth a try at D columns."""
    return [
        tile
        for tile in itertools.product((8, 16, 32), (8, 16, 32), (4, 8, 16))
        if tile[0] * tile[1] * D // (32 * tile[2]) in PAIRS
    ]


def label(BLOCK_M, BLOCK_N, num_warps):
    """What the rows of a tile are called."""
    return f"{BLOCK_M} × {BLOCK_N}, {num_warps} warps"


@measured_on("gpu")
def tiles(lab):
    """Time, registers and spills over the tile; what spills more than it keeps is not timed."""
    for case in lab.each(dtype=["float32"], D=list(TILES), heads=[16], N=[1024]):
        yield from swept(lab, case)


def swept(lab, case):
    """The rows of one case: each tile compiled ahead of time, then all of them timed together."""
    launchers = {label(*tile): with_tiles(*tile) for tile in sweep(case["D"])}
    about = {}
    for tile in sweep(case["D"]):
        resources = compiled(lab, launchers[label(*tile)], case | {"causal": False})
        names = ("registers", "spill_store_bytes", "stack_bytes", "shared_bytes", "error")
        about[label(*tile)] = {
            **dict(zip(("BLOCK_M", "BLOCK_N", "num_warps"), tile, strict=True)),
            "in_table": tile == kernel._tiles(case["D"]),
            **{name: resources[name] for name in names},
        }
    fits = {name: launchers[name] for name, row in about.items() if worth_timing(row)}
    for row in lab.time_attention(case, ["torch:sdpa"], fits):
        yield about.pop(row["implementation"], {}) | row
    for name, row in about.items():
        reason = row["error"] or f"{row['stack_bytes']} bytes of stack a thread"
        yield {**row, "implementation": name, **case, "error": reason}


def worth_timing(row):
    """Whether a tile runs at all and keeps most of its registers' content on chip."""
    return row["error"] is None and row["stack_bytes"] <= 1024


@measured_on("interpreter")
def traffic(lab):
    """Loads of one head, recorded while the interpreter runs the kernels."""
    from snippets._lab.probe.memory_trace import record

    N, D = 64, 64
    labels = {
        "basic_attention": "one query, one key at a time",
        "vectorized_attention:exercise": "one query, 32 keys at a time",
        OURS: f"{TILES[D][0]} queries, {TILES[D][1]} keys at a time",
    }
    for case in lab.each(implementation=list(labels), causal=[False, True]):
        options = {"causal": True} if case["causal"] else {}
        launcher = resolve(case["implementation"])
        if launcher is None or (case["causal"] and case["implementation"] != OURS):
            continue  # the earlier kernels have no mask
        q, k, v = make_qkv(N=N, D=D)
        with record({"q": q, "k": k, "v": v}) as trace:
            out = launcher(q, k, v, **options)
        assert_attention(out, q, k, v, mask=causal_mask(N, N) if case["causal"] else None)
        total = trace.total("load")
        yield {
            **case,
            "label": "the same, causal" if case["causal"] else labels[case["implementation"]],
            "N": N,
            "D": D,
            "BLOCK_M": TILES[D][0] if case["implementation"] == OURS else 1,
            "programs": len(trace.per_program()),
            "loads": total.instructions,
            "bytes_loaded": total.bytes,
            "key_bytes": trace.total("load", tensor="k").bytes,
            "value_bytes": trace.total("load", tensor="v").bytes,
            "bytes_compulsory": sum(x.numel() * x.element_size() for x in (q, k, v)),
        }


EXAMPLES = {"every key": False, "causal": True}


def example():
    """q [8, 4] in steps of 0.2, k and v [14, 4] in steps of 0.1: scores have two decimals."""
    q, k, v = make_qkv(M=8, N=14, D=4, seed=122, spread=1.5)
    return (q * 5).round() / 5, (k * 10).round() / 10, (v * 10).round() / 10


@measured_on("interpreter")
def scene(lab):
    """The kernel's own variables, tile by tile, for its first program: four queries, four keys."""
    from snippets._lab.probe.recording import recording, running_softmax

    launcher = with_tiles(4, 4, 4)  # nothing of the kernel changes but the size of its tiles
    q, k, v = example()
    for case in lab.each(example=list(EXAMPLES)):
        causal = EXAMPLES[case["example"]]
        with recording(launcher.__globals__["_tiled_attention_kernel"], q, k, v) as recorded:
            out = launcher(q, k, v, causal=causal)
        assert_attention(out, q, k, v, mask=causal_mask(8, 14) if causal else None)
        tiles, whole = running_softmax(recorded, program := (0, 0, 0))
        last = tiles[-1]
        if not torch.equal(torch.tensor(last["acc"]) / torch.tensor(last["l"])[:, None], out[:4]):
            raise RuntimeError("the last step divided by l is not what the launcher returned")
        yield from (case | row for row in tiles)
        sizes = {"base": "e", "queries": 4, "keys": 14, "tile": 4, "columns": 4}
        inputs = {"q": q[:4].tolist(), "k": k.tolist(), "v": v.tolist(), "all_queries": len(q)}
        whole |= {"result": out[:4].tolist()} | recorded.launch(out, program)
        yield case | sizes | inputs | whole
