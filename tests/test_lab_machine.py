"""Where numbers come from: known, or "unknown"; and when the code behind them has moved."""

import shutil
import subprocess
import types
from dataclasses import replace

import made_up
import pytest

from snippets._lab import rooms
from snippets._lab.measure import machine
from snippets._lab.results import staleness
from snippets._lab.results.store import Result

KERNEL = '''
"""A kernel's file."""
LIMIT = 64

def _kernel(x):
    return x * LIMIT

def fake_attention(q):
    """The launcher."""
    return _kernel(q)

def main():
    print(fake_attention(1))
'''
BENCH = '''
SIZES = [16, 32]

def forward(lab):
    """Time."""
    return [fake_attention(n) for n in SIZES]

def error(lab):
    return [1]
'''
MUTANTS = 'MUTANTS = [("no scale", "* LIMIT", "", "Too small.")]\n'

TESTS = "def test_small():\n    assert fake_attention(1) == 64\n"


@pytest.fixture
def room(tmp_path, monkeypatch):
    """A room with two results and mutants; its folder."""
    folder = tmp_path / "snippets" / "fake_attention"
    folder.mkdir(parents=True)
    for name, text in (
        ("__init__.py", ""),
        ("kernel.py", KERNEL),
        ("bench.py", BENCH),
        ("mutants.py", MUTANTS),
    ):
        (folder / name).write_text(text)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_fake_attention.py").write_text(TESTS)
    monkeypatch.setattr(rooms, "SNIPPETS", tmp_path / "snippets")
    return folder


def result(name):
    """A result measured with the code as it is now."""
    return Result(
        post="fake_attention",
        result=name,
        place="gpu",
        folder="some_gpu",
        device={"name": "Some GPU"},
        versions={},
        commit="unknown",
        measured_at="2026-11-21T10:00:00Z",
        seed=0,
        rows=[{}],
        **made_up.code_as_it_is("fake_attention", name),
    )


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1, f"{old!r} is not in {path.name} exactly once"
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "stale"),
    [
        ("kernel.py", "x * LIMIT", "x + LIMIT", {"forward", "error", "report", "mutants"}),
        ("kernel.py", "LIMIT = 64", "LIMIT = 65", {"forward", "error", "report", "mutants"}),
        ("kernel.py", "print(fake", "repr(fake", {"report"}),
        ("bench.py", "[16, 32]", "[16]", {"forward"}),
        ("bench.py", "[1]", "[2]", {"error"}),
        ("mutants.py", "Too small.", "Too large.", {"mutants"}),
        ("../../tests/test_fake_attention.py", "== 64", "== 65", {"mutants"}),
        ("kernel.py", '"""The launcher."""', "# no docstring, a comment", set()),
        ("bench.py", '"""Time."""', '"""Time in ms."""', set()),
        ("bench.py", "def error", "\n\ndef error", set()),
    ],
)
def test_results_are_stale_when_their_code_has_moved(file, old, new, stale, room):
    measured = [result(name) for name in ("forward", "error", "report", "mutants")]
    assert not any(map(staleness.is_stale, measured))
    edit(room / file, old, new)
    assert {r.result for r in measured if staleness.is_stale(r)} == stale


@pytest.mark.parametrize("gone", ["the function", "bench.py", "kernel.py", "the room"])
def test_results_are_stale_when_their_code_is_gone(gone, room):
    measured = result("forward")
    if gone == "the function":
        edit(room / "bench.py", "def forward", "def backward")
    elif gone == "the room":
        shutil.rmtree(room)
    else:
        (room / gone).unlink()
    assert staleness.is_stale(measured)


def test_a_result_without_definitions_says_so(room):
    assert staleness.changed(replace(result("forward"), code={})) == [
        "measured before definitions were recorded"
    ]


def test_the_hash_is_the_same_wherever_the_room_lies(room, tmp_path, monkeypatch):
    here = staleness.code_of("fake_attention", "forward")
    shutil.copytree(tmp_path / "snippets", tmp_path / "elsewhere")
    monkeypatch.setattr(rooms, "SNIPPETS", tmp_path / "elsewhere")
    assert staleness.code_of("fake_attention", "forward") == here


def test_without_git_the_commit_is_unknown(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert machine.commit() == "unknown"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_outside_a_repository_and_before_the_first_commit_it_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    assert machine.commit() == "unknown"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert machine.commit() == "unknown"
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *identity, "-C", tmp_path, "commit", "-q", "--allow-empty", "-m", "one"]
    subprocess.run(command, check=True)
    assert len(machine.commit()) == 40


def test_versions_name_what_reading_a_result_asks_for():
    from snippets._lab.results.store import VERSIONS

    found = machine.versions()
    assert found.keys() == set(VERSIONS)
    assert all(isinstance(v, str) and v for v in found.values())


@pytest.fixture
def smi(monkeypatch):
    """Put a fake nvidia-smi in place; returns a function that says how it answers."""
    properties = types.SimpleNamespace(uuid="1234")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    asked = []

    def answer(by_id, without_id=(1, "")):
        def run(command, **_):
            asked.append(command)
            given = by_id if "--id=GPU-1234" in command else without_id
            if isinstance(given, Exception):
                raise given
            return subprocess.CompletedProcess(command, given[0], given[1], "")

        monkeypatch.setattr(subprocess, "run", run)
        return asked

    return answer


def test_readings_of_the_device(smi):
    smi((0, "580.1, 700.00\n"))
    assert machine.smi("driver_version", "power.limit") == ["580.1", "700.00"]


def test_a_device_that_has_no_identifier_here_is_asked_without(smi):
    asked = smi((6, "No devices were found"), (0, "580.1\n"))
    assert machine.smi("driver_version") == ["580.1"]
    assert len(asked) == 2


@pytest.mark.parametrize(
    "answers",
    [((1, ""), (1, "")), ((0, "\n"), (0, "")), (subprocess.TimeoutExpired("nvidia-smi", 20),)],
    ids=["refuses", "says nothing", "hangs"],
)
def test_a_device_that_does_not_answer_is_no_crash(answers, smi):
    smi(*answers)
    assert machine.smi("driver_version") is None
    with machine.ClockWatch(every_seconds=0.01) as watch:
        pass
    assert watch.summary() == {"sm_clock_mhz": None, "power_w": None, "temperature_c": None}


def test_without_nvidia_smi_nothing_is_read(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert machine.smi("driver_version") is None


def test_clock_readings_give_lowest_median_highest(monkeypatch):
    readings = iter([["100", "20", "30"], ["300", "40", "50"], ["200", "[N/A]", "1"], ["50"]])
    watch = machine.ClockWatch(every_seconds=0)

    def next_reading(*_):
        reading = next(readings, None)
        if reading is None:
            watch._stop.set()
        return reading

    monkeypatch.setattr(machine, "smi", next_reading)
    watch._watch()  # in this thread: the readings end, and with them the watch
    assert watch.summary() == {
        "sm_clock_mhz": [100.0, 300.0, 300.0],
        "power_w": [20.0, 40.0, 40.0],
        "temperature_c": [30.0, 50.0, 50.0],
    }
