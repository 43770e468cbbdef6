"""What compiled kernels need, against kernels whose needs are known."""

import re
import runpy
from unittest.mock import patch

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from snippets._lab.probe.compiled import SHARED_LIMIT, Compiler, from_loaded
from snippets._lab.rooms import load
from snippets.basic_attention.kernel import basic_attention
from tests.floors import some

pytestmark = pytest.mark.compiler

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@triton.jit
def _copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


@triton.jit
def _dot_kernel(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + rows * BLOCK + columns)
    y = tl.load(y_ptr + rows * BLOCK + columns)
    tl.store(out_ptr + rows * BLOCK + columns, tl.dot(x, y))


@triton.jit
def _softmax_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """One program holds a whole row on chip from its maximum to its store."""
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    weights = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + offs, weights / tl.sum(weights, axis=0))


@triton.jit
def _narrow_dot_kernel(x_ptr, out_ptr):
    """A product over 8 columns: tl.dot wants at least 16."""
    rows = tl.arange(0, 16)[:, None]
    x = tl.load(x_ptr + rows * 8 + tl.arange(0, 8)[None, :])
    tl.store(out_ptr + rows * 16 + tl.arange(0, 16)[None, :], tl.dot(x, tl.trans(x)))


def copy(x, *, n=None, block=256, num_warps=4):
    out = torch.empty_like(x)
    _copy_kernel[(triton.cdiv(x.numel(), block),)](
        x, out, n or x.numel(), BLOCK=block, num_warps=num_warps
    )
    return out


def dot(x, y):
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    _dot_kernel[(1,)](x, y, out, BLOCK=x.shape[0])
    return out


def copy_then_dot(x, y):
    return dot(copy(x), y)


def softmax(x):
    out = torch.empty_like(x)
    _softmax_kernel[(1,)](x, out, BLOCK=x.numel())
    return out


def narrow_dot(x):
    out = torch.empty(16, 16, device=x.device)
    _narrow_dot_kernel[(1,)](x, out)
    return out


@pytest.fixture(scope="module")
def compiler():
    with Compiler() as compiler:
        yield compiler


def tile(block, dtype=torch.float16):
    return torch.ones(block, block, dtype=dtype, device=DEVICE)


def test_a_copy_needs_few_registers_and_nothing_else(compiler):
    x = torch.arange(1000.0, device=DEVICE)
    (found,) = compiler.resources(copy, (x,), {"num_warps": 2}, target="sm_90")
    assert (found.kernel, found.target, found.num_warps) == ("_copy_kernel", "sm_90", 2)
    assert 4 < found.registers < 64
    assert found.spill_store_bytes == found.spill_load_bytes == found.stack_bytes == 0
    assert found.shared_bytes == 0
    assert found.tensor_core == "none"
    assert found.error is None
    assert 0 < found.compile_seconds < 20


def test_the_launch_does_not_happen(compiler, monkeypatch):
    results = []
    monkeypatch.setattr(
        torch, "empty_like", lambda x: results.append(torch.zeros_like(x)) or results[0]
    )
    compiler.resources(copy, (torch.ones(8, device=DEVICE),), target="sm_90")
    assert not results[0].any()


def test_arguments_reach_the_compiler_as_a_launch_would_give_them(compiler):
    """Triton specializes on 16-byte alignment and on integers divisible by 16."""
    x = torch.ones(1025, device=DEVICE)

    def wide(**case):
        (found,) = compiler.resources(copy, (case.pop("x"),), case, target="sm_90")
        return re.search(r"ld\.global\S*\.v4\.b32", found.ptx) is not None

    assert wide(x=x, n=1024, block=512)
    assert not wide(x=x, n=1023, block=512)
    assert not wide(x=x[1:], n=1024, block=512)


def test_a_row_larger_than_the_register_file_spills(compiler):
    row = torch.ones(32_768, device=DEVICE)  # over 128 threads: 256 values each, of 255 registers
    (found,) = compiler.resources(softmax, (row,), target="sm_90")
    (fits,) = compiler.resources(softmax, (row[:8192],), target="sm_90")
    assert fits.spill_store_bytes == fits.spill_load_bytes == fits.stack_bytes == 0
    assert 8192 / 128 < fits.registers < found.registers
    assert found.spill_store_bytes > 0
    assert found.spill_load_bytes > 0
    assert found.stack_bytes > 0


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("sm_75", "none"),
        ("sm_80", "mma"),
        ("sm_89", "mma"),
        ("sm_90", "wgmma"),
        ("sm_100", "tcgen05"),
    ],
)
def test_the_tensor_core_instruction_of_each_target(compiler, target, name):
    (found,) = compiler.resources(dot, (tile(64), tile(64)), target=target)
    assert found.error is None
    assert (found.target, found.tensor_core) == (target, name)
    assert ("MMA" in found.sass()) == (name != "none")
    assert found.shared_bytes > 0


def test_ptxas_and_the_cubin_agree(compiler):
    spilling = compiler.resources(softmax, (torch.ones(32_768, device=DEVICE),), target="sm_80")
    small = compiler.resources(copy, (torch.ones(64, device=DEVICE),), target="sm_80")
    for found in some((*spilling, *small)):
        usage = dict(re.findall(r"(\w+):(\d+)", found.sass("--dump-resource-usage")))
        assert int(usage["REG"]) == found.registers
        assert int(usage["STACK"]) == found.stack_bytes
    assert spilling[0].stack_bytes > small[0].stack_bytes


def test_each_kernel_of_a_launcher_is_described_in_order(compiler):
    found = [
        compiler.resources(copy_then_dot, (tile(size), tile(size)), target="sm_80")
        for size in (32, 64)
    ]
    assert [[r.kernel for r in case] for case in found] == [["_copy_kernel", "_dot_kernel"]] * 2
    assert found[0][1].shared_bytes < found[1][1].shared_bytes


def test_shared_memory_beyond_the_target_is_an_error_with_the_numbers(compiler):
    x = tile(128, torch.float32)  # two tiles of 64 KiB pass 99 KiB
    (found,) = compiler.resources(dot, (x, x), target="sm_89")
    limit = SHARED_LIMIT["sm_89"]
    assert found.shared_bytes > limit
    assert found.error == (
        f"needs {found.shared_bytes} bytes of shared memory; sm_89 allows {limit}"
    )


def test_a_kernel_that_does_not_compile_says_why_in_one_line(compiler):
    x = torch.ones(16, 8, dtype=torch.float16, device=DEVICE)
    (found,) = compiler.resources(narrow_dot, (x,), target="sm_80")
    assert "Input shapes should have" in found.error
    assert "\n" not in found.error
    assert found.registers is found.shared_bytes is found.compile_seconds is None
    with pytest.raises(ValueError, match="no cubin"):
        found.sass()


def test_a_changed_file_is_compiled_as_it_is_now(compiler, tmp_path):
    file = tmp_path / "room.py"
    source = """
import torch, triton
import triton.language as tl

@triton.jit
def _fill_kernel(out_ptr):
    tl.store(out_ptr, 1234)

def fill():
    _fill_kernel[(1,)](torch.empty(1, dtype=torch.int32))
"""
    for number in ("1234", "4321"):
        file.write_text(source.replace("1234", number))
        namespace = runpy.run_path(str(file), run_name="room")
        (found,) = compiler.resources(namespace["fill"], (), target="sm_90")
        assert re.search(rf"\b{number}\b", found.ptx)


def kept(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("_copy_kernel.cubin"))


def test_a_kernel_may_be_kept_in_tritons_own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    x = torch.empty(64, device=DEVICE)
    with Compiler(60) as apart:
        apart.resources(copy, (x,), target="sm_90")
    assert kept(tmp_path) == []
    for _ in range(2):  # compiled again, and kept at the same place
        with Compiler(60, keeps=True) as keeping:
            (found,) = keeping.resources(copy, (x,), target="sm_90")
        assert len(kept(tmp_path)) == 1
        assert found.compile_seconds > 0.01


@pytest.mark.skipif(DEVICE == "cpu", reason="a launch needs a GPU")
def test_a_launch_finds_what_was_compiled_ahead_of_time(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    capability = "".join(map(str, torch.cuda.get_device_capability()))
    x = torch.empty(64, device=DEVICE)
    with Compiler(60, keeps=True) as keeping:
        keeping.resources(copy, (x,), target=f"sm_{capability}")
    before = kept(tmp_path)
    copy(x)
    assert kept(tmp_path) == before


def test_a_kernel_inside_a_function_is_refused(compiler):
    @triton.jit
    def _inner_kernel(x_ptr):
        tl.store(x_ptr, 1.0)

    with pytest.raises(ValueError, match="not at the top level"):
        compiler.resources(_inner_kernel[(1,)], (torch.ones(1, device=DEVICE),), target="sm_90")


def test_a_capped_kernel_is_recorded_as_such_and_the_next_one_compiles():
    with Compiler(cap_seconds=0.01) as compiler:
        (capped,) = compiler.resources(copy, (torch.ones(8, device=DEVICE),), target="sm_90")
        assert capped.error == "> 0.01 s"
        assert capped.kernel == "_copy_kernel"
        assert capped.registers is capped.compile_seconds is None
        compiler._cap_seconds = 20.0
        (found,) = compiler.resources(copy, (torch.ones(8, device=DEVICE),), target="sm_90")
        assert found.error is None
        assert found.registers > 0


@pytest.mark.parametrize("room", ["flash_attention", "hopper_backward"])
def test_a_kernel_that_its_launcher_keeps_is_recorded_too(compiler, room, monkeypatch):
    """Launched instead, it would read at the addresses of tensors that are on no GPU."""

    class Kept(dict):
        def get(self, key):
            return self.setdefault(key)

    module, kept = load(room, "kernel"), Kept()
    monkeypatch.setattr(module, "_compiled", kept)
    monkeypatch.setattr(module, "_refusals", lambda *_: ())  # hopper_backward's, of a CPU
    x = torch.zeros(1, 2, 128, 64, dtype=torch.float16, device=DEVICE)
    given = (x, x, x) if room == "flash_attention" else (x, x, x, x, x[..., 0].float(), x)
    with patch.object(InterpretedFunction, "run"), patch.object(JITFunction, "run"):
        getattr(module, room)(*given)
    assert kept
    kept.update(dict.fromkeys(kept, "a kernel, which is launched"))
    assert compiler.launches(getattr(module, room), given, target="sm_90")


def test_what_cannot_be_described_is_refused(compiler):
    x = torch.ones(8, device=DEVICE)
    with pytest.raises(ValueError, match="target is 'sm_91'"):
        compiler.resources(copy, (x,), target="sm_91")
    with pytest.raises(RuntimeError, match="launched no kernel"):
        compiler.resources(torch.relu, (x,), target="sm_90")
    long = torch.ones(1, 2048, device=DEVICE)
    with pytest.raises(ValueError, match="at most 1024"):  # the launcher's own refusal
        compiler.resources(basic_attention, (long, long, long), target="sm_90")
    if DEVICE == "cpu":
        with pytest.raises(RuntimeError, match="no compiled kernel was launched"):
            from_loaded(copy, x)
