"""basic_attention against float64, at awkward sizes, strides and scores; and what it refuses."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
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
@pytest.mark.parametrize("D", [1, 3, 16, 63, 64, 65, 128, 256])
def test_head_dimensions(D):
    q, k, v = make_qkv(M=2, N=17, D=D, device=DEVICE)
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("leading", [(), (1,), (3,), (1, 1), (2, 3)], ids=str)
def test_batch_and_heads(leading):
    q, k, v = make_qkv(*leading, M=2, N=9, D=16, device=DEVICE)
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
def test_transposed_tensors():
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    q, k, v = (x.mT.contiguous().mT for x in (q, k, v))
    assert not k.is_contiguous()
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
def test_heads_beside_each_other_as_models_store_them():
    q, k, v = (x.transpose(1, 2).contiguous() for x in make_qkv(2, 3, N=4, D=16, device=DEVICE))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # [B, H, N, D] in [B, N, H, D] memory
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
def test_slices_of_a_larger_tensor():
    packed = torch.cat([x.repeat(1, 1, 2) for x in make_qkv(2, N=6, D=16, device=DEVICE)], dim=-1)
    q, k, v = packed[:, ::2, :16], packed[:, 1:, 32:48], packed[:, 1:, 64:80]
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
def test_one_key_for_all_heads_by_a_stride_of_zero():
    q, k, v = make_qkv(4, M=2, N=5, D=8, device=DEVICE)
    k, v = (x[:1].expand(4, -1, -1) for x in (k, v))
    assert_attention(basic_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scores_of_ten_thousand(dtype):
    q, k, v = make_qkv(M=3, N=33, D=64, dtype=dtype, device=DEVICE)
    q = q / q.norm(dim=-1, keepdim=True) * 300
    k = k / k.norm(dim=-1, keepdim=True) * 300
    assert ((q.double() @ k.double().mT).abs().max() * 1.0) > 1e4
    assert_attention(basic_attention(q, k, v, scale=1.0), q, k, v, scale=1.0)


@pytest.mark.numerical
@pytest.mark.parametrize("scale", [None, 1.0, 0.3, -0.5, 2])
def test_scale(scale):
    q, k, v = make_qkv(M=3, N=7, D=16, device=DEVICE)
    assert_attention(basic_attention(q, k, v, scale=scale), q, k, v, scale=scale)


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


def test_zero_scores_give_the_mean():
    _, k, v = make_qkv(M=2, N=11, D=16, device=DEVICE)
    out = basic_attention(torch.zeros_like(k[:2]), k, v)
    torch.testing.assert_close(out, v.mean(0).expand(2, -1))


@pytest.mark.skipif(ON_GPU, reason="the GPU grid runs its own large case")
def test_offsets_beyond_32_bits():
    """Row 1 of k lies 2^31 elements after row 0: a 32-bit offset would wrap around."""
    far = 2**31 + 16
    memory = torch.from_numpy(np.empty(far + 64, dtype=np.float16))  # reserved, never touched
    rows = torch.as_strided(memory, (2, 16), (far, 1))
    q, k, _ = make_qkv(N=2, D=16, dtype=torch.float16)
    rows.copy_(k)
    for tensors in ((q, rows, rows), (rows, k, k), (q[:, :2], rows.T[:2], rows.T[:2])):
        assert_attention(basic_attention(*tensors), *tensors)


def test_inputs_stay_as_they_were():
    tensors = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    before = [x.clone() for x in tensors]
    basic_attention(*tensors)
    assert all(torch.equal(x, y) for x, y in zip(tensors, before, strict=True))


def qkv(**changes):
    """Valid arguments with some replaced."""
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    return {"q": q, "k": k, "v": v} | changes


def ones(*shape, **options):
    return torch.ones(*shape, device=DEVICE, **options)


REFUSED = {
    "not a tensor": (lambda: qkv(k=[1.0]), TypeError, "k is a list"),
    "float64": (lambda: qkv(q=ones(2, 3, 8).double()), TypeError, "q is torch.float64; float16"),
    "integers": (lambda: qkv(v=ones(2, 5, 8).int()), TypeError, "v is torch.int32"),
    "two dtypes": (lambda: qkv(k=ones(2, 5, 8).half()), TypeError, "k is torch.float16 but q"),
    "two devices": (lambda: qkv(k=torch.ones(2, 5, 8, device="meta")), ValueError, "k is on meta"),
    "wrong device": (
        lambda: {n: torch.ones(2, 5, 8, device="meta") for n in "qkv"},
        ValueError,
        "needs a GPU",
    ),
    "one dimension": (lambda: qkv(q=ones(8)), ValueError, "q has shape (8,); 2 to 4"),
    "five dimensions": (lambda: qkv(q=ones(1, 1, 2, 3, 8)), ValueError, "2 to 4 dimensions"),
    "no query": (lambda: qkv(q=ones(2, 0, 8)), ValueError, "q has shape (2, 0, 8); no dimension"),
    "no key": (lambda: qkv(k=ones(2, 0, 8)), ValueError, "k has shape (2, 0, 8); no dimension"),
    "no batch": (lambda: qkv(q=ones(0, 3, 8)), ValueError, "no dimension may be 0"),
    "other heads": (lambda: qkv(k=ones(3, 5, 8)), ValueError, "asks for (2, 'N', 8)"),
    "other rank": (lambda: qkv(k=ones(5, 8)), ValueError, "k has shape (5, 8); q"),
    "other head dimension": (lambda: qkv(k=ones(2, 5, 9)), ValueError, "k has shape (2, 5, 9)"),
    "v unlike k": (lambda: qkv(v=ones(2, 4, 8)), ValueError, "v has shape (2, 4, 8); it must"),
    "wide head": (lambda: {n: ones(2, 1025) for n in "qkv"}, ValueError, "at most 1024"),
    "many keys": (
        lambda: {"q": ones(2, 8)} | {n: ones(16_385, 8) for n in "kv"},
        ValueError,
        "16385 keys",
    ),
    "many programs": (
        lambda: {"q": ones(1, 1).expand(2**31, 1)} | {n: ones(1, 1) for n in "kv"},
        ValueError,
        "at most 2147483647 rows",
    ),
    "gradient": (lambda: qkv(v=ones(2, 5, 8, requires_grad=True)), ValueError, "v requires grad"),
    "scale a string": (lambda: qkv(scale="1"), TypeError, "scale is a str"),
    "scale a bool": (lambda: qkv(scale=True), TypeError, "scale is a bool"),
    "scale not finite": (lambda: qkv(scale=math.nan), ValueError, "scale is nan"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, monkeypatch):
    arguments, error, message = REFUSED[case]
    arguments = arguments()
    monkeypatch.setattr(kernel, "_basic_attention_kernel", None)  # a launch would be a TypeError
    with pytest.raises(error) as caught:
        basic_attention(**arguments)
    assert message in str(caught.value)


def test_gradient_is_allowed_where_none_is_recorded():
    q, k, v = make_qkv(M=2, N=3, D=8, device=DEVICE)
    with torch.no_grad():
        assert_attention(basic_attention(q.requires_grad_(), k, v), q, k, v)


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
def test_cpu_without_the_interpreter_says_what_to_do(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        basic_attention(**qkv())


def test_the_file_runs_alone(tmp_path):
    copy = tmp_path / "kernel.py"
    copy.write_bytes(Path(kernel.__file__).read_bytes())
    done = subprocess.run(
        [sys.executable, "kernel.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "q (2, 4, 16, 64)" in done.stdout
    assert "\nOK\n" in done.stdout


@pytest.mark.numerical
@pytest.mark.parametrize("M", [1, 2, 3])
def test_exercise_serves_two_queries(M):
    q, k, v = make_qkv(2, M=M, N=9, D=12, device=DEVICE)
    assert_attention(exercise.basic_attention(q, k, v), q, k, v)
