"""Measures jobs one after the other: here, or each run of a GPU's times in a process of its own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from snippets._lab.child import Child, Ended
from snippets._lab.measure.session import Job, Session
from snippets._lab.measure.session import jobs as find_jobs


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


def in_turn(jobs: Sequence[Job], session: Session, tell: Tell) -> None:
    """Measure and store all; after one that fails the next goes on.

    Raises PermissionError where nothing can be stored.
    """
    for at, job in enumerate(jobs):
        tell(Report(at))
        session.advance = lambda case, at=at: tell(Report(at, case))  # type: ignore[misc]
        began = time.perf_counter()
        outcome = error = ""
        try:
            outcome = session.run(job)
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
