"""Two kernels that do the same work on different addresses: what a strided read costs.

Run it alone: `python kernel.py` checks it against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import numbers
import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BLOCK = 1_024  # elements per program: eight for each thread of four warps
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension


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
    # --8<-- [start:copy]
    pid = tl.program_id(0).to(tl.int64)  # int64: an offset may pass 2^31 elements
    offs = pid * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    mask = offs < n
    x = tl.load(x_ptr + offs * step, mask=mask)  # [BLOCK], the only line that knows the step
    tl.store(out_ptr + offs, x, mask=mask)
    # --8<-- [end:copy]


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
        [⌈L / stride⌉] in x's dtype, equal to x[::stride].

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: CUDA C++ Best Practices Guide, "Strided Accesses",
        https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/
    """
    _check_inputs(x, rank=1)
    stride = _whole("stride", stride)
    if stride < 1:
        raise ValueError(f"stride is {stride}; it must be at least 1")
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
    _check_inputs(x, rank=2)
    dim = _whole("dim", dim)
    if dim not in (0, 1):
        raise ValueError(f"dim is {dim}; 0 (columns) or 1 (rows) is allowed")
    lines = x if dim == 1 else x.T  # [lines, items of a line]: a view, nothing moves
    if lines.shape[0] > MAX_PROGRAMS:
        raise ValueError(f"x has {lines.shape[0]} lines; at most {MAX_PROGRAMS} are allowed")
    out = torch.empty(lines.shape[0], dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):
        _line_sums_kernel[(lines.shape[0],)](
            x, out, *lines.stride(), length=lines.shape[1], BLOCK=BLOCK
        )
    return out


# --8<-- [start:refusals]
def _check_inputs(x, *, rank):
    """Raise for what the kernels cannot do: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; call it outside of them"
        )
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x has type {_type_name(x)}; it must be a torch.Tensor")
    if x.is_nested or x.layout != torch.strided:
        raise TypeError(
            f"x is {'nested' if x.is_nested else x.layout}; it must be dense, torch.strided"
        )
    if x.dtype not in DTYPES:
        raise TypeError(f"x is {x.dtype}; {', '.join(map(str, DTYPES))} are allowed")
    if x.dim() != rank:
        allowed = "one dimension is" if rank == 1 else "two dimensions are"
        raise ValueError(f"x has shape {tuple(x.shape)}; {allowed} allowed")
    if x.numel() == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; no dimension may be 0")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError("x requires grad and there is no backward; use torch.no_grad()")
    if x.is_neg():  # its memory holds the opposite sign
        raise ValueError("x is a negated view; use x.resolve_neg()")
    _check_device("x", x)


def _whole(name, number):
    """The number as Python's int; raise for what is no integer, and for True and False."""
    if isinstance(number, bool) or not isinstance(number, numbers.Integral):
        raise TypeError(f"{name} has type {_type_name(number)}; it must be an integer")
    return int(number)
    # --8<-- [end:refusals]


def _check_device(name, x):
    """Raise unless a kernel can run where x is: on a GPU, or on a CPU in the interpreter."""
    kind = x.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"{name} is on {x.device}; the kernel needs a CUDA device{hint}")


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def main():
    """Check both kernels against PyTorch, and time them where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(5_000, device=device)  # 5000 fills no block
    wrong = [s for s in (1, 2, 3, 8, 32) if not torch.equal(coalescing(x, stride=s), x[::s])]
    print(f"x {tuple(x.shape)}, {x.dtype} on {device}, strides 1, 2, 3, 8, 32")
    print(f"strides copied wrongly: {wrong or 'none'}")
    matrix = torch.randn(70, 1_030, device=device)
    largest = mean = allowed = 0.0
    for dim in (0, 1):
        error = (line_sums(matrix, dim=dim).double() - matrix.double().sum(dim)).abs()
        torch_error = (matrix.sum(dim).double() - matrix.double().sum(dim)).abs()
        largest = max(largest, error.max().item())
        mean = max(mean, error.mean().item())
        # Adding n numbers in float32 costs at most a few eps times the sum of their sizes.
        sizes = matrix.abs().double().sum(dim).max().item()
        rounding = 4 * torch.finfo(matrix.dtype).eps * sizes
        allowed = max(allowed, 2 * torch_error.max().item() + rounding)
    print(f"matrix {tuple(matrix.shape)}, sums of rows and columns")
    print(f"difference from float64: largest {largest:.1e}, mean {mean:.1e}")
    right = not wrong and largest <= allowed
    print("OK" if right else f"WRONG: a copy differs, or a sum by more than {allowed:.1e}")
    if device == "cuda":
        _print_speeds()
    return 0 if right else 1


def _print_speeds():
    """Useful bytes a second: what the result is made of, and not the sectors around it."""
    n, side = 2**25, 2**13
    memory = torch.randn(32 * n, device="cuda")
    for stride in (1, 2, 4, 8, 16, 32):
        x = memory[: n * stride]
        ms = triton.testing.do_bench(lambda x=x, s=stride: coalescing(x, stride=s))
        torch_ms = triton.testing.do_bench(lambda x=x, s=stride: x[::s].clone())
        speeds = (2 * x.element_size() * n / t / 1e6 for t in (ms, torch_ms))
        print("stride {}: {:.0f} GB/s useful, PyTorch {:.0f} GB/s".format(stride, *speeds))
    matrix = memory[: side * side].view(side, side)
    for name, dim in (("rows", 1), ("columns", 0)):
        ms = triton.testing.do_bench(lambda d=dim: line_sums(matrix, dim=d))
        torch_ms = triton.testing.do_bench(lambda d=dim: matrix.sum(d))
        speeds = (matrix.element_size() * matrix.numel() / t / 1e6 for t in (ms, torch_ms))
        print("sums of {}: {:.0f} GB/s, PyTorch {:.0f} GB/s".format(name, *speeds))


if __name__ == "__main__":
    raise SystemExit(main())
