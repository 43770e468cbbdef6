"""What the page of coalescing measures: one function for each result."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F

from snippets._lab.judge.oracle import NumericalMismatch, make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from .exercise import BLOCK_N, column_sums
from .kernel import BLOCK, coalescing, line_sums

SECTOR = 32  # bytes: the unit in which the caches of an NVIDIA GPU fetch
LANES = 32  # threads of a warp, which issue a load together: one request
DTYPES = ["float32", "float16"]


def check(device):
    """Raise unless the kernels are right on this device; no result is stored before it passed."""
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for L, stride in ((1, 1), (5_000, 1), (5_000, 3), (65_537, 32)):
            x = torch.randn(L, generator=generator).to(device, dtype)
            assert_copied(coalescing(x, stride=stride), x[::stride])
        for shape, dim in (((1, 1), 1), ((3, 1_030), 1), ((1_030, 3), 0), ((130, 33), 0)):
            x = torch.randn(shape, generator=generator).to(device, dtype)
            assert_sums(line_sums(x, dim=dim), x, dim=dim)
            assert_sums(column_sums(x), x, dim=0, block=BLOCK_N)


# --8<-- [start:checks]
def assert_copied(out, want):
    """Raise NumericalMismatch unless `out` equals `want`: a copy rounds nothing."""
    if out.shape != want.shape or out.dtype != want.dtype:
        is_, should = (f"{x.dtype} {tuple(x.shape)}" for x in (out, want))
        raise NumericalMismatch(f"result is {is_}, not {should}")
    different = (out != want).nonzero()  # NaN differs from everything, itself included
    if len(different):
        first = different[0].tolist()
        raise NumericalMismatch(
            f"{len(different)} of {want.numel()} elements differ, first {first}"
        )


def assert_sums(out, x, *, dim, block=BLOCK):
    """Raise NumericalMismatch unless `out` holds the sums of x along `dim` within rounding.

    Allowed is twice the error of PyTorch's own sums in the same dtype, one unit in the last
    place for storing, and what adding in float32 must cost: each addition rounds by half an
    eps of what is summed so far, at most Σ|x|, and the longest chain of additions has one for
    each trip of the loop and one for each halving of the block.
    """
    want = x.double().sum(dim)
    if out.shape != want.shape or out.dtype != x.dtype:
        should = f"{x.dtype} {tuple(want.shape)}"
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}, not {should}")
    chain = math.ceil(x.shape[dim] / block) + math.log2(block)
    adding = chain * torch.finfo(torch.float32).eps / 2 * x.double().abs().sum(dim)
    pytorch = (x.sum(dim).double() - want).abs()
    allowed = 2 * pytorch + torch.finfo(x.dtype).eps * want.abs() + adding
    error = (out.double() - want).abs()
    share = (error / allowed.clamp(min=1e-300)).max().item()
    if not share <= 1:  # written so that NaN fails
        raise NumericalMismatch(
            f"largest difference {error.max():.2e} from float64, {share:.1e} times what is "
            f"allowed, at x {tuple(x.shape)}, dim {dim}, {x.dtype}"
        )
    # --8<-- [end:checks]


# --8<-- [start:strides]
@measured_on("gpu")
def strides(lab):
    """Time of a copy of the same number of elements, read further and further apart."""
    n = 2**26  # the result alone is several times L2, on the largest GPUs too
    while 32 * n * 4 > torch.cuda.get_device_properties(0).total_memory // 3:
        n //= 2
    for case in lab.each(dtype=DTYPES, stride=[1, 2, 4, 8, 16, 32]):
        stride = case["stride"]
        x = torch.randn(n * stride, dtype=getattr(torch, case["dtype"]), device="cuda")
        assert_copied(coalescing(x, stride=stride), x[::stride])
        calls = {
            "coalescing": lambda x=x, s=stride: coalescing(x, stride=s),
            "torch:clone": lambda x=x, s=stride: x[::s].clone(),
        }
        size = x.element_size()
        moved = bytes_of_sectors(n, stride, size) + n * size
        for row in lab.time(case, calls, flops=0, bytes_compulsory=moved):
            yield {**row, "elements": n, "bytes_useful": 2 * n * size}
            # --8<-- [end:strides]


# --8<-- [start:bytes_of_sectors]
def bytes_of_sectors(n, stride, itemsize):
    """Bytes of the 32-byte sectors that n elements lie in, `stride` elements apart."""
    if stride * itemsize >= SECTOR:
        return n * SECTOR  # each element in a sector of its own
    last_byte = ((n - 1) * stride + 1) * itemsize
    return math.ceil(last_byte / SECTOR) * SECTOR
    # --8<-- [end:bytes_of_sectors]


@measured_on("gpu")
def transposed(lab):
    """Time of the sums of a matrix, one line a program: along its rows, and along its columns."""
    for case in lab.each(dtype=DTYPES, side=[16_384, 16_000]):
        x = torch.randn(case["side"], case["side"], device="cuda").to(getattr(torch, case["dtype"]))
        assert_sums(line_sums(x, dim=0), x, dim=0)
        assert_sums(column_sums(x), x, dim=0, block=BLOCK_N)
        calls = {
            "line_sums:rows": lambda x=x: line_sums(x, dim=1),
            "line_sums:columns": lambda x=x: line_sums(x, dim=0),
            "line_sums:exercise": lambda x=x: column_sums(x),
            "torch:sum_rows": lambda x=x: x.sum(1),
            "torch:sum_columns": lambda x=x: x.sum(0),
        }
        moved = (x.numel() + case["side"]) * x.element_size()
        yield from lab.time(case, calls, flops=x.numel(), bytes_compulsory=moved)


# --8<-- [start:lanes]
@measured_on("interpreter")
def lanes(lab):
    """Where the lanes of one request read, for each stride: recorded in the interpreter."""
    from snippets._lab.probe.memory_trace import record

    for case in lab.each(dtype=DTYPES, stride=list(range(1, 33))):
        x = torch.zeros(LANES * case["stride"], dtype=getattr(torch, case["dtype"]))
        with record({"x": x}, keep_addresses=True) as trace:
            assert_copied(coalescing(x, stride=case["stride"]), x[:: case["stride"]])
        (load,) = (a for a in trace.accesses if a.operation == "load")
        (request,) = requests(load, x)
        yield {
            **case,
            "element_bytes": x.element_size(),
            "lane_bytes": request,  # the first byte each lane reads
            "sectors": len(touched(request)),
        }
        # --8<-- [end:lanes]


# --8<-- [start:requests]
def requests(access, tensor):
    """The byte offsets of one load, dealt to warps: at most 32 a list, without masked lanes.

    Neighbours in the tile go to neighbouring lanes, one element each. (The compiler may give
    a lane several neighbours at once: then there are fewer requests, for the same sectors.)
    """
    start = tensor.storage_offset() * tensor.element_size()
    offsets = access.offsets.ravel().tolist()
    warps = (offsets[at : at + LANES] for at in range(0, len(offsets), LANES))
    dealt = [[start + byte for byte in warp if byte >= 0] for warp in warps]
    return [request for request in dealt if request]


def touched(request):
    """The 32-byte sectors of a request, counted from the start of the tensor's memory."""
    return {byte // SECTOR for byte in request}
    # --8<-- [end:requests]


# --8<-- [start:sectors]
@measured_on("interpreter")
def sectors(lab):
    """Sectors for each request of 32 lanes: this page's kernels, and attention's loads."""
    from snippets._lab.probe.memory_trace import record

    for case in lab.each(dtype=DTYPES):
        for read, (call, tensors, name) in reads(getattr(torch, case["dtype"])).items():
            with record(tensors, keep_addresses=True) as trace:
                call()
            tensor = tensors[name]
            loads = (a for a in trace.accesses if (a.operation, a.tensor) == ("load", name))
            full = [r for a in loads for r in requests(a, tensor) if len(r) == LANES]
            yield {
                **case,
                "read": read,
                "requests": len(full),
                "sectors": sum(len(touched(r)) for r in full),
                "bytes_used": sum(len(set(r)) for r in full) * tensor.element_size(),
            }
            # --8<-- [end:sectors]


def reads(dtype):
    """What `sectors` looks at: name → (call, named tensors, the name of the one that is read)."""
    long, matrix = torch.ones(65_536, dtype=dtype), torch.ones(64, 64, dtype=dtype)

    def copy(x, stride):
        return functools.partial(coalescing, x, stride=stride), {"x": x}, "x"

    found = {
        "copy, stride 1": copy(long[:2_048], 1),
        "copy, stride 1, from the second element on": copy(long[1:2_049], 1),
        "copy, stride 2": copy(long[:4_096], 2),
        "copy, stride 32": copy(long, 32),
        "sums of rows": (functools.partial(line_sums, matrix, dim=1), {"x": matrix}, "x"),
        "sums of columns": (functools.partial(line_sums, matrix, dim=0), {"x": matrix}, "x"),
        "sums of columns, by tiles": (functools.partial(column_sums, matrix), {"x": matrix}, "x"),
    }
    if basic := resolve("basic_attention"):
        q, k, v = make_qkv(N=2, M=32, D=64, dtype=dtype)
        named = {"q": q, "k": k, "v": v}
        turned = named | {"k": k.mT.contiguous().mT}
        for name, title in (("q", "queries"), ("k", "keys"), ("v", "values")):
            found[f"attention, {title}"] = (functools.partial(basic, q, k, v), named, name)
        call = functools.partial(basic, *turned.values())
        found["attention, keys stored transposed"] = (call, turned, "k")
    return found


class Operation(NamedTuple):
    """One operation of a layer: how to call it, and what it needs by its formula."""

    call: Callable[[], object]
    calls: int  # a layer
    flops: int
    moved: int  # bytes of every operand and of the result, once
    product: bool  # of matrices, so that tensor cores can do it


# --8<-- [start:operations]
def product(tokens, inputs, outputs):
    """x [tokens, inputs] times wᵀ, w [outputs, inputs]; float16, as all of these."""
    x, w = normal(tokens, inputs), normal(outputs, inputs)
    moved = 2 * (x.numel() + w.numel() + tokens * outputs)
    return Operation(lambda: F.linear(x, w), 1, 2 * tokens * inputs * outputs, moved, True)


def plain(function, *operands, calls, flops):
    """An operation whose result has the first operand's shape; `flops` for each element."""
    n = operands[0].numel()
    moved = 2 * (n + sum(x.numel() for x in operands))
    return Operation(functools.partial(function, *operands), calls, flops * n, moved, False)


def attention(tokens, context, width, heads):
    """`tokens` queries look at `context` keys."""
    q = normal(1, heads, tokens, width // heads)
    k, v = normal(2, 1, heads, context, width // heads)
    call = functools.partial(F.scaled_dot_product_attention, q, k, v)
    moved = 2 * (2 * q.numel() + 2 * k.numel())
    return Operation(call, 1, 4 * tokens * context * width, moved, True)


def normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)
    # --8<-- [end:operations]


# --8<-- [start:layer]
def layer(tokens, *, width=4_096, heads=32, context=8_192):
    """A transformer layer's operations by name: `tokens` new tokens, `context` keys."""
    x, y, hidden = normal(tokens, width), normal(tokens, width), normal(tokens, 4 * width)
    scores = normal(tokens, context)

    def normalise(x, gain, shift):
        return F.layer_norm(x, (width,), gain, shift)

    return {
        "layer norm": plain(normalise, x, normal(width), normal(width), calls=2, flops=7),
        "matmul, q, k and v": product(tokens, width, 3 * width),
        "attention (SDPA)": attention(tokens, context, width, heads),
        "matmul, output": product(tokens, width, width),
        "add": plain(torch.add, x, y, calls=2, flops=1),
        "matmul, up": product(tokens, width, 4 * width),
        "GELU": plain(F.gelu, hidden, calls=1, flops=8),
        "matmul, down": product(tokens, 4 * width, width),
        "softmax (not in the layer)": plain(
            functools.partial(torch.softmax, dim=-1), scores, calls=0, flops=5
        ),
    }
    # --8<-- [end:layer]


@measured_on("gpu")
def bound(lab):
    """What limits each operation of a transformer layer, for one new token and for thousands."""
    for case in lab.each(tokens=[1, 16, 256, 8_192]):
        for name, op in layer(case["tokens"]).items():
            about = {**case, "dtype": "float16", "operation": name}
            about |= {"calls": op.calls, "product": op.product}
            yield from lab.time(
                about, {"torch": op.call}, flops=op.flops, bytes_compulsory=op.moved
            )
