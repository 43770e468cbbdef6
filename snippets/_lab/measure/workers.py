"""Measures jobs: one after the other, in runs of their own, or several at once without a GPU.

Timing on a GPU wants the machine to itself, and each run a process. What needs no GPU is counted,
compiled or judged, and there each core gets a process of its own, which takes the jobs of one room
or target at a time.
"""

import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from snippets._lab.child import Child, Ended
from snippets._lab.measure.session import Job, Session
from snippets._lab.measure.session import jobs as find_jobs
from snippets._lab.probe.compiled import Compiler


@dataclass(frozen=True)
class Report:
    """How far a job is: `outcome` or `error` say that it has ended."""

    job: int  # its place in the list of jobs
    case: str = ""
    outcome: str = ""
    error: str = ""
    seconds: float = 0.0


Tell = Callable[[Report], None]
Selection = tuple[str | None, str | None]  # post and result; None for all


def in_turn(
    jobs: Sequence[Job], session: Session, tell: Tell, some: Iterable[int] | None = None
) -> None:
    """Measure and store all or some, one after the other; after one that fails the next goes on.

    Raises PermissionError where nothing can be stored.
    """
    for at in range(len(jobs)) if some is None else some:
        tell(Report(at))
        session.advance = lambda case, at=at: tell(Report(at, case))  # type: ignore[misc]
        began = time.perf_counter()
        outcome = error = ""
        try:
            outcome = session.run(jobs[at])
        except PermissionError:
            raise
        except Exception as caught:  # noqa: BLE001 - the next result may still succeed
            error = f"{type(caught).__name__}: {caught}"
        tell(Report(at, outcome=outcome, error=error, seconds=time.perf_counter() - began))


def in_runs(selected: Sequence[Selection], session: Session, tell: Tell) -> None:
    """As `in_turn`, as many runs as the session asks for, each in a new Python of its own.

    A run finds its jobs itself, for the code that it imports.
    Raises what `in_turn` raises, and RuntimeError if a process ends by itself.
    """
    for run in range(session.runs):
        about = (session.data, session.commit, session.force and run == 0, session.runs)
        with Child(_one_run, selected, *about, fresh=True) as child:
            try:
                while (message := child.receive()) is not None:
                    if isinstance(message, BaseException):
                        raise message
                    tell(message)
            except Ended as error:
                raise RuntimeError(f"in run {run + 1} of {session.runs}, {error}") from None


def _one_run(channel: Connection, selected: Sequence[Selection], *about: Any) -> None:
    """Measure what is selected, and tell the channel; None, or what stopped it, comes last."""
    try:
        jobs = [job for post, result in selected for job in find_jobs("gpu", post, result)]
        in_turn(jobs, Session(*about), channel.send)
        channel.send(None)
    except Exception as error:  # noqa: BLE001 - whoever waits for this process raises it
        channel.send(error)


def side_by_side(jobs: Sequence[Job], session: Session, tell: Tell, processes: int) -> None:
    """As `in_turn`, in several processes; they run the code that this one has imported.

    A job is told of when the jobs that one process takes together have ended. Raises what `in_turn`
    raises, and BrokenProcessPool if a process ends by itself.
    """
    together = itertools.groupby(  # those of a room share its check and its caches
        range(len(jobs)), key=lambda at: (jobs[at].post, jobs[at].place, jobs[at].target)
    )
    groups = [list(group) for _, group in together]
    if min(processes, len(groups)) < 2:
        in_turn(jobs, session, tell)
        return
    global _given
    _given = jobs, session
    fork = multiprocessing.get_context("fork")  # so that each process has what is given
    with ProcessPoolExecutor(processes, fork) as pool:
        try:
            for done in as_completed([pool.submit(_group, group) for group in groups]):
                for report in done.result():
                    tell(report)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_given: tuple[Sequence[Job], Session]


def _group(group: Sequence[int]) -> list[Report]:
    """What is to be told of some jobs."""
    torch.set_num_threads(1)  # the other cores have their own work
    jobs, session = _given
    told: list[Report] = []
    with Compiler() as compiler:
        in_turn(jobs, replace(session, compiler=compiler), told.append, group)
    return told
