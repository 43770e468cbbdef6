"""Times on the GPU: CUDA events, a flushed L2, competitors in turn, medians with their spread."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from snippets._lab.results.physics import five_digits, percentiles

ROUNDS = (10, 60)  # fewest and most timed calls of each competitor
BUDGET_MS = 250.0  # device time to spend on one competitor, the fewest rounds apart


@dataclass(frozen=True)
class Times:
    """Milliseconds of each timed call, in the order they were taken."""

    samples: list[float]
    beside: Mapping[str, Any] = field(default_factory=dict)  # what else a row says

    def as_row(self) -> dict[str, Any]:
        """The fields of a data row: 20th, 50th and 80th percentile, and the samples themselves."""
        stored = [five_digits(ms) for ms in self.samples]
        return {**percentiles(stored), "ms_samples": stored, **self.beside}


class Flush:
    """Writes a buffer several times the size of L2, so that the next call finds nothing there.

    While the GPU writes, the host queues the next call: the time between the two events then holds
    no Python. `busy(ms)` repeats the writing until it lasts at least that long. What was written
    last is still in L2 and has to leave before the next call's data can enter; with `clean` it is
    read again, so that it has left before.
    """

    def __init__(self) -> None:
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._buffer = torch.empty(max(4 * l2, 64 << 20), dtype=torch.uint8, device="cuda")
        self._buffer.zero_()
        self._ms = min(event_ms(self._buffer.zero_) for _ in range(5))

    def busy(self, ms: float, clean: bool = False) -> None:
        for _ in range(1 + int(ms / self._ms)):
            self._buffer.zero_()
        if clean:
            self._buffer.view(torch.float32).sum()


def event_ms(function: Callable[[], object]) -> float:
    """Milliseconds of one call between two events, on a GPU that had nothing else to do."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def in_turns(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Each name once a round, in an order that rotates."""
    for turn in range(rounds):
        first = turn % len(names)
        yield from (*names[first:], *names[:first])


def time_host(
    competitors: Mapping[str, Callable[[], object]], calls: int = 100
) -> dict[str, Times]:
    """Time how long each call keeps the host: so many back to back, and then the next competitor.

    The GPU is idle before, and its queue takes all the calls of a turn: what the GPU does is not
    counted. Unit: milliseconds.
    """
    samples: dict[str, list[float]] = {name: [] for name in competitors}
    for turn in range(-1, ROUNDS[0]):  # in the first turn kernels are compiled
        for name, call in competitors.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(calls):
                call()
            taken = (time.perf_counter() - began) * 1e3 / calls
            if turn >= 0:
                samples[name].append(taken)
    torch.cuda.synchronize()
    host = {"clock": "host"}  # which says nothing about what the GPU did
    return {name: Times(taken, host) for name, taken in samples.items()}


def time_interleaved(
    competitors: Mapping[str, Callable[[], object]], flush: Flush, clean: bool = False
) -> dict[str, Times]:
    """Time each competitor under the same conditions; all get the same number of rounds.

    Every round calls every competitor once, in an order that rotates, so that a warming or slowing
    GPU changes all alike. Warm-up (compilation included) happens before and is not counted. With
    `clean` nothing that the flush wrote is in L2 when a call begins.
    Raises ValueError without competitors. Unit: milliseconds.
    """
    if not competitors:
        raise ValueError("competitors is empty; at least one is needed")
    host_ms, device_ms = {}, {}
    for name, call in competitors.items():
        for _ in range(3):
            call()  # compiles, fills the allocator's cache
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        host_ms[name] = (time.perf_counter() - began) * 1e3
        device_ms[name] = event_ms(call)
    fewest, most = ROUNDS
    rounds = int(min(most, max(fewest, BUDGET_MS / max(device_ms.values()))))
    events: dict[str, list[Any]] = {name: [] for name in competitors}
    for name in in_turns(list(competitors), rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.busy(2 * host_ms[name], clean)
        start.record()
        competitors[name]()
        end.record()
        events[name].append((start, end))
    torch.cuda.synchronize()
    return {name: Times([s.elapsed_time(e) for s, e in pairs]) for name, pairs in events.items()}
