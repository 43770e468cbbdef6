"""The three kernels, attention composed of them, and the PyTorch op: against float64."""

import math
import re
import sys
from contextlib import contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_attention,
    eager_attention,
    make_qkv,
)
from snippets.composed_attention import bench, exercise, kernel
from snippets.composed_attention.bench import assert_matmul, assert_softmax, assert_transpose
from snippets.composed_attention.kernel import composed_attention
from snippets.composed_attention.op import composed_attention_op
from snippets.composed_attention.parts import matmul, softmax, transpose
from tests.floors import some
from tests.posts import test_launchers as contract
from tests.refusals import assert_refused, each_refusal

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129]
# The interpreter takes milliseconds a program: there every size is met once as M and once as N.
PAIRS = [
    (M, N)
    for i, M in enumerate(AWKWARD)
    for j, N in enumerate(AWKWARD)
    if ON_GPU or (3 * i + j) % 7 == 2
]
STEPS = ["_transpose_kernel", "_matmul_kernel", "_softmax_kernel", "_matmul_kernel"]
KERNELS = set(STEPS)
the_op = torch.ops.attention_measured.composed_attention


def randn(*shape, dtype=torch.float32, seed=0, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator) * spread).to(DEVICE, dtype)


@contextmanager
def launches():
    """The names of the Triton kernels launched in the block, in order; compiled or interpreted."""
    names = []

    def counting(run):
        def wrapper(kernel, *args, **kwargs):
            names.append(kernel.fn.__name__)
            return run(kernel, *args, **kwargs)

        return wrapper

    with (
        patch.object(InterpretedFunction, "run", counting(InterpretedFunction.run)),
        patch.object(JITFunction, "run", counting(JITFunction.run)),
    ):
        yield names


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (16, 16), (1, 200), (130, 3), (2, 3, 70, 9)], ids=str)
def test_transpose(shape, dtype):
    x = randn(*shape, dtype=dtype)
    assert_transpose(transpose(x), x)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("M", "K", "N"),
    [(16, 16, 16), (1, 1, 1), (1, 130, 65), (127, 15, 2), (129, 64, 63), (65, 300, 129)],
)
def test_matmul(M, K, N, dtype):
    a, b = randn(M, K, dtype=dtype), randn(K, N, dtype=dtype, seed=1)
    assert_matmul(matmul(a, b), a, b)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("N", [1, 2, 16, 63, 65, 129, 1000, 4096, 5000])
def test_softmax(N, dtype):
    x = randn(5, N, dtype=dtype, spread=3.0)
    assert_softmax(softmax(x), x)


@pytest.mark.numerical
@pytest.mark.parametrize("N", [16_384, 16_385, 32_768])
def test_softmax_of_the_longest_rows(N):
    x = randn(2, N, spread=3.0)
    assert_softmax(softmax(x), x)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_softmax_of_large_numbers(dtype):
    x = randn(3, 40, dtype=dtype, spread=1e4)
    x[0, 1:] = -math.inf  # all the weight on one
    assert_softmax(softmax(x), x)


@pytest.mark.numerical
def test_parts_of_vectors_and_batches():
    assert_softmax(softmax(randn(9)), randn(9))
    for leading in ((3,), (2, 3)):
        a, b = randn(*leading, 5, 20), randn(*leading, 20, 70, seed=1)
        assert_matmul(matmul(a, b), a, b)
        assert_softmax(softmax(a), a)
        assert_transpose(transpose(a), a)


@pytest.mark.numerical
def test_parts_of_any_strides():
    whole = randn(2, 2, 6, 30)
    for a in (whole.mT, whole[:, :, ::2, 1::3], whole[:1].expand(2, -1, -1, -1)):
        assert_transpose(transpose(a), a)
        assert_softmax(softmax(a), a)
        b = randn(2, 2, 67, a.shape[-1], seed=1).mT
        assert not a.is_contiguous()
        assert_matmul(matmul(a, b), a, b)


TILES = [(t, d) for d in DTYPES[:2] for t in kernel.TENSOR_CORE_TILES]
TILES += [(t, torch.float32) for t in kernel.FLOAT32_TILES]


@pytest.mark.numerical
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize(("tile", "dtype"), TILES, ids=str)
def test_every_tile(tile, dtype, even, monkeypatch):
    monkeypatch.setattr(kernel, "TENSOR_CORE_TILES", (tile,))
    monkeypatch.setattr(kernel, "FLOAT32_TILES", (tile,))
    # Two tiles each way, one of them almost empty; and one that is full everywhere.
    more = 0 if even else 2
    M, N, K = tile.BLOCK_M + more, tile.BLOCK_N + more, 2 * tile.BLOCK_K - more
    a, b = randn(M, K, dtype=dtype), randn(N, K, dtype=dtype, seed=1).mT
    b = b.contiguous() if even else b
    assert_matmul(matmul(a, b), a, b)


def test_every_tile_is_chosen_by_some_size():
    half, single = torch.empty(1, dtype=torch.float16), torch.empty(1)
    sizes = {  # (matrices, M, N, K, tensor) → (BLOCK_M, BLOCK_N, num_stages)
        (1, 4096, 4096, 4096, half): (128, 256, 3),
        (1, 1536, 1536, 1536, half): (128, 128, 3),
        (16, 4096, 4096, 128, half): (128, 128, 2),  # two steps along K need no third stage
        (16, 4096, 4096, 64, half): (128, 64, 1),  # a short sum: several programs at a time
        (1, 1024, 1024, 1024, half): (128, 64, 4),
        (1, 768, 768, 768, half): (64, 64, 4),
        (1, 1, 4096, 64, half): (16, 64, 1),
        (1, 4096, 4096, 4096, single): (128, 128, 3),
        (1, 1024, 1024, 64, single): (64, 64, 3),
        (128, 1, 64, 16, single): (16, 64, 1),
    }
    for size, want in sizes.items():
        tile = kernel._choose_tile(*size)
        assert (tile.BLOCK_M, tile.BLOCK_N, tile.num_stages) == want
    chosen = {kernel._choose_tile(*size)[:3] for size in sizes}
    assert chosen == {t[:3] for t in kernel.TENSOR_CORE_TILES + kernel.FLOAT32_TILES}


@pytest.mark.numerical
def test_groups_of_tiles_that_do_not_fill():
    """The walk over the tiles goes down 8 tile rows at a time: 11 leave a lower group."""
    a, b = randn(11 * 16, 16, dtype=torch.float16), randn(16, 130, dtype=torch.float16, seed=1)
    assert_matmul(matmul(a, b), a, b)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("M", "N"), PAIRS)
def test_equals_float64(M, N, dtype):
    q, k, v = make_qkv(M=M, N=N, D=40, dtype=dtype, device=DEVICE, seed=1)
    assert_attention(composed_attention(q, k, v), q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize(("M", "N", "D"), [(16, 16, 16), (1, 16, 16), (33, 2000, 64)])
def test_equals_numpy(M, N, D):
    q, k, v = make_qkv(M=M, N=N, D=D, device=DEVICE, spread=1.0)
    a, b, c = (x.cpu().numpy().astype(np.float64) for x in (q, k, v))
    weights = np.exp(a @ b.T - (a @ b.T).max(axis=1, keepdims=True))
    want = weights / weights.sum(axis=1, keepdims=True) @ c
    out = composed_attention(q, k, v, scale=1.0)  # without 1/√D
    error = np.abs(out.cpu().numpy() - want).max()
    if not error < 64 * 2**-23 * np.abs(want).max():  # scores up to 64 in float32
        raise NumericalMismatch(f"largest difference {error:.2e} from NumPy's float64")


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_query_as_a_vector(dtype):
    q, k, v = make_qkv(M=1, N=70, D=48, dtype=dtype, device=DEVICE)
    out = composed_attention(q[0], k, v)
    assert out.shape == (48,)
    assert_attention(out[None], q, k, v)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_any_strides(dtype):
    tensors = make_qkv(2, 2, M=2, N=5, D=16, dtype=dtype, device=DEVICE)
    transposed = [x.mT.contiguous().mT for x in tensors]
    beside_each_other = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in tensors]
    one_key_for_all = [tensors[0], *(x[:, :1].expand(-1, 2, -1, -1) for x in tensors[1:])]
    slices = [x.repeat(1, 1, 2, 2)[:, :, 1::2, 3:19] for x in tensors]
    for q, k, v in (transposed, beside_each_other, one_key_for_all, slices):
        assert not k.is_contiguous()
        assert_attention(composed_attention(q, k, v), q, k, v)
        assert_attention(exercise.composed_attention(q, k, v), q, k, v)


@pytest.mark.skipif(ON_GPU, reason="reserves memory that it never touches: a CPU's privilege")
def test_offsets_beyond_32_bits():
    """Row 1 lies 2^31 elements after row 0: a 32-bit offset would wrap around."""
    far = 2**31 + 16
    memory = torch.from_numpy(np.empty(far + 64, dtype=np.float16))
    rows = torch.as_strided(memory, (2, 16), (far, 1))
    q, k, _ = make_qkv(N=2, D=16, dtype=torch.float16)
    rows.copy_(k)
    for x in (rows, rows.T, rows[:, None]):
        assert_transpose(transpose(x), x)
        assert_softmax(softmax(x), x)
    assert_matmul(matmul(rows, k.T), rows, k.T)
    assert_matmul(matmul(q, rows.T), q, rows.T)


@pytest.mark.skipif(ON_GPU, reason="stores are recorded in the interpreter")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_each_launch_stores_what_the_formula_says(dtype):
    lab = SimpleNamespace(each=lambda **axes: [{"dtype": str(dtype)[6:], "D": 64, "N": 128}])
    rows = list(bench.memory_traffic(lab))
    assert [row["step"] for row in rows] == list(bench.STEPS)
    for row in rows:
        assert row["bytes_stored_recorded"] == row["bytes_stored"] > 0
        assert row["bytes_moved"] > row["bytes_stored"]


def test_the_steps_that_are_timed_are_one_call():
    q, k, v = make_qkv(3, M=17, N=33, D=16, device=DEVICE)
    work = bench.steps(q, k, v)
    assert list(work) == list(bench.STEPS)
    with launches() as names:
        for step in work.values():
            out = step.call()
    assert names == STEPS
    assert_attention(out, q, k, v)
    assert sum(step.bytes_compulsory for step in work.values()) == 4 * (17 + 2 * 33) * 16 * 3
    assert sum(step.flops for step in work.values()) == 4 * 3 * 17 * 33 * 16


def test_four_launches_and_two_temporaries():
    q, k, v = make_qkv(2, M=33, N=70, D=16, dtype=torch.float16, device=DEVICE)
    made = []
    empty = torch.Tensor.new_empty

    def remembered(*arguments, **options):
        out = empty(*arguments, **options)
        if sys._getframe(1).f_code is composed_attention.__code__:  # not the interpreter
            made.append(out)
        return out

    with launches() as names, patch.object(torch.Tensor, "new_empty", remembered):
        out = composed_attention(q, k, v)
    assert names == STEPS
    assert [(tuple(x.shape), x.dtype) for x in made] == [
        ((1, 2, 16, 70), torch.float16),
        ((1, 2, 33, 16), torch.float16),
        ((1, 2, 33, 70), torch.float32),
    ]
    assert out.data_ptr() == made[1].data_ptr()


@pytest.mark.skipif(not ON_GPU, reason="measures the memory of a GPU")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_peak_memory_is_two_temporaries_and_the_result(dtype):
    q, k, v = make_qkv(M=1024, N=2048, D=64, dtype=dtype, device=DEVICE)
    composed_attention(q, k, v)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    composed_attention(q, k, v)
    asked = 4 * 1024 * 2048 + q.element_size() * (2048 * 64 + 1024 * 64)
    assert asked <= torch.cuda.max_memory_allocated() - before <= asked + 3 * 512  # its granularity


def qkv(**changes):
    """Valid arguments with some replaced."""
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    return {"q": q, "k": k, "v": v} | changes


def ones(*shape, **options):
    return torch.ones(*shape, device=DEVICE, **options)


def meta(*shape):
    return torch.ones(*shape, device="meta")


CASES = contract.asked("composed_attention")
# What the op never sees, or sees otherwise: its schema, the dispatcher and autograd come before.
BEFORE = r"a dense|\{dense|quint8|a number or|\{needs|requires grad|negated|is 0;|is 10{38}"
OF_THE_OP = [said for said in CASES if not re.search(BEFORE, said)]
OF_ITS_OWN = {
    ValueError: {
        "k has shape (8,); allowed with q: ('N', 8)": {"q": ones(8), "k": ones(8)},
        "q asks for rows of 32769; allowed: at most 32768": (
            {"q": ones(2, 8)} | dict.fromkeys("kv", ones(32_769, 8))
        ),
        "2147483648 programs; allowed: at most 2147483647": (
            {"q": ones(1, 1).expand(2**31, 1)} | dict.fromkeys("kv", ones(1, 1))
        ),
    }
}
OF_PARTS = {
    TypeError: {
        "x is torch.float64": (transpose, ones(3, 3).double()),
        "b is torch.float16 on": (matmul, ones(2, 3), ones(3, 2).half()),
    },
    ValueError: {
        "x has shape (3,); allowed: 2 to 4": (transpose, ones(3)),
        "x asks for 2147483648 programs": (transpose, ones(1, 1).expand(2**31, 1)),
        "x is on meta; allowed: a GPU": (transpose, meta(3, 3)),
        "x is on meta": (softmax, meta(3, 3)),
        "x has shape (3, 0); allowed: 1": (softmax, ones(3, 0)),
        "x has shape (); allowed: 1 to 4 dimensions": (softmax, ones(())),
        "x asks for rows of 32769; allowed: at most 32768": (softmax, ones(32_769)),
        "b has shape (2, 3); allowed with a: (3, 3)": (matmul, ones(2, 3), ones(2, 3)),
        "allowed with a: (2, 3, 2)": (matmul, ones(2, 2, 3), ones(1, 3, 2)),
        "b requires grad": (matmul, ones(2, 3), ones(3, 2, requires_grad=True)),
    },
}


@pytest.fixture
def no_launch(monkeypatch):
    """A launch is a TypeError: what is refused is refused before it."""
    for name in KERNELS:
        monkeypatch.setattr(kernel, name, None)


@contract.with_odd_tensors
@pytest.mark.parametrize("case", CASES)
def test_refusals_of_the_exercise(case, no_launch):
    given, error = contract.refused("composed_attention", case)
    assert_refused(error, exercise.composed_attention, **given)


@pytest.mark.parametrize("attention", [composed_attention, exercise.composed_attention])
@each_refusal(OF_ITS_OWN)
def test_refusals(attention, error, change, no_launch):
    assert_refused(error, attention, **qkv(**change))


@each_refusal(OF_PARTS)
def test_refusals_of_the_parts(error, change, no_launch):
    assert_refused(error, *change)


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
def test_parts_on_a_cpu_without_the_interpreter_say_what_to_do(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        softmax(ones(3))


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exercise_needs_no_transpose(dtype):
    q, k, v = make_qkv(2, M=17, N=70, D=40, dtype=dtype, device=DEVICE)
    with launches() as names:
        out = exercise.composed_attention(q, k, v)
    assert names == STEPS[1:]
    assert_attention(out, q, k, v)
    assert exercise.composed_attention(q[0, 0], k[0], v[0]).shape == (40,)


def test_which_implementation_ran():
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    with launches() as names:
        out = the_op(q, k, v)
    assert_attention(out, q, k, v)
    assert names == (STEPS if ON_GPU else [])  # Triton on a GPU, plain PyTorch on a CPU
    assert_attention(composed_attention_op(q, k, v), q, k, v)
    with launches() as names:
        out = composed_attention(q, k, v)
    assert_attention(out, q, k, v)
    assert names == STEPS  # always Triton


def test_the_op_on_a_cpu_needs_no_interpreter(monkeypatch, no_launch):
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    for dtype in DTYPES:
        q, k, v = make_qkv(2, 3, M=4, N=65, D=40, dtype=dtype)
        assert_attention(the_op(q, k, v), q, k, v)
        assert_attention(the_op(q, k, v, 0.3), q, k, v, scale=0.3)
        assert the_op(q[0, 0, 0], k[0, 0], v[0, 0]).shape == (40,)


@contract.with_odd_tensors
@pytest.mark.parametrize("case", OF_THE_OP)
def test_refusals_of_the_op(case, no_launch):
    given, error = contract.refused("composed_attention", case)
    assert_refused(error, the_op, **given)


def test_opcheck():
    for requires_grad in (False, True):
        q, k, v = (x.requires_grad_(requires_grad) for x in qkv().values())
        torch.library.opcheck(the_op, (q, k, v), {"scale": 0.5} if requires_grad else {})


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", [None, 0.7])
def test_backward(dtype, scale):
    inputs = make_qkv(2, M=5, N=9, D=12, dtype=dtype, device=DEVICE)
    weight = randn(2, 5, 12, seed=1, dtype=dtype)

    def gradients(attention, tensors):
        tensors = [x.detach().clone().requires_grad_() for x in tensors]
        out = attention(*tensors, scale=scale)
        return torch.autograd.grad(out, tensors, weight.to(out.dtype))

    want = gradients(eager_attention, [x.double() for x in inputs])
    pytorch = gradients(eager_attention, inputs)
    for ours, theirs, exact in some(zip(gradients(the_op, inputs), pytorch, want, strict=True)):
        assert ours.dtype == dtype
        assert exact.abs().max() > 0.1
        rounding = (torch.finfo(dtype).eps + 64 * 2**-23) * exact.abs().max()
        allowed = 2 * (theirs.double() - exact).abs().max() + rounding
        assert (ours.double() - exact).abs().max() <= allowed


def test_autocast_leaves_products_in_float32():
    tensors = [x.requires_grad_() for x in make_qkv(2, M=3, N=9, D=12, device=DEVICE)]
    want = torch.autograd.grad(the_op(*tensors).sum(), tensors)
    with torch.autocast(DEVICE, torch.bfloat16):
        found = torch.autograd.grad(the_op(*tensors).sum(), tensors)
    for ours, exact in some(zip(found, want, strict=True)):
        assert torch.equal(ours, exact)


def test_backward_of_a_vector():
    q, k, v = (x.requires_grad_() for x in make_qkv(M=1, N=9, D=12, device=DEVICE))
    (from_vector,) = torch.autograd.grad(the_op(q[0], k, v).sum(), q)
    (from_matrix,) = torch.autograd.grad(the_op(q, k, v).sum(), q)
    torch.testing.assert_close(from_vector, from_matrix)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_without_a_graph_break(backend):
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: the_op(q, k, v), fullgraph=True, backend=backend)
    with launches() as names:
        assert_attention(compiled(q, k, v), q, k, v)
    assert names == (STEPS if ON_GPU else [])
    if backend == "aot_eager":
        compiled(q.requires_grad_(), k, v).sum().backward()
        assert q.grad is not None


class Block(torch.nn.Module):
    def forward(self, q, k, v):
        return the_op(q, k, v) * 2


def test_export_with_any_length():
    q, k, v = make_qkv(2, M=3, N=5, D=8, device=DEVICE)
    M, N = torch.export.Dim("M"), torch.export.Dim("N")
    shapes = {"q": {1: M}, "k": {1: N}, "v": {1: N}}
    exported = torch.export.export(Block(), (q, k, v), dynamic_shapes=shapes)
    calls = [node.target for node in exported.graph.nodes if node.op == "call_function"]
    assert calls == [the_op.default, torch.ops.aten.mul.Tensor], "opaque: nothing of its inside"
    q, k, v = make_qkv(2, M=7, N=9, D=8, device=DEVICE)
    assert_attention(exported.module()(q, k, v) / 2, q, k, v)


@torch.library.triton_op("attention_measured_tests::visible_softmax", mutates_args=())
def visible_softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    launch = torch.library.wrap_triton(kernel._softmax_kernel)[(len(x),)]
    strides = (0, 0, *x.stride(), 0, 0, *out.stride())
    launch(x, out, *strides, H=1, M=len(x), N=x.shape[1], BLOCK_N=16)
    return out


@pytest.mark.skipif(ON_GPU, reason="a GPU's kernels can be traced")
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor:UserWarning")
def test_a_visible_op_computes_in_the_interpreter_and_cannot_be_traced_there():
    """Why the op of this room is opaque."""
    x = randn(3, 9)
    assert_softmax(visible_softmax(x), x)
    with FakeTensorMode() as mode, pytest.raises(RuntimeError, match="storage"):
        visible_softmax(mode.from_tensor(x))


# What the page says of the compiled softmax.


@pytest.mark.compiler
def test_a_load_is_wide_where_the_row_length_is_a_multiple_of_16(compiler):
    """5000 and 8184 are not, though their rows begin at multiples of 16 bytes as well."""
    assert all(columns * 4 % 16 == 0 for columns in (5000, 5008, 8184, 8192))
    for columns, numbers in ((5000, 1), (5008, 4), (8184, 1), (8192, 4)):
        x = torch.ones(2, columns, device=DEVICE)
        (found,) = compiler.resources(softmax, (x,), target="sm_90")
        assert found.error is None
        assert bench.numbers_a_load(found.ptx) == numbers, columns


def test_loads_of_two_widths_have_no_one_width():
    narrow, wide = "ld.global.b32 {%r1}", "ld.global.L1::evict_last.v4.b32 {%r1}"
    assert [bench.numbers_a_load(ptx) for ptx in (narrow, wide)] == [1, 4]
    for ptx in (narrow + wide, "st.global.b32"):
        with pytest.raises(ValueError, match="values to unpack"):
            bench.numbers_a_load(ptx)
