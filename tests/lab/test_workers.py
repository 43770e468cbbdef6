"""Several results at once: each is stored, whoever measures it, and a fault of one is told."""

import os
import time
from concurrent.futures.process import BrokenProcessPool

import pytest
import torch

from snippets._lab.measure.session import Job, Session
from snippets._lab.measure.workers import Report, in_turn, side_by_side
from snippets._lab.results import store


def job(post, rows, target="sm_90"):
    """One that needs no check; `rows` is called with the lab, in the process that measures."""
    about = {"name": f"{target}, compiled ahead of time"}
    return Job(post, "made_up", "compiler", f"compiler/{target}", about, rows, {}, target)


def process(lab):
    for case in lab.each(n=[1, 2]):
        yield {**case, "process": os.getpid(), "threads": torch.get_num_threads()}
        time.sleep(0.2)  # so that no process can take all the jobs


def failing(lab):
    raise RuntimeError("no luck")


def dying(lab):
    os._exit(7)


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
    jobs = [job(f"post_{i}", process) for i in range(5)]
    side_by_side(jobs, session, told.append, processes=2)
    measured = [rows_of(session, j) for j in jobs]
    assert all(len(rows) == 2 for rows in measured)
    by = {row["process"] for rows in measured for row in rows}
    assert len(by) == 2
    assert os.getpid() not in by
    assert {row["threads"] for rows in measured for row in rows} == {1}
    for at in range(5):
        mine = [r for r in told if r.job == at]
        assert mine[0] == Report(at)
        assert [r.case for r in mine[1:-1]] == ["n 1", "n 2"]
        assert (mine[-1].outcome, mine[-1].error) == ("2 rows", "")
        assert mine[-1].seconds > 0.3


def test_jobs_of_a_room_stay_together(session, told):
    jobs = [job("one", process), job("one", process), job("two", process), job("two", process)]
    side_by_side(jobs, session, told.append, processes=4)
    by = [rows_of(session, j)[0]["process"] for j in jobs]
    assert by[0] == by[1] != by[2] == by[3]
    jobs = [job("three", process), job("three", process)]
    side_by_side(jobs, session, told.append, processes=2)
    assert rows_of(session, jobs[0])[0]["process"] == os.getpid(), "one group needs no process"


@pytest.mark.parametrize("run", [in_turn, side_by_side])
def test_a_failure_is_told_and_the_others_go_on(run, session, told):
    jobs = [job("a", failing), job("b", process), job("c", process)]
    run(jobs, session, told.append, **({"processes": 2} if run is side_by_side else {}))
    ends = {r.job: r for r in told if r.outcome or r.error}
    assert ends[0].error == "RuntimeError: no luck"
    assert rows_of(session, jobs[0]) is None
    assert [ends[1].outcome, ends[2].outcome] == ["2 rows", "2 rows"]


def test_a_process_that_ends_by_itself_ends_the_run(session, told):
    with pytest.raises(BrokenProcessPool):
        side_by_side([job("a", dying), job("b", process)], session, told.append, processes=2)


@pytest.mark.parametrize("where", ["in a job", "while waiting"])
def test_an_interruption_ends_all_processes(where, session):
    def interrupt(report):
        if where == "while waiting" and report.case:
            raise KeyboardInterrupt

    def interrupted(lab):
        raise KeyboardInterrupt

    jobs = [job("a", interrupted if where == "in a job" else process), job("b", process)]
    with pytest.raises(KeyboardInterrupt):
        side_by_side(jobs, session, interrupt, processes=2)


def test_a_folder_that_cannot_be_written_to_ends_the_run(session, told, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with pytest.raises(PermissionError, match="cannot be written to; nothing was measured"):
        side_by_side([job("a", process), job("b", process)], session, told.append, processes=2)
