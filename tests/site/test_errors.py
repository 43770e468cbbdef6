"""The snippets of docs/reference/errors.md: each fails as its page says, and its fix does not.

The page includes the sections by name, so what a reader sees is what ran here.
"""

import json

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from snippets._lab.rooms import ROOT
from snippets.flash_attention.kernel import flash_attention
from tests.apart import printed, python
from tests.floors import some

F = torch.nn.functional
ON_GPU = torch.cuda.is_available()
H100_SHARED = 232_448  # bytes of shared memory that a program can have
PAGE = ROOT / "docs/reference/errors.md"
PRODUCT = """
# --8<-- [start:product]
@triton.jit
def product(x_ptr, y_ptr, out_ptr, PRECISION: tl.constexpr):
    offs = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    x, y = tl.load(x_ptr + offs), tl.load(y_ptr + offs)  # float32
    tl.store(out_ptr + offs, tl.dot(x, y, input_precision=PRECISION))
# --8<-- [end:product]
"""


@pytest.fixture
def qkv(device):
    return [torch.randn(2, 3, n, 64, device=device, dtype=torch.float16) for n in (5, 7, 7)]


def exact(q, k, v):
    weights = torch.softmax(q.double() @ k.double().mT / q.shape[-1] ** 0.5, dim=-1)
    return weights @ v.double()


# Numbers that are wrong.


@triton.jit
def sum_of_rows(x_ptr, out_ptr, stride, D, BLOCK_D: tl.constexpr, MASKED: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK_D)  # BLOCK_D is a power of two: 128 for D = 80
    mask = offs < (D if MASKED else BLOCK_D)
    x = tl.load(x_ptr + row * stride + offs, mask=mask, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def test_a_head_of_eighty_columns_needs_a_mask(device):
    x = torch.ones(4, 256, device=device)[:, :80]  # rows of 80 numbers, 256 apart
    for masked, right in ((False, False), (True, True)):
        out = torch.empty(4, device=device)
        sum_of_rows[(4,)](x, out, x.stride(0), 80, BLOCK_D=128, MASKED=masked)
        assert bool((out == 80).all()) is right


def test_flash_attention_pads_a_head_of_eighty_columns(device):
    q, k, v = (torch.randn(1, 2, 33, 80, device=device, dtype=torch.float16) for _ in range(3))
    error = (flash_attention(q, k, v).double() - exact(q, k, v)).abs().max()
    assert error < 5e-3


def test_a_missing_key_needs_a_score_of_minus_infinity():
    # --8<-- [start:padded_keys]
    scores = torch.tensor([1.0, 2.0, 3.0])  # three keys, in a tile of four
    with_zero = torch.softmax(F.pad(scores, (0, 1), value=0.0), dim=0)
    with_inf = torch.softmax(F.pad(scores, (0, 1), value=float("-inf")), dim=0)
    # --8<-- [end:padded_keys]
    assert with_zero[3] > 0.03, "a key that does not exist has a weight"
    assert not torch.allclose(with_zero[:3], torch.softmax(scores, dim=0), atol=1e-2)
    torch.testing.assert_close(with_inf[:3], torch.softmax(scores, dim=0))
    assert with_inf[3] == 0


def test_a_causal_mask_has_two_corners():
    q, k, v = torch.randn(1, 1, 2, 8), torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8)
    # --8<-- [start:corner]
    first = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # query 0 sees key 0
    visible = torch.ones(2, 4, dtype=torch.bool).tril(diagonal=4 - 2)  # query 0 sees keys 0 to 2
    last = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    # --8<-- [end:corner]
    torch.testing.assert_close(first[..., 0, :], v[..., 0, :])
    assert not torch.allclose(first, last, atol=1e-2)
    torch.testing.assert_close(last[..., 1, :], exact(q, k, v)[..., 1, :].float())


def test_strides_are_part_of_a_tensor(device, qkv):
    q, k, v = qkv
    # --8<-- [start:strides]
    k_t = k.mT.contiguous().mT  # the same numbers, columns first in memory
    assert torch.equal(k_t, k)
    assert k_t.stride() != k.stride()
    # --8<-- [end:strides]
    as_if = k_t.as_strided(k.shape, k.stride())  # what a kernel without strides reads
    assert not torch.allclose(exact(q, as_if, v), exact(q, k, v), atol=1e-2)
    torch.testing.assert_close(exact(q, k_t, v), exact(q, k, v))


def test_offsets_pass_the_largest_int():
    # --8<-- [start:offsets]
    row, stride = torch.tensor([40_000, 65_536], dtype=torch.int32)
    wrong = row * stride
    right = row.to(torch.int64) * stride
    # --8<-- [end:offsets]
    assert wrong.item() == -1_673_527_296
    assert right.item() == 2_621_440_000 > 2**31


@pytest.mark.compiler
@pytest.mark.parametrize(("precision", "rounds"), [("tf32", True), ("ieee", False)])
def test_tf32_is_what_a_product_of_float32_compiles_to_unless_told(tmp_path, precision, rounds):
    program = f"""
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
{PRODUCT}
signature = {{"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "PRECISION": "constexpr"}}
source = ASTSource(product, signature, constexprs={{"PRECISION": {precision!r}}})
print(triton.compile(source, target=GPUTarget("cuda", 80, 32)).asm["ptx"])
"""
    (tmp_path / "product.py").write_text(program)
    changes = {"TRITON_INTERPRET": 0, "TRITON_CACHE_DIR": tmp_path}
    ptx = printed(tmp_path / "product.py", seconds=120, **changes)
    assert "st.global" in ptx
    assert (".tf32.tf32" in ptx) is rounds


# NaN and infinity.


def test_a_softmax_overflows_unless_its_maximum_is_subtracted():
    # --8<-- [start:overflow]
    scores = torch.tensor([90.0, 100.0])
    wrong = scores.exp() / scores.exp().sum()  # e^90 is more than float32 holds
    shifted = (scores - scores.max()).exp()
    right = shifted / shifted.sum()
    # --8<-- [end:overflow]
    assert wrong.isnan().any()
    torch.testing.assert_close(right, torch.softmax(scores, dim=0))


def test_a_row_without_a_visible_key_is_nan_unless_told_otherwise():
    # --8<-- [start:empty_row]
    scores = torch.full([4], float("-inf"))  # every key is masked
    wrong = (scores - scores.max()).exp()  # -inf - (-inf) is NaN
    largest = scores.max()
    right = (scores - (0.0 if largest == float("-inf") else largest)).exp()
    # --8<-- [end:empty_row]
    assert wrong.isnan().all()
    assert (right == 0).all()


# What is refused.


def test_one_rounding_where_there_were_two():
    # --8<-- [start:fused]
    score, scale = torch.tensor(1.7e12), torch.tensor(1.4426950)  # float32
    largest = score * scale  # rounded
    exponent = score.double() * scale.double() - largest.double()  # as one instruction has it
    assert torch.exp2(score * scale - largest) == 1
    assert torch.exp2(exponent.float()) == torch.inf
    # --8<-- [end:fused]


def test_an_arange_is_a_power_of_two(device):
    @triton.jit
    def copy(x_ptr, out_ptr, D: tl.constexpr):
        offs = tl.arange(0, D)  # D = 80: "arange's range must be a power of 2"
        tl.store(out_ptr + offs, tl.load(x_ptr + offs))

    x = torch.randn(128, device=device)
    with pytest.raises(Exception, match="power of 2"):
        copy[(1,)](x, torch.empty_like(x), D=80)
    out = torch.empty_like(x)
    copy[(1,)](x, out, D=128)
    assert torch.equal(out, x)


@triton.jit
def small_dot(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    BLOCK: tl.constexpr = 16 if FIXED else 8
    offs = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + offs)
    tl.store(out_ptr + offs, tl.dot(x, x))


@triton.jit
def carried(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    offs = tl.arange(0, 16)
    total = tl.zeros([16], tl.float32) if FIXED else 0.0  # the type that the loop gives it, or not
    for i in range(n):
        total += tl.load(x_ptr + i * 16 + offs)
    tl.store(out_ptr + offs, total)


@triton.jit
def chained(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    offs = tl.arange(0, 16) - 4
    if FIXED:
        mask = (offs >= 0) & (offs < n)
    else:
        mask = 0 <= offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def and_of_tiles(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    offs = tl.arange(0, 16) - 4
    if FIXED:
        mask = (offs >= 0) & (offs < n)
    else:
        mask = (offs >= 0) and (offs < n)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


# --8<-- [start:plain_global]
EPSILON = 1e-6
RIGHT_EPSILON = tl.constexpr(1e-6)


@triton.jit
def plain_global(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    offs = tl.arange(0, 16)
    epsilon = RIGHT_EPSILON if FIXED else EPSILON
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + epsilon)
    # --8<-- [end:plain_global]


@triton.jit
def break_out(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    total, i = 0.0, 0
    if FIXED:
        while i < n and total < 3:  # two numbers: here `and` is right
            total += tl.load(x_ptr + i)
            i += 1
    else:
        for i in range(n):
            if total >= 3:
                break
            total += tl.load(x_ptr + i)
    tl.store(out_ptr, total)


@triton.jit
def runtime_shape(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    offs = tl.arange(0, 16 if FIXED else n)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


# Kernel → what Triton's compiler says of it until it is fixed, and whether it refuses it.
SAID = {
    "small_dot": ("Input shapes should have M >= 1, N >= 1 and K >= 16", True),
    "carried": ("Loop-carried variable total has initial type fp32 but is re-assigned to", True),
    "chained": ("simultaneous multiple comparison is not supported", True),
    "and_of_tiles": ("Logical operators 'and' and 'or' are deprecated for non-scalar", False),
    "plain_global": ("Cannot access global variable EPSILON from within @jit'ed function", True),
    "break_out": ("unsupported AST node type: Break", True),
    "runtime_shape": ("arange's arguments must be of type tl.constexpr", True),
}
ASK = """
import json, warnings
from tests.site import test_errors as here
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

def said(name, fixed):
    function = getattr(here, name)
    types = ["constexpr" if p.is_constexpr else "*fp32" if "_ptr" in p.name else "i32"
             for p in function.params]
    source = ASTSource(function, dict(zip(function.arg_names, types)), {"FIXED": fixed})
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
        except Exception as error:
            while error.__cause__:
                error = error.__cause__
            return str(error), True
    return " ".join(str(w.message) for w in warned), False, made.metadata.shared

names = [*here.SAID, "shared_memory"]
print(json.dumps({name: [said(name, fixed) for fixed in (False, True)] for name in names}))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What Triton's compiler says of each kernel above, as it is and fixed; no GPU is needed."""
    folder = tmp_path_factory.mktemp("compiled")
    return json.loads(printed("-c", ASK, TRITON_INTERPRET=0, TRITON_CACHE_DIR=folder))


@pytest.mark.parametrize("name", SAID)
def test_what_the_compiler_says_of_a_kernel_and_of_the_fixed_one(name, answers):
    (wrong, refused, *_), fixed = answers[name]
    words, refuses = SAID[name]
    assert words in wrong
    assert refused is refuses
    assert fixed[:2] == ["", False]


@pytest.mark.skipif(ON_GPU, reason="the interpreter's part; a GPU compiles")
@pytest.mark.parametrize("name", [name for name in SAID if name != "runtime_shape"])
def test_the_interpreter_runs_what_the_compiler_refuses(name):
    """And ends right or wrong: in `0 <= offs < n` and in `and` it drops the first half."""
    x = torch.arange(300.0)
    found = []
    for fixed in (False, True):
        out = torch.zeros(300)
        globals()[name][(1,)](x[4:], out[4:], 8, FIXED=fixed)
        found.append(out)
    same = torch.equal(*found)
    assert same is (name not in ("small_dot", "chained", "and_of_tiles"))
    if name in ("chained", "and_of_tiles"):
        assert (found[0][1:4] != 0).all()
        assert (found[1][:4] == 0).all()


@triton.jit
def shared_memory(x_ptr, out_ptr, n, FIXED: tl.constexpr):
    STAGES: tl.constexpr = 2 if FIXED else 16  # tiles of 16 KiB, so many in flight
    rows, columns = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :]
    total = tl.zeros([64, 64], tl.float32)
    for k in tl.range(0, n, 64, num_stages=STAGES):
        x = tl.load(x_ptr + rows * n + k + columns)
        total = tl.dot(x, x.T, total)
    tl.store(out_ptr + rows * 64 + columns, total)


def test_too_many_tiles_in_flight_need_more_shared_memory_than_there_is(answers):
    wrong, fixed = (answers["shared_memory"][i][2] for i in (False, True))
    assert (wrong, fixed) == (16 * 64 * 64 * 4, 2 * 64 * 64 * 4)
    assert fixed < H100_SHARED < wrong
    said = str(OutOfResources(wrong, H100_SHARED, "shared memory"))
    assert "out of resource: shared memory, Required: 262144, Hardware limit: 232448" in said
    if ON_GPU:
        x = torch.ones(64, 64, device="cuda")
        with pytest.raises(OutOfResources, match="out of resource: shared memory, Required"):
            shared_memory[(1,)](x, torch.empty_like(x), 64, FIXED=False)


def test_a_descriptor_needs_addresses_of_sixteen_bytes(device):
    # --8<-- [start:descriptor]
    x = torch.zeros(64, 80, device=device, dtype=torch.float16)
    tile = [16, 64]
    with pytest.raises(AssertionError, match="base must be 16-byte aligned"):
        TensorDescriptor.from_tensor(x[:, 1:65], tile)  # begins 2 bytes after x
    with pytest.raises(AssertionError, match="strides must be 16-byte aligned"):
        TensorDescriptor.from_tensor(x[:, :75].contiguous(), tile)  # rows of 150 bytes
    TensorDescriptor.from_tensor(x[:, 8:72], tile)
    # --8<-- [end:descriptor]


def test_a_long_axis_of_the_grid_is_the_first():
    # --8<-- [start:grid]
    heads, tiles = 70_000, 4
    wrong = (tiles, heads)  # axes 1 and 2 end at 65,535
    right = (tiles * heads,)  # axis 0 ends at 2³¹ - 1; in the kernel: pid % tiles, pid // tiles
    # --8<-- [end:grid]
    assert wrong[1] > 65_535
    if not ON_GPU:
        pytest.skip("a driver's limit: the interpreter has none")
    x = torch.zeros(300, device="cuda")
    with pytest.raises(RuntimeError, match=r"Triton Error \[CUDA\]: invalid argument"):
        plain_global[wrong](x, x, 8, FIXED=True)
    plain_global[right](x, x, 8, FIXED=True)
    torch.cuda.synchronize()


@pytest.mark.skipif(not ON_GPU, reason="a GPU's: elsewhere such an address ends the process")
def test_an_address_that_nobody_owns_ends_all_later_calls_too():
    # --8<-- [start:illegal]
    call = """
import torch, triton, triton.language as tl

@triton.jit
def far(x_ptr, n):
    tl.store(x_ptr + n, 1.0)

x = torch.zeros(16, device="cuda")
far[(1,)](x, 2**30)  # 4 GiB past x; the launch itself says nothing
torch.cuda.synchronize()  # "an illegal memory access was encountered"
"""
    # --8<-- [end:illegal]
    assert "an illegal memory access was encountered" in python("-c", call).stderr


def test_the_gradient_of_a_sum_has_strides_of_zero():
    # --8<-- [start:grad_out]
    seen = []
    x = torch.randn(3, 4, requires_grad=True)
    for loss in (lambda y: y.sum(), lambda y: torch.cat([y.T, x.T]).norm()):
        y = x * 2  # think of a kernel with a backward of its own
        y.register_hook(lambda grad_out: seen.append(grad_out.stride()))
        loss(y).backward()
    assert seen == [(0, 0), (1, 3)]  # y's own strides are (4, 1)
    # --8<-- [end:grad_out]


def test_no_mask_does_not_mean_a_causal_one(qkv):
    q, k, v = qkv
    # --8<-- [start:cache]
    cache = [F.pad(x, (0, 0, 0, 9)) for x in (k, v)]  # 7 keys and values, room for 9 more
    guessed = flash_attention(q, *cache, causal=True)  # "no mask came, so it is causal"
    seen = torch.arange(16, device=q.device) < torch.arange(3, 8, device=q.device)[:, None]
    right = F.scaled_dot_product_attention(q, *cache, attn_mask=seen)  # by each query's place
    # --8<-- [end:cache]
    want = flash_attention(q, k, v, causal=True)
    torch.testing.assert_close(right, want, atol=5e-3, rtol=0)
    assert (guessed - want).abs().max() > 0.1


def test_a_dimension_of_vmap_is_a_leading_dimension(qkv):
    q, k, v = qkv
    # --8<-- [start:vmap]
    several = q.repeat(5, 1, 1, 1, 1)  # [5, B, H, M, D]
    with pytest.raises(TypeError, match=r"torch.func cannot see into a kernel"):
        torch.vmap(lambda q: flash_attention(q, k, v))(several)
    folded = [x.repeat(5, 1, 1, 1) for x in (k, v)]  # [5 · B, H, N, D]
    out = flash_attention(several.flatten(0, 1), *folded).unflatten(0, (5, -1))
    # --8<-- [end:vmap]
    assert torch.equal(out[3], flash_attention(q, k, v))


def test_a_tensor_that_requires_grad_is_refused(qkv):
    q, k, v = qkv
    # --8<-- [start:grad]
    q.requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        flash_attention(q, k, v)
    with torch.no_grad():  # to measure, or to generate
        out = flash_attention(q, k, v)
    trained = F.scaled_dot_product_attention(q, k, v)  # has a backward pass
    # --8<-- [end:grad]
    assert (out.double() - exact(q.detach(), k, v)).abs().max() < 5e-3
    assert trained.requires_grad


def test_a_gpu_is_missing_and_the_interpreter_was_not_switched_on():
    # --8<-- [start:interpreter]
    call = """
import torch
from snippets.basic_attention.kernel import basic_attention

q = k = v = torch.randn(1, 1, 4, 16)
basic_attention(q, k, v)
"""
    # --8<-- [end:interpreter]
    for switched, said in (("0", "TRITON_INTERPRET=1"), ("1", "")):
        done = python("-c", call, TRITON_INTERPRET=switched)
        assert said in done.stderr
        assert (done.returncode == 0) is (switched == "1"), done.stderr[-1000:]


def test_a_bound_of_a_loop_is_an_array_of_one_element():
    # --8<-- [start:bound]
    stop = np.array([4], dtype=np.int32)  # a loop's bound, as Triton 3.6's interpreter keeps it
    with pytest.raises(TypeError, match="only 0-dimensional arrays"):
        range(int(stop))
    range(int(stop[0]))  # as Triton 3.7 does
    # --8<-- [end:bound]
    assert tuple(map(int, np.__version__.split(".")[:2])) >= (2, 4)


# The page.


def test_each_symptom_names_its_test_and_each_of_these_tests_is_named():
    text = PAGE.read_text("utf-8")
    symptoms = text.split("\n### ")[1:]
    assert len(symptoms) >= 12
    for symptom in symptoms:
        title = symptom.splitlines()[0]
        assert "**Why.**" in symptom, title
        assert "**Fix.**" in symptom, title
        assert "**Checked by**" in symptom or "**Source**" in symptom, title
    here = {name for name in globals() if name.startswith("test_") and f"`{name}`" not in text}
    of_the_page = test_each_symptom_names_its_test_and_each_of_these_tests_is_named
    assert here == {of_the_page.__name__, test_a_test_that_the_page_names_exists.__name__}


def test_a_test_that_the_page_names_exists():
    text = PAGE.read_text("utf-8")
    sources = {path.name: path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    named = [line for line in text.splitlines() if line.startswith("**Checked by**")]
    assert len(named) >= 12
    for line in named:
        for part in some(line.split("`")[1::2]):
            if part.startswith("test_") and not part.endswith(".py"):
                assert any(f"def {part}(" in source for source in sources.values()), part
