"""tiled_attention against float64, at awkward sizes, masks and strides; and what it refuses."""

import functools
import itertools
import json
import math
from types import SimpleNamespace

import pytest
import torch

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets._lab.rooms import FIGURES
from snippets.tiled_attention import bench, kernel
from snippets.tiled_attention.kernel import tiled_attention
from tests.apart import printed

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# A tile takes the interpreter a millisecond: there it gets pairs of sizes, the GPU gets them all.
SIZES = [(M, N) for M in AWKWARD for N in AWKWARD]
SIZES = SIZES if ON_GPU else SIZES[::4]
SHAPES = [(1, 1), (1, 9), (5, 5), (16, 17), (17, 16), (9, 40), (40, 9), (33, 65)]


def assert_causal(out, q, k, v, **options):
    mask = causal_mask(q.shape[-2], k.shape[-2], device=DEVICE)
    assert_attention(out, q, k, v, mask=mask, **options)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("M", "N"), SIZES)
def test_equals_float64(M, N, dtype):
    q, k, v = make_qkv(M=M, N=N, D=40, dtype=dtype, device=DEVICE, seed=1)
    assert_attention(tiled_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("M", "N"), SHAPES)
def test_causal_is_aligned_at_the_last_query(M, N, dtype):
    q, k, v = make_qkv(2, M=M, N=N, D=24, dtype=dtype, device=DEVICE, seed=2)
    mask = causal_mask(M, N, align="bottom_right", device=DEVICE)
    assert_attention(tiled_attention(q, k, v, causal=True), q, k, v, mask=mask)


@pytest.mark.numerical
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("D", [1, 3, 16, 63, 64, 65, 128, 129, 256])
def test_head_dimensions_and_every_row_of_the_table(D, causal):
    q, k, v = make_qkv(M=18, N=35, D=D, device=DEVICE, spread=9.0)
    out = tiled_attention(q, k, v, causal=causal)
    assert_attention(out, q, k, v, mask=causal_mask(18, 35, device=DEVICE) if causal else None)
    assert sorted(kernel.TILES) == [*kernel.TILES]
    assert {kernel._tiles(x) for x in (64, 65, 129)} == set(kernel.TILES.values())


@pytest.mark.numerical
@pytest.mark.parametrize("order", ["rising", "falling"])
def test_the_largest_score_comes_late_or_early(order):
    q, k, v = make_qkv(M=5, N=96, D=16, device=DEVICE)
    q = q.abs()
    rise = torch.linspace(0, 9, 96, device=DEVICE)
    k = k.abs() * (rise if order == "rising" else rise.flip(0))[:, None]
    assert_attention(tiled_attention(q, k, v), q, k, v)


def assert_unchanged(out, want):
    """Raise NumericalMismatch unless both are equal, NaN for NaN."""
    if not torch.equal(out.isnan(), want.isnan()):
        raise NumericalMismatch("largest difference nan in rows that should not change, allowed 0")
    difference = (out - want).nan_to_num(0.0).abs().max()
    if difference > 0:
        raise NumericalMismatch(f"largest difference {difference:.2e} in such rows, allowed 0")


@pytest.mark.numerical
def test_nan_in_a_query_stays_in_its_row():
    q, k, v = make_qkv(2, M=20, N=35, D=16, device=DEVICE)
    want = tiled_attention(q, k, v)
    want[1, 7] = math.nan
    q[1, 7, 3] = math.nan
    assert_unchanged(tiled_attention(q, k, v), want)


@pytest.mark.numerical
@pytest.mark.parametrize("where", ["k", "v"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_in_a_hidden_key_or_value_is_not_seen(where, bad):
    """Causal: rows before the key are as if it were not there; the rows that see it are not."""
    q, k, v = make_qkv(2, M=40, N=43, D=16, device=DEVICE)
    want = tiled_attention(q, k, v, causal=True)
    at = 20  # seen from query 17 on
    {"k": k, "v": v}[where][1, at] = bad
    out = tiled_attention(q, k, v, causal=True)
    assert_unchanged(out[0], want[0])
    assert_unchanged(out[1, :17], want[1, :17])
    assert not out[1, 17:].isfinite().all(-1).any() or where == "k"
    assert not torch.equal(out[1, 17:], want[1, 17:])


@pytest.mark.numerical
def test_a_score_of_minus_infinity_weighs_nothing():
    q, k, v = (x.abs() for x in make_qkv(M=5, N=40, D=1, device=DEVICE))
    k[3] = k[33] = -math.inf
    kept = [n for n in range(40) if n not in (3, 33)]
    assert_attention(tiled_attention(q, k, v), q, k[kept], v[kept])
    k[:] = -math.inf
    assert not tiled_attention(q, k, v).any()


@pytest.mark.skipif(not ON_GPU, reason="memory is measured on a GPU")
def test_nothing_of_size_m_times_n_is_allocated():
    q, k, v = make_qkv(4, N=4096, D=16, device=DEVICE)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    tiled_attention(q, k, v)
    # The result, rounded up by the allocator; one row of scores a query would be 256 times that.
    assert torch.cuda.max_memory_allocated() - before <= q.numel() * q.element_size() + 2**21


@pytest.mark.skipif(ON_GPU, reason="loads are recorded in the interpreter")
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_of_queries_shares_its_loads_and_causal_skips_tiles(causal):
    from snippets._lab.probe.memory_trace import record

    q, k, v = make_qkv(N=48, D=16)
    with record({"q": q, "k": k, "v": v}) as trace:
        tiled_attention(q, k, v, causal=causal)
    BLOCK_M, BLOCK_N, _ = kernel.TILES[64]
    ends = range(BLOCK_M, 48 + BLOCK_M, BLOCK_M)  # queries up to here are done with a block
    tiles = [-(-end // BLOCK_N) for end in ends] if causal else [-(-48 // BLOCK_N)] * len(ends)
    blocks = [min(48, n * BLOCK_N) for n in tiles]  # keys that each block of queries loads
    assert len(blocks) == 3
    for name in "kv":
        assert trace.total("load", tensor=name).elements == sum(blocks) * 16
    assert trace.total("load", tensor="q").elements == 48 * 16
    assert trace.total("load", tensor="other").instructions == 0
    assert trace.total("store").elements == 48 * 16


# The scene; test_at_work.py compares all of it with what the page's own interpreter records.


def test_the_recorded_example_shows_what_the_page_says():
    """Query 0: the maximum moves, stays and moves again; causal: keys hidden, a tile skipped."""
    recorded = json.loads((FIGURES / "tiled_attention/scene_steps.json").read_text("utf-8"))
    full, causal = (example["tiles"] for example in recorded["examples"])
    alphas = [tile["alpha"][0] for tile in full]
    assert [a == 1 for a in alphas] == [False, False, True, False]
    assert alphas[0] == 0
    assert sum(s is None for tile in causal for row in tile["scores"] for s in row) > 0
    assert len(causal) < len(full)


@pytest.mark.numerical
def test_the_order_of_axes_and_the_tiles_change_no_result():
    """What the page's figures compare is the same attention."""
    q, k, v = make_qkv(2, M=20, N=37, D=24, device=DEVICE)
    for launcher in (
        bench.with_tiles(8, 32, 4),
        bench.with_tiles(32, 8, 16),
        bench.with_tiles(16, 16, 8, bench.SUMMED_LAST),
    ):
        assert_attention(launcher(q, k, v), q, k, v)
        assert_causal(launcher(q, k, v, causal=True), q, k, v)


@pytest.mark.compiler
def test_the_order_of_axes_changes_the_exchange_and_nothing_else(compiler):
    """The same multiply-adds, loads and freedom from spills; many times the shuffles."""
    lab = SimpleNamespace(place="compiler", target="sm_90")
    lab.qkv = lambda case: make_qkv(N=case["N"], D=case["D"], device=DEVICE)
    lab.kernels = lambda call, *qkv: compiler.resources(call, qkv, target=lab.target)
    for D in (64, 128):
        first, last = (
            bench.compiled(lab, launcher, {"D": D, "causal": False})
            for launcher in bench.orders(D).values()
        )
        assert first["error"] is last["error"] is None
        assert first["stack_bytes"] == last["stack_bytes"] == 0
        assert first["global_loads"] == last["global_loads"] > 0
        assert first["multiply_adds"] == pytest.approx(last["multiply_adds"], rel=0.1)
        assert last["shuffles"] > 50 * first["shuffles"] > 0
        assert last["instructions"] > 2 * first["instructions"]


LAYOUTS = """
import re, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from snippets.tiled_attention.kernel import TILES, _tiled_attention_kernel as kernel

for D, (M, N, warps) in TILES.items():
    constants = {"CAUSAL": False, "BLOCK_M": M, "BLOCK_N": N, "BLOCK_D": D}
    kinds = {name: "constexpr" if name in constants else "i32" for name in kernel.arg_names}
    kinds |= {name: "*fp32" for name in kinds if name.endswith("_ptr")} | {"scale": "fp32"}
    source = ASTSource(kernel, kinds, constants)
    target = GPUTarget("cuda", 90, 32)
    code = triton.compile(source, target=target, options={"num_warps": warps}).asm["ttgir"]
    block = re.search(rf"tensor<{D}x{M}x{N}xf32, (#\\w+)>", code)[1]
    layout = re.search(rf"^{block} = (.*)$", code, re.MULTILINE)[1]
    threads, in_warps = (re.search(rf"{n} = \\[(\\d+)", layout)[1] for n in
                         ("threadsPerWarp", "warpsPerCTA"))
    print(D, int(threads) * int(in_warps), max(1, 32 * warps // (M * N)))
"""


@pytest.mark.compiler
def test_a_thread_sums_whole_columns_where_there_are_pairs_for_all_threads():
    """What `figures._columns` works out is what the compiler lays out along the summed axis."""
    said = printed("-c", LAYOUTS, TRITON_INTERPRET=None)
    rows = [line.split() for line in said.splitlines()]
    assert len(rows) == len(kernel.TILES)
    assert all(laid_out == said for _, laid_out, said in rows), rows


def cases(**axes):
    """As Lab.each, without a progress bar."""
    return (dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values()))


class Lab:
    """A lab with a stand-in clock and compiler; what would be timed is run once."""

    place, target = "gpu", "sm_90"
    each = staticmethod(cases)

    def __init__(self):
        self.ran = []

    def qkv(self, case):
        return make_qkv(N=min(case["N"], 17), D=case["D"], device=DEVICE)

    def kernels(self, launcher, *tensors):
        spills = 4096 if len(self.ran) == 1 else 0
        self.ran.append(launcher)
        return [Compiled(spills)]

    def time_attention(self, case, names, variants=None):
        q, k, v = self.qkv(case)
        for name, call in (variants or {}).items():
            if not name.startswith("torch"):
                call(q, k, v)
        yield from (
            {"implementation": n, **case, "ms_p50": 1.0} for n in [*names, *(variants or {})]
        )


class Compiled:
    cubin, error, num_warps = b"code", None, 8

    def __init__(self, spills):
        self.spills = spills

    def sass(self):
        code = "FFMA R0, R1", "@P0 FFMA R1", "SHFL.BFLY R2", "BAR.SYNC.DEFER_BLOCKING 0x0", "NOP"
        return "".join(f"        /*{at:04x}*/   {line} ;\n" for at, line in enumerate(code))

    def as_row(self):
        names = ("registers", "spill_store_bytes", "stack_bytes", "shared_bytes")
        return dict.fromkeys(names, self.spills) | {"error": None}


def test_every_result_of_a_gpu_builds_its_rows():
    lab = Lab()
    functions = (bench.forward, bench.causal, bench.axes, bench.resources)
    for function in functions:
        rows = list(function(lab))
        assert rows
        assert all({"D", "dtype"} <= row.keys() for row in rows)
    assert {row["shuffles"] for row in rows} == {1}
    assert {row["multiply_adds"] for row in rows} == {2}
    assert {row["instructions"] for row in rows} == {4}, "and no padding"


def test_a_tile_that_spills_is_in_the_table_and_not_timed(monkeypatch):
    monkeypatch.setattr(bench, "sweep", lambda D: [(8, 8, 4), (16, 8, 4), (8, 16, 8)])
    lab = Lab()
    rows = list(bench.swept(lab, {"dtype": "float32", "D": 8, "heads": 1, "N": 9}))
    assert [r["implementation"] for r in rows] == [
        "torch:sdpa",
        "8 × 8, 4 warps",
        "8 × 16, 8 warps",
        "16 × 8, 4 warps",
    ]
    assert rows[-1]["error"] == "4096 bytes of stack a thread"
    assert "ms_p50" not in rows[-1]
    assert rows[1]["BLOCK_M"] == 8
    assert rows[1]["registers"] == 0


def without_running(lab, case, names, variants=None):
    yield from ({"implementation": n, **case} for n in [*names, *(variants or {})])


def test_rows_of_the_sweep_know_the_tile_of_the_kernel():
    lab = Lab()
    lab.ran = [None] * 9  # nothing spills
    lab.time_attention = functools.partial(without_running, lab)
    for D in kernel.TILES:
        rows = list(bench.swept(lab, {"dtype": "float32", "D": D, "heads": 1, "N": 9}))
        (own,) = (row for row in rows if row.get("in_table"))
        assert (own["BLOCK_M"], own["BLOCK_N"], own["num_warps"]) == kernel.TILES[D]
