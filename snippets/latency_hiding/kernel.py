"""Four small kernels that make a GPU wait, and show what hides the waiting.

Places are int32 and numbers float32, contiguous; any GPU that Triton compiles for.
Run it alone: `python kernel.py` checks them against PyTorch, on a CPU too.
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl


@triton.jit
def _latency_hiding_kernel(
    links_ptr, starts_ptr, out_ptr,
    n, steps,  # walkers, and the steps of each
    BLOCK: tl.constexpr,  # walkers of a program
):  # fmt: skip
    """One program walks BLOCK walkers along the links, `steps` steps each.

    Reads one link a step and walker, writes where each walker ends. No step can begin before the
    one before it has brought its address: this is what waiting is made of.
    """
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    at = tl.load(starts_ptr + offs, mask=offs < n, other=0)  # surplus walkers start at element 0
    for _ in range(steps):
        at = tl.load(links_ptr + at)  # [BLOCK]: the next address is the value just loaded
    tl.store(out_ptr + offs, at, mask=offs < n)


@triton.jit
def _copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program copies every num_programs-th tile of BLOCK elements.

    A tile is stored before the next one is asked for, so the bytes in flight are a tile a program.
    """
    # --8<-- [start:copy]
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    for tile in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        at = tl.cast(tile, tl.int64) * BLOCK + offs
        x = tl.load(x_ptr + at, mask=at < n)  # every thread has BLOCK / threads elements in flight
        tl.store(out_ptr + at, x, mask=at < n)  # needs x: here the program waits
    # --8<-- [end:copy]


@triton.jit
def _tiles_kernel(x_ptr, out_ptr, tiles, steps, BLOCK: tl.constexpr):
    """Each program works on every num_programs-th tile, `steps` multiply-adds on every element.

    The same work for each tile, in registers: its time does not depend on memory.
    """
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at)  # [BLOCK]
        y = x
        for _ in range(steps):
            y = y * 0.5 + x
        tl.store(out_ptr + at, y)


@triton.jit
def _held_kernel(
    links_ptr,
    starts_ptr,
    x_ptr,
    ends_ptr,
    sums_ptr,
    steps,
    HELD: tl.constexpr,  # elements kept in registers from the first line to the last
    WORK: tl.constexpr,  # elements to compute with: 0 to wait for memory instead
):
    """One program keeps HELD numbers in registers while it waits for memory, or computes.

    What it holds takes room from other programs: so many fewer are there to fill the waiting.
    """
    pid = tl.program_id(0)
    x = tl.load(x_ptr + tl.arange(0, HELD))  # [HELD]
    place = tl.load(starts_ptr + pid)
    if WORK == 0:
        for _ in range(steps):
            place = tl.load(links_ptr + place)  # one walker a program: it waits
        total = tl.sum(x, axis=0)
    else:
        y = tl.load(x_ptr + tl.arange(0, WORK))  # [WORK]
        for _ in range(steps):
            y = y * 0.5 + 1.0  # independent multiply-adds: it computes
        total = tl.sum(x, axis=0) + tl.sum(y, axis=0)
    tl.store(ends_ptr + pid, place)
    tl.store(sums_ptr + pid, total)


LINE = 32  # int32 elements of a cache line: 128 bytes
LANES = 32  # threads of a warp
VECTOR = 4  # float32 elements that one load instruction brings a thread


def cycle(n_bytes, *, device, seed=0):
    """Links through every cache line of a working set, in one random cycle.

    Args:
        n_bytes: size of the working set, a multiple of 128.

    Returns:
        int32 [n_bytes / 4]. The first element of each line holds the place of the next line's;
        no line comes twice before all have come, and no prefetcher can guess the order.
    """
    lines = n_bytes // (4 * LINE)
    if lines < 1 or n_bytes % (4 * LINE):
        raise ValueError(f"n_bytes is {n_bytes}; allowed: a positive multiple of {4 * LINE}")
    generator = torch.Generator(device).manual_seed(seed)
    order = torch.randperm(lines, generator=generator, device=device, dtype=torch.int32)
    links = torch.zeros(lines, LINE, dtype=torch.int32, device=device)
    links[order.long(), 0] = order.roll(-1) * LINE
    return links.view(-1)


def latency_hiding(links, starts, *, steps, block=1, num_warps=1):
    """Where walkers end that follow links: `steps` times at ← links[at].

    The host waits for the GPU once, to check that all places lie in links.

    Args:
        links: int32 [L], contiguous; each value is a place in links.
        starts: int32 [W], contiguous; where each walker begins.
        steps: loads that follow one another; 0 or more.
        block: walkers of a program, a power of two.
        num_warps: warps of a program.

    Returns:
        int32 [W].

    Raises:
        TypeError, ValueError: what is refused and what would be allowed, before any launch.

    Source: Mei and Chu 2015, https://arxiv.org/abs/1509.02308, section 4
    """
    tensors = {"links": links, "starts": starts}
    for error in _refusals(tensors, steps=steps, block=block, num_warps=num_warps):
        raise error
    out, walkers = torch.empty_like(starts), len(starts)
    run = _latency_hiding_kernel[(triton.cdiv(walkers, block),)]
    with torch.cuda.device_of(links):  # launch where the tensors are; nothing for a CPU tensor
        run(links, starts, out, walkers, steps, BLOCK=block, num_warps=num_warps)
    return out


def copy_in_flight(x, *, programs, loads=1, num_warps=4):
    """A copy of x whose bytes in flight are chosen: `programs` tiles at a time.

    Args:
        x: float32 [L], contiguous.
        programs: how many run; if they all fit on the GPU, all are in flight at once.
        loads: load instructions of a thread before its first store, each 16 bytes; a power of two.
        num_warps: warps of a program.
    """
    for error in _refusals({"x": x}, programs=programs, num_warps=num_warps, loads=loads):
        raise error
    block = num_warps * LANES * VECTOR * loads
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _copy_kernel[(programs,)](x, out, len(x), BLOCK=block, num_warps=num_warps)
    return out


def work_on_tiles(x, *, steps, programs=None, num_warps=32):
    """y ← y / 2 + x, `steps` times from y = x, a tile a program.

    Args:
        x: float32 [tiles, BLOCK], contiguous; BLOCK is a power of two.
        steps: multiply-adds on every element; 0 or more.
        programs: None launches one for each tile. A number launches so many, which take the tiles
            in turns: with as many as the GPU holds at once the kernel is called *persistent*.
        num_warps: warps of a program.
    """
    given = {} if programs is None else {"programs": programs}
    for error in _refusals({"x": x}, 2, wide=True, steps=steps, num_warps=num_warps, **given):
        raise error
    programs = len(x) if programs is None else programs
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _tiles_kernel[(programs,)](x, out, len(x), steps, BLOCK=x.shape[1], num_warps=num_warps)
    return out


def hold_and_wait(links, starts, x, *, steps, work=0, num_warps=4):
    """Walk as `latency_hiding`, one walker a program, with x held in registers all the while.

    Args:
        links, starts: as there.
        x: float32 [HELD], contiguous, HELD a power of two: each program holds all of it.
        work: instead of walking, compute with so many elements of x (y ← y / 2 + 1): a power of
            two, at most HELD; 0 walks.

    Returns:
        int32 [W], where each walker ends (where it began, with `work`), and float32 [W], the sum
        of x (with `work`, plus that of y).
    """
    tensors = {"links": links, "starts": starts, "x": x}
    for error in _refusals(tensors, wide=True, steps=steps, num_warps=num_warps, work=work):
        raise error
    ends = torch.empty_like(starts)
    sums = torch.empty(len(starts), dtype=torch.float32, device=x.device)
    run = _held_kernel[(len(starts),)]
    with torch.cuda.device_of(x):
        run(links, starts, x, ends, sums, steps, HELD=len(x), WORK=work, num_warps=num_warps)
    return ends, sums


INTERPRETED = triton.knobs.runtime.interpret
DTYPES = {"links": torch.int32, "starts": torch.int32, "x": torch.float32}
POWERS = [2**i for i in range(21)]  # 2^20 elements are Triton's limit for a tile
ALLOWED = {"steps": range(2**31), "programs": range(1, 2**31)}  # CUDA's limit for a grid
ALLOWED |= {"num_warps": POWERS[:6], "block": POWERS, "work": [0, *POWERS]}  # 1,024 threads


def _refusals(tensors, rank=1, wide=False, **numbers):
    """What the kernels cannot do, in order: which argument, what came, what is allowed."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        yield TypeError("torch.func cannot see into a kernel; allowed: batch dimensions, autograd")
    first, like = next(iter(tensors.items()))
    for name, x in tensors.items():
        if not isinstance(x, torch.Tensor) or x.is_nested or x.layout != torch.strided:
            kind = "nested" if getattr(x, "is_nested", False) else getattr(x, "layout", type(x))
            yield TypeError(f"{name} is {kind}; allowed: a dense torch.Tensor")
        if x.dtype != DTYPES[name]:
            yield TypeError(f"{name} is {x.dtype}; allowed: {DTYPES[name]}")
        if x.dim() != rank or x.numel() == 0:
            yield ValueError(f"{name} has shape {(*x.shape,)}; allowed: rank {rank}, no 0")
        if not x.is_contiguous():
            yield ValueError(f"{name} has strides {x.stride()}; allowed: {name}.contiguous()")
        if x.requires_grad and torch.is_grad_enabled():
            yield ValueError(f"{name} requires grad, but has no backward; allowed: torch.no_grad()")
        if x.is_neg():  # its memory holds the opposite sign
            yield ValueError(f"{name} is a negated view; allowed: {name}.resolve_neg()")
        if x.device.type != "cuda" and not (x.is_cpu and INTERPRETED):
            needs = "a GPU, or a CPU with TRITON_INTERPRET=1"
            yield ValueError(f"{name} is on {x.device}; allowed: {needs}")
        if x.device != like.device:
            yield ValueError(f"{name} is on {x.device}; allowed with {first}: {like.device}")
        if name != "x" and (x.min() < 0 or x.max() >= len(like)):  # it would read any memory
            yield ValueError(f"{name} points outside {first}; allowed: 0 to {len(like) - 1}")
    numbers |= {"the width of x": x.shape[-1]} if wide else {}
    for name, number in numbers.items():
        if isinstance(number, bool) or not isinstance(number, int):
            yield TypeError(f"{name} is {number!r}; allowed: an int")
        allowed = ALLOWED.get(name, POWERS)
        if number not in allowed:
            powers = "" if isinstance(allowed, range) else ", powers of two"
            yield ValueError(f"{name} is {number}; allowed: {allowed[0]} to {allowed[-1]}{powers}")
    tile = POWERS[-1] // (LANES * VECTOR * numbers["num_warps"])
    for name, most in {"loads": tile, "work": len(x)}.items():  # a tile; what x holds
        if numbers.get(name, 0) > most:
            yield ValueError(f"{name} is {numbers[name]}; allowed: at most {most}")


def main():
    """Check the kernels against PyTorch; time walks where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    links = cycle(100 * 4 * LINE, device=device)
    starts = links.view(-1, LINE)[:7, 0].contiguous()
    x = torch.randn(5_000, device=device)  # 5000 fills no tile
    tiles = x[:4_096].view(4, 1_024)
    # The links are a cycle of 100: after 101 steps each walker is one place on.
    walked = torch.equal(latency_hiding(links, starts, steps=101, block=4), links[starts.long()])
    copied = torch.equal(copy_in_flight(x, programs=3, loads=2), x)
    worked = work_on_tiles(tiles, steps=9, programs=3, num_warps=4)
    error = (worked - tiles.double() * (2 - 0.5**9)).abs().max()  # y ← y / 2 + x, nine times
    # Each of nine additions rounds once, and halves what was rounded before.
    right = walked and copied and error <= 4 * torch.finfo(x.dtype).eps * tiles.abs().max()
    print(f"links {(*links.shape,)}, 7 walkers of 101 steps, tiles {(*tiles.shape,)} on {device}")
    print(f"difference of tiles from float64: {error:.1e} at most")
    for n_bytes in (2**16, 2**23, 2**30) if device == "cuda" else ():
        links = cycle(n_bytes, device=device)
        # The checks are a small part of so long a walk.
        ms = triton.testing.do_bench(lambda at=links: latency_hiding(at, at[:1], steps=2**16))
        print(f"a walker in {n_bytes:,} bytes: {ms / 2**16 * 1e6:.0f} ns a step")
    print("OK" if right else "WRONG: a place, a copy or a product differs from PyTorch's")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
