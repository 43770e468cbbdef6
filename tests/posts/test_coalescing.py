"""The strided copy and the sums of lines against PyTorch; their addresses; and what they refuse."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from snippets.coalescing import bench, exercise, kernel
from snippets.coalescing.checks import assert_copied, assert_sums
from snippets.coalescing.kernel import coalescing, line_sums
from tests.refusals import assert_refused

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
AWKWARD = [1, 2, 63, 64, 65, 127, 129, 1_023, 1_024, 1_025, 5_000]


def draw(*shape, dtype=torch.float32, seed=0):
    """Reproducible N(0, 1), the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(DEVICE, dtype)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3, 8, 31, 32, 6_000])
@pytest.mark.parametrize("L", AWKWARD)
def test_copies_every_stride_th_element(L, stride, dtype):
    x = draw(L, dtype=dtype)
    assert_copied(coalescing(x, stride=stride), x[::stride])


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("length", AWKWARD)
def test_sums_equal_float64(length, dim, dtype):
    x = draw(3, length, dtype=dtype)
    x = x if dim == 1 else x.T.contiguous()
    assert_sums(line_sums(x, dim=dim), x, dim=dim)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_that_cancel(dim, dtype):
    """The result is almost nothing beside what is added: sums that are not float32 show."""
    x = draw(2, 2_500, dtype=dtype)
    x = torch.cat([x, -x.roll(7, dims=1)], dim=1)
    x = x if dim == 1 else x.T.contiguous()
    assert_sums(line_sums(x, dim=dim), x, dim=dim)


@pytest.mark.numerical
def test_copies_of_views():
    x = draw(6_001)
    for view in (x[::2], x[1:], x[5:4_000:3], x[:1].expand(1_100), x.view(17, -1)[:, 3]):
        for stride in (1, 3):
            assert_copied(coalescing(view, stride=stride), view[::stride])


@pytest.mark.numerical
@pytest.mark.parametrize("dim", [0, 1])
def test_sums_of_views(dim):
    x = draw(12, 70)
    for view in (x[::2], x[:, 1::3], x.T, x[3:, 7:], x[:1].expand(5, -1), x[:, :1].expand(-1, 9)):
        assert_sums(line_sums(view, dim=dim), view, dim=dim)


@pytest.mark.numerical
def test_every_value_arrives_as_it_is():
    x = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 6e-8, 65_504.0], device=DEVICE)
    for dtype in DTYPES:
        assert_copied(coalescing(x.to(dtype), stride=1), x.to(dtype))
    assert coalescing(torch.full([3], float("nan"), device=DEVICE), stride=2).isnan().all()


@pytest.mark.numerical
@given(
    L=st.integers(1, 4_000),
    stride=st.integers(1, 70),
    step=st.integers(1, 3),
    first=st.integers(0, 3),
    dtype=st.sampled_from(DTYPES),
)
def test_any_copy(L, stride, step, first, dtype):
    x = draw(first + L * step, dtype=dtype)[first::step]
    assert_copied(coalescing(x, stride=stride), x[::stride])


@pytest.mark.numerical
@given(
    M=st.integers(1, 12),
    N=st.integers(1, 12),
    long=st.sampled_from([1, 90, 110]),
    transposed=st.booleans(),
    dtype=st.sampled_from(DTYPES),
)
def test_any_sums(M, N, long, transposed, dtype):
    x = draw(M, N * long, dtype=dtype)
    dim = 1
    if transposed:
        x, dim = x.T, 0
    assert_sums(line_sums(x, dim=dim), x, dim=dim)
    lines = x.T if dim else x
    assert_sums(exercise.column_sums(lines), lines, dim=0, block=exercise.BLOCK_M)


@pytest.mark.skipif(ON_GPU, reason="the large case needs only address space on a CPU")
def test_offsets_beyond_32_bits():
    """Elements lie more than 2^31 apart: a 32-bit offset would wrap around."""
    far = 2**31 + 16
    memory = torch.from_numpy(np.empty(far + 8, dtype=np.float16))  # reserved, never touched
    memory[:4], memory[far : far + 4] = 1, 2
    assert_copied(coalescing(memory, stride=far), torch.tensor([1, 2], dtype=torch.float16))
    matrix = torch.as_strided(memory, (2, 4), (far, 1))
    assert_sums(line_sums(matrix, dim=1), matrix, dim=1)
    assert_sums(line_sums(matrix, dim=0), matrix, dim=0)
    assert_sums(exercise.column_sums(matrix), matrix, dim=0, block=exercise.BLOCK_M)


def test_inputs_stay_as_they_were():
    x = draw(40, 30)
    before = x.clone()
    coalescing(x[0], stride=3)
    line_sums(x, dim=0)
    exercise.column_sums(x)
    assert torch.equal(x, before)


def ones(*shape, **options):
    return torch.ones(*shape, **{"device": DEVICE} | options)


REFUSED = {
    "not a tensor": ([1.0], {"stride": 1}, TypeError("x is <class 'list'>")),
    "float64": (ones(4).double(), {"stride": 1}, TypeError("x is torch.float64; allowed: (")),
    "a matrix": (ones(4, 4), {"stride": 1}, ValueError("x has shape (4, 4); allowed: rank 1")),
    "gradient": (ones(4, requires_grad=True), {"stride": 1}, ValueError("x requires grad")),
    "wrong device": (ones(4, device="meta"), {"stride": 1}, ValueError("x is on meta")),
    "stride 0": (ones(4), {"stride": 0}, ValueError("stride is 0; allowed: 1 or more")),
    "stride a bool": (ones(4), {"stride": True}, TypeError("stride is True")),
    "sums of a vector": (ones(4), {"dim": 0}, ValueError("x has shape (4,); allowed: rank 2")),
    "dim 2": (ones(2, 2), {"dim": 2}, ValueError("dim is 2; allowed: 0 (columns), 1 (rows)")),
    "dim None": (ones(2, 2), {"dim": None}, TypeError("dim is None; allowed: an integer")),
    "sparse": (ones(4).to_sparse(), {"stride": 1}, TypeError("x is torch.sparse_coo")),
    "negated": (torch._neg_view(ones(4)), {"stride": 1}, ValueError("x.resolve_neg()")),
    "many rows": (ones(1, 1).expand(2**31, 1), {"dim": 1}, ValueError("at most 2147483647")),
    "many columns": (ones(1, 1).expand(1, 2**31), {"dim": 0}, ValueError("2147483648 lines")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, monkeypatch):
    x, arguments, error = REFUSED[case]
    for name in ("_coalescing_kernel", "_line_sums_kernel"):
        monkeypatch.setattr(kernel, name, None)  # a launch would be a TypeError
    assert_refused(error, coalescing if "stride" in arguments else line_sums, x, **arguments)


def test_an_integer_of_numpy_is_a_number():
    x = draw(50)
    assert_copied(coalescing(x, stride=np.int64(3)), x[::3])
    matrix = ones(3, 4)
    assert line_sums(matrix, dim=np.int32(1)).tolist() == [4, 4, 4]


def test_gradient_is_allowed_where_none_is_recorded():
    x = draw(5).requires_grad_()
    with torch.no_grad():
        assert_copied(coalescing(x, stride=2), x[::2])


@pytest.mark.skipif(ON_GPU, reason="needs a machine without a GPU")
def test_cpu_without_the_interpreter_says_what_to_do(monkeypatch):
    monkeypatch.setattr(kernel, "INTERPRETED", False)
    with pytest.raises(ValueError, match="TRITON_INTERPRET=1"):
        coalescing(draw(4), stride=1)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (127, 31), (128, 32), (129, 33), (5, 100), (1_030, 3)])
def test_exercise_sums_columns_by_tiles(shape, dtype):
    x = draw(*shape, dtype=dtype)
    assert_sums(exercise.column_sums(x), x, dim=0, block=exercise.BLOCK_M)
    assert_sums(exercise.column_sums(x.T), x.T, dim=0, block=exercise.BLOCK_M)


@pytest.mark.skipif(ON_GPU, reason="addresses are recorded in the interpreter")
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("stride", [1, 2, 3, 8, 9, 16, 32])
def test_counted_sectors_are_those_of_the_recorded_addresses(stride, dtype):
    from snippets._lab.probe.memory_trace import record

    n = 1_100  # two programs
    x = ones(n * stride, dtype=dtype)
    with record({"x": x}, keep_addresses=True) as trace:
        coalescing(x, stride=stride)
    touched = set()
    for load in (a for a in trace.accesses if a.operation == "load"):
        for request in bench._requests(load, x):
            touched |= bench._touched(request)
    counted = bench._bytes_of_sectors(n, stride, x.element_size())
    assert len(touched) * bench.SECTOR == counted


def test_requests_start_where_the_memory_starts():
    """The second element of a tensor is not the first of a sector."""
    if ON_GPU:
        pytest.skip("addresses are recorded in the interpreter")
    from snippets._lab.probe.memory_trace import record

    for first, sectors in ((0, 4), (1, 5), (8, 4)):
        x = ones(64)[first : first + 32]
        with record({"x": x}, keep_addresses=True) as trace:
            coalescing(x, stride=1)
        (request,) = bench._requests(trace.accesses[0], x)
        assert len(bench._touched(request)) == sectors


# What the page says of lanes, read from the compiled kernels.


def instructions(ptx, kind):
    """How many loads or stores a thread has, and the bytes of each: all must be alike."""
    found = re.findall(rf"\b{kind}\.global(?:\.v(\d))?\.b(\d+)", ptx)
    (width,) = {int(vector or 1) * int(bits) // 8 for vector, bits in found}
    return len(found), width


@pytest.mark.compiler
@pytest.mark.parametrize(("dtype", "suffix"), [(torch.float32, ""), (torch.float16, ".U16")])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_lane_has_one_element_and_the_next_lies_a_program_further(
    compiled, stride, dtype, suffix
):
    """Eight scalar loads and stores a thread; its stores lie 128 elements, a thread each, apart."""
    x = torch.zeros(65_536, dtype=dtype, device=DEVICE)
    (found,) = compiled(coalescing, x, stride=stride)
    sass = found.sass()
    assert re.findall(r"\b(LDG|STG)\.E(\S*)", sass) == [("LDG", suffix)] * 8 + [("STG", suffix)] * 8
    stores = re.findall(r"STG\S* desc\S+\[R\d+\.64(?:\+(0x\w+))?\]", sass)
    apart = {int(at or "0", 16) for at in stores}
    assert apart <= {128 * dtype.itemsize * i for i in range(8)}
    assert len(apart) >= 6, "the last one or two may have a register of their own"


@pytest.mark.compiler
def test_left_alone_triton_gives_a_lane_neighbors(compiled):
    """Four of them, in one load at stride 1; at stride 2 a request touches all 32 sectors."""
    for stride, loads in ((1, (2, 16)), (2, (8, 4))):
        x = torch.zeros(65_536, device=DEVICE)
        (found,) = compiled(bench._several_a_lane(), x, stride=stride)
        assert instructions(found.ptx, "st") == (2, 16)
        assert instructions(found.ptx, "ld") == loads


@pytest.mark.compiler
def test_rows_and_columns_are_added_by_the_same_instructions(compiled):
    matrix = torch.zeros(256, 256, device=DEVICE)
    (rows,), (columns,) = (compiled(line_sums, matrix, dim=dim) for dim in (1, 0))
    assert rows.ptx == columns.ptx
    assert instructions(rows.ptx, "ld") == (8, 4)


@pytest.mark.compiler
def test_the_exercise_deals_one_element_to_a_lane(compiled):
    (found,) = compiled(exercise.column_sums, torch.zeros(256, 256, device=DEVICE))
    assert instructions(found.ptx, "ld") == (32, 4)
