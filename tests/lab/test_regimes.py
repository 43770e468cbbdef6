"""Sustained and as called, on a simulated GPU; and what torch.compile needs to be told."""

import contextlib
import types

import pytest
import torch

from snippets._lab.judge.oracle import assert_attention, causal_mask, eager_attention, make_qkv
from snippets._lab.measure import machine, regimes, session
from snippets._lab.measure.regimes import CLEAN, COMPILED, QUEUED, as_called, sustained
from snippets._lab.measure.session import Lab
from snippets._lab.measure.timing import Flush as RealFlush
from snippets._lab.measure.timing import Times, time_interleaved


class Simulated:
    """A host and a GPU with a clock each, in ms: a call costs the host, then queues for the GPU."""

    def __init__(self):
        self.host = self.device = self.ahead = 0.0
        self.log = []

    def call(self, name, host_ms, device_ms):
        def run():
            self.log.append(name)
            self.host += host_ms
            took = device_ms(self.host) if callable(device_ms) else device_ms
            self.device = max(self.device, self.host) + took
            self.ahead = max(self.ahead, self.device - self.host)

        return run

    def synchronize(self):
        self.host = max(self.host, self.device)

    def seconds(self):
        return self.host / 1e3

    def event(self, enable_timing):
        assert enable_timing
        return Event(self)


class Event:
    def __init__(self, gpu):
        self.gpu = gpu

    def record(self):
        self.at = max(self.gpu.device, self.gpu.host)

    def synchronize(self):
        self.gpu.host = max(self.gpu.host, self.at)

    def elapsed_time(self, later):
        return later.at - self.at


class Flush:
    """Flushes for 0.2 ms."""

    def __init__(self, gpu):
        self.busy = lambda ms: gpu.call("flush", 0.01, 0.2)()


class Watch:
    def between(self, start, end):
        self.asked = start, end
        return {"readings": 40, "power_w": 690.0}


@pytest.fixture
def gpu(monkeypatch):
    found = Simulated()
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    clock = types.SimpleNamespace(monotonic=found.seconds, perf_counter=found.seconds)
    monkeypatch.setattr(regimes, "time", clock)
    return found


def test_sustained_discards_the_first_second_and_goes_on_for_two_more(gpu):
    slow_at_first = gpu.call("x", 0.1, lambda now: 4.0 if now < 900 else 2.0)
    watch = Watch()
    row = sustained(slow_at_first, watch).as_row()
    assert (row["ms_p20"], row["ms_p50"], row["ms_p80"]) == (2.0, 2.0, 2.0)
    assert 1900 <= sum(ms * 5 for ms in row["ms_samples"]) <= 2200, "5 calls of 4 ms are a batch"
    assert row["ms_host"] == 0.1
    assert (row["readings"], row["power_w"]) == (40, 690.0)
    begun, ended = watch.asked
    assert ended - begun == pytest.approx(2.0, abs=0.1)
    assert ended == gpu.seconds()


def test_as_called_has_the_host_in_it_and_a_cold_cache(gpu):
    calls = {"a": gpu.call("a", 0.1, 2.0), "b": gpu.call("b", 1.5, 0.5)}
    found = {name: taken.as_row() for name, taken in as_called(calls, Flush(gpu)).items()}
    assert found["a"]["ms_p50"] == pytest.approx(2.1)
    assert found["b"]["ms_p50"] == pytest.approx(2.0), "half a millisecond of work"
    assert (found["a"]["ms_host"], found["b"]["ms_host"]) == (0.1, 1.5)
    timed = gpu.log[gpu.log.index("flush") :]
    assert timed[0::2] == ["flush"] * (len(timed) // 2)
    assert timed[1:8:2] == ["a", "b", "b", "a"]
    assert len(found["a"]["ms_samples"]) == regimes.ROUNDS


# The lab asks for regimes by name.

CASE = {"dtype": "float32", "causal": True, "batch": 1, "heads": 2, "N": 40, "D": 16}
NAMES = ["torch:math", "torch:sdpa"]


@pytest.fixture
def lab(monkeypatch):
    """A lab whose clocks tell their regime: queued takes 1 ms, sustained 2, as called 3."""

    def taken(ms):
        return Times([ms] * 5, {"ms_host": 0.1})

    monkeypatch.setattr(session, "make_qkv", lambda *lead, device, **o: make_qkv(*lead, **o))
    monkeypatch.setattr(
        session, "time_interleaved", lambda calls, flush: dict.fromkeys(calls, Times([1.0] * 5))
    )
    monkeypatch.setattr(regimes, "sustained", lambda call, watch: taken(2.0))
    monkeypatch.setattr(regimes, "as_called", lambda calls, flush: dict.fromkeys(calls, taken(3.0)))
    monkeypatch.setattr(machine, "ClockWatch", lambda every: contextlib.nullcontext(Watch()))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    if not torch.cuda.is_available():  # the compiler asks a GPU for more than this
        properties = types.SimpleNamespace(L2_cache_size=4096)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    return Lab("gpu", flush="flushed")


def test_a_queued_call_may_begin_in_a_clean_cache(lab, monkeypatch):
    def timed(calls, flush, clean=False):
        return dict.fromkeys(calls, Times([0.5 if clean else 1.0] * 5))

    monkeypatch.setattr(session, "time_interleaved", timed)
    rows = lab.time_attention(CASE, ["torch:math"], within=[QUEUED, CLEAN])
    assert [(row["regime"], row["ms_p50"]) for row in rows] == [(QUEUED, 1.0), (CLEAN, 0.5)]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_a_clean_flush_wrote_costs_the_next_call_nothing():
    flush, x = RealFlush(), torch.ones(16 << 20, device="cuda")  # 64 MiB

    def read(clean):
        found = time_interleaved({"read": x.sum}, flush, clean)["read"]
        return found.as_row()["ms_p50"]

    assert read(clean=True) < 0.95 * read(clean=False)


def test_a_compiled_call_is_checked_too(lab, monkeypatch):
    compiled = regimes.compiled

    def miscompiled(name):
        right = compiled(name, backend="eager")
        return (lambda *x, **o: right(*x)) if name == "torch:math" else right  # loses the mask

    monkeypatch.setattr(regimes, "compiled", miscompiled)
    first, second = lab.time_attention(CASE, NAMES, within=[COMPILED])
    assert first["implementation"] == "torch:math"
    assert first["error"].startswith("wrong: largest difference")
    assert (second["regime"], second["ms_p50"]) == (COMPILED, 3.0)


# torch.compile.


def by_address(q, k, v, causal=False):
    """A launcher as those of the series are: it reads addresses, which no tracer can follow."""
    assert all(x.data_ptr() % 4 == 0 for x in (q, k, v))
    mask = causal_mask(q.shape[-2], k.shape[-2]) if causal else None
    return eager_attention(q, k, v, mask=mask)


@pytest.fixture
def named(monkeypatch):
    """Gives a function a name that `operator` finds."""

    def name_it(name, function):
        monkeypatch.setattr(regimes, "resolve", lambda wanted: {name: function}.get(wanted))
        return name

    yield name_it
    torch._dynamo.reset()


@pytest.mark.parametrize("causal", [False, True])
def test_a_launcher_that_reads_an_address_breaks_a_graph_and_an_operator_does_not(causal, named):
    q, k, v = make_qkv(1, 2, N=9, D=8)
    whole = torch.compile(by_address, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported):
        whole(q, k, v, causal=causal)
    compiled = regimes.compiled(named("by_address", by_address), backend="aot_eager")
    mask = causal_mask(9, 9) if causal else None
    assert_attention(compiled(q, k, v, causal=causal), q, k, v, mask=mask)


def test_our_launcher_goes_through_torch_compile_as_an_operator(device):
    q, k, v = make_qkv(1, 1, N=17, D=16, device=device)
    compiled = regimes.compiled("flash_attention", backend="aot_eager")
    assert_attention(compiled(q, k, v), q, k, v)


def test_an_operator_says_what_its_result_looks_like_in_memory(named):
    def beside_each_other(q, k, v, causal=False):
        return by_address(q, k, v, causal).transpose(1, 2).contiguous().transpose(1, 2)

    tensors = make_qkv(2, 3, N=9, D=8)
    for name, function in (("ours", by_address), ("flash_attention_4", beside_each_other)):
        made = regimes.operator.__wrapped__(named(name, function))
        torch.library.opcheck(made, (*tensors, True), test_utils=["test_schema", "test_faketensor"])
