"""Measures jobs: one after the other, in runs of their own, or several at once without a GPU.

Timing on a GPU wants the machine to itself, and each run a process. What needs no GPU is counted,
compiled or judged, and there each core gets a process of its own, which takes the jobs of one room
or target at a time.
"""

import gc
import itertools
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import torch

from snippets._lab.child import GRACE, Child, Ended, first_to_speak
from snippets._lab.measure.session import Job, Session
from snippets._lab.measure.session import jobs as find_jobs
from snippets._lab.probe.compiled import Compiler


@dataclass(frozen=True)
class Report:
    """How far a job is: `outcome` or `error` say that it has ended, `total` that a case began."""

    job: int  # its place in the list of jobs
    case: str = ""
    total: int = 0
    outcome: str = ""
    error: str = ""
    seconds: float = 0.0


Tell = Callable[[Report], None]
Selection = tuple[str | None, str | None]  # post and result; None for all


def in_turn(jobs: Sequence[Job], session: Session, tell: Tell) -> None:
    """Measure and store one after the other; a failure is told, and the next goes on.

    Raises PermissionError where nothing can be stored.
    """
    for at in range(len(jobs)):
        _measure(jobs, at, session, tell)


def in_runs(
    selected: Sequence[Selection], jobs: Sequence[Job], session: Session, tell: Tell
) -> None:
    """As `in_turn`, as many runs as the session asks for, each in a new Python of its own.

    A run finds its jobs itself, for the code that it imports. It is over when nothing is wanted.
    Raises what `in_turn` raises, and RuntimeError if a process ends by itself.
    """
    for run in range(session.runs):
        if not any(session.wants(job) for job in jobs):
            if run == 0:
                in_turn(jobs, session, tell)  # it tells that all is up to date
            return
        about = (session.data, session.commit, session.force, session.runs)
        with Child(_one_run, selected, *about, fresh=True) as child:
            try:
                while (message := child.receive()) is not None:
                    if isinstance(message, BaseException):
                        raise message
                    tell(message)
            except Ended as error:
                raise RuntimeError(f"in run {run + 1} of {session.runs}, {error}") from None
        session = replace(session, force=False)


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

    Raises what `in_turn` raises, and RuntimeError if a process ends by itself.
    """
    groups = deque(_groups(jobs))
    if min(processes, len(groups)) < 2:
        in_turn(jobs, session, tell)
        return
    gc.freeze()  # what was imported is no garbage, and no process need look through it
    children: list[Child] = []
    try:
        while groups and len(children) < processes:
            children.append(Child(_work, jobs, session))
            children[-1].send(groups.popleft())
        while children:
            child = first_to_speak(children)
            assert child is not None  # it waits until one does
            try:
                message = child.receive()
            except Ended as error:
                raise RuntimeError(f"while measuring, {error}") from None
            if isinstance(message, Report):
                tell(message)
            elif isinstance(message, BaseException):
                raise message
            elif groups:
                child.send(groups.popleft())
            else:
                child.send(None)
                children.remove(child)
                child.stop(GRACE)
    finally:
        for child in children:
            child.stop(GRACE)


def _groups(jobs: Sequence[Job]) -> list[list[int]]:
    """Which jobs one process takes together: those of a room share its check and its caches."""
    together = itertools.groupby(
        range(len(jobs)), key=lambda at: (jobs[at].post, jobs[at].place, jobs[at].target)
    )
    return [list(group) for _, group in together]


def _work(channel: Connection, jobs: Sequence[Job], session: Session) -> None:
    """Take groups from the channel until there are no more, and tell it how they fare."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    torch.set_num_threads(1)  # the other cores have their own work
    with Compiler() as compiler:
        session = replace(session, compiler=compiler)
        while (group := channel.recv()) is not None:
            try:
                for at in group:
                    _measure(jobs, at, session, channel.send)
            except (PermissionError, KeyboardInterrupt) as error:
                channel.send(error)
                return
            channel.send(None)


def _measure(jobs: Sequence[Job], at: int, session: Session, tell: Tell) -> None:
    tell(Report(at))
    session.advance = lambda case, total: tell(Report(at, case, total))
    began = time.perf_counter()
    outcome = error = ""
    try:
        outcome = session.run(jobs[at])
    except PermissionError:
        raise
    except Exception as caught:  # noqa: BLE001 - the next result may still succeed
        error = f"{type(caught).__name__}: {caught}"
    tell(Report(at, outcome=outcome, error=error, seconds=time.perf_counter() - began))
