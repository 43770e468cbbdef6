"""Compiles the kernels of a run before the clock starts, side by side on all cores.

Most of the minutes of a first run on a GPU are Triton compiling one kernel after another while the
GPU waits. So every result is rehearsed first: its cases are dealt to several processes, and each
call is made once, without a clock. What that compiled lies in Triton's cache when the result is
measured, alone on the machine; what it returned is thrown away.

A rehearsal cannot spoil a measurement: what fails here fails again, and is told, when measured.
Kernels that are compiled ahead of time in any case, to see how long that takes, are left to the
measurement, and so is what a rehearsal has not come to after two minutes.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import torch

from snippets._lab.child import Child, Ended, first_to_speak
from snippets._lab.measure.session import Job, Lab, Row, jobs
from snippets._lab.measure.timing import Times
from snippets._lab.rooms import load, results, source_file

PROCESSES = 12  # at most: each has a context on the GPU and imports torch
GPU_BYTES = 6 << 30  # of free memory for each process
SECONDS = 120.0  # at most
MADE_UP_MS = 1.0  # stands where a measured row has a time; no such row is stored

Advance = Callable[[str, int], None]


class _NoFlush:
    """Stands in for a Flush: nothing is timed, so nothing needs to be flushed."""

    def busy(self, ms: float) -> None:
        pass


class NotRehearsed(Exception):
    """A result begins to compile ahead of time."""


@dataclass
class RehearsalLab(Lab):
    """Deals the cases to `of` processes and calls without a clock; `share` is this process's."""

    share: int = 0
    of: int = 1

    def __post_init__(self) -> None:
        self.flush = _NoFlush()  # type: ignore[assignment]

    def each(self, **axes: Sequence[Any]) -> Iterator[Row]:
        """Every `of`-th combination of the axes, beginning with number `share`."""
        combinations = itertools.product(*axes.values())
        for values in itertools.islice(combinations, self.share % self.of, None, self.of):
            yield dict(zip(axes, values, strict=True))

    def ahead_of_time(self, launcher: Callable[..., Any], *tensors: torch.Tensor) -> Iterator[Row]:
        """Raises NotRehearsed: under a cap, one after the other, is how the clock wants it."""
        raise NotRehearsed

    def time(
        self,
        case: Row,
        calls: Mapping[str, Callable[[], object]],
        *,
        flops: float,
        bytes_compulsory: int,
    ) -> Iterator[Row]:
        """Make each call once; rows as `Lab.time` yields them, with times that are made up."""
        for name, call in calls.items():
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the measuring says so again
                torch.cuda.empty_cache()
                yield {"implementation": name, **case, "error": f"{error}"}
            else:
                times = Times([MADE_UP_MS, MADE_UP_MS]).as_row()
                work = {"flops": flops, "bytes_compulsory": bytes_compulsory, "fits_l2": False}
                yield {"implementation": name, **case, **times, **work}


def processes(free_bytes: int, cores: int) -> int:
    """How many processes to rehearse in on a GPU with so much free memory, beside so many cores."""
    return max(0, min(PROCESSES, cores - 1, free_bytes // GPU_BYTES))


def rehearse(todo: Sequence[Job], advance: Advance, count: int) -> list[str]:
    """Rehearse the results in `count` processes; return what went wrong, a line each.

    With fewer than two processes nothing is done: measuring compiles as fast.
    """
    wanted = [(job.post, job.result) for job in todo if job.place == "gpu" and _compiles(job)]
    if not wanted or count < 2:
        return []
    said: set[str] = set()
    running: list[Child] = []
    deadline = time.monotonic() + SECONDS
    try:
        for share in range(count):
            running.append(Child(_rehearse, wanted, share, count, fresh=True))
        while running:
            child = first_to_speak(running, max(0.0, deadline - time.monotonic()))
            if child is None:
                said.add(f"what it had not come to after {SECONDS:g} s")
                break
            try:
                message = child.receive()
            except Ended as error:
                said.add(str(error))
                message = None
            if isinstance(message, Began):
                advance(message.name, len(wanted) * count)
            elif isinstance(message, Failed):
                said.add(message.why)
            else:
                running.remove(child)
                child.stop()
    finally:
        for child in running:
            child.stop()
    return sorted(said)


@dataclass(frozen=True)
class Began:
    """A process turns to a result."""

    name: str


@dataclass(frozen=True)
class Failed:
    """A result could not be rehearsed, or a process ended."""

    why: str


def _compiles(job: Job) -> bool:
    """Whether the room has kernels that one process compiles; PyTorch's are compiled already.

    A room that starts a process on each GPU, all waiting for each other, compiles in those.
    """
    if any(getattr(function, "every_gpu", False) for function in results(job.post).values()):
        return False
    return source_file(job.post).name != "module.py"


def _rehearse(channel: Connection, wanted: Sequence[tuple[str, str]], share: int, of: int) -> None:
    """One process: its share of the cases of each result, and of the rooms' checks; then None."""
    torch.set_num_threads(1)

    def attempt(name: str, function: Callable[[], object]) -> None:
        try:
            with contextlib.suppress(NotRehearsed):
                function()
        except Exception as error:  # noqa: BLE001 - the measuring says so again
            channel.send(Failed(f"{name}: {type(error).__name__}: {error}"))
        torch.cuda.empty_cache()

    for at, post in enumerate(dict.fromkeys(post for post, _ in wanted)):
        if at % of == share:
            attempt(f"{post}'s check", partial(load(post, "bench").check, "cuda"))
    for at, (post, result) in enumerate(wanted):
        channel.send(Began(f"{post}/{result}"))
        (job,) = jobs("gpu", post, result)
        lab = RehearsalLab("gpu", share=share - at, of=of)
        attempt(f"{post}/{result}", partial(_all_rows, job, lab))
    channel.send(None)


def _all_rows(job: Job, lab: Lab) -> None:
    for _ in job.make_rows(lab):
        pass
