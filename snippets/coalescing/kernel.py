"""Two kernels that do the same work on different addresses: what a strided read costs.

float16, bfloat16 or float32, any strides and sizes; any GPU that Triton compiles for.
Run it alone: `python kernel.py` checks it against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import numbers
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

BLOCK = 1_024  # elements per program: eight for each thread of four warps


# Not told that the tensors begin at a multiple of 16 bytes, Triton deals one element to a lane.
@triton.jit(do_not_specialize_on_alignment=("x_ptr", "out_ptr"))
def _coalescing_kernel(
    x_ptr,
    out_ptr,
    step,  # elements from one that is read to the next: 1 if neighbors read neighbors
    n,  # elements to copy
    BLOCK: tl.constexpr,
):
    """One program copies BLOCK elements: lane i reads element i · step and writes element i.

    Reads and writes each of its elements once; nothing else of x is asked for.
    """
    pid = tl.program_id(0).to(tl.int64)  # int64: an offset may pass 2^31 elements
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs * step, mask=mask)  # [BLOCK], the only line that knows the step
    tl.store(out_ptr + offs, x, mask=mask)


# Not told which stride is 1 either, it compiles rows and columns to the very same instructions.
@triton.jit(
    do_not_specialize=("stride_line", "stride_item", "length"),
    do_not_specialize_on_alignment=("x_ptr", "out_ptr"),
)
def _line_sums_kernel(
    x_ptr,
    out_ptr,
    stride_line,  # step to the next line
    stride_item,  # step to the next item of a line
    length,  # items of a line
    BLOCK: tl.constexpr,
):
    """One program adds up one line of a matrix, a row or a column: only the strides tell which.

    Reads each item of its line once, writes one number. The sum is float32 and stays on chip.
    """
    # --8<-- [start:line]
    line = tl.program_id(0).to(tl.int64)  # int64: an offset may pass 2^31 elements
    items = tl.arange(0, BLOCK).to(tl.int64)  # [BLOCK]
    acc = tl.zeros([BLOCK], tl.float32)
    for start in range(0, length, BLOCK):
        offs = line * stride_line + (start + items) * stride_item  # [BLOCK]
        x = tl.load(x_ptr + offs, mask=start + items < length, other=0.0)
        acc += x.to(tl.float32)
    total = tl.sum(acc, axis=0)
    tl.store(out_ptr + line, total.to(out_ptr.dtype.element_ty))
    # --8<-- [end:line]


def coalescing(x, *, stride):
    """Every stride-th element of x, side by side: a copy whose reads step by `stride`.

    Args:
        x: [L]. Its own stride is honored: x[::2] with stride 3 reads every sixth element.
        stride: how far apart neighboring lanes read, in elements; at least 1.

    Returns:
        [⌈L / stride⌉] in x's dtype: every stride-th element, from the first.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/ ("Strided Accesses")
    """
    for error in _refusals(x, rank=1, stride=stride):
        raise error
    stride = int(stride)  # NumPy's integers are allowed
    n = triton.cdiv(x.shape[0], stride)
    out = torch.empty(n, dtype=x.dtype, device=x.device)
    step = stride * x.stride(0)
    with torch.cuda.device_of(x):  # launch where the tensor is; nothing for a CPU tensor
        _coalescing_kernel[(triton.cdiv(n, BLOCK),)](x, out, step, n, BLOCK=BLOCK)
    return out


def line_sums(x, *, dim):
    """The sums of a matrix along one dimension, one program for each sum.

    Args:
        x: [M, N]. Any strides.
        dim: 1 adds up each row, 0 each column, as in torch.sum.

    Returns:
        [M] for dim 1, [N] for dim 0, in x's dtype. Sums are float32, rounded once.

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.
    """
    for error in _refusals(x, rank=2, dim=dim):
        raise error
    lines = x if dim == 1 else x.T  # [lines, items of a line]: a view, nothing moves
    out = torch.empty(len(lines), dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _line_sums_kernel[(len(lines),)](x, out, *lines.stride(), lines.shape[1], BLOCK=BLOCK)
    return out


DTYPES = (torch.float16, torch.bfloat16, torch.float32)
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
INTERPRETED = triton.knobs.runtime.interpret


def _refusals(x, rank, stride=1, dim=0):
    """What the kernels cannot do, in order: which argument, what came, what is allowed."""
    name, functorch, forward_ad = "x", torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
        kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
        yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
    if x.dtype not in DTYPES:
        yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES}")
    if x.dim() != rank or x.numel() == 0:
        yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: rank {rank}, no 0")
    if x.requires_grad and torch.is_grad_enabled():
        yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
    if x.is_neg():  # its memory holds the opposite sign
        yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
    if x.device.type != "cuda" and not (x.is_cpu and INTERPRETED):
        needs = "a GPU, or a CPU with TRITON_INTERPRET=1"
        yield ValueError(f"{name} is on {x.device}; allowed: {needs}")
    for name, number in (("stride", stride), ("dim", dim)):
        if isinstance(number, bool) or not isinstance(number, numbers.Integral):
            yield TypeError(f"{name} is {number!r}; allowed: an integer")
    if stride < 1:
        yield ValueError(f"stride is {stride}; allowed: 1 or more")
    if dim not in (0, 1):
        yield ValueError(f"dim is {dim}; allowed: 0 (columns), 1 (rows)")
    if rank == 2 and x.shape[1 - dim] > MAX_PROGRAMS:
        yield ValueError(f"x has {x.shape[1 - dim]} lines; allowed: at most {MAX_PROGRAMS}")


def main():
    """Check both kernels against PyTorch; time them where there is a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, matrix = torch.randn(5_000, device=device), torch.randn(70, 1_030, device=device)
    wrong = [s for s in (1, 2, 3, 8, 32) if not torch.equal(coalescing(x, stride=s), x[::s])]
    print(f"x {(*x.shape,)} and {(*matrix.shape,)}, {x.dtype} on {device}")
    for dim in (0, 1):
        want = matrix.double().sum(dim)
        ours, theirs = ((f(matrix, dim=dim) - want).abs() for f in (line_sums, torch.sum))
        print(f"dim {dim}: from float64 {ours.max():.1e} at most, {ours.mean():.1e} on average")
        # Adding numbers in float32 costs at most a few eps of the sum of their sizes.
        allowed = 2 * theirs.max() + 4 * torch.finfo(x.dtype).eps * matrix.abs().sum(dim).max()
        wrong += [f"dim {dim}"] * int(ours.max() > allowed)
    for f in (line_sums, torch.sum) if device == "cuda" else ():
        x = torch.randn(2**13, 2**13, device=device)
        ms = [triton.testing.do_bench(lambda f=f, x=x, d=d: f(x, dim=d)) for d in (1, 0)]
        print(f"{f.__name__}: rows {ms[0] * 1000:.1f} µs, columns {ms[1] * 1000:.1f} µs")
    print(f"WRONG: strides or sums {wrong}" if wrong else "OK")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
