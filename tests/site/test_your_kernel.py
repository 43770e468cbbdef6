"""Each published file: the full kernel's program and bits, right in float64, and nothing else."""

import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime.driver import driver

from snippets._lab.child import Child
from snippets._lab.probe.compiled import Compiler, no_device
from snippets._lab.rooms import load_file
from snippets._site import fold, listings, your_kernel
from snippets._site.program import Choice
from snippets._site.your_kernel import ROOT, SOURCE
from tests.floors import some

SOURCE_TEXT = your_kernel.source()
ASKED = os.environ.get("YOUR_KERNEL")  # of `make your-kernel`
if ASKED and ASKED != "every":
    FILES = {x.name: x for x in [your_kernel.asked(ASKED.split())]}
else:  # as a rule what is popular, on one generation
    FILES = some(your_kernel.published())
    FILES = {n: x for n, x in FILES.items() if ASKED or x in your_kernel.POPULAR.values()}


class FoundError(Exception):
    """Carries Triton's IR out of its compiler."""


def serve(connection: Connection) -> None:
    """Answer each launch that comes with its Triton IR: what follows is not compiled."""
    before = CUDABackend.add_stages

    def add_stages(self, stages, *arguments):
        def found(ir, metadata):
            raise FoundError(str(ir))

        before(self, stages, *arguments)
        stages["ttgir"] = found

    CUDABackend.add_stages = add_stages
    while True:
        try:
            cell = connection.recv()
        except EOFError:
            return
        driver.set_active(no_device(cell.target))
        kernel = cell.found()
        kernel.device_caches.clear()
        with pytest.raises(FoundError) as caught:
            kernel.warmup(*cell.args, grid=(1,), **cell.kwargs)
        connection.send(str(caught.value))


@pytest.fixture(scope="module")
def compiling(tmp_path_factory):
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    folder = str(tmp_path_factory.mktemp("triton"))
    env |= {"TRITON_ALWAYS_COMPILE": "1", "TRITON_CACHE_DIR": folder}
    with Child(serve, fresh=True, env=env) as child:
        yield child


def same_program(ir):
    """IR without locations, names, parameters that nothing reads, and the order of constants."""
    ir = re.sub(r" loc\((?:[^()]|\([^()]*\))*\)|^#loc.*\n", "", ir, flags=re.MULTILINE)
    head, body = re.search(r"(tt\.func [^\n]*)\{\n(.*)", ir, re.DOTALL).groups()
    constants = dict(some(re.findall(r"(%\w+) = (arith\.constant .*)", body)))
    body = re.sub(r".* = arith\.constant .*\n", "", body)
    body = re.sub(r"%\w+", lambda x: f"{{{constants[x[0]]}}}" if x[0] in constants else x[0], body)
    every = re.findall(r"(%\w+): ([^,{)]*(?:\{.*?\})?)", head)
    read = [x for x in some(every) if re.search(rf"{x[0]}\b", body)]
    names: dict[str, str] = {}
    text = "\n".join([*map(": ".join, read), body])
    return re.sub(r"%\w+", lambda x: names.setdefault(x[0], f"%{len(names)}"), text)


def call(ticks):
    """Tensors and options for the full kernel, and those that the file takes."""
    torch.manual_seed(0)
    rows, keys, heads = 100, 150, 1 if ticks.grouped else 2
    q, k, v = (
        torch.randn(1, *x, ticks.D).half() for x in ((2, rows), (heads, keys), (heads, keys))
    )
    if ticks.packed:
        q, k, v = (x[0].transpose(0, 1) for x in (q, k, v))
    options = {
        "window": (60, 20) if ticks.window else None,
        "sinks": torch.randn(2) if ticks.sinks else None,
        "softcap": 3.0 if ticks.softcap else None,
        "bias": torch.randn(1, 2, rows, keys).half() if ticks.bias else None,
        "cu_seqlens_q": torch.tensor([0, 33, rows]).int() if ticks.packed else None,
        "cu_seqlens_k": torch.tensor([0, 80, keys]).int() if ticks.packed else None,
    }
    options = {name: x for name, x in options.items() if x is not None}
    return (q, k, v), options, options | {"causal": ticks.causal, "return_lse": ticks.lse}


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_the_full_kernel(name, compiling, monkeypatch, tmp_path, capsys):
    ticks = FILES[name]
    path = tmp_path / "kernel.py"
    path.write_text(your_kernel.made(ticks), "utf-8")
    file, full = load_file(path, "folded"), load_file(ROOT / SOURCE, "full")
    monkeypatch.setattr(full, "_architecture", lambda device: ticks.gpu)
    tensors, own, all_of = call(ticks)

    assert file.main() == 0, capsys.readouterr().out
    found, want = file.attention(*tensors, **own), full.masks_and_packing(*tensors, **all_of)
    pairs = zip(found, want, strict=True) if ticks.lse else [(found, want)]
    assert all(torch.equal(a, b) for a, b in pairs)

    ours = programs(compiling, file.attention, tensors, own, ticks.gpu)
    assert ours == programs(compiling, full.masks_and_packing, tensors, all_of, ticks.gpu)


def programs(compiling, launcher, tensors, options, target):
    """What each kernel that a launcher launches does."""
    found = []
    for launch in Compiler().launches(launcher, tensors, options, target=target):
        compiling.send(launch)
        found.append(same_program(compiling.receive(60)))
    return some(found)


QUERY, KEYS = (1, 4, 2, 128), (1, 2, 1500, 128)
ROOMS = {  # launchers that keep what Triton has compiled, or pass tuples and dicts around
    "flash_attention": (QUERY, {"causal": True, "return_lse": False, "align": "bottom_right"}),
    "decode_attention": (QUERY, {"batch_invariant": True, "page_table": None, "num_splits": 0}),
}


@pytest.mark.parametrize("room", ROOMS)
def test_other_launchers_fold_too(room, compiling, tmp_path):
    shape, given = ROOMS[room]
    full = load_file(ROOT / f"snippets/{room}/kernel.py", f"full_{room}")
    source = listings.without_markers(Path(full.__file__).read_text("utf-8"))
    path = tmp_path / "kernel.py"
    path.write_text(fold.fold(source, Choice((room,), {room: given}, {"D": 128, "BLOCK_D": 128})))
    assert len(path.read_text()) < 0.95 * len(source)
    tensors = (torch.randn(shape).half(), *torch.randn(2, *KEYS).half())
    launchers = (getattr(load_file(path, "folded"), room), {}), (getattr(full, room), given)
    assert torch.equal(*(launcher(*tensors, **options) for launcher, options in launchers))
    ours, theirs = (programs(compiling, x, tensors, options, "sm_90") for x, options in launchers)
    assert ours == theirs


@pytest.mark.parametrize("name", FILES)
def test_a_file_has_nothing_else_and_stays_as_it_is(name):
    ticks, text = FILES[name], your_kernel.made(FILES[name])
    choice = replace(your_kernel.choice(ticks, SOURCE_TEXT), texts=())
    code = text.split('"""', 2)[2]  # what the docstring names is the choice
    named = [word for word in choice.words if re.search(rf"\b{word}\b", code)]
    assert named == [], "what is not there"
    assert your_kernel.formatted(fold.fold(text, choice)) == text, "twice is once"
    lint = [sys.executable, "-m", "ruff", "check", "--stdin-filename", str(SOURCE), "-"]
    done = subprocess.run(lint, input=text, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_the_self_check_finds_a_wrong_kernel(tmp_path, capsys):
    right = "acc = acc * alpha[:, None]"
    text = your_kernel.made(next(iter(FILES.values())))
    assert text.count(right) == 1
    path = tmp_path / "kernel.py"
    path.write_text(text.replace(right, "acc = acc * 1.0"), "utf-8")
    assert load_file(path, "wrong").main() == 1
    assert "WRONG" in capsys.readouterr().out


def test_any_two_ticks_meet_in_a_published_file():
    files = your_kernel.published().values()
    assert len(files) <= 300
    for one, other in itertools.combinations(your_kernel.FEATURES, 2):
        for values in itertools.product((False, True), repeat=2):
            if values == (True, True) and (one, other) in your_kernel.EXCLUDED:
                continue
            assert any((getattr(x, one), getattr(x, other)) == values for x in files), (one, other)


def test_a_command_names_ticks_that_there_are():
    assert your_kernel.asked(["CAUSAL", "D=96", "GPU=sm_80"]).name == "causal_d96_sm_80"
    for words in (["CASUAL"], ["D=33"], ["GPU=sm_70"], ["PACKED", "BIAS"]):
        with pytest.raises(your_kernel.UnknownChoice):
            your_kernel.asked(words)
