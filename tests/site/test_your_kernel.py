"""Each published file: the full kernel's program and bits, right in float64, and nothing else."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from unittest import mock

import pytest
import torch

from snippets._lab.probe.compiled import Compiler
from snippets._lab.results import store
from snippets._lab.rooms import UnknownName, load_file
from snippets._site import fold, listings, your_kernel
from snippets._site.your_kernel import ROOT
from snippets.decode_attention import kernel as decode
from snippets.masks_and_packing import backward, kernel, op
from snippets.your_gpu.bench import SLOW, TRITONS
from tests.floors import some

ASKED = os.environ.get("YOUR_KERNEL")  # of `make your-kernel`
if ASKED and ASKED != "every":
    FILES = {x.name: x for x in [your_kernel.asked(ASKED.split())]}
    VERSIONS = [Compiler.version]  # no other needs to be there
else:  # as a rule what is popular, on one generation
    FILES = some(your_kernel.published())
    FILES = {n: x for n, x in FILES.items() if ASKED or x in your_kernel.popular().values()}
    VERSIONS = [TRITONS[0], TRITONS[-1]]  # the oldest and the newest


class FoundError(Exception):
    """Ends a self-check when its call is known."""


def call(ticks, folded):
    """Tensors and options with which a file checks itself, and the options for the full kernel."""
    recorder = mock.patch.object(folded, "attention", side_effect=FoundError)
    with recorder as asked, pytest.raises(FoundError):
        folded.main()
    own = asked.call_args.kwargs
    same = {"batch_invariant": ticks.same_bits} if ticks.decode else {"causal": ticks.causal}
    batch = () if ticks.packed or ticks.decode else (None,)
    tensors = [x.detach()[batch] for x in asked.call_args.args]
    return tensors, own, own | same | {"return_lse": ticks.lse}


def launchers(ticks, folder, monkeypatch):
    """A file, and the complete kernel that it is folded from, on the GPU that it is for."""
    path = folder / "kernel.py"  # where nothing else is
    path.write_text(your_kernel.made(ticks), "utf-8")
    folded = load_file(path, "folded")
    for module in (kernel, backward):
        monkeypatch.setattr(module, "_architecture", lambda device: ticks.gpu)
    for module in (decode, folded) if ticks.decode else ():
        facts = module.Device(132, SHARED[ticks.gpu], YOUNGEST[ticks.gpu])
        monkeypatch.setattr(module, "_device_facts", lambda device, facts=facts: facts)
    return folded, decode.decode_attention if ticks.decode else op.masked_attention


SHARED = {"sm_80": 166_912, "sm_89": 101_376, "sm_90": 232_448, "sm_100": 232_448}
YOUNGEST = {gpu: max(x) for gpu, x in your_kernel.GPUS.items()}


@pytest.mark.parametrize("name", FILES)
def test_a_file_gives_the_full_kernels_bits(name, monkeypatch, tmp_path, capsys):
    ticks = FILES[name]
    folded, full = launchers(ticks, tmp_path, monkeypatch)
    file = folded.attention
    tensors, own, all_of = call(ticks, folded)
    if ticks.backward:
        file, full = trained(file), trained(full)

    assert folded.main() == 0, capsys.readouterr().out
    found, want = file(*tensors, **own), full(*tensors, **all_of)
    pairs = [(found, want)] if isinstance(found, torch.Tensor) else zip(found, want, strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def trained(attend):
    """What a launcher returns, and the gradients of all that it takes."""

    def run(*tensors, **options):
        given = {name: x for name, x in options.items() if name == "sinks"}
        leaves = [x.detach().requires_grad_() for x in (*tensors, *given.values())]
        options |= dict(zip(given, leaves[3:], strict=True))
        found = attend(*leaves[:3], **options)
        found = (found,) if isinstance(found, torch.Tensor) else found
        torch.manual_seed(1)
        grads = [torch.randn_like(x) for x in found]
        return *found, *torch.autograd.grad(found, leaves, grads)

    return run


@pytest.fixture(scope="module", params=VERSIONS)
def compiler(request):
    with Compiler(SLOW) as compiler:
        compiler.version = request.param
        yield compiler


@pytest.mark.compiler
@pytest.mark.parametrize("name", FILES)
def test_a_file_compiles_to_the_full_kernels_program(name, compiler, tmp_path, monkeypatch):
    ticks = FILES[name]
    folded, full = launchers(ticks, tmp_path, monkeypatch)
    tensors, *options = call(ticks, folded)
    calls = zip((folded.attention, full), options, strict=True)
    if ticks.backward:
        calls = [(trained(attend), x) for attend, x in calls]
    ours, theirs = (compiler.resources(f, tensors, x, target=ticks.gpu) for f, x in calls)
    assert len(ours) == (3 if ticks.backward else 2 if ticks.decode else 1)
    assert not [row for row in ours if row.error]
    multiply = [row for row in ours if row.kernel != "_combine_kernel"]
    assert not [row.kernel for row in multiply if row.tensor_core == "none"]
    assert list(map(program, ours)) == list(map(program, theirs))


def program(found):
    """A kernel's PTX without lines of its source, and without names: of registers and parameters.

    Where a parameter is loaded follows from its place among them. That each is the right one, the
    bits tell.
    """
    code = found.ptx.partition("\n{")[2].partition("\n\t.section")[0]
    assert "ld.global" in code or "cp.async" in code, "that is the code"
    code = re.sub(r"\n\s*(?:\.loc|\.file|\$L__tmp|ld\.param).*|\s*//.*", "", code)
    names: dict[str, str] = {}
    return re.sub(
        r"%[a-z]+\d+|\w+_param_\d+", lambda x: names.setdefault(x[0], f"%{len(names)}"), code
    )


WRONG = {  # of q, k and v
    "no tensor": lambda q, k, v: (q, k.tolist(), v),
    "sparse": lambda q, k, v: (q.to_sparse(), k, v),
    "another sign": lambda q, k, v: (q, k, torch._neg_view(v)),
    "another dtype": lambda q, k, v: (q, k.bfloat16(), v),
    "float64": lambda q, k, v: (q.double(), k.double(), v.double()),
    "steps of columns": lambda q, k, v: (q.mT.contiguous().mT, k, v),
    "no row": lambda q, k, v: (q[..., :0, :], k, v),
    "no key": lambda q, k, v: (q, k[..., :0, :], v[..., :0, :]),
    "five dimensions": lambda q, k, v: (q[None, None], k[None, None], v[None, None]),
    "one dimension": lambda q, k, v: (q, k[(0,) * (k.dim() - 1)], v),
    "fewer columns": lambda q, k, v: (q, k[..., :8].contiguous(), v),
    "fewer keys": lambda q, k, v: (q, k.narrow((0, -2)[k.dim() == 4], 0, 9).contiguous(), v),
    "heads that do not divide": lambda q, k, v: (q, *(torch.cat([x] * 3, 1) for x in (k, v))),
    "another device": lambda q, k, v: (q, k.to("meta"), v),
}  # fmt: skip
WRONG_OPTIONS = {
    "scale": ("1", True, 0.0, -1.0, float("nan")),
    "window": (3, (1,), (-1, 0), (1.0, 0), (True, 0)),
    "sinks": (1.0, torch.zeros(2).half(), torch.zeros(3)),
    "softcap": ("1", True, 0.0, -1.0, float("nan")),
    "bias": (torch.zeros(100, 150), torch.zeros(1, 2, 100, 150).int(), torch.zeros(1, 2, 3, 150)),
    "cu_seqlens_q": (torch.tensor([0, 100]), torch.tensor([0, 10, 20, 100]).int(),
                     torch.tensor([[0, 40, 100]]).int()),
    "cache_seqlens": (9, torch.tensor([9, 9]), torch.tensor([9]).int()),
    "page_table": (9, torch.zeros(2, 69), torch.zeros(3, 69).int(), torch.zeros(2).int()),
    "max_seqlen": (0, 1.5, True, 2000),
    "k_scale": (1.0, torch.ones(3), torch.ones(4).half()),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_file_refuses_what_the_full_kernel_refuses(name, tmp_path, monkeypatch):
    ticks = FILES[name]
    folded, full = launchers(ticks, tmp_path, monkeypatch)
    ours, (tensors, own, all_of) = folded.attention, call(ticks, folded)
    wrong = {of: (change(*tensors), {}) for of, change in WRONG.items()}
    takes = own.keys() | {"scale"} | ({"max_seqlen"} if ticks.decode else set())
    if ticks.decode:  # any strides
        del wrong["steps of columns"]
    for of in takes & WRONG_OPTIONS.keys():
        wrong |= {f"{of} {i}": (tensors, {of: x}) for i, x in enumerate(WRONG_OPTIONS[of])}
    if not ticks.backward:
        full = full if ticks.decode else kernel.masks_and_packing
        wrong["a gradient"] = ((tensors[0].clone().requires_grad_(), *tensors[1:]), {})
    for of, (given, changed) in wrong.items():
        kinds = refusal(ours, given, own | changed), refusal(full, given, all_of | changed)
        assert kinds[0] is kinds[1] or ticks.decode, of


def refusal(launcher, tensors, options):
    with pytest.raises((TypeError, ValueError), match="allowed") as caught:
        launcher(*tensors, **options)
    return caught.type


def test_a_file_runs_alone_in_an_empty_folder(tmp_path):
    text = your_kernel.made(your_kernel.popular()["Llama 3, Qwen 3: prefill"])
    (tmp_path / "mine.py").write_text(text, "utf-8")
    imported = {*re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)}
    assert imported == {"numbers", "os", "torch", "triton"}
    command = [sys.executable, "-I", "mine.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()[-1:]) == (0, ["OK"]), done.stderr


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_nothing_else_and_stays_as_it_is(name):
    ticks, text = FILES[name], your_kernel.made(FILES[name])
    choice = replace(your_kernel.choice(ticks, your_kernel.source(ticks)), texts=())
    code = text.split('"""', 2)[2]  # what the docstring names is the choice
    words = {*choice.words} - {"page", "pages"}  # which a cache in one piece has, by name
    named = [word for word in words if re.search(rf"\b{word}\b", code)]
    assert named == [], "what is not there"
    said = {"and not checked: if": ticks.packed, "dtype, and the logsumexp [": ticks.lse}
    said |= {"[..., H": not ticks.packed and not ticks.decode}
    said |= {} if ticks.grouped and not ticks.paged else {"Hkv, N, D]": False}
    assert {words: words in text for words in said} == said
    assert your_kernel.formatted(fold.fold(text, choice)) == text, "twice is once"
    assert your_kernel.ruff(text, "check", "--quiet") == ""


@pytest.mark.parametrize("right", ["acc * alpha[:, None]", "dpt - delta_row[None, :]"])
def test_the_self_check_finds_a_wrong_kernel(right, tmp_path, capsys):
    text = your_kernel.made(your_kernel.popular()["training: causal"])
    assert text.count(right) == 1
    path = tmp_path / "kernel.py"
    path.write_text(text.replace(right, right.split()[0]), "utf-8")
    assert load_file(path, "wrong").main() == 1
    assert "WRONG" in capsys.readouterr().out


def test_any_two_ticks_meet_in_a_published_file():
    files = your_kernel.published().values()
    assert len(files) <= 300
    for use, features in enumerate(your_kernel.USES):
        for names in itertools.combinations(features, 2):
            met = {frozenset({*x.on} & {*names}) for x in files if x.decode is bool(use)}
            assert len(met) == 4 - (names in your_kernel.EXCLUDED), names


def test_a_command_names_ticks_that_there_are():
    words = ["CAUSAL=1", "LSE", "SINKS=0", "D=96", "GPU=sm_80"]
    assert your_kernel.asked(words).name == "causal_lse_d96_sm_80"
    for word in ("CASUAL", "CAUSAL=2", "D=33", "D=x", "GPU", "GPU=sm_70", "PACKED BIAS", "PAGED"):
        with pytest.raises(UnknownName):
            your_kernel.asked(word.split())


def test_make_passes_what_was_typed():
    typed = ["CAUSAL=0", "WINDOW=yes", "D=96", "CASUAL=1"]
    command = ["make", "--dry-run", "your-kernel", *typed, "PYTHON=python3"]
    env = {name: x for name, x in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    assert f"python3 -m snippets._site your-kernel {' '.join(typed)}\n" in done.stdout


def test_one_file_needs_no_triton_but_the_installed_one():
    command = [sys.executable, "-m", "pytest", "--collect-only", __file__]
    env = os.environ | {"YOUR_KERNEL": "D=64"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    found = re.findall(r"kernels_program\[(.*)-plain_d64", done.stdout)
    assert found == [Compiler.version]


@pytest.mark.parametrize("post", ["masks_and_packing", "decode_attention"])
def test_a_rate_is_that_of_a_stored_row(post):
    for row in some(store.read(store.path_of("nvidia_h200", post, "popular")).rows):
        ticks = your_kernel.asked(row["choice"].split())
        work = row["bytes_compulsory" if ticks.decode else "flops"] / row["ms_p50"] * 1e-9
        said, link = your_kernel.rate(ticks)
        assert float(said.split()[0]) == pytest.approx(work, rel=0.01)
        assert link.endswith(f"posts/{post}/numbers.md#{post}-popular)")
        other = replace(ticks, gpu="sm_100")
        assert your_kernel.rate(other) == ("rate not measured", "not measured")


def test_what_is_popular_was_timed():
    """On the card that was to be had; packed training too."""
    timed = [your_kernel.rate(replace(x, gpu="sm_90"))[0] for x in your_kernel.popular().values()]
    assert not [text for text in some(timed) if "not measured" in text]


def test_the_shortest_file_is_short_and_in_colors():
    text = your_kernel.made(your_kernel.Ticks(("causal", "contiguous")))
    assert your_kernel.code_lines(text) <= 150
    pieces = listings.colored(text)
    assert "".join(piece for _, piece in pieces) == text
    assert ("k", "def") in pieces
