"""What the page of coalescing measures: one function for each result."""

import functools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from .checks import assert_copied, assert_sums
from .exercise import BLOCK_M, column_sums
from .kernel import coalescing, line_sums

SECTOR = 32  # bytes: the unit in which the caches of an NVIDIA GPU fetch
LANES = 32  # threads of a warp, which issue a load together: one request
DTYPES = ["float32", "float16"]
STRIDES = [1, 2, 4, 8, 16, 32, 64]


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
            assert_sums(column_sums(x), x, dim=0, block=BLOCK_M)


@measured_on("gpu")
def strides(lab):
    """Time of a copy of the same number of elements, read further and further apart."""
    n, wide = 2**26, _several_a_lane()  # the result alone is several times L2 of the largest GPUs
    while STRIDES[-1] * n * 4 > torch.cuda.get_device_properties(0).total_memory // 3:
        n //= 2
    for case in lab.each(dtype=DTYPES, stride=STRIDES):
        stride = case["stride"]
        x = torch.randn(n * stride, dtype=getattr(torch, case["dtype"]), device="cuda")
        assert_copied(coalescing(x, stride=stride), x[::stride])
        calls = {
            "coalescing": lambda x=x, s=stride: coalescing(x, stride=s),
            "coalescing:wide": lambda x=x, s=stride: wide(x, stride=s),
            "torch:clone": lambda x=x, s=stride: x[::s].clone(),
        }
        size = x.element_size()
        moved = _bytes_of_sectors(n, stride, size) + n * size
        about = {"elements": n, "element_bytes": size, "sector_bytes": SECTOR}
        for row in lab.time(case, calls, flops=0, bytes_compulsory=moved):
            yield {**row, **about, "bytes_useful": 2 * n * size}


def _several_a_lane():
    """The copy as Triton compiles it if nobody objects: a lane takes several neighbours."""
    told = '@triton.jit(do_not_specialize_on_alignment=("x_ptr", "out_ptr"))'
    return variant("coalescing", [(told, "@triton.jit")])


def _bytes_of_sectors(n, stride, itemsize):
    """Bytes of the 32-byte sectors that n elements lie in, `stride` elements apart."""
    if stride * itemsize >= SECTOR:
        return n * SECTOR  # each element in a sector of its own
    last_byte = ((n - 1) * stride + 1) * itemsize
    return math.ceil(last_byte / SECTOR) * SECTOR


SUMS = {  # implementation → which lines it reads, and how
    "line_sums:rows": "rows",
    "line_sums:columns": "columns",
    "line_sums:exercise": "columns, by tiles",
    "torch:sum_rows": "PyTorch, rows",
    "torch:sum_columns": "PyTorch, columns",
}


@measured_on("gpu")
def transposed(lab):
    """Time of the sums of a matrix, one line a program: along its rows, and along its columns."""
    for case in lab.each(dtype=DTYPES, side=[16_384, 16_000]):
        x = torch.randn(case["side"], case["side"], device="cuda").to(getattr(torch, case["dtype"]))
        assert_sums(line_sums(x, dim=0), x, dim=0)
        assert_sums(column_sums(x), x, dim=0, block=BLOCK_M)
        calls = {
            "line_sums:rows": lambda x=x: line_sums(x, dim=1),
            "line_sums:columns": lambda x=x: line_sums(x, dim=0),
            "line_sums:exercise": lambda x=x: column_sums(x),
            "torch:sum_rows": lambda x=x: x.sum(1),
            "torch:sum_columns": lambda x=x: x.sum(0),
        }
        moved = (x.numel() + case["side"]) * x.element_size()
        about = {"element_bytes": x.element_size(), "sector_bytes": SECTOR}
        for row in lab.time(case, calls, flops=x.numel(), bytes_compulsory=moved):
            yield {**row, "read": SUMS[row["implementation"]], **about}


@measured_on("interpreter")
def lanes(lab):
    """Where the lanes of one request read, for each stride: recorded in the interpreter."""
    from snippets._lab.probe.memory_trace import record

    for case in lab.each(dtype=DTYPES, stride=list(range(1, LANES + 1))):
        x = torch.zeros(LANES * case["stride"], dtype=getattr(torch, case["dtype"]))
        with record({"x": x}, keep_addresses=True) as trace:
            assert_copied(coalescing(x, stride=case["stride"]), x[:: case["stride"]])
        (load,) = (a for a in trace.accesses if a.operation == "load")
        (request,) = _requests(load, x)
        yield {
            **case,
            "element_bytes": x.element_size(),
            "sector_bytes": SECTOR,
            "lane_bytes": request,  # the first byte each lane reads
            "sectors": len(_touched(request)),
        }


def _requests(access, tensor):
    """The byte offsets of one load, dealt to warps: at most 32 a list, without masked lanes.

    Neighbours in the tile go to neighbouring lanes, one element each: so the kernels of this
    room are compiled, and a test reads it from their instructions.
    """
    start = tensor.storage_offset() * tensor.element_size()
    offsets = access.offsets.ravel().tolist()
    warps = (offsets[at : at + LANES] for at in range(0, len(offsets), LANES))
    dealt = [[start + byte for byte in warp if byte >= 0] for warp in warps]
    return [request for request in dealt if request]


def _touched(request):
    """The 32-byte sectors of a request, counted from the start of the tensor's memory."""
    return {byte // SECTOR for byte in request}


@measured_on("interpreter")
def sectors(lab):
    """Sectors for each request of 32 lanes: this page's kernels, and attention's loads."""
    from snippets._lab.probe.memory_trace import record

    for case in lab.each(dtype=DTYPES):
        for read in _reads(getattr(torch, case["dtype"])):
            with record(read.tensors, keep_addresses=True) as trace:
                read.call()
            tensor = read.tensors[read.tensor]
            loads = (a for a in trace.accesses if (a.operation, a.tensor) == ("load", read.tensor))
            full = [r for a in loads for r in _requests(a, tensor) if len(r) == LANES]
            yield {
                **case,
                "key": read.key,
                "read": read.label,
                "D": read.D,
                "requests": len(full),
                "lanes": LANES,
                "sectors": sum(len(_touched(r)) for r in full),
                "sector_bytes": SECTOR,
                "bytes_used": sum(len(set(r)) for r in full) * tensor.element_size(),
            }


class _Read(NamedTuple):
    """A call whose loads from one tensor are counted."""

    key: str
    label: str
    call: Callable[[], object]
    tensors: Mapping[str, torch.Tensor]  # by name, as they are recorded
    tensor: str  # the name of the one that is read
    D: int | None = None  # of attention


def _reads(dtype):
    """What `sectors` looks at."""
    long, matrix = torch.ones(65_536, dtype=dtype), torch.ones(64, 64, dtype=dtype)

    def copy(key, label, x, stride):
        return _Read(key, label, functools.partial(coalescing, x, stride=stride), {"x": x}, "x")

    def sums(key, label, call):
        return _Read(key, label, call, {"x": matrix}, "x")

    yield copy("copy:1", "copy, stride 1", long[:2_048], 1)
    yield copy("copy:late", "copy, stride 1, from the second element on", long[1:2_049], 1)
    yield copy("copy:2", "copy, stride 2", long[:4_096], 2)
    yield copy("copy:32", "copy, stride 32", long, 32)
    yield sums("sums:rows", "sums of rows", functools.partial(line_sums, matrix, dim=1))
    yield sums("sums:columns", "sums of columns", functools.partial(line_sums, matrix, dim=0))
    tiles = functools.partial(column_sums, matrix)
    yield sums("sums:exercise", "sums of columns, by tiles", tiles)
    if basic := resolve("basic_attention"):
        q, k, v = make_qkv(N=32, M=2, D=64, dtype=dtype)
        call, named = functools.partial(basic, q, k, v), {"q": q, "k": k, "v": v}
        for name, title in (("q", "queries"), ("k", "keys"), ("v", "values")):
            yield _Read(f"attention:{name}", f"attention, {title}", call, named, name, D=64)
        turned = k.mT.contiguous().mT
        call, named = functools.partial(basic, q, turned, v), named | {"k": turned}
        label = "attention, keys stored transposed"
        yield _Read("attention:transposed", label, call, named, "k", D=64)


class _Operation(NamedTuple):
    """One operation of a layer: how to call it, and what it needs by its formula."""

    call: Callable[[], object]
    calls: int  # a layer
    flops: int
    moved: int  # bytes of every operand and of the result, once
    product: bool  # of matrices, so that tensor cores can do it


def _product(tokens, inputs, outputs):
    """x [tokens, inputs] times wᵀ, w [outputs, inputs]; float16, as all of these."""
    x, w = _normal(tokens, inputs), _normal(outputs, inputs)
    return _Operation(
        call=lambda: F.linear(x, w),
        calls=1,
        flops=2 * tokens * inputs * outputs,
        moved=2 * (x.numel() + w.numel() + tokens * outputs),
        product=True,
    )


def _plain(function, *operands, calls, flops):
    """An operation whose result has the first operand's shape; `flops` for each element."""
    n = operands[0].numel()
    return _Operation(
        call=functools.partial(function, *operands),
        calls=calls,
        flops=flops * n,
        moved=2 * (n + sum(x.numel() for x in operands)),
        product=False,
    )


def _attention(tokens, context, width, heads):
    """`tokens` queries look at `context` keys."""
    q = _normal(1, heads, tokens, width // heads)
    k, v = _normal(2, 1, heads, context, width // heads)
    return _Operation(
        call=functools.partial(F.scaled_dot_product_attention, q, k, v),
        calls=1,
        flops=4 * tokens * context * width,
        moved=2 * (2 * q.numel() + 2 * k.numel()),
        product=True,
    )


def _normal(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def _layer(tokens, *, width, heads, context):
    """A transformer layer's operations by name: `tokens` new tokens, `context` keys."""
    x, y, hidden = _normal(tokens, width), _normal(tokens, width), _normal(tokens, 4 * width)
    scores = _normal(tokens, context)

    def normalise(x, gain, shift):
        return F.layer_norm(x, (width,), gain, shift)

    return {
        "layer norm": _plain(normalise, x, _normal(width), _normal(width), calls=2, flops=7),
        "matmul, q, k and v": _product(tokens, width, 3 * width),
        "attention (SDPA)": _attention(tokens, context, width, heads),
        "matmul, output": _product(tokens, width, width),
        "add": _plain(torch.add, x, y, calls=2, flops=1),
        "matmul, up": _product(tokens, width, 4 * width),
        "GELU": _plain(F.gelu, hidden, calls=1, flops=8),
        "matmul, down": _product(tokens, 4 * width, width),
        "softmax (not in the layer)": _plain(
            functools.partial(torch.softmax, dim=-1), scores, calls=0, flops=5
        ),
    }


@measured_on("gpu")
def bound(lab):
    """What limits each operation of a transformer layer, for one new token and for thousands."""
    layer = {"width": 4_096, "heads": 32, "context": 8_192}
    for case in lab.each(tokens=[1, 16, 256, 8_192]):
        for name, op in _layer(case["tokens"], **layer).items():
            about = {**case, **layer, "dtype": "float16", "operation": name}
            about |= {"calls": op.calls, "product": op.product}
            yield from lab.time(
                about, {"torch": op.call}, flops=op.flops, bytes_compulsory=op.moved
            )
