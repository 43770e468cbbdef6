"""Where numbers come from: known, or "unknown"."""

import shutil
import subprocess
import time
import types

import pytest

from snippets._lab import rooms
from snippets._lab.measure import machine
from snippets._lab.results import origin, store


def test_without_git_the_commit_is_unknown(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert origin.commit() == "unknown"


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_outside_a_repository_and_before_the_first_commit_it_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.setattr(origin, "ROOT", tmp_path)
    assert origin.commit() == "unknown"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert origin.commit() == "unknown"
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *identity, "-C", tmp_path, "commit", "-q", "--allow-empty", "-m", "one"]
    subprocess.run(command, check=True)
    assert len(origin.commit()) == 40


def git(*command):
    """What git says of this repository; "" where there is none."""
    if shutil.which("git") is None:
        return ""
    done = subprocess.run(
        ["git", "-C", rooms.ROOT, *command], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


@pytest.mark.skipif(
    git("rev-parse", "--is-shallow-repository") != "false", reason="needs the whole history"
)
def test_each_committed_result_names_a_commit_of_this_history():
    """Else nobody can look up what was measured: commit, measure, and don't rebase after that."""
    committed = {rooms.ROOT / name for name in git("ls-files", "docs/data/*.json").split()}
    history = git("rev-list", "HEAD").split()
    found = [r for r in store.scan() if store.path_of(r.folder, r.post, r.result) in committed]
    strangers = [f"{r.folder}/{r.post}/{r.result}" for r in found if r.commit not in history]
    assert len(found) > 200
    assert strangers == []


# Watching a GPU: by nvidia-smi, or not at all.

NO_READINGS = {"sm_clock_mhz": None, "power_w": None, "temperature_c": None}
BUSY, CAPPED, HOT, BRAKED = 0x0, 0x04, 0x20 | 0x04, 0x88


@pytest.fixture
def some_gpu(monkeypatch):
    properties = types.SimpleNamespace(uuid="1234")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)


def watched(*readings):
    """A watch that was told these: clock, power, temperature and reasons, a second apart."""
    watch = machine.ClockWatch()
    watch._readings = [machine.Reading(float(i), *reading) for i, reading in enumerate(readings)]
    return watch


def test_readings_give_lowest_median_highest():
    watch = watched((100, 20, 30, BUSY), (300, 40, 50, BUSY), (200, 60, 40, CAPPED))
    assert watch.summary() == {
        "sm_clock_mhz": [100, 200, 300],
        "power_w": [20, 40, 60],
        "temperature_c": [30, 40, 50],
    }


def test_a_gpu_that_is_slowed_down_is_marked():
    hot = (1200, 300, 92, HOT)
    found = watched((1980, 300, 60, BUSY), hot, (345, 100, 60, BRAKED), hot).summary()
    assert found["slowdowns"] == {
        "heat": 0.5,
        "a hardware slowdown": 0.25,
        "the power supply": 0.25,
    }


def test_the_power_limit_is_no_slowdown():
    assert "slowdowns" not in watched((1980, 700, 60, CAPPED)).summary()


def test_a_window_of_readings():
    watch = watched(*((1000 + i, 500 + i, 60, CAPPED if i > 2 else BUSY) for i in range(5)))
    assert watch.between(1.0, 3.0) == {
        "readings": 3,
        "power_w": 502,
        "sm_clock_mhz": 1002,
        "power_capped": 0.333,
    }
    assert watch.between(7.0, 9.0) == {"readings": 0}


@pytest.fixture
def program(some_gpu, tmp_path, monkeypatch):
    """Replaces nvidia-smi by a program; returns the file that has what it was asked."""
    asked = tmp_path / "asked"

    def put(script):
        tool = tmp_path / "nvidia-smi"
        tool.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n{script}\n')
        tool.chmod(0o755)
        monkeypatch.setattr(shutil, "which", lambda _: str(tool))
        return asked

    return put


LINE = "echo '{}, {}, 61, 0x{:016x}'"


def test_nvidia_smi_goes_on_telling_until_the_watch_ends(program):
    stays = 'case "$*" in *loop-ms*) exec sleep 60;; esac'
    asked = program(f"{LINE.format(1755, 690.5, HOT)}\n{stays}")
    with machine.ClockWatch(0.05) as watch:
        while not watch._readings:
            time.sleep(0.01)
    assert watch.summary() == {
        "sm_clock_mhz": [1755.0] * 3,
        "power_w": [690.5] * 3,
        "temperature_c": [61.0] * 3,
        "slowdowns": {"heat": 1.0},
    }
    _, once = asked.read_text().splitlines()
    assert "power.draw.instant" in once
    assert once.endswith("--id=GPU-1234 --loop-ms=50")


@pytest.mark.parametrize("script", [None, "echo no such field >&2; exit 2", "echo '[N/A]'"])
def test_without_an_answer_there_are_no_readings(script, program, monkeypatch):
    program(script or "")
    if script is None:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    with machine.ClockWatch() as watch:
        pass
    assert watch.summary() == NO_READINGS
