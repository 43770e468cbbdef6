"""What the page of composed_attention measures: one function for each result."""

import functools
import re
import time
from collections.abc import Callable
from typing import NamedTuple
from unittest.mock import patch

import torch
import triton

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, make_qkv
from snippets._lab.measure.timing import Times
from snippets._lab.rooms import measured_on

from . import exercise, kernel, parts
from .kernel import composed_attention
from .op import composed_attention_op

DTYPES = ["float32", "float16"]
LENGTHS = [256, 512, 1024, 2048, 4096]
LAUNCHERS = (composed_attention, exercise.composed_attention, composed_attention_op)
STEPS = {  # the four launches of a call, in their order, as a chart calls them
    "transpose": "Kᵀ",
    "scores": "scores = q·Kᵀ",
    "softmax": "softmax",
    "values": "weights·V",
}


def check(device):
    """Raise unless the kernels are right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, K, N in ((1, 1, 1), (129, 64, 257), (300, 130, 65)):
            a = make_qkv(N=M, D=K, dtype=dtype, device=device)[1]
            b = make_qkv(N=N, D=K, dtype=dtype, device=device)[1].mT
            assert_matmul(parts.matmul(a, b), a, b)
            assert_transpose(parts.transpose(a), a)
        for N in (1, 1000, 5000):
            x = make_qkv(N=3, D=N, dtype=dtype, device=device)[0]
            assert_softmax(parts.softmax(x), x)
        for M, N, D in ((1, 1, 64), (3, 65, 40), (70, 129, 128)):
            q, k, v = make_qkv(2, M=M, N=N, D=D, dtype=dtype, device=device)
            for attention in LAUNCHERS:
                assert_attention(attention(q, k, v), q, k, v)


def assert_transpose(out, x):
    """Raise unless `out` is x with its last two dimensions swapped, bit for bit, side by side."""
    want = x.mT
    if out.shape != want.shape or out.dtype != x.dtype or not out.is_contiguous():
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)} {out.stride()}")
    wrong = int((out != want).sum())
    if wrong:
        raise NumericalMismatch(f"{wrong} of {want.numel()} elements differ, allowed 0")


def assert_matmul(out, a, b):
    """Raise unless `out` is a b within rounding.

    Allowed is twice the error of PyTorch's own product in the same dtype, plus the rounding
    of the result and of float32 sums: a few eps of the sum without cancellation.
    """
    want = a.double() @ b.double()
    uncancelled = (a.double().abs() @ b.double().abs()).max().item()
    sums = 4 * torch.finfo(torch.float32).eps * uncancelled
    _assert_within(out, want, a @ b, sums)


def assert_softmax(out, x):
    """Raise unless `out` is the softmax of x's rows within rounding.

    Allowed is twice PyTorch's own error, plus the rounding of the result and that of x - max
    in float32: an error of eps · |x - max| in an exponent is a relative error of the weight,
    and a weight times its exponent is below 1.
    """
    want = x.double().softmax(-1)
    exponents = 4 * torch.finfo(torch.float32).eps
    _assert_within(out, want, x.softmax(-1), exponents)


def _assert_within(out, want, pytorch, slack):
    if out.shape != want.shape or out.dtype != pytorch.dtype:
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}")
    storing = torch.finfo(out.dtype).eps * want.abs().max().item()
    allowed = 2 * (pytorch.double() - want).abs().max().item() + storing + slack
    largest = (out.double() - want).abs().max().item()
    if not largest <= allowed:  # written so that NaN fails
        raise NumericalMismatch(
            f"largest difference {largest:.2e} from float64, allowed {allowed:.2e} "
            f"at {tuple(out.shape)}, {out.dtype}"
        )


@measured_on("gpu")
def forward(lab):
    """Time of one head, over length and dtype."""
    names = ["composed_attention", "basic_attention", "torch:eager", "torch:sdpa"]
    for case in lab.each(dtype=DTYPES, D=[64], N=[16, 64, *LENGTHS, 8192]):
        yield from lab.time_attention(case, names)


class Step(NamedTuple):
    """One launch of a call, and its work."""

    call: Callable[[], object]
    flops: int
    bytes_compulsory: int  # that only memory has
    bytes_moved: int  # that it reads and writes anywhere


def steps(q, k, v):
    """The four launches of one call, by the names of STEPS."""
    heads, M, D = q.shape
    N, size = k.shape[-2], q.element_size()
    k_t, out = k.new_empty(heads, D, N), torch.empty_like(q)
    scores = torch.empty(heads, M, N, dtype=torch.float32, device=q.device)
    weights = scores.view(q.dtype)[..., :N]
    queries, keys = heads * M * D * size, heads * N * D * size
    product, into = 2 * heads * M * N * D, parts.into
    scaled = functools.partial(kernel._run_matmul, scale=D**-0.5)
    moved = bytes_through_memory(heads, M, N, D, size)
    calls = {
        "transpose": (lambda: into(k_t, kernel._run_transpose, k), 0, keys),
        "scores": (lambda: into(scores, scaled, q, k_t), product, queries),
        "softmax": (lambda: into(weights, kernel._run_softmax, scores), 0, 0),
        "values": (lambda: into(out, kernel._run_matmul, weights, v), product, keys),
    }
    return {name: Step(*about, moved[name]) for name, about in calls.items()}


@measured_on("gpu")
def kernels(lab):
    """Time of each of the four launches within one call: what one wrote the next finds in L2.

    Compulsory bytes are those that only memory has after the flush: the inputs.
    """
    for case in lab.each(dtype=DTYPES, heads=[16], D=[64], N=LENGTHS):
        work = steps(*lab.qkv(case))
        times = time_steps({name: step.call for name, step in work.items()}, lab.flush)
        for name, step in work.items():
            yield {
                "step": name,
                "label": STEPS[name],
                **case,
                **times[name].as_row(),
                "flops": step.flops,
                "bytes_compulsory": step.bytes_compulsory,
                "bytes_moved": step.bytes_moved,
            }


def time_steps(calls, flush, rounds=40):
    """Times of calls one after the other; L2 is flushed before the first of a round only."""
    for _ in range(3):
        for call in calls.values():
            call()  # compiles
    torch.cuda.synchronize()
    began = time.perf_counter()
    for call in calls.values():
        call()
    host_ms = (time.perf_counter() - began) * 1e3
    marks = []
    for _ in range(rounds):
        marks.append([torch.cuda.Event(enable_timing=True) for _ in range(len(calls) + 1)])
        flush.busy(2 * host_ms + 1)  # the launches queue behind it: no host between them
        marks[-1][0].record()
        for call, mark in zip(calls.values(), marks[-1][1:], strict=True):
            call()
            mark.record()
    torch.cuda.synchronize()
    return {
        name: Times([mark[i].elapsed_time(mark[i + 1]) for mark in marks])
        for i, name in enumerate(calls)
    }


def _random(*shape, dtype):
    generator = torch.Generator("cuda").manual_seed(0)
    return torch.randn(*shape, device="cuda", generator=generator).to(getattr(torch, dtype))


@measured_on("gpu")
def matmul(lab):
    """Time of a product of two square matrices."""
    for case in lab.each(dtype=DTYPES, N=[512, 1024, 2048, 4096, 8192]):
        a, b = _random(2, case["N"], case["N"], dtype=case["dtype"])
        yield from lab.time(
            case,
            {
                "composed_attention:matmul": lambda a=a, b=b: parts.matmul(a, b),
                "torch:matmul": lambda a=a, b=b: a @ b,
            },
            flops=2 * case["N"] ** 3,
            bytes_compulsory=3 * a.numel() * a.element_size(),
        )


@measured_on("gpu")
def softmax(lab):
    """Time of a softmax of 8192 rows, beside a plain copy of the same tensor."""
    lengths = [1, 128, 256, 512, 1024, 2048, 4096, 5000, 8192, 16_384]
    for case in lab.each(dtype=["float32"], rows=[8192], columns=lengths):
        x = _random(case["rows"], case["columns"], dtype=case["dtype"])
        calls = {
            "composed_attention:softmax": lambda x=x: parts.softmax(x),
            "torch:softmax": lambda x=x: x.softmax(-1),
            "torch:clone": x.clone,
        }
        yield from lab.time(case, calls, flops=0, bytes_compulsory=2 * x.numel() * x.element_size())


@measured_on("gpu")
def alignment(lab):
    """A row that the compiler knows to be aligned or does not, in slots that it fills or does not.

    Rows of all four lengths begin at multiples of 16 bytes. Triton tells the compiler which sizes
    and strides are multiples of 16: 5008 and 8192 are, 5000 and 8184 are not.
    """
    for case in lab.each(dtype=["float32"], rows=[8192], columns=[5000, 5008, 8184, 8192]):
        x = _random(case["rows"], case["columns"], dtype=case["dtype"])
        (found,) = lab.kernels(parts.softmax, x)
        about = {
            "slots": triton.next_power_of_2(case["columns"]),
            "numbers_a_load": numbers_a_load(found.ptx),
        }
        calls = {"composed_attention:softmax": lambda x=x: parts.softmax(x)}
        compulsory = 2 * x.numel() * x.element_size()
        for row in lab.time(case, calls, flops=0, bytes_compulsory=compulsory):
            yield about | row


def numbers_a_load(ptx):
    """How many numbers each load from global memory takes, where all take as many."""
    widths = {int(width or 1) for width in re.findall(r"ld\.global[.\w:]*?(?:\.v(\d))?\.b32", ptx)}
    (width,) = widths
    return width


@measured_on("gpu")
def transpose(lab):
    """Time of a transposed copy of a square matrix, beside a plain copy of it."""
    for case in lab.each(dtype=DTYPES, N=[512, 1024, 2048, 4096, 8192]):
        x = _random(case["N"], case["N"], dtype=case["dtype"])
        calls = {
            "composed_attention:transpose": lambda x=x: parts.transpose(x),
            "torch:transpose": lambda x=x: x.mT.contiguous(),
            "torch:clone": x.clone,
        }
        yield from lab.time(case, calls, flops=0, bytes_compulsory=2 * x.numel() * x.element_size())


@measured_on("gpu")
def strides(lab):
    """Time with the explicit transpose, and with k read through swapped strides instead."""
    names = ["composed_attention", "composed_attention:exercise"]
    for case in lab.each(dtype=DTYPES, heads=[16], D=[64], N=LENGTHS):
        yield from lab.time_attention(case, names)


def bytes_through_memory(heads, M, N, D, size):
    """Bytes that each of the four kernels reads and writes, each tensor counted once."""
    queries, keys, pairs = heads * M * D * size, heads * N * D * size, heads * M * N
    return {
        "transpose": 2 * keys,
        "scores": queries + keys + 4 * pairs,  # scores are float32
        "softmax": (4 + size) * pairs,  # reads scores, writes weights in q's dtype
        "values": size * pairs + keys + queries,
    }


def bytes_fused(heads, M, N, D, size):
    """Bytes that any kernel must move: q, k and v in, the result out."""
    return 2 * heads * (M + N) * D * size


@measured_on("interpreter")
def memory_traffic(lab):
    """Bytes between chip and memory by formula; what is stored is recorded too where it is small.

    Loads are not compared: several programs load the same tile, and L2 serves the repetition.
    """
    for case in lab.each(dtype=DTYPES, D=[64], N=[128, 256, 512, 1024, 2048, 4096, 8192]):
        N, D, dtype = case["N"], case["D"], getattr(torch, case["dtype"])
        size, pairs = dtype.itemsize, N * N
        stored = {
            "transpose": N * D * size,
            "scores": 4 * pairs,
            "softmax": size * pairs,
            "values": N * D * size,
        }
        recorded = _recorded_stores(N, D, dtype) if N == 128 else {}
        for step, moved in bytes_through_memory(1, N, N, D, size).items():
            yield {
                **case,
                "step": step,
                "label": STEPS[step],
                "bytes_moved": moved,
                "bytes_fused": bytes_fused(1, N, N, D, size),
                "bytes_stored": stored[step],
                "bytes_stored_recorded": recorded.get(step),
            }


def _recorded_stores(N, D, dtype):
    """Bytes that each launch stores, as the interpreter saw them."""
    from snippets._lab.probe.memory_trace import record

    q, k, v = make_qkv(1, N=N, D=D, dtype=dtype)
    stored = {}
    for name, step in steps(q, k, v).items():
        with record({"q": q, "k": k, "v": v}) as trace:
            step.call()
        stored[name] = trace.total("store").bytes
    return stored


@measured_on("gpu", "compiler")
def resources(lab):
    """Registers, spills, shared memory and tensor-core instruction of every configuration."""
    device = "cuda" if lab.place == "gpu" else "cpu"
    tiles = [("float32", t) for t in kernel.FLOAT32_TILES]
    tiles += [("float16", t) for t in kernel.TENSOR_CORE_TILES if lab.target != "sm_75"]
    for case in lab.each(kernel=["matmul", "softmax", "transpose"]):
        if case["kernel"] == "matmul":
            for dtype, tile in tiles:
                a = torch.ones(512, 512, dtype=getattr(torch, dtype), device=device)
                one = {"TENSOR_CORE_TILES": (tile,), "FLOAT32_TILES": (tile,)}
                with patch.multiple(kernel, **one):
                    rows = list(lab.resources(parts.matmul, a, a))
                size = f"{tile.BLOCK_M}×{tile.BLOCK_N}×{tile.BLOCK_K}"
                yield from ({**row, "dtype": dtype, "size": size} for row in rows)
        elif case["kernel"] == "softmax":
            for columns in kernel.SOFTMAX_WARPS:
                x = torch.ones(2, columns, device=device)
                for row in lab.resources(parts.softmax, x):
                    yield {**row, "dtype": "float32", "size": f"{columns} columns"}
        else:
            for dtype in DTYPES:
                x = torch.ones(64, 64, dtype=getattr(torch, dtype), device=device)
                for row in lab.resources(parts.transpose, x):
                    yield {
                        **row,
                        "dtype": dtype,
                        "size": f"{kernel.TRANSPOSE_TILE}×{kernel.TRANSPOSE_TILE}",
                    }
