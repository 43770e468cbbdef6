"""The page about what changed: from the history that files keep, and from their versions."""

from dataclasses import replace

import pytest

from snippets._lab.results import history
from tests import made_up

CODE = {"a/kernel.py": {"a": "1" * 10, "b": "2" * 10}}


def measured(*milliseconds, day=20, code=CODE, triton="3", **fields):
    """A result with one time for each N, of a day in November."""
    rows = [made_up.timed(ms, N=16 << at) for at, ms in enumerate(milliseconds)]
    return made_up.result(
        "a_post",
        "forward",
        rows,
        code=code,
        versions=made_up.VERSIONS | {"triton": triton},
        measured_at=f"2026-11-{day}T10:00:00Z",
        **fields,
    )


def after(*results):
    """The last of some measurements, each of which replaced the one before."""
    last, *others = results
    for result in others:
        last = history.following(result, last)
    return last


def test_what_moved_most_is_kept_and_all_are_counted():
    before = measured(1.0, 2.0, 4.0, code={}, triton="2")
    now = after(before, measured(1.001, 1.0, day=21))
    (entry,) = now.history
    assert entry["versions"]["triton"] == "2"
    assert (entry["measured_at"], entry["changed"]) == (before.measured_at, None)
    assert (entry["compared"], entry["dropped"], entry["added"]) == (2, 1, 0)
    moved, other = entry["moved"]
    assert moved["case"] == {"N": 32, "dtype": "float16"}
    assert moved["before"] == {n: before.rows[1][n] for n in history.TIMES}
    assert moved["now"] == {n: now.rows[1][n] for n in history.TIMES}
    assert other["case"]["N"] == 16
    many = [1.0 + at / 100 for at in range(history.FARTHEST + 5)]
    (entry,) = after(measured(*[1.0] * len(many)), measured(*many, day=21)).history
    assert entry["compared"] == len(many)
    assert [x["now"]["ms_p50"] for x in entry["moved"]] == pytest.approx(
        many[::-1][: history.FARTHEST]
    )


def test_a_history_grows_and_names_the_definitions_that_differ():
    code = {"a/kernel.py": {"a": "1" * 10, "b": "3" * 10}, "a/bench.py": {"forward": "4" * 10}}
    last = after(measured(1.0), measured(2.0, day=21), measured(2.0, day=22, code=code))
    assert [entry["changed"] for entry in last.history] == [
        [],
        ["a/bench.py: forward", "a/kernel.py: b"],
    ]
    assert [len(entry["moved"]) for entry in last.history] == [1, 1]


def test_rows_that_cannot_be_told_apart_are_not_compared():
    twice = replace(measured(1.0), rows=[made_up.timed(1.0, N=16), made_up.timed(9.0, N=16)])
    (entry,) = after(twice, measured(1.0, day=21)).history
    assert (entry["compared"], entry["added"]) == (0, 1)


def test_what_no_gpu_has_timed_keeps_no_history():
    row = [{"registers": 3}]
    for place in ("compiler", "gpu"):
        results = [made_up.result("a", "registers", row, place=place) for _ in range(2)]
        assert after(*results).history == []
