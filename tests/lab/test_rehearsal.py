"""A rehearsal makes every call that a measurement makes, once, and leaves nothing behind."""

import os
import time

import pytest
import torch

from snippets._lab.measure import rehearsal
from snippets._lab.measure.rehearsal import Began, Failed, RehearsalLab, processes, rehearse
from snippets._lab.measure.session import Job

AXES = {"D": [64, 128], "N": [1, 2, 3, 4, 5]}


@pytest.mark.parametrize("of", [1, 2, 3, 7, 12])
def test_each_case_is_dealt_to_one_process(of):
    whole = list(RehearsalLab("gpu").each(**AXES))
    dealt = [c for share in range(of) for c in RehearsalLab("gpu", share=share, of=of).each(**AXES)]
    assert len(whole) == 10
    assert sorted(dealt, key=whole.index) == whole


def test_results_of_one_case_are_spread_over_the_processes():
    busy = [
        share
        for at in range(4)
        for share in range(4)
        if list(RehearsalLab("gpu", share=share - at, of=4).each(only=["one"]))
    ]
    assert sorted(busy) == [0, 1, 2, 3]


def test_a_call_is_made_once_and_its_row_has_the_fields_of_a_measured_one():
    made = []

    def too_large():
        raise torch.cuda.OutOfMemoryError("out of memory")

    lab = RehearsalLab("gpu")
    calls = {"a": lambda: made.append("a"), "large": too_large, "b": lambda: made.append("b")}
    rows = list(lab.time({"N": 8}, calls, flops=1.0, bytes_compulsory=2))
    assert made == ["a", "b"]
    by = {row["implementation"]: row for row in rows}
    assert by["large"]["error"] == "out of memory"
    assert set(by["a"]) == {
        *("implementation", "N", "flops", "bytes_compulsory", "fits_l2"),
        *("ms_p20", "ms_p50", "ms_p80", "ms_samples"),
    }


def test_kernels_that_are_timed_by_the_lab_run_once(monkeypatch):
    calls = []
    monkeypatch.setattr(RehearsalLab, "qkv", lambda lab, case: torch.randn(3, 1, 1, 4, 8).unbind())
    case = {"N": 4, "D": 8, "dtype": "float32"}
    variants = {"mine": lambda q, k, v: calls.append(q.shape)}
    rows = list(RehearsalLab("gpu").time_attention(case, [], variants))
    assert len(calls) == len(rows) == 1


@pytest.mark.parametrize(
    ("free_gib", "cores", "count"),
    [(140, 16, 12), (140, 4, 3), (24, 16, 4), (8, 16, 1), (4, 16, 0), (140, 1, 0)],
)
def test_small_machines_rehearse_in_fewer_processes(free_gib, cores, count):
    assert processes(free_gib << 30, cores) == count


def job(post, result="forward", place="gpu"):
    return Job(post, result, place, "a_gpu", {}, lambda lab: [], {})


def dealing(channel, wanted, share, of):
    """Stands for a process that rehearses."""
    for name in wanted[share::of]:
        channel.send(Began("/".join(name)))
    if share == 1:
        channel.send(Failed("basic_attention/forward: RuntimeError: no luck"))
        os._exit(7)
    channel.send(None)


def test_every_process_is_heard_and_what_fails_is_told(monkeypatch):
    monkeypatch.setattr(rehearsal, "_rehearse", dealing)
    began = []
    todo = [job("basic_attention"), job("basic_attention", "heads"), job("tiled_attention")]
    said = rehearse(todo, lambda name, total: began.append((name, total)), 3)
    assert sorted(began) == [
        ("basic_attention/forward", 9),
        ("basic_attention/heads", 9),
        ("tiled_attention/forward", 9),
    ]
    assert said == [
        "basic_attention/forward: RuntimeError: no luck",
        "the process ended with exit status 7",
    ]


@pytest.mark.parametrize(
    ("todo", "count"),
    [
        ([], 8),
        ([job("basic_attention")], 1),
        ([job("attention_memory")], 8),
        ([job("basic_attention", place="interpreter")], 8),
    ],
    ids=["nothing", "one process", "PyTorch only", "no GPU"],
)
def test_nothing_is_started_where_nothing_is_gained(monkeypatch, todo, count):
    monkeypatch.setattr(rehearsal, "Child", None)  # a start would raise
    assert rehearse(todo, lambda *_: None, count) == []


def waiting(channel, wanted, share, of):
    """Stands for a process that compiles for a long time."""
    channel.send(Began("/".join(wanted[0])))
    channel.recv()


def test_it_ends_in_any_case(monkeypatch):
    monkeypatch.setattr(rehearsal, "_rehearse", waiting)
    monkeypatch.setattr(rehearsal, "SECONDS", 3.0)
    began = time.monotonic()
    said = rehearse([job("basic_attention")], lambda *_: None, 2)
    assert said == ["what it had not come to after 3 s"]
    assert time.monotonic() - began < 30


class Channel:
    def __init__(self):
        self.sent = []

    def send(self, message):
        self.sent.append(message)


def test_a_process_rehearses_its_share_and_goes_on_after_a_failure(monkeypatch):
    seen = []

    def rows(lab):
        seen.extend(case["n"] for case in lab.each(n=list(range(10))))
        return []

    def failing(lab):
        raise RuntimeError("no luck")

    def compiling(lab):
        yield from lab.ahead_of_time(None)

    functions = {"heads": failing, "forward": rows, "registers": compiling}
    monkeypatch.setattr(
        rehearsal,
        "jobs",
        lambda place, post, result: [Job(post, result, place, "a_gpu", {}, functions[result], {})],
    )
    checked = []
    bench = type("Bench", (), {"check": staticmethod(checked.append)})
    monkeypatch.setattr(rehearsal, "load", lambda post, name: bench)
    channel = Channel()
    wanted = [("basic_attention", name) for name in ("heads", "forward", "registers")]
    threads = torch.get_num_threads()
    try:
        rehearsal._rehearse(channel, wanted, 0, 4)
    finally:
        torch.set_num_threads(threads)
    assert checked == ["cuda"]
    assert seen == [3, 7]  # number 1 of the results begins one process further
    # What compiles ahead of time is left to the measurement, which is no failure.
    assert [type(m) for m in channel.sent] == [Began, Failed, Began, Began, type(None)]
    assert "no luck" in channel.sent[1].why
