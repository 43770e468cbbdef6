"""Several results: each is stored, and a fault of one is told."""

import os

import pytest

from snippets._lab.measure.session import Job, Session
from snippets._lab.measure.workers import Report, in_turn
from snippets._lab.results import store


def job(post, rows, target="sm_90"):
    """One that needs no check; `rows` is called with the lab, in the process that measures."""
    about = {"name": f"{target}, compiled ahead of time"}
    return Job(post, "made_up", "compiler", f"compiler/{target}", about, rows, {}, target)


def counted(lab):
    yield from lab.each(n=[1, 2])


def failing(lab):
    raise RuntimeError("no luck")


@pytest.fixture
def session(tmp_path):
    return Session(tmp_path / "data", commit="abc")


@pytest.fixture
def told():
    return []


def rows_of(session, job):
    path = store.path_of(job.folder, job.post, job.result, session.data)
    return store.read(path, session.data).rows if path.exists() else None


def test_each_job_is_stored_and_told_from_its_beginning_to_its_end(session, told):
    jobs = [job(f"post_{i}", counted) for i in range(5)]
    in_turn(jobs, session, told.append)
    assert [rows_of(session, j) for j in jobs] == [[{"n": 1}, {"n": 2}]] * 5
    for at in range(5):
        mine = [r for r in told if r.job == at]
        assert mine[0] == Report(at)
        assert [r.case for r in mine[1:-1]] == ["n 1", "n 2"]
        assert (mine[-1].outcome, mine[-1].error) == ("2 rows", "")
        assert mine[-1].seconds > 0


def test_a_failure_is_told_and_the_others_go_on(session, told):
    jobs = [job("a", failing), job("b", counted), job("c", counted)]
    in_turn(jobs, session, told.append)
    ends = {r.job: r for r in told if r.outcome or r.error}
    assert ends[0].error == "RuntimeError: no luck"
    assert rows_of(session, jobs[0]) is None
    assert [ends[1].outcome, ends[2].outcome] == ["2 rows", "2 rows"]


def test_a_folder_that_cannot_be_written_to_ends_the_run(session, told, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(PermissionError, match="cannot be written to; nothing was measured"):
        in_turn([job("a", counted), job("b", counted)], session, told.append)
