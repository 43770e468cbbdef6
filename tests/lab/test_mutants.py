"""The runner of wrong kernels: only a numerical assertion kills, and everything else is an error.

A room of a few lines in plain PyTorch stands in for the real ones, which `make mutants` runs.
"""

import re
import time

import pytest
import torch

from snippets._lab import rooms
from snippets._lab.judge import mutants
from snippets._lab.judge.mutants import CONTROL, Mutant, MutantError, judge, mutate, rows, variant
from tests import made_up

KERNEL = '''
"""Attention in two lines."""
import math
import time

def fake_attention(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v
'''
TESTS = """
import pytest
from snippets._lab.judge.oracle import assert_attention, make_qkv
from snippets.fake_attention import exercise, kernel
from snippets.fake_attention.kernel import fake_attention

@pytest.mark.numerical
def test_equals_float64():
    q, k, v = make_qkv(2, M=3, N=9, D=16)
    assert kernel.fake_attention is fake_attention  # however it is imported
    assert exercise.fake_attention is fake_attention  # and by whomever
    assert_attention(fake_attention(q, k, v), q, k, v)

@pytest.mark.numerical
def test_one_key():
    q, k, v = make_qkv(2, M=3, N=1, D=16)
    assert_attention(fake_attention(q, k, v), q, k, v)

def test_of_something_else():
    assert False
"""
NO_SCALE = Mutant("no scale", " / math.sqrt(q.shape[-1])", "", "Too sharp.")
ZEROS = Mutant("zeros", "@ v\n", "@ v * 0\n", "All zeros.")


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A room with tests and two wrong kernels; returns its folder."""
    (tmp_path / "tests" / "posts").mkdir(parents=True)
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    judged_by(TESTS)
    files = {"kernel": KERNEL, "exercise": "from .kernel import fake_attention\n"}
    with made_up.room(tmp_path, monkeypatch, **files) as folder:
        write_mutants(folder, NO_SCALE, ZEROS)
        yield folder


def judged_by(tests):
    """Write what judges the room's kernels."""
    (mutants.ROOT / "tests/posts/test_fake_attention.py").write_text(tests)


def write_mutants(folder, *mutants):
    listed = ",\n".join(f"Mutant{tuple(m)!r}" for m in mutants)
    (folder / "mutants.py").write_text(
        f"from snippets._lab.judge.mutants import Mutant\nMUTANTS = [{listed}]\n"
    )


def each(mutant):
    return ({"mutant": name} for name in mutant)


def test_a_kill_names_the_test_and_its_message(room):
    found = list(rows("fake_attention", each))
    assert [r["mutant"] for r in found] == ["no scale", "zeros"]
    assert {r["killed_by"] for r in found} == {"test_equals_float64"}
    assert all(r["message"].startswith("largest difference") for r in found)
    assert found[0]["diagnosis"] == "Too sharp."
    assert found[0]["old"] == "    scores = q @ k.mT / math.sqrt(q.shape[-1])"
    assert found[0]["new"].rstrip() == "    scores = q @ k.mT"  # a blank may be left over


def test_the_unchanged_kernel_survives(room):
    verdict = judge("fake_attention", KERNEL)
    assert (verdict.outcome, verdict.message) == ("survived", "2 tests passed")


def test_a_kernel_that_was_imported_before_is_not_what_is_judged(room):
    """Bench has the right kernel, and what uses it, in memory when it runs the mutants."""
    rooms.load("fake_attention", "exercise")
    assert judge("fake_attention", mutate(KERNEL, ZEROS)).outcome == "killed"
    module = rooms.load("fake_attention", "kernel")
    assert module.__file__ == str(room / "kernel.py"), "and the right one stays in memory"


def test_a_parent_that_has_used_its_threads_does_no_harm(room, monkeypatch):
    """Bench has multiplied matrices by then; a child that waits for the parent's threads hangs."""
    monkeypatch.setattr(mutants, "SECONDS", 20)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = torch.randn(512, 512)
        (x @ x).softmax(-1).sum()
        judged_by(TESTS.replace("M=3, N=9, D=16", "M=256, N=512, D=64"))
        assert judge("fake_attention", KERNEL).outcome == "survived"
    finally:
        torch.set_num_threads(threads)


# Each is broken in a way that has nothing to do with its numbers.
BODY = "    scores = q @"
BROKEN = {
    "crashes": (BODY, "    scores = nothing @", "NameError"),
    "does not compile": ("import math\n", "import math\nreturn\n", "import failed: SyntaxError"),
    "import fails": ("import math\n", "import maths_of_nobody\n", "import failed: ModuleNotFoundE"),
    "import ends the process": ("import math\n", "import math\nexit(3)\n", "exit status 3"),
    "refuses": (BODY, f"    raise ValueError\n{BODY}", "ValueError"),
    "a bare assertion": (BODY, f"    assert 0\n{BODY}", "AssertionError"),
    "ends the process": (BODY, f"    import os; os._exit(3)\n{BODY}", "exit status 3"),
    "wrong name": ("def fake_attention", "def other_attention", "no numerical test ran"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_run_is_an_error_and_no_kill(case, room):
    old, new, message = BROKEN[case]
    verdict = judge("fake_attention", mutate(KERNEL, Mutant(case, old, new, "")))
    assert verdict.outcome == "error"
    assert message in verdict.message


BY_TORCH = """
import pytest
import torch
from snippets.fake_attention import kernel

@pytest.mark.numerical
def test_equals_pytorch():
    q, k, v = torch.randn(3, 2, 9, 16)
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(kernel.fake_attention(q, k, v), WANT)
"""


def test_a_difference_that_pytorch_finds_is_a_kill(room):
    """A post that is no attention needs nothing of ours to compare with."""
    judged_by(BY_TORCH.replace("WANT", "want"))
    assert judge("fake_attention", KERNEL).outcome == "survived"
    verdict = judge("fake_attention", mutate(KERNEL, ZEROS))
    assert verdict.outcome == "killed"
    found = re.match(r"largest difference (\S+) at index \(.*\), allowed 1e-05$", verdict.message)
    assert float(found[1]) > 0.1
    judged_by(BY_TORCH.replace("WANT", "want[:1]"))  # another shape says nothing of numbers
    verdict = judge("fake_attention", mutate(KERNEL, ZEROS))
    assert verdict.outcome == "error"
    assert "assert_close or NumericalMismatch" in verdict.message, "it says what would be a kill"


def test_a_mutant_that_hangs_is_an_error_and_ends(room, monkeypatch):
    monkeypatch.setattr(mutants, "SECONDS", 1.0)
    hanging = mutate(KERNEL, Mutant("hangs", BODY, f"    time.sleep(99)\n{BODY}", ""))
    began = time.monotonic()
    verdict = judge("fake_attention", hanging)
    assert (verdict.outcome, verdict.message) == ("error", "no verdict within 1.0 s")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "tests",
    [
        TESTS.replace("@pytest.mark.numerical", ""),
        TESTS.replace("@pytest.mark.numerical", "@pytest.mark.numerical\n@pytest.mark.skip"),
        "",
        "import nothing_of_the_sort",
    ],
    ids=["none is numerical", "all are skipped", "empty file", "import fails"],
)
def test_without_a_numerical_test_nothing_is_killed_and_nothing_survives(tests, room):
    judged_by(tests)
    verdict = judge("fake_attention", mutate(KERNEL, ZEROS))
    assert (verdict.outcome, verdict.message) == ("error", "no numerical test ran")


@pytest.mark.parametrize(
    ("mutants", "message"),
    [
        ([ZEROS, Mutant("gone", "no such text", "", "")], "gone: its old text occurs 0 times"),
        ([Mutant("vague", "q", "k", "")], r"vague: its old text occurs [2-9] times, not once"),
        ([ZEROS, ZEROS], "two mutants have the same name"),
        ([ZEROS, Mutant("harmless", "scores.softmax(-1)", "torch_softmax", "")], "NameError"),
        ([ZEROS, Mutant("harmless", "import time\n", "import time as t\n", "")], "harmless: surv"),
    ],
    ids=["old text not found", "found twice", "same name", "crashes", "survives"],
)
def test_a_mutant_that_cannot_be_judged_stops_everything(mutants, message, room):
    write_mutants(room, *mutants)
    with pytest.raises(MutantError, match=message):
        list(rows("fake_attention", each))


def test_a_wrong_kernel_fails_as_its_own_control(room):
    (room / "kernel.py").write_text(mutate(KERNEL, ZEROS))
    write_mutants(room, NO_SCALE)
    with pytest.raises(MutantError, match=f"{CONTROL}: killed test_equals_float64"):
        list(rows("fake_attention", each))


def test_a_variant_is_the_launcher_with_texts_replaced(room):
    doubled = variant("fake_attention", [("@ v\n", "@ v * 2\n")])
    plain = variant("fake_attention", [])
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(doubled(x, x, x), 2 * plain(x, x, x))
    with pytest.raises(MutantError, match="variant: its old text occurs 0 times"):
        variant("fake_attention", [("no such text", "")])
