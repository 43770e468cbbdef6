"""basic_attention against float64, at awkward sizes, strides and scores; and what it refuses."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets.basic_attention import exercise, kernel
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
