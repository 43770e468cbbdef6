"""vectorized_attention against float64, at awkward sizes and strides; and what it refuses."""

import pytest
import torch
import triton

from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets._lab.measure import machine
from snippets._lab.measure.competitors import resolve
from snippets._lab.measure.session import Lab
from snippets._lab.probe import compiled
from snippets._lab.results import store
from snippets.vectorized_attention import bench, exercise, kernel
from snippets.vectorized_attention.kernel import vectorized_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# The interpreter takes two milliseconds a program: there many queries come in one dtype only.
QUERIES = AWKWARD if ON_GPU else [1, 3]


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", AWKWARD)
@pytest.mark.parametrize("M", QUERIES)
def test_equals_float64(M, N, dtype):
    q, k, v = make_qkv(M=M, N=N, D=40, dtype=dtype, device=DEVICE, seed=1)
    assert_attention(vectorized_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("M", AWKWARD)
def test_numbers_of_queries(M):
    q, k, v = make_qkv(M=M, N=65, D=24, device=DEVICE, seed=2)
    assert_attention(vectorized_attention(q, k, v), q, k, v)


def ones(*shape, **options):
    return torch.ones(*shape, device=DEVICE, **options)


@pytest.mark.parametrize(("N", "D"), [(1024, 1024), (16_384, 64), (16_384, 33), (8192, 128)])
def test_a_tile_at_the_limit_is_launched(N, D, monkeypatch):
    launched = []
    monkeypatch.setattr(
        kernel, "_vectorized_attention_kernel", {(1,): lambda *_, **tile: launched.append(tile)}
    )
    vectorized_attention(ones(1, D), ones(N, D), ones(N, D))
    (tile,) = launched
    assert tile["BLOCK_N"] * tile["BLOCK_D"] == kernel.LIMITS["elements of a tile"]


def test_the_limit_is_tritons_own():
    assert kernel.LIMITS["elements of a tile"] == triton.language.core.TRITON_MAX_TENSOR_NUMEL


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 31, 32, 33, 63, 64, 65, 129])
def test_exercise_takes_32_keys_at_a_time(N, dtype):
    q, k, v = make_qkv(2, M=2, N=N, D=12, dtype=dtype, device=DEVICE)
    assert_attention(exercise.vectorized_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("rising", [True, False], ids=["rising", "falling"])
def test_exercise_corrects_when_a_later_block_holds_the_largest_score(rising):
    q, k, v = make_qkv(M=2, N=96, D=16, device=DEVICE)
    q = q.abs()
    k = (k.abs() * torch.linspace(0, 9, 96, device=DEVICE)[:, None]).sort(0, not rising).values
    assert_attention(exercise.vectorized_attention(q, k, v), q, k, v)


@pytest.mark.numerical
def test_exercise_has_no_limit_on_the_keys():
    q, k, v = make_qkv(M=1, N=16_385, D=64, device=DEVICE)
    with pytest.raises(ValueError, match="2097152 elements of a tile"):
        vectorized_attention(q, k, v)
    assert_attention(exercise.vectorized_attention(q, k, v), q, k, v)


@pytest.mark.skipif(ON_GPU, reason="loads are recorded in the interpreter")
@pytest.mark.parametrize(("M", "N", "D"), [(1, 1, 1), (3, 5, 8), (2, 65, 40)])
def test_three_loads_a_program_and_every_key_for_each(M, N, D):
    from snippets._lab.probe.memory_trace import record

    q, k, v = make_qkv(M=M, N=N, D=D)
    with record({"q": q, "k": k, "v": v}) as trace:
        vectorized_attention(q, k, v)
    total = trace.total("load")
    assert total.instructions == 3 * M
    assert total.elements == M * (1 + 2 * N) * D
    assert trace.total("load", tensor="other").instructions == 0
    assert trace.total("store").elements == M * D


@pytest.mark.skipif(ON_GPU, reason="the page's example runs in the interpreter")
def test_the_example_of_broadcasting():
    sums, addresses = bench._grids().values()
    assert sums.max() == 6
    assert addresses.flatten().tolist() == list(range(16))


@pytest.mark.parametrize("N", [2, 7, 256])
def test_the_chain_visits_every_row_once(N):
    assert bench._chain(N, 4, DEVICE)().item() == 0  # the last row leads back to the first
    following = bench._next_rows(N, 4).flatten()
    visited = [0]
    while (at := following[visited[-1]].item()) != 0:
        visited.append(at)
    assert visited == [4 * row for row in range(N)]


def test_what_is_said_of_one_row_again_and_again_was_timed():
    measured = store.read(store.path_of("nvidia_h200", "vectorized_attention", "latency"))
    assert "_same_row" in measured.code["vectorized_attention/bench.py"], "measure it again"


@pytest.mark.compiler
def test_one_row_again_and_again_runs_the_same_machine_code():
    """What differs is where rows come from, and nothing else."""
    tensors = [torch.ones(1024, 64, device=DEVICE)] * 3
    with compiled.Compiler() as compiler:
        whole, same = (
            compiler.resources(launcher, tensors, target="sm_90")[0].sass()
            for launcher in (resolve("basic_attention"), bench._same_row)
        )
    assert whole == same


class Stub:
    """A lab whose compiler gives up on `stops` keys and more, and counts what it is asked."""

    place, target = "compiler", "sm_90"

    def __init__(self, stops):
        self.stops, self.asked = stops, []

    def qkv(self, case):
        return make_qkv(N=case["N"], D=case["D"])

    def ahead_of_time(self, launcher, q, k, v):
        self.asked.append(len(k))
        error = "> 20 s" if len(k) >= self.stops else None
        yield {"kernel": "x", "target": "sm_90", "num_warps": 4, "num_stages": 3, "error": error}


def test_what_took_too_long_is_not_tried_with_more_keys(monkeypatch):
    monkeypatch.setattr(bench, "_reports", {})
    lab = Stub(stops=64)
    errors = [bench._report(lab, {"N": N, "D": 8})["error"] for N in (32, 64, 128, 256, 128)]
    assert errors == [None, "> 20 s", *["not tried: fewer keys took > 20 s"] * 3]
    assert lab.asked == [32, 64]
    assert bench._report(lab, {"N": 128, "D": 4})["error"] == "> 20 s"  # another D is another tile


def test_a_gpu_compiles_ahead_for_itself(monkeypatch):
    asked = []

    class Compiler:
        def resources(self, launcher, tensors, target):
            asked.append(target)
            return []

    monkeypatch.setattr(machine, "gpu", lambda: {"capability": "9.0"})
    for lab in (Lab("gpu"), Lab("compiler", "sm_75")):
        lab.__dict__["compiler"] = Compiler()
        assert list(lab.ahead_of_time(vectorized_attention)) == []
    assert asked == ["sm_90", "sm_75"]
