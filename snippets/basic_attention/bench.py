"""What the page of basic_attention measures: one function for each result."""

from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, deviation, make_qkv
from snippets._lab.probe.loops import loops
from snippets._lab.rooms import measured_on

from . import exercise, kernel
from .kernel import basic_attention

LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]
DTYPES = ["float16", "bfloat16", "float32"]


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, N, D in ((1, 1, 64), (3, 65, 40), (2, 129, 128)):
            q, k, v = make_qkv(2, M=M, N=N, D=D, dtype=dtype, device=device)
            assert_attention(basic_attention(q, k, v), q, k, v)
            assert_attention(exercise.basic_attention(q, k, v), q, k, v)


@measured_on("gpu")
def forward(lab):
    """Time of one head against PyTorch, over length, head dimension and dtype."""
    for case in lab.each(dtype=["float32", "float16"], D=[64, 128, 256], N=LENGTHS):
        yield from lab.time_attention(case, ["basic_attention", "torch:sdpa"])


@measured_on("gpu")
def heads(lab):
    """Time over the number of heads: programs are independent, so more of them may cost nothing."""
    for case in lab.each(dtype=["float32"], D=[64], N=[1024], heads=[1, 2, 4, 8, 16, 32, 64]):
        yield from lab.time_attention(case, ["basic_attention", "torch:sdpa"])


@measured_on("gpu")
def reuse(lab):
    """Bytes that programs load, beside the bytes that must come from memory, over time."""
    count = {"basic_attention": _bytes_loaded, "basic_attention:exercise": _bytes_loaded_by_pairs}
    for case in lab.each(dtype=["float32"], D=[64], heads=[16], N=[256, 512, 1024, 2048, 4096]):
        itemsize = getattr(torch, case["dtype"]).itemsize
        for row in lab.time_attention(case, list(count)):
            if "error" not in row:
                loaded = count[row["implementation"]](case["N"], case["N"], case["D"], itemsize)
                row["bytes_loaded"] = case["heads"] * loaded
            yield row


def _bytes_loaded(M, N, D, itemsize):
    """Bytes that the M programs of a head load: each its query and every key and value."""
    return M * (1 + 2 * N) * D * itemsize


def _bytes_loaded_by_pairs(M, N, D, itemsize):
    """The same for the exercise's kernel: two queries share one pass over keys and values."""
    return (M + (M + 1) // 2 * 2 * N) * D * itemsize


# Without barriers ptxas would unroll a loop, and four loads would wait at once instead of one.
# This goes first in such a loop: it forbids that, and moves a number that is there anyway.
NOT_UNROLLED = (
    "tl.inline_asm_elementwise('.pragma \"nounroll\"; mov.b32 $0, $1;', '=f,f', [scale], "
    "tl.float32, False, 1)"
)
LOAD_K = "k = tl.load(k_row, mask=mask_d, other=0.0).to(tl.float32)"
LOAD_V = "v = tl.load(v_row, mask=mask_d, other=0.0).to(tl.float32)"
ACC, SLOTS = "acc = tl.zeros([BLOCK_D], tl.float32)", "slots = tl.arange(0, BLOCK_N)"
SCORE = "score = tl.sum(q * k, axis=0) * scale"
PARTS = {  # what is left out → the lines that change
    "loads": [  # as many products and sums, of what is there already
        (SLOTS, f"{SLOTS}; k = q"),
        (LOAD_K, "k = q * k"),
        (SCORE, SCORE.replace("q * k", "k")),
        (ACC, "acc = q"),
        (LOAD_V, "v = acc"),
    ],
    "the sum of a dot product": [
        (SLOTS, f"{SLOTS}; products = {ACC.removeprefix('acc = ')}"),
        (LOAD_K, f"score = {NOT_UNROLLED}; {LOAD_K}"),
        (SCORE, "products += q * k"),
        (ACC, "acc = products"),
    ],
    "writing slots": [
        (SLOTS, f"{SLOTS}; total = 0.0"),
        ('tl.full([BLOCK_N], float("-inf"), tl.float32)', "slots * scale"),
        ("scores = tl.where(slots == n, score, scores)", "total += score"),
        ("tl.exp(scores - largest)", "tl.exp(scores - total)"),
    ],
    "reading slots": [
        (LOAD_V, f"weight = {NOT_UNROLLED}; {LOAD_V}"),
        ("weight = tl.sum(tl.where(slots == n, weights, 0.0), axis=0)", "pass"),
        (ACC, f"{ACC} + tl.sum(weights, axis=0)"),
    ],
}
TAKEN_APART = {"dtype": ["float32"], "D": [64], "heads": [1, 16], "N": [256, 1024, 2048]}


def _variant(changes):
    return variant("basic_attention", changes)


@measured_on("gpu")
def ablation(lab):
    """Time with one part left out, whose results are wrong on purpose."""
    variants = {f"without {part}": _variant(changes) for part, changes in PARTS.items()}
    for case in lab.each(**TAKEN_APART):
        yield from lab.time_attention(case, ["basic_attention"], variants)


@measured_on("compiler", targets=["sm_90"])
def left(lab):
    """What an iteration of each loop still does, with one part left out: its machine code."""
    for case in lab.each(without=["nothing", *PARTS], **TAKEN_APART):
        kernel_ = _variant(PARTS.get(case["without"], []))
        (found,) = lab.compiler.resources(kernel_, lab.qkv(case), target=lab.target)
        for loop, counts in zip(("keys", "values"), loops(found.sass()), strict=True):
            yield {**case, "loop": loop, **counts}


WIDTH = "BLOCK_D=triton.next_power_of_2(D)"  # in the launch


@measured_on("gpu")
def warps(lab):
    """Time of the same kernel on 1 to 8 warps a program: one head, and enough for the GPU."""
    variants = {
        number: _variant([(WIDTH, f"{WIDTH}, num_warps={number}")]) for number in (1, 2, 4, 8)
    }
    for case in lab.each(dtype=["float32"], D=[64], heads=[1, 16], N=[256, 1024, 2048]):
        named = {f"basic_attention:{n} warps": call for n, call in variants.items()}
        for row in lab.time_attention(case, [], named):
            yield {**row, "num_warps": int(row["implementation"].split(":")[1].split()[0])}


@measured_on("gpu")
def error(lab):
    """Distance from float64, beside PyTorch's own in the same dtype."""
    for case in lab.each(dtype=DTYPES, D=[64, 256], N=[16, 64, 256, 1024, 4096]):
        q, k, v = lab.qkv(case)
        found = deviation(basic_attention(q, k, v), q, k, v)
        yield {
            **case,
            "error_largest": found.largest,
            "error_mean": found.mean,
            "pytorch_error_largest": found.pytorch,
            "allowed": found.allowed,
        }


@measured_on("gpu", "compiler")
def registers(lab):
    """Registers and spills over the number of keys: the row of scores lives in registers.

    The last length is beyond what the launcher allows; the limit is lifted to show its reason.
    """
    allowed = kernel.LIMITS["keys"]
    for case in lab.each(dtype=["float32"], D=[64, 256], N=[16, 256, 1024, 4096, 16384, 32768]):
        q, k, v = lab.qkv(case)
        with patch.dict(kernel.LIMITS, keys=case["N"]):
            for row in lab.resources(basic_attention, q[:1], k, v):
                yield {**case, "launcher_refuses": case["N"] > allowed, **row}


@measured_on("interpreter")
def traffic(lab):
    """Loads of each program, recorded while the interpreter runs the kernel."""
    from snippets._lab.probe.memory_trace import record

    sizes = {  # M, N, D
        "one program": (1, 1024, 512),
        "whole head": (8, 64, 64),
        "transposed keys": (8, 64, 64),
        "one decoding step": (1, 64, 64),
        "two queries": (8, 64, 64),
    }
    for case in lab.each(case=list(sizes)):
        M, N, D = sizes[case["case"]]
        q, k, v = make_qkv(M=M, N=N, D=D)
        if case["case"] == "transposed keys":
            k = k.mT.contiguous().mT
        pairs = case["case"] == "two queries"
        launcher = exercise.basic_attention if pairs else basic_attention
        with record({"q": q, "k": k, "v": v}) as trace:
            out = launcher(q, k, v)
        assert_attention(out, q, k, v)
        total = trace.total("load")
        keys = trace.total("load", tensor="k")
        yield {
            **case,
            "M": M,
            "N": N,
            "D": D,
            "programs": len(trace.per_program()),
            "loads": total.instructions,
            "elements": total.elements,
            "bytes_loaded": total.bytes,
            "sectors": total.sectors,
            "bytes_compulsory": sum(x.numel() * x.element_size() for x in (q, k, v)),
            "key_loads": keys.instructions,
            "key_sectors": keys.sectors,
            "selected_elements": trace.selected_elements,
        }


EXAMPLE = "one query"
QUERY = 2  # of 8; and so the number of the program


def example():
    """q [8, 4] in steps of 0.2, k and v [14, 4] in steps of 0.1, as in tiled_attention."""
    q, k, v = make_qkv(M=8, N=14, D=4, seed=122, spread=1.5)
    return (q * 5).round() / 5, (k * 10).round() / 10, (v * 10).round() / 10


@measured_on("interpreter")
def scene(lab):
    """The kernel's own variables, key by key, for the program of one query."""
    from snippets._lab.probe.recording import recording

    names = ("score", "weights", "weight", "acc")
    program = (QUERY, 0, 0)
    q, k, v = example()
    for case in lab.each(example=[EXAMPLE]):
        with recording(kernel._basic_attention_kernel, q, k, v, names) as recorded:
            out = basic_attention(q, k, v)
        assert_attention(out, q, k, v)
        before, *scored = [turn for turn in recorded.of(program) if turn.loop == 0]
        softmax, *added = [turn for turn in recorded.of(program) if turn.loop == 1]
        if not torch.equal(torch.from_numpy(added[-1].values["acc"]), out[QUERY]):
            raise RuntimeError("the last sum of values is not what the launcher returned")
        lines, moved = recorded.listing.statements, recorded.bytes
        rows = zip(scored, added, moved(program, "k"), moved(program, "v"), strict=True)
        for one, two, k_bytes, v_bytes in rows:
            found = {"score": one.values["score"], "weight": two.values["weight"]}
            ran = {"lines": [lines(one.lines), lines(two.lines)]}
            loaded = {"bytes": {"k": k_bytes, "v": v_bytes}}
            yield case | found | {"acc": two.values["acc"].tolist()} | ran | loaded
        (q_bytes,), (out_bytes,) = moved(program, "q"), moved(program, "out")
        yield case | {
            "query": QUERY,
            "all_queries": len(q),
            "q": q[QUERY].tolist(),
            "k": k.tolist(),
            "v": v.tolist(),
            "weights": softmax.values["weights"].tolist(),
            "result": out[QUERY].tolist(),
            "listing": recorded.listing.lines,
            "begin": lines(before.lines),
            "softmax": lines(softmax.lines),
            "end": lines(recorded.turns.last_lines[program]),
            "bytes": {"q": q_bytes, "out": out_bytes},
            **recorded.launch(out, program),
        }
