"""The yardstick: it accepts what is right, rejects what is wrong, and refuses blind inputs."""

import math

import pytest
import torch

from snippets._lab.judge.oracle import (
    NumericalMismatch,
    TrivialInputs,
    assert_attention,
    deviation,
    eager_attention,
    make_qkv,
)
from tests.floors import some

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
SHAPES = [(1, 2, 1), (2, 65, 40), (64, 63, 64), (129, 127, 128)]  # M, N, D


def test_eager_is_attention_by_hand():
    """Two keys whose scores differ by log 3: weights 1/4 and 3/4."""
    q = torch.tensor([[1.0, 0.0]])
    k = torch.tensor([[0.0, 5.0], [math.log(3.0), -7.0]])
    v = torch.tensor([[4.0, 8.0], [0.0, 16.0]])
    torch.testing.assert_close(eager_attention(q, k, v, scale=1.0), torch.tensor([[1.0, 14.0]]))


@pytest.mark.parametrize("scale", [None, 0.3, -1.0])
@pytest.mark.parametrize("masked", [False, True])
def test_eager_equals_pytorch(masked, scale):
    q, k, v = make_qkv(2, 3, M=5, N=7, D=8, dtype=torch.float64)
    mask = torch.rand(5, 7) > 0.4
    mask[:, 0] = True  # PyTorch gives NaN for a row that sees nothing
    mask = mask if masked else None
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    torch.testing.assert_close(eager_attention(q, k, v, scale=scale, mask=mask), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("M", "N", "D"), SHAPES)
def test_eager_is_accepted(M, N, D, dtype):
    q, k, v = make_qkv(2, M=M, N=N, D=D, dtype=dtype)
    found = assert_attention(eager_attention(q, k, v), q, k, v)
    assert found.largest == found.pytorch <= found.allowed
    assert found.mean <= found.largest


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_a_result_rounded_once_is_accepted(dtype):
    """What a kernel with float32 inside gives: closer than PyTorch's own half precision."""
    q, k, v = make_qkv(2, M=17, N=65, D=64, dtype=dtype)
    out = eager_attention(*(x.double() for x in (q, k, v))).to(dtype)
    assert_attention(out, q, k, v)


WRONG = {
    "zeros": lambda out, q, k, v: torch.zeros_like(out),
    "NaN": lambda out, q, k, v: out * math.nan,
    "one NaN": lambda out, q, k, v: out.index_fill(-1, torch.tensor([3]), math.nan),
    "infinite": lambda out, q, k, v: out / 0,
    "mean of V": lambda out, q, k, v: v.mean(-2, keepdim=True).expand_as(out),
    "no scale": lambda out, q, k, v: eager_attention(q, k, v, scale=1.0),
    "last key dropped": lambda out, q, k, v: eager_attention(q, k[:, :-1], v[:, :-1]),
    "heads swapped": lambda out, q, k, v: out.flip(0),
    "rows swapped": lambda out, q, k, v: out.flip(1),
}


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_results_are_rejected(name, dtype):
    q, k, v = make_qkv(2, M=9, N=33, D=16, dtype=dtype)
    with pytest.raises(NumericalMismatch, match="largest difference"):
        assert_attention(WRONG[name](eager_attention(q, k, v), q, k, v), q, k, v)


@pytest.mark.parametrize(
    "change",
    [lambda out: out[:1], lambda out: out.mT, lambda out: out.double(), lambda out: out.half()],
    ids=["fewer heads", "transposed", "wider dtype", "narrower dtype"],
)
def test_shape_and_dtype_are_part_of_the_answer(change):
    q, k, v = make_qkv(2, M=9, N=33, D=16)
    with pytest.raises(NumericalMismatch, match=r"result is torch\..* not torch\.float32"):
        assert_attention(change(eager_attention(q, k, v)), q, k, v)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_the_bound_is_where_it_says(dtype):
    """One element just inside the bound passes, just outside fails."""
    q, k, v = make_qkv(M=4, N=33, D=16, dtype=dtype)
    double = eager_attention(*(x.double() for x in (q, k, v)))
    allowed = deviation(double, q, k, v).allowed
    want = double.abs().min()  # the smallest element has the finest steps in its dtype
    row, column = (double.abs() == want).nonzero()[0]

    def moved(factor):
        out = double.to(dtype)
        out[row, column] = (double[row, column] + factor * allowed).to(dtype)
        return out

    assert_attention(moved(0.95), q, k, v)
    with pytest.raises(NumericalMismatch):
        assert_attention(moved(1.05), q, k, v)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_the_bound_is_small(dtype):
    """Values are about 1. What may hide is a few roundings of the dtype, and of float32 inside."""
    q, k, v = make_qkv(2, M=64, N=129, D=64, dtype=dtype)
    allowed = deviation(eager_attention(q, k, v), q, k, v).allowed
    limits = {torch.float16: 2e-2, torch.bfloat16: 2e-1, torch.float32: 1e-4}
    assert 0 < allowed < limits[dtype]


UNIFORM = {
    "q is zero": lambda q, k, v: (q * 0, k, v),
    "one key repeated": lambda q, k, v: (q, k[:, :1].expand_as(k), v),
    "one value repeated": lambda q, k, v: (q, k, v[:, :1].expand_as(v)),
    "tiny q": lambda q, k, v: (q * 1e-8, k, v),
}


@pytest.mark.parametrize("case", UNIFORM)
def test_inputs_that_cannot_tell_attention_from_a_mean_are_refused(case):
    q, k, v = UNIFORM[case](*make_qkv(2, M=3, N=9, D=8))
    with pytest.raises(TrivialInputs, match=r"the mean of V passes at \(2, 3, 8\)"):
        assert_attention(eager_attention(q, k, v), q, k, v)


def test_one_key_needs_no_contrast():
    q, k, v = make_qkv(2, M=3, N=1, D=8)
    assert_attention(eager_attention(q, k, v), q, k, v)
    with pytest.raises(NumericalMismatch):
        assert_attention(eager_attention(q, k, v) * 1.01, q, k, v)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_that_sees_no_key_is_zero(dtype):
    q, k, v = make_qkv(2, M=5, N=4, D=8, dtype=dtype)
    mask = torch.ones(5, 4, dtype=torch.bool).tril(-1)  # row 0 sees nothing
    out = eager_attention(q, k, v, mask=mask)
    assert (out[:, 0] == 0).all()
    assert_attention(out, q, k, v, mask=mask)
    with pytest.raises(NumericalMismatch):
        assert_attention(eager_attention(q, k, v), q, k, v, mask=mask)
    torch.testing.assert_close(out[:, 1], v[:, 0])  # row 1 sees the first key only


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_inputs_are_the_same_every_time_and_in_every_dtype(dtype):
    single = make_qkv(2, M=5, N=7, D=8, seed=3)
    torch.randn(11)  # what else draws random numbers does not matter
    assert all(
        torch.equal(x, y.to(dtype))
        for x, y in some(zip(make_qkv(2, M=5, N=7, D=8, seed=3, dtype=dtype), single, strict=True))
    )


def test_another_seed_gives_other_inputs():
    first, second = (make_qkv(N=5, D=8, seed=seed) for seed in (0, 1))
    assert not any(torch.equal(x, y) for x, y in some(zip(first, second, strict=True)))


def test_inputs_have_the_shapes_asked_for_and_sharp_scores():
    q, k, v = make_qkv(2, 3, M=64, N=65, D=32)
    assert (q.shape, k.shape, v.shape) == ((2, 3, 64, 32), (2, 3, 65, 32), (2, 3, 65, 32))
    assert 2 < (q @ k.mT / math.sqrt(32)).std() < 4
    assert [x.shape[-2] for x in make_qkv(N=5, D=8)] == [5, 5, 5]
