"""attention_memory: formulas against what is counted, to the byte; and what they refuse."""

import itertools
import json
import math
import re
import time

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv
from snippets._lab.measure.session import Lab
from snippets._lab.results import store
from snippets.attention_memory import bench, module
from snippets.attention_memory.checks import assert_bytes, counted_eager, counted_fused
from snippets.attention_memory.module import attention_memory, largest_length
from tests.floors import some

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"
DTYPES = [torch.float16, torch.bfloat16, torch.float32]
LAYER = {"B": 32, "H": 32, "N": 4096, "D": 64}


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_the_formula_is_what_eager_attention_holds(causal, backward, dtype):
    lengths = (1, 2, 40, 42, 43, 63, 64, 65, 200)
    for sizes in itertools.product((1, 3), (1, 2), lengths, (1, 40, 64)):
        options = {"dtype": dtype, "causal": causal, "backward": backward}
        assert_bytes(attention_memory(*sizes, **options)["eager"], counted_eager(*sizes, **options))


@pytest.mark.numerical
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_one_square_of_training_is_not_seen_from_outside(causal):
    options = {"causal": causal, "backward": True}
    for N, squares in ((10, 0), (20, 0), (64, 1), (65, 1), (200, 1)):  # few keys: another peak
        said = attention_memory(2, 3, N, 64, **options)
        seen = counted_eager(2, 3, N, 64, **options, inside={})
        assert_bytes(said["eager"], seen + squares * said["scores"])


@pytest.mark.skipif(not ON_GPU, reason="no device to ask")
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_the_device_holds_what_the_formula_says(causal, backward):
    for H, N, D in ((2, 32, 128), (3, 64, 64), (3, 256, 64)):
        empty = {"device": "cuda", "dtype": torch.float16, "requires_grad": backward}
        q, k, v = (torch.randn(1, H, N, D, **empty) for _ in range(3))
        attention = module.eager_attention
        run = (module.training_step, attention) if backward else (attention,)
        module.measured_peak(*run, q, k, v, causal=causal)
        time.sleep(0.1)  # the thread of the backward pass may hold the gradients a moment longer
        stats = torch.cuda.memory_stats()  # what was asked for, without what is rounded up
        asked = stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"]
        said = attention_memory(1, H, N, D, torch.float16, causal=causal, backward=backward)
        assert_bytes(said["eager"], 3 * said["q"] + asked)


@pytest.mark.numerical
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_the_formula_is_what_a_fused_operation_holds(backward, dtype):
    for sizes in itertools.product((1, 3), (1, 2), (1, 2, 64, 200), (1, 40, 64)):
        said = attention_memory(*sizes, dtype, backward=backward)["fused"]
        assert_bytes(said, counted_fused(*sizes, dtype, backward=backward))


@pytest.mark.numerical
@pytest.mark.parametrize("implementation", ["eager", "fused"])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "training"])
def test_the_longest_fits_and_one_more_does_not(backward, implementation):
    options = {"backward": backward, "causal": True}
    for memory, B, H, D in itertools.product((10_007, 10**6, 80 * 10**9), (1, 7), (1, 32), (1, 80)):
        longest = largest_length(memory, B, H, D, implementation=implementation, **options)
        for N, fits in ((longest, True), (longest + 1, False)):
            need = attention_memory(B, H, N, D, **options)[implementation] if N else 0
            if (need <= memory) is not fits:
                raise NumericalMismatch(f"difference {abs(need - memory):,} bytes, allowed 0")


def test_the_table_of_the_page_to_the_byte():
    said = attention_memory(**LAYER)
    assert said["q"] == said["k"] == said["v"] == said["output"] == 1_073_741_824  # 1.07 GB
    assert said["scores"] == said["weights"] == 68_719_476_736  # 68.7 GB
    assert said["logsumexp"] == 16_777_216
    assert said["mask"] == 0
    assert attention_memory(**LAYER, causal=True)["mask"] == 16_777_216


def test_the_named_tensors_fit_and_the_peak_does_not():
    said = attention_memory(**LAYER)
    named = sum(said[name] for name in ("q", "k", "v", "scores", "output"))
    assert named < 80 * 10**9 < said["eager"] == 140_660_178_944
    assert said["fused"] == 4_311_744_512


def test_training_holds_four_squares_to_the_byte():
    said = attention_memory(**LAYER, backward=True)
    assert said["eager"] == 4 * 68_719_476_736 + 7 * 1_073_741_824 == 282_394_099_712
    late = attention_memory(1, 1, 42, 64, backward=True)
    assert late["eager"] == late["scores"] + 9 * late["q"]


def test_a_peak_is_counted_without_taking_memory():
    """68.7 GB of scores, on any machine."""
    assert counted_eager(**LAYER) == attention_memory(**LAYER)["eager"]


def test_views_and_operations_in_place_count_nothing_and_freed_memory_is_used_again():
    def call(x):
        y = x + 1  # 400 bytes
        y.mul_(2).view(10, 10).mT.add_(1)
        del y
        return x * 2  # 400 bytes again

    assert module.counted_peak(call, torch.zeros(100)) == 400


def test_real_memory_is_counted_as_meta_is():
    q, k, v = make_qkv(2, 3, N=65, D=40)
    held = 3 * q.numel() * q.element_size()
    assert held + module.counted_peak(module.eager_attention, q, k, v) == counted_eager(
        2, 3, 65, 40
    )
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        fused = held + module.counted_peak(F.scaled_dot_product_attention, q, k, v)
    assert fused == counted_fused(2, 3, 65, 40)


@pytest.mark.parametrize("causal", [False, True])
def test_eager_attention_is_attention(causal):
    q, k, v = make_qkv(2, 3, N=33, D=20, device=DEVICE)
    mask = causal_mask(33, 33, device=DEVICE) if causal else None
    assert_attention(module.eager_attention(q, k, v, causal=causal), q, k, v, mask=mask)


def test_a_training_step_gives_the_gradients():
    q, k, v = (x.double().requires_grad_() for x in make_qkv(2, 3, N=9, D=8))
    got = module.training_step(module.eager_attention, q, k, v)
    want = module.training_step(F.scaled_dot_product_attention, q, k, v)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", ["B", "H", "N", "D"])
def test_sizes_that_are_none_are_refused(name):
    for value in (0, -1):
        with pytest.raises(ValueError, match=f"{name} is {value}; it must be at least 1"):
            attention_memory(**{**LAYER, name: value})
    for value in (1.5, "64", None, True, math.nan, np.True_, np.float32(64)):
        with pytest.raises(TypeError, match=f"{name} is .*; it must be an integer"):
            attention_memory(**{**LAYER, name: value})


def test_small_integers_of_numpy_do_not_overflow():
    sizes = {"B": 32, "H": 32, "N": 30_000, "D": 64}
    narrow = {name: np.int16(size) for name, size in sizes.items()}
    assert attention_memory(**narrow) == attention_memory(**sizes)


def test_other_dtypes_and_implementations_are_refused():
    with pytest.raises(ValueError, match=r"float64.*torch.float16, torch.bfloat16, torch.float32"):
        attention_memory(**LAYER, dtype=torch.float64)
    with pytest.raises(ValueError, match="'flash'; allowed are"):
        largest_length(10**9, 1, 1, 64, implementation="flash")
    with pytest.raises(ValueError, match="memory is 0"):
        largest_length(0, 1, 1, 64)


def test_not_even_one_token_fits():
    assert largest_length(9, 1, 1, 1, torch.float16) == 0
    assert largest_length(10, 1, 1, 1, torch.float16) == 1
    assert largest_length(11, 1, 1, 1, torch.float16, implementation="fused") == 0
    assert largest_length(12, 1, 1, 1, torch.float16, implementation="fused") == 1


# What a GPU will run, as far as a CPU can run it.


@pytest.mark.parametrize(("tiles", "iterations"), [(2, 1), (3, 7), (5, 5)])
def test_a_walk_goes_round_and_adds_up_what_it_reads(tiles, iterations):
    x = torch.randint(-8, 8, (tiles * bench.BLOCK,), device=DEVICE).float()
    out = bench._walk(x, torch.empty(4, device=DEVICE), iterations)
    sums = x.view(tiles, -1).sum(1)
    starts = [program * tiles // 4 for program in range(4)]
    want = [sum(sums[(start + i) % tiles] for i in range(iterations)) for start in starts]
    assert out.tolist() == [w.item() for w in want]  # small integers: nothing is rounded


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
def test_a_turn_transposes_and_adds(iterations):
    x = torch.randint(-8, 8, (bench.SIDE, bench.SIDE), device=DEVICE).float()
    out = bench._turn(x, torch.empty(2, *x.shape, device=DEVICE), iterations)
    want = x
    for _ in range(iterations):
        want = want.mT + x
    assert (out == want).all()


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="the compiler of a machine without a GPU")
def test_a_turn_goes_through_shared_memory_once_each_way(compiler):
    """On 128 threads 32 words each, written and read in the loop: the whole tile, once."""
    assert bench.SIDE**2 == 128 * 32
    x = torch.empty(1, bench.SIDE, bench.SIDE)
    for target in ("sm_75", "sm_80", "sm_90", "sm_100"):
        (found,) = compiler.resources(bench._turn, (x, x, 5), target=target)
        loop = re.search(r"Inner Loop Header(.*?)bra", found.ptx, re.DOTALL)[1]
        for way in ("st", "ld"):
            widths = re.findall(way + r"\.shared(?:\.v(\d))?\.b32", loop)
            assert sum(int(width or 1) for width in widths) == 32


def test_work_is_what_the_shapes_say():
    H, N, D = 2, 8, 4
    work = bench._eager_work(H, N, D)
    square, rows = H * N * N * 2, H * N * D * 2
    assert work["q · kᵀ"] == (2 * H * N * N * D, 2 * rows + square)
    assert work["softmax"] == (5 * H * N * N, 2 * square)
    # q is read, scaled, written, read; k, v read; scores and weights written and read; out written
    assert work["eager"][1] == 6 * rows + 4 * square
    assert work["eager"][0] == sum(work[step][0] for step in ("q · kᵀ", "softmax", "weights · v"))
    assert bench._fused_work(H, N, N, D) == (4 * H * N * N * D, 4 * rows)
    assert bench._fused_work(64, 1, 1000, 128)[0] / bench._fused_work(64, 1, 1000, 128)[1] < 1


@pytest.mark.skipif(ON_GPU, reason="a GPU has other backends")
def test_the_profiler_names_the_backend():
    q, k, v = make_qkv(1, 2, N=16, D=8)
    assert bench._backend_of(F.scaled_dot_product_attention, q, k, v) == ("flash, on a CPU", "")
    found = bench._backend_of(bench._forced, SDPBackend.MATH, q, k, v)
    assert found == ("math", "")
    assert bench._backend_of(torch.matmul, q, k.mT) == ("not seen", "")


@pytest.mark.parametrize("mask", bench.MASKS)
@pytest.mark.parametrize("shape", bench.SHAPES)
def test_what_is_probed_is_one_attention(shape, mask):
    """Whatever carries the mask, visible are the same keys (causal: from the top left corner)."""
    tensors, options = bench._sdpa_call({"dtype": "float32", "mask": mask, "shape": shape}, "cpu")
    M = tensors[0].shape[2]
    if mask != "none":
        visible = torch.ones(M, 1024).tril(0 if mask == "causal" else 1024 - M).bool()
        given = options.get("attn_mask")
        if given is not None:
            assert torch.equal(given if mask == "bool" else given == 0, visible)
    assert options["is_causal"] is (mask == "causal")
    assert tensors[0].requires_grad is ("gradient" in shape)


# The calculator's table of cases, and what figures make of rows.


def test_every_case_of_the_calculator_is_exact():
    rows = list(bench.calculator(Lab("interpreter")))
    cases = [r for r in rows if r["kind"] == "case"]
    assert len(cases) == len(bench.CASES) * 3 * 2 * 2
    assert max(r["eager"] for r in cases) > 2**64, "more than a double can count"
    assert json.loads(json.dumps(cases)) == cases
    assert all(isinstance(r["eager"], int) for r in cases)
    assert {r["card"] for r in rows if r["kind"] == "card"} == set(bench.OFFERED)


def test_a_card_that_was_measured_has_what_it_reports():
    measured = store.read(store.path_of("nvidia_h200", "attention_memory", "hierarchy"))
    assert bench.OFFERED["H200"] == measured.device["memory_bytes"]


def test_what_is_not_seen_from_outside_is_the_square_of_the_softmax():
    for row in some(bench.counted(Lab("interpreter"))):
        assert row["eager_formula"] == row["eager_counted"]
        hidden = row["square"] if row["backward"] else 0
        assert row["eager_counted"] - row["eager_seen"] == hidden
