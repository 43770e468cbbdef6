"""What the page of latency_hiding measures: one function for each result."""

import contextlib
import functools
import math
import statistics
import time
from unittest.mock import patch

import torch
import torch.nn.functional as F

from snippets._lab.probe.gpus import ARCHITECTURES, programs_at_once
from snippets._lab.rooms import measured_on

from . import exercise, kernel
from .checks import assert_held, assert_walked, assert_worked
from .kernel import (
    LANES,
    LINE,
    VECTOR,
    _tiles_kernel,
    copy_in_flight,
    cycle,
    hold_and_wait,
    latency_hiding,
    work_on_tiles,
)

SECTOR = 32  # bytes: what one step of a walker fetches


def check(device):
    """Raise unless the kernels are right on this device; no result is stored before it passed."""
    for lines, walkers, block, num_warps in ((1, 1, 1, 1), (100, 7, 4, 1), (4_096, 300, 32, 2)):
        links = cycle(lines * 4 * LINE, device=device)
        starts = _starts(links, walkers)
        out = latency_hiding(links, starts, steps=9, block=block, num_warps=num_warps)
        assert_walked(out, links, starts, 9)
    x = torch.randn(33_000, device=device)
    for loads, num_warps in ((1, 1), (4, 2), (8, 4)):
        if not torch.equal(copy_in_flight(x, programs=5, loads=loads, num_warps=num_warps), x):
            raise RuntimeError(f"copy_in_flight(loads={loads}, num_warps={num_warps}) is wrong")
    tiles = x[:32_768].view(32, 1_024)
    for programs in (None, 5):
        out = work_on_tiles(tiles, steps=7, programs=programs, num_warps=4)
        assert_worked(out, tiles, 7)
    for work in (0, 256):
        ends, sums = hold_and_wait(links, starts[:9], x[:512], steps=5, work=work)
        assert_held(ends, sums, links, starts[:9], x[:512], 5, work)


@contextlib.contextmanager
def launches_alone():
    """No refusals inside: to look whether places lie in links they wait for the GPU."""
    nothing = {"_refusals": lambda *_, **__: ()}
    with patch.multiple(kernel, **nothing), patch.multiple(exercise, **nothing):
        yield


def _starts(links, walkers):
    """Where so many walkers begin: at lines drawn at random."""
    lines = len(links) // LINE
    generator = torch.Generator(links.device).manual_seed(1)
    where = torch.randint(lines, (walkers,), generator=generator, device=links.device)
    return (where * LINE).int()


KIB, MIB = 1 << 10, 1 << 20
SETS = [4 * KIB, 16 * KIB, 64 * KIB, 128 * KIB, 192 * KIB, 256 * KIB, 384 * KIB, 1 * MIB, 4 * MIB]
SETS += [m * MIB for m in (8, 16, 24, 32, 40, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096)]
STEPS = 2_048  # that are counted
MOST_LINES = 4_096  # of a working set that one walker brings into L1 first


@measured_on("gpu")
def latency(lab):
    """Time of a walk by one walker, short and long: the difference is so many steps."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    sets = [n for n in SETS if n <= device.total_memory // 8]
    for case in lab.each(dtype=["int32"], set_bytes=sets):
        links = cycle(case["set_bytes"], device="cuda")
        for row in _walks(lab, case, links, device.L2_cache_size):
            yield {**row, "shared_bytes": device.shared_memory_per_multiprocessor}


def _walks(lab, case, links, l2):
    """Rows of one walker's short and long walk. Each finds its working set as near as it fits."""
    lines, starts = len(links) // LINE, _starts(links, 1)
    # Once round a small set, so that the counted steps find it in L1.
    first = lines if lines <= MOST_LINES else 0
    near = case["set_bytes"] <= 2 * l2

    def call(steps):
        if near:
            links.amax()  # reads all of it: what fits into L2 is there
        return latency_hiding(links, starts, steps=steps)

    walks = {str(n): functools.partial(call, n) for n in (first, first + STEPS)}
    moved = case["set_bytes"] if near else SECTOR
    with launches_alone():
        for row in lab.time(case, walks, flops=0, bytes_compulsory=moved):
            row["steps"] = int(row["implementation"])
            yield {**row, "implementation": "latency_hiding"}


WALK = 1_024  # steps of each walker


@measured_on("gpu")
def hiding(lab):
    """Time of the same walk by one walker and by thousands, in memory that no cache holds."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    links = cycle(min(4096 * MIB, device.total_memory // 8 >> 20 << 20), device="cuda")
    many = device.multi_processor_count
    for case in lab.each(dtype=["int32"], lanes=[1, LANES], programs_sm=[0, 1, 2, 4, 8, 16, 32]):
        programs = case["programs_sm"] * many or 1
        walkers = programs * case["lanes"]
        starts = _starts(links, walkers)
        options = {"steps": WALK, "block": case["lanes"]}
        # Walkers on one cycle overtake nobody, but some walk where others began: expected sectors.
        lines = len(links) // LINE
        moved = int(SECTOR * lines * -math.expm1(-walkers * WALK / lines))
        about = {"programs": programs, "walkers": walkers, "steps": WALK, "sector_bytes": SECTOR}
        calls = {"latency_hiding": functools.partial(latency_hiding, links, starts, **options)}
        if walkers > 1:  # in half the programs
            two_walks = functools.partial(exercise.latency_hiding, links, starts, **options)
            calls["latency_hiding:exercise"] = two_walks
        with launches_alone():
            for row in lab.time(case, calls, flops=0, bytes_compulsory=moved):
                yield {**row, **about, "set_bytes": 4 * len(links)}


TURNS = 256  # tiles that a program copies, one after the other
LARGEST = 1 << 27  # elements of a copy


@measured_on("gpu")
def littles_law(lab):
    """Speed of a copy over its bytes in flight: programs, warps and loads a thread vary."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    many = device.multi_processor_count
    x = torch.randn(min(LARGEST, device.total_memory // 64), device="cuda")
    for case in lab.each(
        dtype=["float32"], num_warps=[1, 4], loads=[1, 2, 4, 8], programs_sm=[0, 1, 2, 4, 8, 16]
    ):
        programs = case["programs_sm"] * many or 1
        block = case["loads"] * case["num_warps"] * LANES * VECTOR
        part = x[: min(programs * block * TURNS, len(x))]
        options = {"loads": case["loads"], "num_warps": case["num_warps"]}
        call = functools.partial(copy_in_flight, part, programs=programs, **options)
        moved = 2 * part.numel() * 4
        for row in lab.time(case, {"copy_in_flight": call}, flops=0, bytes_compulsory=moved):
            yield {
                **row,
                "kind": "copy",
                "programs": programs,
                "bytes_in_flight": 4 * programs * block,
            }
    links = cycle(4 * len(x), device="cuda")  # what the law multiplies with, in the same run
    for row in _walks(
        lab, {"dtype": "int32", "set_bytes": 4 * len(x)}, links, device.L2_cache_size
    ):
        yield {**row, "kind": "latency"}


QUEUE = 64  # programs for each multiprocessor: those that do not fit wait their turn
WAIT, COMPUTE = 256, 2_048  # steps


@measured_on("gpu")
def occupancy(lab):
    """Time over the registers that each thread holds: of programs that wait, and that compute."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    target = f"sm_{device.major}{device.minor}"
    links = cycle(1024 * MIB, device="cuda")
    starts = _starts(links, QUEUE * device.multi_processor_count)
    kinds = {"waits": (WAIT, 0), "computes": (COMPUTE, 8)}  # steps, elements a thread to work on
    for case in lab.each(
        dtype=["float32"], num_warps=[4, 1], held=[8, 16, 32, 64, 128], kind=list(kinds)
    ):
        steps, work = kinds[case["kind"]]
        threads = case["num_warps"] * LANES
        x = torch.randn(case["held"] * threads, device="cuda")
        options = {"steps": steps, "work": work * threads, "num_warps": case["num_warps"]}
        call = functools.partial(hold_and_wait, links, starts, x, **options)
        (found,) = lab.resources(call)
        fits, limit = programs_at_once(
            target, found["registers"], case["num_warps"], found["shared_bytes"]
        )
        names = ("registers", "shared_bytes", "spill_store_bytes")
        about = {name: found[name] for name in names} | {"programs_at_once": fits, "limit": limit}
        about |= {"programs": len(starts), "steps": steps}
        flops = 2 * len(starts) * work * threads * steps
        moved = SECTOR * len(starts)
        with launches_alone():
            for row in lab.time(case, {"hold_and_wait": call}, flops=flops, bytes_compulsory=moved):
                yield {**row, **about}


TARGETS = [target for target in ARCHITECTURES if target.startswith("sm_")]
REGISTERS = [16, 32, 33, 64, 128, 168, 255]
SHARED = [0, 16 * KIB, 49 * KIB, 227 * KIB]
FIELDS = ("registers", "widest", "register_unit", "shared_sm", "shared_block", "shared_unit")
FIELDS += ("reserved", "warps", "programs", "lanes")


@measured_on("interpreter")
def calculator(lab):
    """What the calculator of the page knows, and the cases that both of its languages must give."""
    for target in TARGETS:
        limits = ARCHITECTURES[target]
        yield {"kind": "limits", "target": target, **{f: getattr(limits, f) for f in FIELDS}}
    for case in lab.each(
        target=TARGETS, registers=REGISTERS, num_warps=[1, 4, 8, 32], shared_bytes=SHARED
    ):
        fits, limit = programs_at_once(**case)
        yield {"kind": "case", **case, "fits": fits, "limit": limit}


TILE = 16_384  # elements: 1,024 threads with 16 each, so that a multiprocessor holds one program
WORK = 512  # multiply-adds on each


@measured_on("gpu")
def waves(lab):
    """Time over the number of tiles: each alike, a multiprocessor holds one at a time."""
    many = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    beside = {k * many + d for k in (1, 2, 3, 4) for d in (-1, 0, 1)}
    tiles = sorted(beside | set(range(many // 4, 4 * many, many // 12)))
    memory = torch.randn(tiles[-1] * TILE, device="cuda")
    for case in lab.each(dtype=["float32"], tiles=tiles):
        x = memory[: case["tiles"] * TILE].view(-1, TILE)
        half = x.view(-1, TILE // 2)
        calls = {
            "a program a tile": functools.partial(work_on_tiles, x, steps=WORK),
            "persistent": functools.partial(work_on_tiles, x, steps=WORK, programs=many),
            "half tiles": functools.partial(work_on_tiles, half, steps=WORK, num_warps=16),
        }
        about = {"multiprocessors": many, "steps": WORK}
        flops, moved = 2 * x.numel() * WORK, 2 * x.numel() * 4
        for row in lab.time(case, calls, flops=flops, bytes_compulsory=moved):
            yield {**row, **about}


CALLS, REPEATS = 100, 7


def _host(call, *, wait=False, calls=CALLS):
    """Milliseconds a call: of the CPU until it has asked, and until the GPU is done.

    With `wait` the CPU waits for each result before the next call.
    """
    asked, done = [], []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
            if wait:
                torch.cuda.synchronize()
        asked.append((time.perf_counter() - start) * 1e3 / calls)
        torch.cuda.synchronize()
        done.append((time.perf_counter() - start) * 1e3 / calls)
    return {
        f"{name}_ms_p{p}": float(f"{statistics.quantiles(taken, n=10)[p // 10 - 1]:.5g}")
        for name, taken in (("host", asked), ("wall", done))
        for p in (20, 50, 80)
    }


def _graph(call, times):
    """A CUDA graph of so many calls, to be replayed."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    return graph


@measured_on("gpu")
def host_time(lab):
    """What a launch costs the CPU, and when the GPU's work hides it."""
    many = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    x = torch.randn(many, TILE, device="cuda")
    ways = _ways(x)
    for case in lab.each(kind=["call"], way=list(ways)):
        call, launches = ways[case["way"]]
        call()
        yield {**case, "launches": launches, **_host(call)}
    for case in lab.each(kind=["queue"], steps=[0, 64, 128, 256, 512, 1_024, 4_096]):
        call = functools.partial(work_on_tiles, x, steps=case["steps"])
        replayed = _host(_graph(call, CALLS).replay, calls=1)
        modes = {
            "waiting for each": _host(call, wait=True),
            "queued": _host(call),
            "CUDA graph": {name: ms / CALLS for name, ms in replayed.items()},
        }
        for mode, taken in modes.items():
            # Replayed, one launch follows the other with no CPU between them: the GPU's own time.
            yield {**case, "mode": mode, "gpu_ms": modes["CUDA graph"]["wall_ms_p50"], **taken}
    for case in lab.each(kind=["chain"], way=list(CHAINS)):
        yield {**case, "operations": 2 * PAIRS, **_chain(case["way"])}


def _ways(x):
    """Ways to start a kernel that is over at once: name → (call, launches)."""
    small, out = x[:1, :128].contiguous(), torch.empty(1, 128, device="cuda")
    # tiles, steps, and BLOCK, which the compiled kernel knows
    arguments = (small, out, 1, 0, 128)
    compiled = _tiles_kernel[(1,)](*arguments, num_warps=1)
    q = torch.randn(1, 1, 16, 64, device="cuda", dtype=torch.float16)
    replay = _graph(lambda: torch.add(small, small, out=out), 20).replay
    return {
        "torch.add": (lambda: torch.add(small, small, out=out), 1),
        "PyTorch SDPA": (lambda: F.scaled_dot_product_attention(q, q, q), 1),
        "Triton, through a launcher": (lambda: work_on_tiles(small, steps=0, num_warps=1), 1),
        "Triton, kernel[grid](…)": (lambda: _tiles_kernel[(1,)](*arguments, num_warps=1), 1),
        "Triton, the compiled kernel": (lambda: compiled[(1, 1, 1)](*arguments), 1),
        "CUDA graph of 20 torch.add": (replay, 20),
    }


PAIRS = 10  # of operations in the chain


def _operations(x):
    """Twenty elementwise operations, each a launch in eager PyTorch."""
    for _ in range(PAIRS):
        x = x * 0.5 + 1.0
    return x


CHAINS = {
    "eager": lambda x: functools.partial(_operations, x),
    "CUDA graph": lambda x: _graph(functools.partial(_operations, x), 1).replay,
    "torch.compile": lambda x: functools.partial(torch.compile(_operations), x),
}


def _chain(way):
    """Times of the chain on 4,096 numbers, or why there are none."""
    x = torch.randn(4_096, device="cuda")
    try:
        call = CHAINS[way](x)
        for _ in range(3):
            found = call()
    except Exception as error:  # noqa: BLE001 - a compiler that fails here is named in its row
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    if found is not None:  # replaying a graph returns nothing
        torch.testing.assert_close(found, _operations(x))
    return _host(call)
