"""Results on disk: replaced whole or not at all, and refused by name when something is wrong."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from snippets._lab.results import store
from snippets._lab.results.store import DataError, Result, folder_name, read, scan, write

ROOT = Path(__file__).resolve().parents[1]
RESULT = Result(
    post="some_attention",
    result="forward",
    place="gpu",
    folder="some_gpu",
    device={"name": "Some GPU", "power_limit_w": 700.0},
    versions={"python": "3.12", "torch": "2", "triton": "3", "cuda": "none", "cudnn": "none"},
    commit="unknown",
    measured_at="2026-11-21T10:00:00Z",
    seed=0,
    source_hash="0123456789abcdef",
    rows=[{"N": 16, "ms_p50": 0.25}, {"N": 32, "error": "out of memory", "größe": "µs"}],
    ceilings={"read": {"per_s_p80": 4.4e12}},
)


def test_what_is_read_is_what_was_written(tmp_path):
    path = write(RESULT, tmp_path)
    assert path == tmp_path / "some_gpu" / "some_attention" / "forward.json"
    assert read(path, tmp_path) == RESULT
    assert list(scan(tmp_path)) == [RESULT]
    assert (RESULT.label, RESULT.date) == ("Some GPU", "2026-11-21")


def test_a_file_has_one_row_a_line(tmp_path):
    lines = write(RESULT, tmp_path).read_text("utf-8").splitlines()
    assert [json.loads(line.strip().rstrip(",")) for line in lines[-4:-2]] == RESULT.rows


def test_everybody_may_read_a_result(tmp_path):
    assert write(RESULT, tmp_path).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("device", "folder"),
    [
        ("NVIDIA H200", "nvidia_h200"),
        ("NVIDIA GeForce RTX 4090", "nvidia_geforce_rtx_4090"),
        ("Tesla T4 (16 GB)", "tesla_t4_16_gb"),
        ("../../etc/passwd", "etc_passwd"),
    ],
)
def test_folder_of_a_device(device, folder):
    assert folder_name(device) == folder


def files_in(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("error", [OSError(28, "No space left"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_an_error_in_mid_write_leaves_the_old_file(step, error, tmp_path, monkeypatch):
    path = write(RESULT, tmp_path)
    before = path.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        write(replace(RESULT, seed=1), tmp_path)
    assert path.read_bytes() == before
    assert files_in(tmp_path) == ["some_gpu/some_attention/forward.json"]


def test_a_kill_in_mid_write_leaves_the_old_file(tmp_path):
    path = write(RESULT, tmp_path)
    before = path.read_bytes()
    code = (
        "import os, signal, sys, tempfile\n"
        "from pathlib import Path\n"
        "from snippets._lab.results import store\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store.write_whole(Path(sys.argv[1]), 'half of a fi')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    left = [name for name in files_in(tmp_path) if name.endswith(".part")]
    assert left, "the kill came too late to prove anything"
    assert list(scan(tmp_path)) == [RESULT], "a leftover is not a result"


def test_a_result_appears_only_when_it_is_whole(tmp_path, monkeypatch):
    """Whoever reads while a file is written sees the old one, down to the last step."""
    path = write(RESULT, tmp_path)
    seen = []
    real = os.replace

    def look_first(*names):
        seen.append(read(path, tmp_path))
        real(*names)

    monkeypatch.setattr(os, "replace", look_first)
    write(replace(RESULT, seed=1), tmp_path)
    assert [r.seed for r in seen] == [0]
    assert read(path, tmp_path).seed == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "some_attention/forward has no rows"),
        ({"rows": [{"ms_p50": float("nan")}]}, "rows.0.ms_p50 is nan"),
        ({"rows": [{"N": 1}, {"samples": [1.0, float("inf")]}]}, "rows.1.samples.1 is inf"),
        ({"ceilings": {"read": {"per_s_p50": float("nan")}}}, "ceilings.read.per_s_p50 is nan"),
        ({"device": {"name": "x", "power_limit_w": float("nan")}}, "device.power_limit_w is nan"),
    ],
)
def test_nothing_is_written_that_could_not_be_drawn(change, message, tmp_path):
    path = write(RESULT, tmp_path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=message):
        write(replace(RESULT, **change), tmp_path)
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "some_gpu").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="some_gpu"):
        write(RESULT, tmp_path)


def changed(**fields):
    return lambda text: json.dumps(json.loads(text) | fields)


def without(field):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != field})


# What ceilings of 1e12 a second leave no room for: a thousandth of a second for 1e12.
TIMED = {"dtype": "float16", "ms_p20": 1.0, "ms_p50": 1.0, "ms_p80": 1.0}
TIMED |= {"flops": 1.0, "bytes_compulsory": 1.0}
IMPOSSIBLE = {
    "rows": [TIMED | {"bytes_compulsory": 1e12}],
    "ceilings": {name: {"per_s_p80": 1e12} for name in ("read", "write", "copy", "matmul_float16")},
}

TAMPERED = {
    "empty": (lambda text: "", "is not whole JSON"),
    "truncated": (lambda text: text[: len(text) // 2], "is not whole JSON"),
    "last byte gone": (lambda text: text.rstrip()[:-1], "is not whole JSON"),
    "not JSON": (lambda text: "<html>", "is not whole JSON"),
    "not text": (lambda text: b"\xff\xfe\x00", "is not whole JSON"),
    "an array": (lambda text: "[]", "holds a list, not an object"),
    "no schema": (without("schema"), "has schema None, this code reads 2: measure it again"),
    "old schema": (changed(schema=1), "has schema 1, this code reads 2: measure it again"),
    "future schema": (changed(schema=3), "has schema 3, this code reads 2: measure it again"),
    "a negative time": (changed(rows=[{"ms_p50": -0.25}]), "rows.0.ms_p50 is -0.25; a time is pos"),
    "no time at all": (changed(rows=[{"ms_p50": 0}]), "rows.0.ms_p50 is 0; a time is positive"),
    "faster than memory": (changed(**IMPOSSIBLE), "rows.0 claims 1e+15 bytes/s of compulsory"),
    "faster than the units": (
        changed(**IMPOSSIBLE | {"rows": [TIMED | {"flops": 1e12}]}),
        "rows.0 claims 1e+15 FLOP/s",
    ),
    "no rows": (without("rows"), "'rows' is None, not a list"),
    "no source hash": (without("source_hash"), "'source_hash' is None, not a str"),
    "empty rows": (changed(rows=[]), "rows must be objects, at least one"),
    "a row of numbers": (changed(rows=[1, 2]), "rows must be objects, at least one"),
    "seed is text": (changed(seed="0"), "'seed' is '0', not a int"),
    "seed is true": (changed(seed=True), "'seed' is True, not a int"),
    "device is text": (changed(device="Some GPU"), "'device' is 'Some GPU', not a dict"),
    "device without a name": (changed(device={"driver": "1"}), "the device has no name"),
    "versions without torch": (changed(versions={"python": "3"}), "versions must name python, t"),
    "unknown field": (changed(speed=3, trust="me"), "has unknown fields: speed, trust"),
    "another post": (changed(post="other_attention"), "says that it belongs at"),
    "another device": (changed(folder="faster_gpu"), "says that it belongs at"),
    "another root": (changed(folder="/etc"), "says that it belongs at"),
    "not a number": (changed(rows=[{"ms_p50": float("nan")}]), "rows.0.ms_p50 is nan"),
    "infinite": (lambda text: text.replace("0.25", "1e999"), "rows.0.ms_p50 is inf"),
    "ceiling": (changed(ceilings={"read": {"p": float("inf")}}), "ceilings.read.p is inf"),
    "time": (changed(measured_at="<script>"), "'measured_at' is '<script>', not of the form"),
    "hash": (changed(source_hash="none"), "'source_hash' is 'none', not of the form"),
    "an edited number": (lambda text: text.replace("0.25", "0.24"), "was changed after it was"),
    "an edited clock": (lambda text: text.replace("700.0", "350.0"), "was changed after it was"),
    "an edited error": (lambda text: text.replace("out of", "in"), "was changed after it was"),
    "another seal": (changed(seal="0" * 16), "its seal is 0000000000000000, its content's"),
    "no seal": (without("seal"), "'seal' is None, not a str"),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_a_damaged_file_is_named_with_its_fault(case, tmp_path):
    damage, message = TAMPERED[case]
    path = write(RESULT, tmp_path)
    damaged = damage(path.read_text("utf-8"))
    path.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    with pytest.raises(DataError) as caught:
        list(scan(tmp_path))
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_the_layout_of_a_file_is_not_sealed(tmp_path):
    path = write(RESULT, tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")), indent=3, sort_keys=True))
    assert read(path, tmp_path) == RESULT


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"forward\.json is missing"):
        read(tmp_path / "some_gpu" / "some_attention" / "forward.json", tmp_path)


def test_a_result_in_the_wrong_folder_is_refused(tmp_path):
    path = write(RESULT, tmp_path)
    moved = tmp_path / "other_gpu" / "some_attention" / "forward.json"
    moved.parent.mkdir(parents=True)
    path.rename(moved)
    with pytest.raises(DataError, match=r"other_gpu.*belongs at .*some_gpu"):
        read(moved, tmp_path)


def test_every_field_is_checked():
    """A field that is added to Result is added to the types that reading checks."""
    assert asdict(RESULT).keys() == store.TYPES.keys()


def test_times_below_the_ceilings_are_read(tmp_path):
    """The gate's own control: the same file with a possible row."""
    path = write(replace(RESULT, **IMPOSSIBLE | {"rows": [TIMED]}), tmp_path)
    assert read(path, tmp_path).rows == [TIMED]
