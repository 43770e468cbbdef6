"""Results on disk: replaced whole or not at all, and refused by name when something is wrong."""

import contextlib
import json
import os
import re
import signal
from dataclasses import replace

import pytest

from snippets._lab.results import history, staleness
from snippets._lab.results.result import folder_name
from snippets._lab.results.store import DataError, read, scan, write
from tests import made_up
from tests.apart import python

CODE = {
    "a/kernel.py": {"a": "0123456789", "_help": "9876543210"},
    "a/bench.py": {"forward": "a" * 10},
}
FIRST = made_up.result(
    "some_attention",
    "forward",
    [made_up.timed(0.5, N=16), made_up.timed(0.5, N=8)],
    source_hash=staleness.source_hash(CODE),
    code=CODE,
)
RESULT = history.following(
    replace(
        FIRST, rows=[made_up.timed(0.25, N=16), {"N": 32, "error": "out of memory", "größe": "µs"}]
    ),
    FIRST,
)


def test_what_is_read_is_what_was_written(tmp_path):
    path = write(RESULT, tmp_path)
    assert path == tmp_path / "some_gpu" / "some_attention" / "forward.json"
    assert read(path, tmp_path) == RESULT
    assert list(scan(tmp_path)) == [RESULT]
    assert (RESULT.label, RESULT.date) == ("Some GPU", "2026-11-21")


def test_each_renewal_adds_to_the_history():
    again = history.following(replace(RESULT, history=[]), RESULT)
    assert len(again.history) == 2
    assert again.history[0] == RESULT.history[0]


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
    assert python("-c", code, path).returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    left = [name for name in files_in(tmp_path) if name.endswith(".part")]
    assert left, "the kill came too late to prove anything"
    assert list(scan(tmp_path)) == [RESULT], "a leftover is not a result"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": []}, "some_attention/forward has no rows"),
        ({"rows": [{"ms_p50": float("nan")}]}, "some_attention/forward: Out of range float"),
        ({"rows": [{"N": 1}, {"samples": [1.0, float("inf")]}]}, "Out of range float"),
        ({"ceilings": {"read": {"per_s_p50": float("nan")}}}, "Out of range float"),
    ],
)
def test_nothing_is_written_that_could_not_be_drawn(change, message, tmp_path):
    path = write(RESULT, tmp_path)
    before = path.read_bytes()
    with pytest.raises(DataError, match=message):
        write(replace(RESULT, **change), tmp_path)
    assert path.read_bytes() == before


def changed(**fields):
    return lambda text: json.dumps(json.loads(text) | fields)


def without(field):
    return lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != field})


DAMAGED = {
    "empty": (lambda text: "", "is not whole JSON"),
    "truncated": (lambda text: text[: len(text) // 2], "is not whole JSON"),
    "last byte gone": (lambda text: text.rstrip()[:-1], "is not whole JSON"),
    "not JSON": (lambda text: "<html>", "is not whole JSON"),
    "not text": (lambda text: b"\xff\xfe\x00", "is not whole JSON"),
    "an array": (lambda text: "[]", "holds a list, not an object"),
    "no schema": (without("schema"), "has schema None, this code reads 3: measure it again"),
    "old schema": (changed(schema=2), "has schema 2, this code reads 3: measure it again"),
    "future schema": (changed(schema=4), "has schema 4, this code reads 3: measure it again"),
    "five thousand digits": (
        lambda text: text.replace('"seed": 0', f'"seed": {"9" * 5000}'),
        "is not whole JSON",
    ),
    "ten thousand brackets": (lambda text: "[" * 10_000, "is not whole JSON"),
    "not a number": (changed(rows=[{"ms_p50": float("nan")}]), "Out of range float"),
    "infinite": (lambda text: text.replace("0.25,", "1e999,"), "Out of range float"),
}


def row(**fields):
    """The first row with other fields."""
    return {"rows": [RESULT.rows[0] | fields]}


# Sealed by whoever wrote it, and yet not to be believed.
UNBELIEVABLE = {
    "a faster median": (row(ms_p50=0.2499), "ms_p50 is 0.2499, but its own samples give 0.25"),
    "a narrower spread": (row(ms_p80=0.25), "rows.0.ms_p80 is 0.25, but its own samples give"),
    "no percentile": (row(ms_p20=None), "rows.0.ms_p20 is None, but its own samples give"),
    "no samples": (row(ms_samples=[]), "rows.0.ms_samples holds fewer than the 5 times"),
    "a negative time": (row(ms_samples=[-0.1] * 9), "holds -0.1; a time is positive"),
    "runs that add up to less": (row(runs=[5, 5]), "rows.0.runs is [5, 5], not how many of its 11"),
    "faster than memory": (row(bytes_compulsory=1e12), "rows.0 claims 4e+15 bytes/s of compuls"),
    "faster than the units": (row(flops=1e12), "rows.0 claims 4e+15 FLOP/s where the device"),
    "an unknown dtype": (row(dtype="float3"), "rows.0 claims dtype 'float3', for which"),
    "the same twice": ({"rows": RESULT.rows * 2}, "rows.2 measures the same as rows.0"),
    "no ceilings": ({"ceilings": {}}, "ceilings lacks copy, fma_float32, matmul_bfloat16"),
    "another card's name": (
        {"device": RESULT.device | {"name": "Faster GPU"}},
        "what 'Faster GPU' said as 'gpu' does not belong in some_gpu",
    ),
    "no other place": ({"place": "cpu"}, "said as 'cpu' does not belong in some_gpu"),
    "before the beginning": ({"measured_at": "1999-01-01T10:00:00Z"}, "before 2026-11-01, or"),
    "yet to come": ({"measured_at": "9999-01-01T10:00:00Z"}, "2026-11-01, or yet to come"),
    "another definition": (
        {"code": CODE | {"a/bench.py": {"forward": "0" * 10}}},
        "'source_hash' is",
    ),
    "a definition gone": ({"code": {"a/bench.py": CODE["a/bench.py"]}}, "'source_hash' is"),
}


@pytest.mark.parametrize("case", UNBELIEVABLE)
def test_what_cannot_be_believed_is_named_with_its_fault(case, tmp_path):
    fields, message = UNBELIEVABLE[case]
    path = write(replace(RESULT, **fields), tmp_path)
    with pytest.raises(DataError, match=re.escape(message)) as caught:
        read(path, tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_named_with_its_fault(case, tmp_path):
    damage, message = DAMAGED[case]
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


@pytest.mark.parametrize("place", ["interpreter", "compiler"])
def test_what_needs_no_gpu_needs_no_ceilings(place, tmp_path):
    found = made_up.result("some_attention", "traffic", [{"N": 1, "loads": 3}], place=place)
    path = write(found, tmp_path)
    assert read(path, tmp_path) == found
    path = write(replace(found, folder="some_gpu"), tmp_path)
    with pytest.raises(DataError, match=r"belong"):
        read(path, tmp_path)


def test_lines_of_a_report_may_repeat(tmp_path):
    rows = [{"line": "OK"}, {"line": ""}, {"line": ""}]
    path = write(made_up.result("some_attention", "report", rows), tmp_path)
    assert read(path, tmp_path).rows == rows


def test_a_row_cannot_buy_room_by_its_spread(tmp_path):
    """A time three times too short for its device is refused, however far its samples spread."""
    wide = made_up.timed(1.0, spread=0.9, bytes_compulsory=3.03e12)
    path = write(replace(RESULT, rows=[wide]), tmp_path)
    with pytest.raises(DataError, match=r"rows\.0 claims 3\.03e\+15 bytes/s"):
        read(path, tmp_path)


# Whatever is edited is refused: each field of each kind of file, by a number, a word or nothing.

KINDS = {
    "gpu": RESULT,
    "interpreter": made_up.result(
        "some_attention",
        "traffic",
        [{"case": "one program", "N": 64, "bytes_read": 4096}],
        place="interpreter",
    ),
    "compiler": made_up.result(
        "some_attention", "resources", [{"registers": 168, "error": None}], place="compiler"
    ),
    "report": made_up.result("some_attention", "report", [{"line": "largest 1e-07"}]),
    "browser": made_up.result(
        "playground", "mistakes", [{"page": "", "run": 0, "shift": 0.1}], place="browser"
    ),
}


def test_every_edit_of_every_field_is_refused(tmp_path):
    tried = {"edits": 0, "refused": 0}
    for result in KINDS.values():
        path = write(result, tmp_path)
        value = json.loads(path.read_text("utf-8"))
        for edit in made_up.edits(value):
            path.write_text(json.dumps(edit), encoding="utf-8")
            tried["edits"] += 1
            with contextlib.suppress(DataError):
                read(path, tmp_path)
                continue
            tried["refused"] += 1
    assert tried["edits"] > 500
    assert tried["refused"] == tried["edits"], tried
