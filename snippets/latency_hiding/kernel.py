"""Four small kernels that make a GPU wait, and show what hides the waiting.

Run it alone: `python kernel.py` checks them against PyTorch (on a CPU, in Triton's interpreter).
Part of *Attention, Measured*, MIT license. Needs torch >= 2.11 and triton >= 3.6.
"""

import os

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be set before triton decorates the kernel

import triton
import triton.language as tl

INTERPRETED = triton.knobs.runtime.interpret
LINE = 32  # int32 elements of a cache line: 128 bytes
LANES = 32  # threads of a warp
VECTOR = 4  # float32 elements that one load instruction brings a thread
MAX_PROGRAMS = 2**31 - 1  # CUDA's limit for the first grid dimension
MAX_TILE = 2**20  # Triton's limit for the elements of a tile
MAX_WARPS = 32  # CUDA's limit for a program, 1,024 threads


@triton.jit
def _latency_hiding_kernel(
    links_ptr,
    starts_ptr,
    out_ptr,
    n,  # walkers
    steps,
    BLOCK: tl.constexpr,  # walkers of a program
):
    """One program walks BLOCK walkers along the links, `steps` steps each.

    Reads one link a step and walker, writes where each walker ends. No step can begin before the
    one before it has brought its address: this is what waiting is made of.
    """
    # --8<-- [start:walk]
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    at = tl.load(starts_ptr + offs, mask=offs < n, other=0)  # surplus walkers start at element 0
    for _ in range(steps):
        at = tl.load(links_ptr + at)  # [BLOCK]: the next address is the value just loaded
    tl.store(out_ptr + offs, at, mask=offs < n)
    # --8<-- [end:walk]


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
    # --8<-- [start:tiles]
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        at = tl.cast(tile, tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at)  # [BLOCK]
        y = x
        for _ in range(steps):
            y = y * 0.5 + x
        tl.store(out_ptr + at, y)
    # --8<-- [end:tiles]


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
    # --8<-- [start:held]
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
    # --8<-- [end:held]


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
        raise ValueError(f"n_bytes is {n_bytes}; a positive multiple of {4 * LINE} is allowed")
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
    _check_places(links, starts)
    _check_number("steps", steps, least=0)
    _check_power_of_two("block", block, most=MAX_TILE)
    _check_power_of_two("num_warps", num_warps, most=MAX_WARPS)
    return walk(links, starts, steps, block, num_warps)


def walk(links, starts, steps, block, num_warps):
    """The launch of `latency_hiding` alone, for what has been checked: to be timed."""
    out = torch.empty_like(starts)
    with torch.cuda.device_of(links):  # launch where the tensors are; nothing for a CPU tensor
        _latency_hiding_kernel[(triton.cdiv(len(starts), block),)](
            links, starts, out, len(starts), steps, BLOCK=block, num_warps=num_warps
        )
    return out


def copy_in_flight(x, *, programs, loads=1, num_warps=4):
    """A copy of x whose bytes in flight are chosen: `programs` tiles at a time.

    Args:
        x: float32 [L], contiguous.
        programs: how many run; if they all fit on the GPU, all are in flight at once.
        loads: load instructions of a thread before its first store, each 16 bytes; a power of two.
        num_warps: warps of a program.
    """
    _check_tensor("x", x, torch.float32)
    _check_number("programs", programs, least=1, most=MAX_PROGRAMS)
    _check_power_of_two("num_warps", num_warps, most=MAX_WARPS)
    threads = num_warps * LANES
    _check_power_of_two("loads", loads, most=MAX_TILE // (threads * VECTOR))
    block = threads * VECTOR * loads
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
    _check_tensor("x", x, torch.float32, rank=2)
    _check_number("steps", steps, least=0)
    tiles, block = x.shape
    programs = tiles if programs is None else programs
    _check_number("programs", programs, least=1, most=MAX_PROGRAMS)
    _check_power_of_two("num_warps", num_warps, most=MAX_WARPS)
    _check_power_of_two("the width of x", block, most=MAX_TILE)
    out = torch.empty_like(x)
    with torch.cuda.device_of(x):
        _tiles_kernel[(programs,)](x, out, tiles, steps, BLOCK=block, num_warps=num_warps)
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
    _check_places(links, starts)
    _check_tensor("x", x, torch.float32)
    _check_number("steps", steps, least=0)
    _check_power_of_two("the length of x", len(x), most=MAX_TILE)
    _check_power_of_two("num_warps", num_warps, most=MAX_WARPS)
    _check_number("work", work, least=0, most=len(x))
    if work:
        _check_power_of_two("work", work, most=MAX_TILE)
    return held(links, starts, x, steps, work, num_warps)


def held(links, starts, x, steps, work, num_warps):
    """The launch of `hold_and_wait` alone, for what has been checked: to be timed."""
    ends = torch.empty_like(starts)
    sums = torch.empty(len(starts), dtype=torch.float32, device=x.device)
    with torch.cuda.device_of(x):
        _held_kernel[(len(starts),)](
            links, starts, x, ends, sums, steps, HELD=len(x), WORK=work, num_warps=num_warps
        )
    return ends, sums


# --8<-- [start:refusals]
def _check_tensor(name, x, dtype, rank=1):
    """Raise for what the kernels cannot do: which argument, what came, what is allowed."""
    _check_transforms()
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} has type {_type_name(x)}; it must be a torch.Tensor")
    if x.is_nested or x.layout != torch.strided:
        layout = "nested" if x.is_nested else x.layout
        raise TypeError(f"{name} is {layout}; it must be dense, torch.strided")
    if x.dtype != dtype:
        raise TypeError(f"{name} is {x.dtype}; {dtype} is allowed")
    if x.dim() != rank:
        allowed = "1 dimension is" if rank == 1 else f"{rank} dimensions are"
        raise ValueError(f"{name} has shape {tuple(x.shape)}; {allowed} allowed")
    if x.numel() == 0:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; no dimension may be 0")
    if not x.is_contiguous():
        raise ValueError(f"{name} has strides {x.stride()}; it must be contiguous")
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name} requires grad and there is no backward; use torch.no_grad()")
    if x.is_neg():  # its memory holds the opposite sign
        raise ValueError(f"{name} is a negated view; use {name}.resolve_neg()")
    _check_device(name, x)


def _check_places(links, starts):
    """Links and starts must point into links: a walk outside would read any memory."""
    for name, x in (("links", links), ("starts", starts)):
        _check_tensor(name, x, torch.int32)
        if x.device != links.device:
            raise ValueError(f"{name} is on {x.device} but links is on {links.device}")
        if x.min() < 0 or x.max() >= len(links):
            raise ValueError(f"{name} points outside links, which has {len(links)} elements")


def _check_number(name, number, *, least, most=2**31 - 1):
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} has type {_type_name(number)}; it must be an int")
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}; {least} to {most} is allowed")


def _check_power_of_two(name, number, *, most):
    _check_number(name, number, least=1, most=most)
    if number & (number - 1):
        raise ValueError(f"{name} is {number}; it must be a power of two")
    # --8<-- [end:refusals]


def _check_device(name, x):
    """Raise unless a kernel can run where x is: on a GPU, or on a CPU in the interpreter."""
    kind = x.device.type
    if kind != "cuda" and not (kind == "cpu" and INTERPRETED):
        hint = ", or TRITON_INTERPRET=1 set before import" if kind == "cpu" else ""
        raise ValueError(f"{name} is on {x.device}; the kernel needs a CUDA device{hint}")


def _check_transforms():
    """Raise inside torch.func and forward-mode autograd."""
    functorch, forward_ad = torch._C._functorch, torch.autograd.forward_ad
    if functorch.peek_interpreter_stack() or forward_ad._current_level >= 0:
        raise TypeError(
            "torch.func and forward-mode autograd cannot see into a kernel; call it outside of them"
        )


def _type_name(x):
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def main():
    """Check the kernels against PyTorch, and time them where there is a GPU."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    links = cycle(100 * 4 * LINE, device=device)
    starts = torch.arange(7, dtype=torch.int32, device=device) * LINE
    want = starts
    for _ in range(40):
        want = links[want.long()]
    wrong = int((latency_hiding(links, starts, steps=40, block=4) != want).sum())
    print(f"links {tuple(links.shape)}, {len(starts)} walkers of 40 steps on {device}")
    print(f"walkers that end elsewhere than PyTorch's: {wrong}")
    x = torch.randn(5_000, device=device)  # 5000 fills no tile
    wrong += not torch.equal(copy_in_flight(x, programs=3, loads=2), x)
    tiles = x[:4_096].view(4, 1_024)
    want = tiles.double() * (2 - 0.5**9)  # y ← y / 2 + x, nine times
    error = (work_on_tiles(tiles, steps=9, programs=3, num_warps=4) - want).abs().max().item()
    # Each of nine additions rounds once, and halves what was rounded before.
    allowed = 2 * torch.finfo(x.dtype).eps * want.abs().max().item()
    print(f"tiles {tuple(tiles.shape)}, 9 multiply-adds: largest difference {error:.1e}")
    right = not wrong and error <= allowed
    print("OK" if right else f"WRONG: a place differs, or a product by more than {allowed:.1e}")
    if device == "cuda":
        _print_times()
    return 0 if right else 1


def _print_times():
    """A step of one walker through a small and a large working set; and of many walkers."""
    steps = 4_096
    for name, n_bytes, walkers in (
        ("one walker, 64 KiB", 2**16, 1),
        ("one walker, 8 MiB", 2**23, 1),
        ("one walker, 1 GiB", 2**30, 1),
        ("4,096 walkers, 1 GiB", 2**30, 4_096),
    ):
        links = cycle(n_bytes, device="cuda")
        starts = links.view(-1, LINE)[:walkers, 0].contiguous()
        ms = triton.testing.do_bench(
            lambda links=links, starts=starts: walk(links, starts, steps, 1, 1)
        )
        print(f"{name}: {ms / steps * 1e6:.0f} ns a step")


if __name__ == "__main__":
    raise SystemExit(main())
