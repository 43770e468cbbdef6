"""The page about other cards: limits against their sources, what is compiled, and the excerpts."""

import ast
import dataclasses
import random
import re
import runpy
import shutil
import subprocess
import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import triton
from packaging.requirements import Requirement

from snippets._lab.judge import grid
from snippets._lab.judge.patch import occurs
from snippets._lab.measure.session import Lab
from snippets._lab.probe.compiled import SHARED_LIMIT, Compiler
from snippets._lab.probe.gpus import ARCHITECTURES, CARDS, KIB, programs_at_once
from snippets._lab.results import store
from snippets._lab.rooms import SNIPPETS, load
from snippets._site.kernels import language
from snippets.basic_attention.kernel import basic_attention
from snippets.flash_attention.kernel import flash_attention
from snippets.your_gpu import bench
from snippets.your_gpu import figures as drawn
from tests.floors import perhaps, some

ON_GPU = torch.cuda.is_available()
WHEEL = Path(triton.__file__).parent / "backends/nvidia/include"
FIRST = [p.parent.name for p in sorted(SNIPPETS.glob("*/first.py")) if "@triton" in p.read_text()]
STORED = {(r.result, Path(r.folder).name): r for r in store.scan() if r.post == "your_gpu"}


def stored(target):
    return STORED["kernels", target].rows


# What a card has.


def test_every_card_has_an_architecture_and_sources():
    assert len({card.name for card in CARDS}) == len(CARDS) >= 6
    for card in CARDS:
        assert card.target in ARCHITECTURES
        assert card.sources
        assert all(address.startswith("https://") for _, address in card.sources)
    assert {c.target for c in CARDS} == set(bench.TARGETS)
    assert {"sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "gfx942"} <= set(bench.TARGETS)


def test_shared_memory_has_one_source():
    assert {t: a.shared_block for t, a in ARCHITECTURES.items()} == SHARED_LIMIT
    for limits in ARCHITECTURES.values():
        assert limits.shared_block + limits.reserved == limits.shared_sm


def test_memory_is_that_of_the_post_about_memory():
    """The post's file is copied alone by readers, so that it has its own table: the same one."""
    post = load("attention_memory", "module").CARDS
    same = {c.name: c.memory_gb * 1e9 for c in CARDS if c.name in post}
    assert len(same) >= 6
    # A data sheet's gigabytes; of the H200 the post has what the device reports, 6 % more.
    assert same == pytest.approx({name: post[name] for name in same}, rel=0.07)


def test_the_card_that_was_measured_agrees():
    result = next(r for r in store.scan() if r.folder == "nvidia_h200")
    (card,) = [c for c in CARDS if c.name == "H200"]
    assert result.device["multiprocessors"] == card.multiprocessors
    assert result.device["capability"] == card.capability
    assert 0.95 < result.device["memory_bytes"] / card.memory_gb / 1e9 < 1.08
    assert result.ceilings["read"]["per_s_p50"] < card.gb_per_s * 1e9
    assert result.ceilings["matmul_float16"]["per_s_p50"] < card.tensor_tflops * 1e12
    assert result.ceilings["fma_float32"]["per_s_p50"] < card.fp32_tflops * 1e12


@pytest.mark.skipif(not ON_GPU, reason="asks the GPU")
def test_the_card_at_hand_agrees():
    properties = torch.cuda.get_device_properties(0)
    limits = ARCHITECTURES[f"sm_{properties.major}{properties.minor}"]
    assert properties.shared_memory_per_block_optin == limits.shared_block
    assert properties.shared_memory_per_multiprocessor == limits.shared_sm
    assert properties.regs_per_multiprocessor == limits.registers
    assert properties.max_threads_per_multi_processor == limits.warps * limits.lanes


# How many programs fit: NVIDIA's own calculator comes with Triton.

CALCULATOR = """
#include <climits>
#include <cstddef>
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
    int major, minor, warps, regs, threads, shared_sm, shared_block, reserved, asked;
    while (std::scanf("%d %d %d %d %d %d %d %d %d", &major, &minor, &regs, &warps, &asked, &threads,
                      &shared_sm, &shared_block, &reserved) == 9) {
        cudaOccDeviceProp device;
        device.computeMajor = major; device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = threads;
        device.regsPerBlock = device.regsPerMultiprocessor = 65536; device.warpSize = 32;
        device.sharedMemPerBlock = 49152; device.sharedMemPerMultiprocessor = shared_sm;
        device.numSms = 100; device.sharedMemPerBlockOptin = shared_block;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = 1024; kernel.numRegs = regs; kernel.sharedSizeBytes = 0;
        kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = shared_block;
        cudaOccDeviceState state;
        state.cacheConfig = CACHE_PREFER_SHARED;
        state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
        cudaOccResult result;
        int status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state,
                                                             32 * warps, asked);
        std::printf("%d\\n", status ? -status : result.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
def test_programs_at_once_are_those_of_nvidias_calculator(tmp_path):
    (tmp_path / "main.cpp").write_text(CALCULATOR)
    command = ["g++", "-O0", "-w", f"-I{WHEEL}", "main.cpp", "-o", "calculator"]
    subprocess.run(command, cwd=tmp_path, check=True)
    chance = random.Random(0)
    every = {target for target in ARCHITECTURES if target.startswith("sm_")}
    cases = {}  # one → what the calculator is told of it
    for target in [target for target in sorted(every) for _ in range(300)]:
        a, number = ARCHITECTURES[target], int(target[3:])
        shared = chance.choice([0, 16, chance.randint(1, a.shared_block), a.shared_block])
        case = chance.randint(16, 255), chance.choice([1, 2, 4, 8, 12, 16, 32]), shared
        limits = a.warps * 32, a.shared_sm, a.shared_block, a.reserved
        cases[target, *case] = " ".join(map(str, (number // 10, number % 10, *case, *limits)))
    given = "\n".join(cases.values())
    done = subprocess.run(
        [tmp_path / "calculator"], input=given, capture_output=True, text=True, check=True
    )
    want = dict(zip(cases, map(int, done.stdout.split()), strict=True))
    unknown = -2  # what an older calculator says of every case of a newer GPU
    known = {case[0] for case, w in want.items() if w != unknown}
    if torch.cuda.is_available():  # with a Triton of its own, perhaps; the pinned one knows all
        every = {"sm_75", "sm_80", "sm_89", "sm_90"}
    assert every <= known
    want = {case: w for case, w in want.items() if case[0] in known}
    assert min(want.values()) == 0, "some fit not even once"
    assert len(set(want.values())) > 8
    found = {case: programs_at_once(*case)[0] for case in want}
    wrong = [(case, found[case], w) for case, w in some(want.items()) if found[case] != w]
    assert not wrong, wrong[:5]


def test_what_limits_the_programs_is_named():
    assert programs_at_once("sm_90", 255, 4, 0) == (2, "registers")
    assert programs_at_once("sm_90", 32, 4, 100 * KIB) == (2, "shared memory")
    assert programs_at_once("sm_90", 16, 4, 0) == (16, "warps")
    assert programs_at_once("sm_90", 16, 1, 0) == (32, "programs")
    assert programs_at_once("sm_89", 32, 4, 99 * KIB + 1)[0] == 0
    assert programs_at_once("gfx942", 512, 4, 0) == (1, "registers")  # a wave on each SIMD unit
    assert programs_at_once("gfx942", 513, 4, 0)[0] == 0
    assert programs_at_once("gfx942", 128, 4, 32 * KIB) == (2, "shared memory")


# A launcher on a card that is not there.


@pytest.mark.parametrize("target", bench.TARGETS)
def test_a_launcher_sees_the_pretended_card_and_nothing_stays(target):
    def told():
        return torch.cuda.get_device_capability, torch.version.hip, torch.cuda.is_available()

    before = told()
    with bench.on_card(target):
        x = torch.empty(2, 3)
        assert x.device.type == x.T.device.type == x[None].device.type == "cuda"
        assert torch.empty(1, device=x.device).device == x.device
        major, minor = torch.cuda.get_device_capability(x.device)
        assert target in (f"sm_{major}{minor}", "gfx942")
        assert (torch.version.hip is not None) == (target == "gfx942")
    assert told() == before
    assert torch.empty(1).device.type == "cpu"
    bench.check("cpu")


def launched(launcher, target, dtype="float16", D=64, **options):
    call = bench.Call("x", "x", launcher, dtype, [(1, 8, 1024, D)] * 3, options)
    compiler = Lab("compiler", target).compiler
    return bench.launches(type("", (), {"compiler": compiler}), call, target)


def test_a_launcher_refuses_and_chooses_as_on_that_card():
    said = r"torch\.bfloat16 with 64 columns on sm_75; allowed: sm_75"
    with pytest.raises(ValueError, match=said):
        launched(flash_attention, "sm_75", "bfloat16")
    with pytest.raises(ValueError, match="256 columns on sm_75; allowed: sm_75 for 128"):
        launched(flash_attention, "sm_75", D=256)
    table = load("flash_attention", "kernel").TILE_CONFIGS
    for target in some(bench.TARGETS):
        (launch,) = launched(flash_attention, target)
        _, given = bench.arguments(launch)
        config = table[target][64]
        assert given["BLOCK_M"] == config.BLOCK_M
        assert given["num_warps"] == config.num_warps
        assert given["USE_TMA"] == (target in ("sm_90", "sm_100"))


# What is recorded.


@pytest.mark.parametrize("target", bench.TARGETS)
def test_every_launcher_and_dtype_is_recorded(target):
    seen = {(r["launcher"], r["dtype"]) for r in stored(target)}
    launchers = {*grid.attention_rooms(), "coalescing", "line_sums"}
    assert seen == {(name, dtype) for name in launchers for dtype in bench.DTYPES}
    kernels = {r["kernel"] for r in stored(target)}
    assert {"_transpose_kernel", "_matmul_kernel", "_softmax_kernel"} <= kernels


def constants(table, target, path=()):
    """The block sizes of each configuration in a launcher's table that a target can choose."""
    for path, value in grid._leaves(table, ()):
        names = [key for key in path if key in ARCHITECTURES]
        if not names or target in names:
            yield tuple(value[:2])


@pytest.mark.parametrize("target", ["sm_75", "sm_90", "gfx942"])
def test_every_configuration_a_launcher_can_choose_is_recorded(target):
    """By the first two block sizes; stages and warps follow from them in these tables."""
    for room in some(set(grid.attention_rooms()) - {"hopper_attention"}):
        tables = getattr(load(room, "kernel"), "CONFIGURATIONS", {})
        found = {
            tuple(r["blocks"].values())[:2]
            for r in stored(target)
            if r["launcher"] == room and r["kernel"]
        }
        for table in perhaps(tables.values(), "a launcher without a choice has no table"):
            wanted = set(constants(table, target))
            if target == "sm_75" and room == "composed_attention":
                wanted = set(constants({"float32": table["float32"]}, target))
            if target == "sm_75" and room in ("flash_attention", "masks_and_packing"):
                # float32's row of 256 is refused
                wanted.remove(table["float32"][256][:2])
            if target == "gfx942" and room == "composed_attention":
                wanted.remove((128, 256))  # its steps in flight are more than the shared memory
            assert wanted
            assert wanted <= found, room


def test_the_recorded_numbers_are_those_of_a_launch():
    """One kernel compiled again, by the lab and without the pretended card."""
    case = {"launcher": "basic_attention", "case": "1024 keys, D 64", "dtype": "float32"}
    row = next(r for r in stored("sm_80") if case.items() <= r.items())
    tensors = [torch.empty(1, 8, 1024, 64) for _ in "qkv"]
    if ON_GPU:
        tensors = [x.cuda() for x in tensors]
    with Lab("compiler", "sm_80").compiler as compiler:
        (found,) = compiler.resources(basic_attention, tensors, target="sm_80")
    for name in ("registers", "spill_store_bytes", "stack_bytes", "shared_bytes", "tensor_core"):
        assert getattr(found, name) == row[name], name


# What is drawn.


def results(name="kernels"):
    return [dataclasses.replace(r) for (n, _), r in STORED.items() if n == name]


@pytest.mark.parametrize(
    ("change", "verdict", "claim"),
    [
        ({"error": "needs 300000 bytes", "shared_bytes": 300_000}, "does not fit", "spills"),
        ({"error": "> 20 s", "shared_bytes": None}, "does not compile", "spills"),
        ({"spill_store_bytes": 8}, "spills", None),
        ({"kernel": None, "refused": "no"}, "refused", "takes 16-bit calls"),
        ({"tensor_core": "mma"}, "fits", "`tcgen05`"),
    ],
)
def test_other_data_give_other_verdicts_and_refute_claims(change, verdict, claim):
    found = results()
    rows = [row if row["refused"] else row | change for row in found[0].rows]
    figure = drawn.kernels([dataclasses.replace(found[0], rows=rows), *found[1:]])
    data = figure.extra_files["kernels_cards.json"]
    shown = data["kernels"][found[0].folder.removeprefix("compiler/")]
    verdicts = {row[data["columns"].index("verdict")] for row in shown}
    assert verdict in verdicts
    assert verdict == "fits" or "fits" not in verdicts
    refuted = [words for words, holds in figure.claims.items() if not holds]
    assert claim is None or any(claim in words for words in refuted)


def test_a_card_without_data_stops_the_figure():
    with pytest.raises(store.DataError, match="nothing was compiled for"):
        drawn.kernels(results()[1:])


# Excerpts.


def test_every_post_with_a_kernel_has_an_excerpt_that_holds_what_it_claims():
    rows = STORED["excerpts", "sm_90"].rows
    assert {r["post"] for r in rows} >= {*grid.attention_rooms(), "coalescing"}
    assert len(rows) == len(bench.POINTS)
    for row, point in zip(rows, bench.POINTS, strict=True):
        assert row["lines"]
        assert all(re.search(point.pattern, line) for line in some(row["lines"]))
        assert occurs(row["python"], point.python)
        source = Path(load(point.room, "kernel").__file__).read_text("utf-8")
        assert occurs(source, row["python"])
    text = {
        post: " ".join(line for r in rows if r["post"] == post for line in r["lines"])
        for post in {r["post"] for r in rows}
    }
    assert "wgmma.mma_async" in text["flash_attention"]
    assert "STL" in text["vectorized_attention"]
    assert "mma.sync" in text["composed_attention"]
    assert "fma.rn.f32" in text["tiled_attention"]
    assert "cp.async.bulk.tensor" in text["hopper_attention"]
    assert "wgmma.mma_async" in text["hopper_attention"]


PTX = """
	.loc	1 2 16                         // kernel.py:2:16
	mov.u32 %r1, 0x0;
	@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
	.loc	2 263 15        // standard.py:263:15 @[ standard.py:293:36 @[ kernel.py:3:24 ] ]
	fma.rn.f32 	%r239, %r5, %r174, %r238;
	fma.rn.f32 	%r240, %r37, %r206, %r239;
	.loc	2 9 9           // standard.py:9:9
	ld.global.b32 %r9, [%rd9];
"""
SASS = """
	//## File "/a/room/kernel.py", line 3
        /*00b0*/                   STL [R1+0x114], R243 ;
	//## File "/a/room/kernel.py", line 1
        /*00c0*/                   STL [R1+0x118], R244 ;
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("def f():\n    x = tl.load(p)\n    s = tl.sum(x)\n")
    return str(path)


def test_an_excerpt_is_found_below_its_line_of_python(file):
    python, lines, count = bench.excerpt(PTX, file, r"ld\.global", "tl.load")
    assert (python, count) == ("x = tl.load(p)", 1)
    assert lines == ["@%p1 ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];"]
    assert bench.excerpt(PTX, file, r"fma\.rn", "tl.sum")[2] == 2, "through a library's function"
    python, lines, count = bench.excerpt(SASS, file, r"\bSTL\b", "tl.sum")
    assert (lines, count) == (["STL [R1+0x114], R243 ;"], 1)


@pytest.mark.parametrize(
    ("pattern", "python"), [("wgmma", "tl.load"), (r"ld\.global", "tl.sum"), ("fma", "tl.dot")]
)
def test_an_instruction_that_is_absent_or_of_another_line_is_refused(file, pattern, python):
    with pytest.raises(LookupError, match="stems from a line with"):
        bench.excerpt(PTX, file, pattern, python)


@pytest.mark.compiler
def test_a_claim_that_the_kernel_contradicts_is_refused(monkeypatch):
    """Real kernels: one without the instruction, and one with the instruction that must not be."""
    _, copy, strided = bench.POINTS[:3]
    lab = Lab("compiler", "sm_90")
    for wrong, message in (
        (copy._replace(pattern="wgmma"), "no 'wgmma' stems from a line"),
        (copy._replace(python="y = tl.load("), "stems from a line"),
        (strided._replace(absent=r"st\.global"), r"has st\.global.*, and must not"),
    ):
        monkeypatch.setattr(bench, "POINTS", [wrong])
        with pytest.raises(LookupError, match=message):
            list(bench.excerpts(lab))
    monkeypatch.setattr(bench, "POINTS", [copy, strided])
    assert [r["instructions"] for r in bench.excerpts(lab)] == [8, 8]


def every_kernel():
    """(module, name) of each jit function of snippets/ that no other one of its file calls.

    Those of a first.py follow in a test of their own: importing that file runs all of it.
    """
    for path in some([x for x in SNIPPETS.rglob("*.py") if x.name != "first.py"], 100):
        functions = {
            node.name: node
            for node in ast.parse(path.read_text("utf-8")).body
            if isinstance(node, ast.FunctionDef) and language(node)
        }
        called = {
            inner.id
            for name, node in functions.items()
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and inner.id != name
        }
        module = ".".join(path.relative_to(SNIPPETS).with_suffix("").parts)
        yield from ((module, name) for name in functions.keys() - called)


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="needs the network, and no GPU")
@pytest.mark.parametrize("version", [bench.TRITONS[0], bench.TRITONS[-1]])
def test_the_oldest_and_the_newest_triton_compile_every_kernel(version):
    rows = {target: bench.on_triton(version, target) for target in ("sm_80", "sm_90")}
    assert {row["triton"] for found in rows.values() for row in found} == {version}
    assert not [row for found in rows.values() for row in found if row["error"]]
    compiled = {(row["module"], row["kernel"]) for found in rows.values() for row in found}
    assert compiled == {*every_kernel()} - {("_lab.probe.compiled", "_first_kernel")}  # it warms up
    other = {(row["module"], row["kernel"]) for row in rows["sm_80"]}
    assert {module for module, _ in compiled - other} == {
        "hopper_attention.kernel",
        "hopper_attention.small",
        "hopper_backward.kernel",
        "ring_attention.op",
    }


@pytest.mark.compiler
@pytest.mark.skipif(ON_GPU, reason="needs the network, and no GPU")
@pytest.mark.parametrize("version", [bench.TRITONS[0], bench.TRITONS[-1]])
@pytest.mark.parametrize("post", FIRST)
def test_the_first_kernels_compile_as_on_a_gpu(version, post, tmp_path):
    """The whole file runs to see its launches; what is compiled stands above its last part."""
    path = SNIPPETS / post / "first.py"
    kernels, _, _ = path.read_text("utf-8").partition("\ntorch.manual_seed(0)\n")
    without = tmp_path / f"{post}.py"
    without.write_text(kernels.replace('os.environ["TRITON_INTERPRET"] = "1"', "pass"), "utf-8")
    with Compiler(bench.SLOW) as compiler:
        compiler.version = version
        run = partial(runpy.run_path, str(path), run_name=f"{post}.first")
        launches = compiler.launches(run, (), target="sm_90")
        found = {x.kernel: compiler.compiled(replace(x, file=str(without))) for x in launches}
    assert {name: x.error for name, x in found.items()} == dict.fromkeys(found)
    assert {*found} == {*re.findall(r"def (\w+_kernel)\(", kernels)}


def test_the_versions_that_are_allowed_are_those_that_were_tried():
    project = tomllib.loads((SNIPPETS.parent / "pyproject.toml").read_text("utf-8"))
    groups = project["project"]["dependencies"], project["dependency-groups"]["run"]
    minor = {tuple(map(int, version.split(".")[:2])) for version in bench.TRITONS}
    (least, most) = min(minor), max(minor)
    for asked in some(groups, 2):
        (allowed,) = [Requirement(x).specifier for x in asked if x.startswith("triton")]
        assert f"{allowed}" == f"<{most[0]}.{most[1] + 1},>={least[0]}.{least[1]}"
        assert minor == {(3, x) for x in range(least[1], most[1] + 1)}
