"""The gate that refuses what no GPU can do, and the medians that go through it."""

import statistics
from types import SimpleNamespace

import pytest
import torch

from snippets._lab.measure import ceilings
from snippets._lab.measure.timing import Times, time_host, time_interleaved
from snippets._lab.results.physics import PhysicsError, refuse_impossible

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def ceiling(per_s):
    """What one ceiling looks like: slow, middle and fast end."""
    return {"per_s_p20": per_s * 0.98, "per_s_p50": per_s * 0.99, "per_s_p80": per_s}


CEILINGS = {
    "read": ceiling(4e12),
    "write": ceiling(3e12),
    "copy": ceiling(2e12),
    "fma_float32": ceiling(60e12),
    "matmul_float16": ceiling(750e12),
    "matmul_bfloat16": ceiling(780e12),
    "matmul_float32": ceiling(50e12),
    "matmul_tf32": ceiling(400e12),
}
# Of each dtype, the fastest unit that accepts it.
FLOPS = {"float16": 750e12, "bfloat16": 780e12, "float32": 400e12}


def row(*, flops=1.0, bytes_compulsory=1.0, dtype="float32", spread=0.0, **more):
    """A row that took a millisecond; flops and bytes are given per second."""
    return {
        "implementation": "some_attention",
        "dtype": dtype,
        "ms_p20": 1 - spread / 2,
        "ms_p50": 1.0,
        "ms_p80": 1 + spread / 2,
        "flops": flops / 1e3,
        "bytes_compulsory": bytes_compulsory / 1e3,
        **more,
    }


@pytest.mark.parametrize("dtype", FLOPS)
def test_operations_at_the_ceiling_pass_and_above_are_refused(dtype):
    refuse_impossible(row(flops=0.999 * FLOPS[dtype], dtype=dtype), CEILINGS)
    with pytest.raises(PhysicsError, match=r"FLOP/s where the device does"):
        refuse_impossible(row(flops=1.001 * FLOPS[dtype], dtype=dtype), CEILINGS)


def test_float32_may_use_tf32_but_half_precision_may_not_borrow():
    """float32 is held to TF32, eight times its own units; float16 is not held to bfloat16's."""
    refuse_impossible(row(flops=60.1e12), CEILINGS)
    with pytest.raises(PhysicsError):
        refuse_impossible(row(flops=770e12, dtype="float16"), CEILINGS)


def test_compulsory_bytes_are_held_to_the_fastest_way_to_memory():
    refuse_impossible(row(bytes_compulsory=0.999 * 4e12), CEILINGS)
    with pytest.raises(PhysicsError, match="bytes/s of compulsory traffic") as caught:
        refuse_impossible(row(bytes_compulsory=1.001 * 4e12, N=1234), CEILINGS)
    assert "'implementation': 'some_attention'" in str(caught.value)
    assert "'N': 1234" in str(caught.value), "the message names the row"


def test_the_slack_is_the_rows_own_spread():
    refuse_impossible(row(bytes_compulsory=1.09 * 4e12, spread=0.1), CEILINGS)
    with pytest.raises(PhysicsError):
        refuse_impossible(row(bytes_compulsory=1.11 * 4e12, spread=0.1), CEILINGS)


def test_loaded_bytes_are_served_by_caches_and_not_held_to_memory():
    refuse_impossible(row(bytes_loaded=1e18), CEILINGS)


def test_rows_without_times_pass():
    refuse_impossible({"implementation": "x", "N": 1, "error": "out of memory"}, CEILINGS)


def test_without_operations_there_is_no_unit_to_be_held_to():
    refuse_impossible(row(flops=0.0, dtype="int32"), CEILINGS)
    with pytest.raises(PhysicsError, match="compulsory traffic"):
        refuse_impossible(row(flops=0.0, dtype="int32", bytes_compulsory=1.001 * 4e12), CEILINGS)
    with pytest.raises(PhysicsError, match="no ceiling is measured"):
        refuse_impossible(row(dtype="int32"), CEILINGS)


def test_what_the_host_took_is_not_held_to_the_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.synchronize", lambda: None)
    (taken,) = time_host({"one": lambda: None}, calls=2).values()
    assert taken.as_row()["clock"] == "host"
    refuse_impossible(taken.as_row(), CEILINGS)
    assert "clock" not in Times([1.0, 1.0]).as_row()


@pytest.mark.parametrize("field", ["flops", "bytes_compulsory", "dtype"])
def test_a_timed_row_must_say_what_it_moved(field):
    silent = row()
    del silent[field]
    with pytest.raises(KeyError, match=field):
        refuse_impossible(silent, CEILINGS)


def test_no_ceilings_is_no_permission():
    with pytest.raises(PhysicsError, match="no ceiling is measured"):
        refuse_impossible(row(), {})


def test_times_are_percentiles_of_all_samples():
    samples = [float(ms) for ms in (9, 1, 8, 2, 10, 7, 3, 6, 4, 5, 0)]
    found = Times(samples).as_row()
    assert (found["ms_p20"], found["ms_p50"], found["ms_p80"]) == (2.0, 5.0, 8.0)
    assert found["ms_samples"] == samples, "in the order they were taken"


def test_times_keep_five_digits():
    found = Times([0.0123456789, 0.0123456789]).as_row()
    assert found["ms_p50"] == 0.012346
    assert statistics.fmean(found["ms_samples"]) == 0.012346


def test_nothing_to_time_is_an_error():
    with pytest.raises(ValueError, match="competitors is empty"):
        time_interleaved({}, flush=None)


@pytest.mark.skipif(DEVICE == "cuda", reason="Triton asks a GPU for more than we make up")
def test_the_reader_reads_everything_once(monkeypatch):
    few = SimpleNamespace(multi_processor_count=1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: few)
    x = torch.arange(17 * 4096, dtype=torch.float32, device=DEVICE) % 7
    sums = ceilings.read(x)
    assert len(sums) == 8, "programs, each of which takes tile after tile"
    assert float(sums.sum()) == float(x.sum())
    with pytest.raises(ValueError, match="4097 elements; a multiple of 4096"):
        ceilings.read(torch.zeros(4097, device=DEVICE))
