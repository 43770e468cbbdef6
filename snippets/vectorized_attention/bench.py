"""What the page of vectorized_attention measures: one function for each result."""

import torch
import triton
import triton.language as tl

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets._lab.measure.competitors import resolve
from snippets._lab.rooms import measured_on

from . import exercise
from .kernel import vectorized_attention

LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2048]
LARGEST = 65_536  # elements of a tile, compiled for other GPUs than the one at hand
WIDTHS = [64, 128, 256]


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, N, D in ((1, 1, 64), (3, 65, 40), (2, 129, 128)):
            q, k, v = make_qkv(2, M=M, N=N, D=D, dtype=dtype, device=device)
            assert_attention(vectorized_attention(q, k, v), q, k, v)
            assert_attention(exercise.vectorized_attention(q, k, v), q, k, v)


@measured_on("gpu")
def forward(lab):
    """Time of one head over length and dimension; what does not compile in time says so."""
    for case in lab.each(dtype=["float32"], D=WIDTHS, N=LENGTHS):
        names = ["basic_attention", "vectorized_attention:exercise", "torch:sdpa"]
        if reason := _report(lab, case)["error"]:
            yield {"implementation": "vectorized_attention", **case, "error": reason}
        else:
            names.insert(0, "vectorized_attention")
        yield from lab.time_attention(case, names)


@measured_on("gpu", "compiler")
def registers(lab):
    """Registers, spills, stack and seconds to compile, over the same lengths and dimensions.

    For other GPUs without the tiles that no compiler gets done: the one at hand shows them.
    """
    for case in lab.each(dtype=["float32"], D=WIDTHS, N=LENGTHS):
        if lab.place == "gpu" or case["D"] * case["N"] <= LARGEST:
            yield {**case, **_report(lab, case)}


_reports = {}  # (place, target, D, N) → row: forward and registers share what a compiler said


def _report(lab, case):
    """What compiling the kernel for a case takes and gives; its "error" says why it cannot run.

    Twice the keys never compile faster: beyond a length that was stopped no other is tried.
    """
    place = lab.place, lab.target, case["D"]
    if (*place, case["N"]) not in _reports:
        shorter = [row for (*where, _), row in _reports.items() if (*where,) == place]
        stopped = [row for row in shorter if f"{row['error']}".startswith(">")]
        if stopped:
            known = ("kernel", "target", "num_warps", "num_stages")
            row = {name: stopped[0][name] if name in known else None for name in stopped[0]}
            row["error"] = f"not tried: fewer keys took {stopped[0]['error']}"
        else:
            (row,) = lab.ahead_of_time(vectorized_attention, *lab.qkv(case))
        _reports[*place, case["N"]] = row
    return _reports[*place, case["N"]]


BLOCK_D = "BLOCK_D=triton.next_power_of_2(D),"  # of the launch
REMEDIES = {
    "8 warps": [(BLOCK_D, f"{BLOCK_D} num_warps=8,")],
    "16 warps": [(BLOCK_D, f"{BLOCK_D} num_warps=16,")],
    "32 warps": [(BLOCK_D, f"{BLOCK_D} num_warps=32,")],
}


@measured_on("gpu")
def remedies(lab):
    """The same kernel on more warps: the tile is spread over more threads."""
    variants = {name: variant("vectorized_attention", text) for name, text in REMEDIES.items()}
    kernels = {"vectorized_attention": vectorized_attention, **variants}
    for case in lab.each(dtype=["float32"], D=[64, 128], N=[512, 1024, 2048]):
        said = {"vectorized_attention": _report(lab, case)}
        for name, launcher in variants.items():
            (said[name],) = lab.ahead_of_time(launcher, *lab.qkv(case))
        fits = {name: kernels[name] for name, row in said.items() if not row["error"]}
        timed = {r["implementation"]: r for r in lab.time_attention(case, ["torch:sdpa"], fits)}
        yield timed.pop("torch:sdpa")
        for name, row in said.items():
            fields = ("num_warps", "registers", "stack_bytes", "compile_seconds")
            about = {field: row[field] for field in fields}
            row = timed.get(name) or {"implementation": name, **case, "error": row["error"]}
            yield {**row, **about}


@triton.jit
def _chain_kernel(next_ptr, out_ptr, N):
    """One program loads from N rows; each load brings the address of the next."""
    at = tl.load(next_ptr)
    for _ in range(N - 1):
        at = tl.load(next_ptr + at)
    tl.store(out_ptr, at)


def _next_rows(N, D):
    """int32 [N, D]: column 0 of a row holds the first element of the next; the last leads to 0."""
    following = torch.zeros(N, D, dtype=torch.int32)
    following[:, 0] = (torch.arange(N) + 1) % N * D
    return following


def _chain(N, D, device="cuda"):
    """A function that loads from N rows, one after the other; the result is element 0 again."""
    following = _next_rows(N, D).to(device)
    out = torch.empty(1, dtype=torch.int32, device=device)

    def follow(*_):
        _chain_kernel[(1,)](following, out, N, num_warps=1)
        return out

    return follow


def _same_row(q, k, v):
    """basic_attention, the same machine code: a step from key to key is 0 elements in memory."""
    return resolve("basic_attention")(q, *(x[..., :1, :].expand_as(x) for x in (k, v)))


@measured_on("gpu")
def latency(lab):
    """What an iteration of basic_attention's loop takes, alone and among 1024 programs.

    Beside it the same loop over one row again and again, which the nearest cache holds, and a chain
    of as many loads, of which each waits for the one before.
    """
    for case in lab.each(dtype=["float32"], D=[64], M=[1, 1024], N=[256, 512, 1024]):
        variants = {"the same row each iteration": _same_row}
        if case["M"] == 1:  # a query, and each key and value
            variants["each load waits"] = _chain(1 + 2 * case["N"], case["D"])
        names = ["basic_attention", "vectorized_attention"]
        yield from lab.time_attention(case, names, variants)


@measured_on("interpreter")
def traffic(lab):
    """Loads of each program, recorded while the interpreter runs the kernels."""
    from snippets._lab.probe.memory_trace import record

    names = ["basic_attention", "vectorized_attention", "vectorized_attention:exercise"]
    for case in lab.each(case=["one program", "whole head"], implementation=names):
        M, N, D = (1, 1024, 64) if case["case"] == "one program" else (8, 64, 64)
        q, k, v = make_qkv(M=M, N=N, D=D)
        launcher = resolve(case["implementation"])
        with record({"q": q, "k": k, "v": v}) as trace:
            out = launcher(q, k, v)
        assert_attention(out, q, k, v)
        total = trace.total("load")
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
            "key_elements": trace.total("load", tensor="k").elements,
            "selected_elements": trace.selected_elements,
        }


@triton.jit
def _grids_kernel(sums_ptr, addresses_ptr):
    rows = tl.arange(0, 4)  # [4]: 0, 1, 2, 3
    columns = tl.arange(0, 4)  # [4]
    addresses = rows[:, None] * 4 + columns[None, :]  # [4, 1] and [1, 4] make [4, 4]
    tl.store(sums_ptr + addresses, rows[:, None] + columns[None, :])
    tl.store(addresses_ptr + addresses, addresses)


def _grids():
    """Expression → the tile that it makes, for the page's example of broadcasting."""
    sums, addresses = torch.empty(2, 4, 4, dtype=torch.int64)
    _grids_kernel[(1,)](sums, addresses)
    return {
        "rows[:, None] + columns[None, :]": sums,
        "rows[:, None] * 4 + columns[None, :]": addresses,
    }


@measured_on("interpreter")
def broadcasting(lab):
    """What two aranges of four make, printed; and the addresses the kernel itself builds."""
    from snippets._lab.probe.memory_trace import record

    q, k, v = make_qkv(M=1, N=3, D=3)
    with record({"q": q, "k": k, "v": v}, keep_addresses=True) as trace:
        vectorized_attention(q, k, v)
    (load,) = (a for a in trace.accesses if a.tensor == "k")
    kernel_loads = "elements of k that the kernel loads (3 keys, 3 columns; -1: masked)"
    tiles = _grids() | {kernel_loads: torch.from_numpy(load.offsets // k.element_size())}
    for case in lab.each(expression=list(tiles)):
        tile = tiles[case["expression"]]
        for line in str(tile).splitlines():
            yield {**case, "line": line, "largest": int(tile.max())}
