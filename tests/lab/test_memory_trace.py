"""The recorder of loads and stores, against counts done by hand."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.probe.memory_trace import Total, record
from snippets.basic_attention.kernel import basic_attention

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="needs the interpreter")
HOOKED = (
    (InterpretedFunction, "run"),
    (InterpreterBuilder, "set_grid_dim"),
    (InterpreterBuilder, "create_masked_load"),
    (InterpreterBuilder, "create_masked_store"),
    (InterpreterBuilder, "create_atomic_rmw"),
    (InterpreterBuilder, "create_atomic_cas"),
    (InterpreterBuilder, "create_select"),
)


@triton.jit
def _add_kernel(x_ptr, y_ptr, out_ptr, n, step, BLOCK: tl.constexpr):
    """out[i] = x[i * step] + y[i], BLOCK elements a program."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs * step, mask=mask, other=0.0)
    y = tl.load(y_ptr + offs, mask=mask, other=0.0)
    tl.store(out_ptr + offs, x + y, mask=mask)


@triton.jit
def _unmasked_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def _scalar_kernel(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr))


@triton.jit
def _column_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """Copy a block of pointers [BLOCK, 2] down two columns: rows are 64 elements apart."""
    rows = tl.arange(0, BLOCK)[:, None]
    columns = tl.arange(0, 2)[None, :]
    tl.store(out_ptr + rows * 2 + columns, tl.load(x_ptr + rows * 64 + columns))


@triton.jit
def _atomic_kernel(x_ptr, count_ptr, lock_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.atomic_add(x_ptr + offs, 1.0, mask=offs < 3)
    tl.atomic_add(count_ptr, 1)
    tl.atomic_cas(lock_ptr, 0, 1)


@triton.jit
def _descriptor_kernel(x_desc, out_ptr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = x_desc.load([tl.program_id(0) * ROWS, 0])
    rows = tl.arange(0, ROWS)[:, None]
    tl.store(out_ptr + rows * COLUMNS + tl.arange(0, COLUMNS)[None, :], tile)


@triton.jit
def _idle_kernel(x_ptr):
    tl.program_id(0)


@triton.jit
def _failing_kernel(x_ptr):
    tl.load(x_ptr)
    tl.static_assert(False)


@pytest.fixture(autouse=True)
def _hooks_are_put_back():
    before = [getattr(owner, name) for owner, name in HOOKED]
    yield
    assert [getattr(owner, name) for owner, name in HOOKED] == before


def add(x, y, *, step=1, block=8):
    out = torch.empty_like(y)
    _add_kernel[(triton.cdiv(y.numel(), block),)](x, y, out, y.numel(), step, BLOCK=block)
    return out


def test_counts_by_hand_with_a_masked_tail():
    x, y = torch.randn(13), torch.randn(13)
    with record({"x": x, "y": y}) as trace:
        assert torch.equal(add(x, y), x + y)
    # Two programs of 8 lanes for 13 elements: 8 active, then 5 active and 3 masked. 8 float32 are
    # one sector; so are 5.
    each = Total(instructions=2, elements=13, bytes=52, sectors=2)
    assert trace.total("load", tensor="x") == each
    assert trace.total("load", tensor="y") == each
    assert trace.total("store", tensor="out") == each
    assert trace.total("load") == Total(4, 26, 104, 4)
    assert trace.total("atomic") == Total(0, 0, 0, 0)
    assert [(a.operation, a.tensor) for a in trace.accesses[:3]] == [
        ("load", "x"),
        ("load", "y"),
        ("store", "out"),
    ]
    assert [launch.grid for launch in trace.launches] == [(2, 1, 1)]


@pytest.mark.parametrize(("step", "sectors"), [(1, 1), (2, 2), (4, 4), (8, 8), (16, 8)])
def test_a_stride_costs_sectors_but_not_bytes(step, sectors):
    # 8 float32, `step` elements apart: 8 · 4 · step bytes apart at most one sector each.
    x, y = torch.randn(8 * step), torch.randn(8)
    with record({"x": x, "y": y}) as trace:
        add(x, y, step=step)
    assert trace.total("load", tensor="x") == Total(1, 8, 32, sectors)


@pytest.mark.parametrize(
    ("dtype", "sectors"), [(torch.float32, 2), (torch.float16, 1), (torch.float64, 4)]
)
def test_bytes_and_sectors_follow_the_dtype(dtype, sectors):
    x, y = torch.ones(16, dtype=dtype), torch.ones(16, dtype=dtype)
    with record({"x": x}) as trace:
        add(x, y, block=16)
    assert trace.total("load", tensor="x") == Total(1, 16, 16 * x.element_size(), sectors)


def test_a_two_dimensional_block_keeps_its_shape_and_offsets():
    x = torch.randn(4, 64)
    with record({"x": x}, keep_addresses=True) as trace:
        _column_kernel[(1,)](x, torch.empty(4, 2), BLOCK=4)
    load, store = trace.accesses
    assert load.offsets.tolist() == [[0, 4], [256, 260], [512, 516], [768, 772]]
    assert (load.sectors, load.bytes) == (4, 32)
    assert store.offsets.tolist() == [[0, 4], [8, 12], [16, 20], [24, 28]]
    assert store.sectors == 1


def test_a_read_past_the_end_is_other():
    storage = torch.zeros(16)
    x = storage[:5]
    with record({"x": x}) as trace:
        _unmasked_kernel[(1,)](x, torch.empty(8), BLOCK=8)
    assert trace.total("load", tensor="x").elements == 5
    assert trace.total("load", tensor="other").elements == 3


def test_an_instruction_may_touch_two_tensors():
    x, y = torch.zeros(16)[:5], torch.zeros(8)
    with record({"x": x, "y": y}) as trace:
        _add_kernel[(1,)](x, y, torch.empty(8), 7, 1, BLOCK=8)
    assert trace.total("load", tensor="x") == Total(1, 5, 20, 1)
    assert trace.total("load", tensor="other") == Total(1, 2, 8, 1)


def test_slices_of_one_packed_tensor_are_told_apart():
    packed = torch.randn(4, 3, 8)  # rows of q, k and v side by side: address ranges overlap
    q, k, v = packed.unbind(1)
    with record({"q": q, "k": k, "v": v}) as trace:
        basic_attention(q, k, v)
    # Each of 4 programs reads its query row, then 4 key rows and 4 value rows, of 8 elements.
    assert trace.total("load", tensor="q").elements == 4 * 8
    assert trace.total("load", tensor="k").elements == 4 * 4 * 8
    assert trace.total("load", tensor="v").elements == 4 * 4 * 8
    assert trace.total("load", tensor="other").elements == 0


def test_a_transposed_tensor_is_recognized_everywhere():
    q, k = torch.randn(2, 8), torch.randn(8, 5).mT
    v = torch.randn(5, 8)
    with record({"q": q, "k": k, "v": v}) as trace:
        basic_attention(q, k, v)
    # 8 elements 20 bytes apart: 144 bytes from the first byte to the last element, 5 sectors.
    assert trace.total("load", tensor="k") == Total(2 * 5, 2 * 5 * 8, 2 * 5 * 32, 2 * 5 * 5)
    assert trace.total("load", tensor="other").elements == 0


def test_basic_attention_reads_two_rows_for_each_key():
    M, N, D = 3, 5, 8
    q, k, v = torch.randn(M, D), torch.randn(N, D), torch.randn(N, D)
    with record({"q": q, "k": k, "v": v}) as trace:
        basic_attention(q, k, v)
    name = "_basic_attention_kernel"
    assert trace.per_program() == [(name, (m, 0, 0)) for m in range(M)]
    assert trace.total("load").instructions == M * (2 * N + 1)
    assert trace.total("load").bytes == M * (2 * N + 1) * D * 4
    # Two `tl.where` for each key, over the 8 slots that hold 5 scores, and one for the row.
    assert trace.selected_elements == M * (2 * N * 8 + 1)
    assert trace.total("store", tensor="out").elements == M * D


def test_atomics():
    x, count, lock = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(1).int()
    with record({"x": x}) as trace:
        _atomic_kernel[(2,)](x, count, lock, BLOCK=4)
    assert trace.total("atomic", tensor="x") == Total(2, 6, 24, 2)
    assert trace.total("atomic", tensor="count") == Total(2, 2, 8, 2)
    assert trace.total("atomic", tensor="lock") == Total(2, 2, 8, 2)
    assert (x[:3] == 2).all()
    assert count.item() == 2


@pytest.mark.parametrize("names", [lambda x: {"x": x}, lambda x: None], ids=["named", "learned"])
def test_descriptor_loads_are_seen_with_their_bounds(names):
    x = torch.randn(6, 16)
    with record(names(x)) as trace:
        _descriptor_kernel[(2,)](
            TensorDescriptor.from_tensor(x, [4, 16]), torch.empty(4, 16), ROWS=4, COLUMNS=16
        )
    # Six rows in tiles of four: the second program's last two rows are outside.
    assert trace.total("load", tensor="x") == Total(2, 96, 384, 12)


def test_several_kernels_and_launches_are_kept_apart():
    x, middle = torch.randn(8), torch.empty(8)
    with record({"x": x}) as trace:
        _unmasked_kernel[(1,)](x, middle, BLOCK=8)
        _add_kernel[(1,)](middle, x, torch.empty(8), 8, 1, BLOCK=8)
        _idle_kernel[(2, 1, 3)](x)
    # `middle` got its name from the first kernel that was given it.
    assert trace.total("load", tensor="out").elements == 8
    names = ["_unmasked_kernel", "_add_kernel", *["_idle_kernel"] * 6]
    assert [kernel for kernel, _ in trace.per_program()] == names


def test_hooks_are_put_back_after_an_exception_in_the_kernel():
    with pytest.raises(Exception, match="AssertionError"), record() as trace:
        _failing_kernel[(1,)](torch.randn(1))
    assert trace.total("load").instructions == 1
    with record() as trace:  # and the next recording works
        _scalar_kernel[(1,)](torch.randn(1), torch.empty(1))
    assert len(trace.accesses) == 2


def test_an_empty_recording_is_refused():
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"), record():
        pass
    with pytest.raises(RuntimeError, match="none loaded or stored"), record():
        _idle_kernel[(1,)](torch.randn(1))


def test_tensors_the_interpreter_would_copy_are_refused():
    with (
        pytest.raises(ValueError, match="x is on meta"),
        record({"x": torch.empty(1, device="meta")}),
    ):
        pytest.fail("the block ran")
