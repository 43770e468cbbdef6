"""basic_attention against float64, at awkward sizes, strides and scores; and what it refuses."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets._lab.judge.mutants import variant
from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets._lab.probe.compiled import Compiler
from snippets._lab.probe.loops import KINDS, loops
from snippets.basic_attention import bench, exercise, kernel
from snippets.basic_attention.kernel import basic_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# The interpreter takes a millisecond a key for each query: there the awkward sizes go into N.
QUERIES = AWKWARD if ON_GPU else [3]


# --8<-- [start:test]
@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", AWKWARD)
@pytest.mark.parametrize("M", QUERIES)
def test_equals_float64(M, N, dtype):
    q, k, v = make_qkv(M=M, N=N, D=40, dtype=dtype, device=DEVICE, seed=1)
    assert_attention(basic_attention(q, k, v), q, k, v)
    # --8<-- [end:test]


@pytest.mark.numerical
@given(
    leading=st.lists(st.integers(1, 3), max_size=2),
    M=st.integers(1, 3),
    N=st.integers(1, 40),
    D=st.integers(1, 70),
    dtype=st.sampled_from(DTYPES),
    transposed=st.booleans(),
    seed=st.integers(0, 99),
)
def test_any_shape(leading, M, N, D, dtype, transposed, seed):
    # At D 1 a small q can leave the weights almost uniform; a wider q keeps the test meaningful.
    q, k, v = make_qkv(*leading, M=M, N=N, D=D, dtype=dtype, device=DEVICE, seed=seed, spread=9.0)
    if transposed:
        q, k, v = (x.mT.contiguous().mT for x in (q, k, v))
    assert_attention(basic_attention(q, k, v), q, k, v)


def ones(*shape, **options):
    return torch.ones(*shape, device=DEVICE, **options)


REFUSED = {
    "wide head": (lambda: {n: ones(2, 1025) for n in "qkv"}, ValueError, "at most 1024"),
    "many keys": (
        lambda: {"q": ones(2, 8)} | {n: ones(16_385, 8) for n in "kv"},
        ValueError,
        "16385 keys",
    ),
    "many programs": (
        lambda: {"q": ones(1, 1).expand(2**31, 1)} | {n: ones(1, 1) for n in "kv"},
        ValueError,
        "2147483648 programs; at most 2147483647",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, monkeypatch):
    arguments, error, message = REFUSED[case]
    arguments = arguments()
    monkeypatch.setattr(kernel, "_basic_attention_kernel", None)  # a launch would be a TypeError
    with pytest.raises(error) as caught:
        basic_attention(**arguments)
    assert message in str(caught.value)


@pytest.mark.numerical
@pytest.mark.parametrize("M", [1, 2, 3])
def test_exercise_serves_two_queries(M):
    q, k, v = make_qkv(2, M=M, N=9, D=12, device=DEVICE)
    assert_attention(exercise.basic_attention(q, k, v), q, k, v)


# An ablation removes one thing: seen in the loops of the compiled kernel.

REDUCTION = {"shuffles", "barriers", "shared memory"}  # what a sum over a tile is made of
GONE = {  # what is left out → (what the loop over the keys lacks, what the loop over values lacks)
    "loads": ({"loads"}, {"loads"}),
    "the sum of a dot product": (REDUCTION, set()),
    "writing slots": ({"selects"}, set()),
    "reading slots": (set(), REDUCTION | {"selects"}),  # a slot is read by a select and a sum
}
MOVED_NOWHERE = [("k_row += stride_kn", "k_row += 0"), ("v_row += stride_vn", "v_row += 0")]


@pytest.fixture(scope="module")
def compiled_loops():
    q, k = torch.ones(1, 1, 64, device=DEVICE), torch.ones(1, 1024, 64, device=DEVICE)
    with Compiler() as compiler:

        def of(changes):
            changed = variant("basic_attention", changes)
            (found,) = compiler.resources(changed, (q, k, k), target="sm_90")
            return loops(found.ptx)

        yield of


def lacking(whole, part):
    """The kinds that a loop has no instruction of any more; the others must be as they were."""
    gone = {kind for kind in KINDS if whole[kind] and not part[kind]}
    changed = {kind for kind in KINDS if whole[kind] != part[kind]}
    return gone if gone == changed else {f"{kind} changed" for kind in changed}


@pytest.mark.compiler
def test_an_ablation_removes_one_thing(compiled_loops):
    assert GONE.keys() == bench.PARTS.keys()
    whole = compiled_loops([])
    assert [set(loop.values()) & {0} for loop in whole] == [set(), set()]
    for part, gone in GONE.items():
        found = compiled_loops(bench.PARTS[part])
        assert tuple(map(lacking, whole, found)) == gone, part


@pytest.mark.compiler
def test_an_ablation_that_takes_more_with_it_is_seen(compiled_loops):
    """Rows that stay where they are: the load leaves the loop, and the sum of the product too."""
    keys, values = map(lacking, compiled_loops([]), compiled_loops(MOVED_NOWHERE))
    assert keys == {"loads"} | REDUCTION
    assert values == {"loads"}


def test_loops_are_found_between_a_label_and_a_branch_back():
    ptx = """
        ld.global.b32 {%r1}, [%rd1];
        @%p1 bra $L__BB0_3;
    $L__BB0_2:                              // =>This Inner Loop
        mov.u32 %r7, 0x0;  // ld.global in a comment
        @%p4 ld.global.b32 { %r7 }, [ %rd6 + 0 ];
        shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
        bar.sync 0;
        @%p3 bra $L__BB0_2;
    $L__BB0_3:
        st.shared.b32 [%r1], %r2;
    """
    (loop,) = loops(ptx)
    assert loop == {"loads": 1, "shuffles": 1, "barriers": 1, "selects": 0, "shared memory": 0}
    assert loops("ret;") == []


@pytest.mark.skipif(ON_GPU, reason="the scene is recorded in the interpreter")
def test_the_scene_shows_one_query_key_by_key():
    class Lab:
        @staticmethod
        def each(example):
            yield from ({"example": name} for name in example)

    *keys, whole = bench.scene(Lab)
    q, k, v = bench.example()
    scores = q[bench.QUERY].double() @ k.double().T / 2
    found = torch.tensor([row["score"] for row in keys]).double()
    torch.testing.assert_close(found, scores, atol=1e-6, rtol=1e-6)
    weights = torch.tensor([row["weight"] for row in keys])
    torch.testing.assert_close(weights.double(), scores.softmax(0), atol=1e-6, rtol=1e-5)
    assert whole["weights"] == [*weights.tolist(), 0.0, 0.0]  # 16 slots for 14 keys
    sums = torch.cumsum(weights.double()[:, None] * v.double(), 0)
    found = torch.tensor([row["acc"] for row in keys]).double()
    torch.testing.assert_close(found, sums, atol=1e-6, rtol=1e-5)
    assert keys[-1]["acc"] == whole["result"]
    assert {tuple(row["bytes"].items()) for row in keys} == {(("k", 16), ("v", 16))}
    for row in keys:
        first, second = ([whole["listing"][line] for line, _ in lines] for lines in row["lines"])
        assert first[0] == second[0] == "for n in range(N):"
        assert "tl.load(k_row" in first[1]
        assert "tl.load(v_row" in second[1]
    assert any("tl.exp(" in whole["listing"][line] for line, _ in whole["softmax"])
    assert "tl.store(" in whole["listing"][whole["end"][-1][0]]
