"""What the page of basic_attention measures: one function for each result."""

from unittest.mock import patch

import torch

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, deviation, make_qkv
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


# --8<-- [start:forward]
@measured_on("gpu")
def forward(lab):
    """Time of one head against PyTorch, over length, head dimension and dtype."""
    for case in lab.each(dtype=["float32", "float16"], D=[64, 128, 256], N=LENGTHS):
        yield from lab.time_attention(case, ["basic_attention", "torch:sdpa"])
        # --8<-- [end:forward]


@measured_on("gpu")
def heads(lab):
    """Time over the number of heads: programs are independent, so more of them may cost nothing."""
    for case in lab.each(dtype=["float32"], D=[64], N=[1024], heads=[1, 2, 4, 8, 16, 32, 64]):
        yield from lab.time_attention(case, ["basic_attention", "torch:sdpa"])


@measured_on("gpu")
def reuse(lab):
    """Bytes that programs load, beside the bytes that must come from memory, over time."""
    loaded = {"basic_attention": bytes_loaded, "basic_attention:exercise": bytes_loaded_by_pairs}
    for case in lab.each(dtype=["float32"], D=[64], heads=[16], N=[256, 512, 1024, 2048, 4096]):
        for row in lab.time_attention(case, list(loaded)):
            if "error" not in row:
                count = loaded[row["implementation"]]
                row["bytes_loaded"] = case["heads"] * count(case["N"], case["N"], case["D"], 4)
            yield row


# --8<-- [start:bytes_loaded]
def bytes_loaded(M, N, D, itemsize):
    """Bytes that the M programs of a head load: each its query and every key and value."""
    return M * (1 + 2 * N) * D * itemsize
    # --8<-- [end:bytes_loaded]


def bytes_loaded_by_pairs(M, N, D, itemsize):
    """The same for the exercise's kernel: two queries share one pass over keys and values."""
    return (M + (M + 1) // 2 * 2 * N) * D * itemsize


# --8<-- [start:parts]
PARTS = {
    "all slots, no loads": [
        ("k_row += stride_kn", "k_row += 0"),
        ("v_row += stride_vn", "v_row += 0"),
    ],
    "all loads, no slots": [
        ("scores = tl.where(slots == m, score, scores)", "last = score"),
        ("for m in range(N):\n        k = ", "last = 0.0\n    for m in range(N):\n        k = "),
        ("tl.sum(tl.where(slots == m, weights, 0.0), axis=0)", "last"),
    ],
    "one warp, not four": [("BLOCK_D=triton", "num_warps=1, BLOCK_D=triton")],
}
# --8<-- [end:parts]


@measured_on("gpu")
def parts(lab):
    """Time with one part left out, or on one warp. Left-out parts give wrong results on purpose."""
    variants = {name: variant("basic_attention", changes) for name, changes in PARTS.items()}
    for case in lab.each(dtype=["float32"], D=[64], heads=[1, 16], N=[256, 1024, 2048]):
        yield from lab.time_attention(case, ["basic_attention"], variants)


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
    for case in lab.each(dtype=["float32"], D=[64, 256], N=[16, 256, 1024, 4096, 16384, 32768]):
        q, k, v = lab.qkv(case)
        with patch.object(kernel, "MAX_KEYS", case["N"]):
            yield from ({**case, **row} for row in lab.resources(basic_attention, q[:1], k, v))


@measured_on("interpreter")
def traffic(lab):
    """Loads of each program, recorded while the interpreter runs the kernel."""
    from snippets._lab.probe.memory_trace import record

    launchers = {"basic_attention": basic_attention, "exercise": exercise.basic_attention}
    for case in lab.each(
        case=["one program", "whole head", "transposed keys", "one decoding step", "two queries"]
    ):
        M, N, D = {"one program": (1, 1024, 512), "one decoding step": (1, 64, 64)}.get(
            case["case"], (8, 64, 64)
        )
        q, k, v = make_qkv(M=M, N=N, D=D)
        if case["case"] == "transposed keys":
            k = k.mT.contiguous().mT
        launcher = launchers["exercise" if case["case"] == "two queries" else "basic_attention"]
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


@measured_on("interpreter")
def addresses(lab):
    """Which elements of q the program of query n loads when D is 512: the page's index example."""
    from snippets._lab.probe.memory_trace import record

    q, k, v = make_qkv(M=4, N=2, D=512)
    with record({"q": q, "k": k, "v": v}, keep_addresses=True) as trace:
        basic_attention(q, k, v)
    for case in lab.each(query=[0, 1, 2, 3]):
        (load,) = (a for a in trace.accesses if a.tensor == "q" and a.program[0] == case["query"])
        offsets = load.offsets // q.element_size()
        yield {
            **case,
            "first_element": int(offsets.min()),
            "last_element": int(offsets.max()),
            "neighbours": bool((offsets[1:] - offsets[:-1] == 1).all()),
            "sectors": load.sectors,
            "bytes_loaded": load.bytes,
        }
