"""The page on finding a bottleneck: every verdict follows the times, and none is written down."""

import copy
from dataclasses import replace

import pytest

from snippets._lab.draw.draw_all import reference_first
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import result_of
from snippets._lab.results import store
from snippets._lab.results.store import DataError
from snippets._lab.rooms import rooms
from snippets.find_the_bottleneck import figures
from snippets.find_the_bottleneck.experiments import EXPERIMENTS, LARGE, VERDICTS, outcome
from tests import made_up
from tests.floors import some

EVERYTHING = reference_first(list(store.scan()))
EACH = [(kernel, it) for kernel, made in EXPERIMENTS.items() for it in made]


def measured(it):
    return result_of(EVERYTHING, *it.measured.split("/"))


def with_times(it, factor):
    """All results, in which the row after the change takes `factor` times the one before it."""
    result = measured(it)
    rows = copy.deepcopy(result.rows)
    changed = replace(result, rows=rows)
    before, after = it.rows(changed)
    for field in ("ms_p20", "ms_p50", "ms_p80"):
        after[field] = factor * before[field]
    return [changed if r is result else r for r in EVERYTHING]


def drawn(results) -> Figure:
    return figures.experiments(results)


@pytest.mark.parametrize(("kernel", "it"), EACH, ids=lambda x: getattr(x, "change", x))
def test_an_experiment_changes_one_thing_and_is_measured(kernel, it):
    before, after = it.rows(measured(it))
    assert before != after
    # One case: what is not a time, a count of the code or the change itself is the same in both.
    free = {it.axis, "num_warps", "step", "kind", "matters", "bytes_loaded", "bytes_compulsory"}
    free |= {"registers", "stack_bytes", "compile_seconds"}
    same = {k for k in before.keys() & after.keys() - free if not k.startswith("ms_")}
    assert {k: before[k] for k in same} == {k: after[k] for k in same}
    assert {"dtype", "flops"} <= same
    assert kernel in rooms()


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(0.5, "cause"), (0.79, "cause"), (0.85, "part"), (1.0, "refuted"), (1.5, "refuted")],
)
def test_the_times_decide(factor, verdict):
    before, after = made_up.timed(1.0), made_up.timed(factor)
    found = outcome(before, after)
    assert found.verdict == verdict
    assert found.left == pytest.approx(factor)
    assert 0 < LARGE < 1


@pytest.mark.parametrize(("kernel", "it"), EACH, ids=lambda x: getattr(x, "change", x))
def test_other_times_give_another_verdict(kernel, it):
    now = outcome(*it.rows(measured(it))).verdict
    factor, other = (0.3, "cause") if now != "cause" else (1.4, "refuted")
    (row,) = (
        r
        for r in drawn(with_times(it, factor)).table
        if r["experiment"] == it.change and r["suspicion"] == it.hypothesis
    )
    assert row["so it is"] == VERDICTS[other]
    assert row["so it is"] != VERDICTS[now]


def test_a_missing_measurement_stops_the_page():
    for _, it in some(EACH):
        result = measured(it)
        with pytest.raises(DataError, match="not measured"):
            drawn([r for r in EVERYTHING if r is not result])


def test_a_ceiling_limits_what_comes_near_it():
    rows = {r["kernel"]: r for r in figures.ceilings(EVERYTHING).table}
    copied = figures.SHOWN[0]
    assert rows[copied.label]["limited by"] == "memory"
    result = measured(copied)
    slow = copy.deepcopy(result.rows)
    for row in slow:
        row["ms_p50"] *= 3
    altered = [replace(r, rows=slow) if r is result else r for r in EVERYTHING]
    rows = {r["kernel"]: r for r in figures.ceilings(altered).table}
    assert rows[copied.label]["limited by"] == "neither"


def test_the_units_are_those_of_the_compiled_kernel():
    compiled = result_of(EVERYTHING, "your_gpu", "kernels", figures.HOPPER)
    used = {
        r["launcher"]: r["tensor_core"] != "none"
        for r in some(compiled.rows)
        if r["dtype"] == "float16" and r["kernel"]
    }
    for it in figures.SHOWN:
        name = it.where["implementation"]
        assert it.tensor == used.get(name, name.startswith("torch:")), it.label
