"""What this GPU can do at best, measured: what physics.py holds every time against."""

import functools
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from snippets._lab.measure.timing import Flush, time_interleaved

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


@triton.jit
def _read_kernel(x_ptr, out_ptr, n_tiles, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program reads every num_programs-th tile and writes one sum: reads only, in effect."""
    acc = tl.zeros([BLOCK], tl.float32)
    for tile in range(tl.program_id(0), n_tiles, tl.num_programs(0)):
        acc += tl.load(x_ptr + tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0), tl.sum(acc, axis=0))


@triton.jit
def _fma_kernel(out_ptr, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Eight independent chains of fused multiply-adds for each element, in registers only."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = offs.to(tl.float32)
    a, b, c, d, e, f, g, h = x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7
    for _ in range(steps):
        a = a * 0.5 + 1.0
        b = b * 0.5 + 1.0
        c = c * 0.5 + 1.0
        d = d * 0.5 + 1.0
        e = e * 0.5 + 1.0
        f = f * 0.5 + 1.0
        g = g * 0.5 + 1.0
        h = h * 0.5 + 1.0
    tl.store(out_ptr + offs, a + b + c + d + e + f + g + h)


def measure(flush: Flush) -> dict[str, Any]:
    """Ceilings of the current GPU, each with its spread.

    Bandwidths in bytes/s (read-only, write-only, copy counting both directions), arithmetic in
    FLOP/s (matrix products by dtype, float32 matrix products with TF32, float32 FMA). Each entry
    is {"per_s_p20", "per_s_p50", "per_s_p80"}: the slow, middle and fast end of what was seen.
    """
    work: dict[str, tuple[float, Callable[[], object]]] = {}
    n_bytes = min(2 << 30, torch.cuda.get_device_properties(0).total_memory // 16) >> 20 << 20
    x = torch.randn(n_bytes // 4, device="cuda")
    y = torch.empty_like(x)
    work["read"] = n_bytes, functools.partial(read, x)
    work["write"] = n_bytes, lambda: y.fill_(1.0)
    work["copy"] = 2 * n_bytes, lambda: y.copy_(x)
    out = torch.empty(1 << 20, device="cuda")
    work["fma_float32"] = (
        8 * 2 * 4096 * out.numel(),
        lambda: _fma_kernel[(out.numel() // 256,)](out, 4096, BLOCK=256),
    )
    size = 8192 if n_bytes >= 1 << 30 else 4096
    for name, dtype in DTYPES.items():
        a, b = torch.randn(2, size, size, device="cuda", dtype=torch.float32).to(dtype)
        work[f"matmul_{name}"] = 2 * size**3, functools.partial(torch.matmul, a, b)
        if name == "float32":
            work["matmul_tf32"] = 2 * size**3, functools.partial(_with_tf32, a, b)
    times = time_interleaved({name: call for name, (_, call) in work.items()}, flush)
    ceilings = {}
    for name, (amount, _) in work.items():
        row = times[name].as_row()
        ceilings[name] = {
            f"per_s_p{100 - p}": float(f"{amount / row[f'ms_p{p}'] * 1e3:.5g}")
            for p in (20, 50, 80)
        }
    return ceilings


def read(x: torch.Tensor) -> torch.Tensor:
    """Read x once, float32 and contiguous, a multiple of 4096 numbers; returns sums of its parts.

    Raises ValueError for another number of elements, which would not all be read.
    """
    if x.numel() % 4096:
        raise ValueError(f"x has {x.numel()} elements; a multiple of 4096 is allowed")
    programs = 8 * torch.cuda.get_device_properties(x.device).multi_processor_count
    sums = torch.empty(programs, device=x.device)
    _read_kernel[(programs,)](x, sums, x.numel() // 4096, BLOCK=4096)
    return sums


def _with_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
