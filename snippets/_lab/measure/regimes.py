"""Regimes: what a call costs when the host is hidden, when power is the limit, when host counts.

*queued* is timing.py's: the host is hidden and the GPU rests between calls; so is *queued, L2
clean*, where nothing that the flush wrote is left in L2. Here are the others: *sustained*, back to
back for seconds, and *as called*, one call at a time with the host in it, also for a call that was
captured in a CUDA graph or went through torch.compile.
"""

import functools
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from snippets._lab.measure.competitors import PACKAGES, Attention, resolve
from snippets._lab.measure.machine import ClockWatch
from snippets._lab.measure.timing import Flush, Times, event_ms, in_turns
from snippets._lab.results.physics import five_digits

QUEUED, SUSTAINED, AS_CALLED = "queued", "sustained", "as called"
CLEAN = "queued, L2 clean"
IN_A_GRAPH, COMPILED = "in a CUDA graph", "under torch.compile"
REGIMES = (QUEUED, CLEAN, SUSTAINED, AS_CALLED, IN_A_GRAPH, COMPILED)

SECONDS, DISCARDED = 3.0, 1.0  # of sustained calls, and how many of them warm the GPU only
BATCH_MS = 20.0  # of device time between two events of sustained calls
READ_EVERY = 0.05  # seconds between two readings of power and clock: 20 Hz
ROUNDS = 40  # calls of each competitor as called, at most
BUDGET_MS = 100.0  # for which fewer are enough, but not less than FEWEST
FEWEST = 10


def sustained(call: Callable[[], object], watch: ClockWatch) -> Times:
    """Call again and again for SECONDS, without a pause and without a flush; the first of them
    brings the GPU to its power and its temperature and is not counted.

    A sample is the mean of a batch of calls, between two CUDA events. The host runs ahead, but by
    no more than two batches; `ms_host` is what it needs for a call. The row has the power and the
    clock that `watch` read meanwhile.
    """
    call()
    in_a_batch = max(1, round(BATCH_MS / event_ms(call)))
    torch.cuda.synchronize()
    host, marks = [], [_mark()]
    began = time.monotonic()
    while time.monotonic() - began < SECONDS:
        before = time.perf_counter()
        for _ in range(in_a_batch):
            call()
        host.append((time.perf_counter() - before) * 1e3 / in_a_batch)
        marks.append(_mark())
        marks[max(0, len(marks) - 3)].synchronize()
    torch.cuda.synchronize()
    at = [marks[0].elapsed_time(mark) for mark in marks]
    counted = [(a, b) for a, b in itertools.pairwise(at) if a >= DISCARDED * 1e3]
    return Times(
        [(b - a) / in_a_batch for a, b in counted],
        {
            "ms_host": five_digits(statistics.median(host)),
            **watch.between(began + DISCARDED, time.monotonic()),
        },
    )


def _mark() -> Any:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def as_called(calls: Mapping[str, Callable[[], object]], flush: Flush) -> dict[str, Times]:
    """Time calls by the host's clock, one at a time: from the call until its result is there.

    L2 is flushed as for queued calls, but the GPU waits: the time holds what the host does, the
    launch and the kernel. `ms_host` is how long the call itself kept the host.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    slowest = max(_warm_ms(call) for call in calls.values())
    for name in in_turns(list(calls), int(min(ROUNDS, max(FEWEST, BUDGET_MS / slowest)))):
        flush.busy(0)
        torch.cuda.synchronize()
        began = time.perf_counter()
        calls[name]()
        returned = time.perf_counter()
        torch.cuda.synchronize()
        taken[name].append((time.perf_counter() - began, returned - began))
    return {
        name: Times(
            [whole * 1e3 for whole, _ in pairs],
            {"ms_host": five_digits(statistics.median(host for _, host in pairs) * 1e3)},
        )
        for name, pairs in taken.items()
    }


def _warm_ms(call: Callable[[], object]) -> float:
    for _ in range(3):
        call()
    return event_ms(call)


def in_a_graph(call: Callable[[], torch.Tensor]) -> Callable[[], object]:
    """The call captured in a CUDA graph, which the function that comes back replays.

    Raises AssertionError if a replay gives another result than the call.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # what compiles, or allocates for good, does so before
        for _ in range(3):
            want = call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = call()
    out.fill_(float("nan"))
    graph.replay()
    torch.testing.assert_close(out, want)
    return graph.replay


@functools.cache
def operator(name: str) -> Callable[..., torch.Tensor]:
    """An implementation as an operator of PyTorch: q, k, v, causal → result.

    torch.compile traces Python. It knows nothing of Gluon's launches, and a launcher that reads an
    address (`data_ptr`) breaks the graph. It does not look into an operator: all that it asks is
    what the result looks like in memory, which the function registered as its fake says.
    """
    attention = resolve(name)
    if attention is None:
        raise ValueError(f"there is no room {name!r}")

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        return attention(q, k, v, **({"causal": True} if causal else {}))

    def fake(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        if name in PACKAGES and q.dim() > 2:  # heads beside each other: [B, M, H, D]
            q = q.transpose(-2, -3)
            return torch.empty_like(q, memory_format=torch.contiguous_format).transpose(-2, -3)
        return torch.empty_like(q, memory_format=torch.contiguous_format)

    made = torch.library.custom_op(f"attention_measured_lab::{name}", run, mutates_args=())
    made.register_fake(fake)
    return made


def compiled(name: str, backend: str = "inductor") -> Attention:
    """An implementation under torch.compile, in one graph: PyTorch's as it is, others as operators.

    It is compiled at the first call.
    """
    made = resolve(name) if name.startswith("torch:") else operator(name)
    assert made is not None  # PyTorch's are there

    def attention(*tensors: torch.Tensor, causal: bool = False, **options: Any) -> torch.Tensor:
        return made(*tensors, causal=causal, **options)

    found: Attention = torch.compile(attention, fullgraph=True, dynamic=False, backend=backend)
    return found
