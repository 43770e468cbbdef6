"""A result taken in several runs: each in a process of its own, added to the runs before it.

A row's `ms_samples` hold the runs one after the other, and `runs` says how many each gave. A row
that was timed in one run has no `runs`. The first run times the competitors in the order of the
rows; run number r, counted from 0, in the order that `random.Random(r).shuffle` makes of it.
"""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from snippets._lab.results.history import Row, by_case
from snippets._lab.results.physics import five_digits, percentiles
from snippets._lab.results.result import Result

RUNS = 3  # of a published comparison: with fewer there is no verdict
READ_MEANWHILE = ("sm_clock_mhz", "power_w", "temperature_c", "slowdowns")  # of a device


class OtherCases(RuntimeError):
    """A run timed other cases than the runs before it."""


def count(row: Row) -> int:
    """In how many runs a row was timed."""
    return len(row.get("runs", [1]))


def of_row(row: Row) -> list[int]:
    """How many samples each run gave."""
    return list(row.get("runs", [len(row["ms_samples"])]))


def samples(row: Row) -> Iterator[list[float]]:
    """The samples of each run."""
    start = 0
    for length in of_row(row):
        yield row["ms_samples"][start : start + length]
        start += length


def taken(result: Result) -> int:
    """In how many runs a result was timed; 0 if it holds no times."""
    return min((count(row) for row in result.rows if "ms_p50" in row), default=0)


def same_machine(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two devices are alike in all but what was read while measuring."""
    return all(a.get(k) == b.get(k) for k in (a.keys() | b.keys()) - set(READ_MEANWHILE))


def added(old: Result, new: Result) -> Result:
    """The new run's result with the runs before it.

    Times are put together. What else differs from run to run, such as power, clock and host time,
    is the mean of the runs. Of the ceilings the higher count.
    Raises OtherCases where the two did not time the same.
    """
    before, now = by_case(old.rows), by_case(new.rows)
    if other := sorted(before.keys() ^ now.keys()):
        raise OtherCases(
            f"{new.post}/{new.result}: of run {taken(old) + 1} and the runs before it, one only "
            f"timed {other[0]}; FORCE=1 begins again"
        )
    if len(now) < sum("ms_p50" in row for row in new.rows):
        raise OtherCases(f"{new.post}/{new.result}: two timed rows cannot be told apart")
    joined = {case: _joined(before[case], now[case]) for case in now}
    same = {id(row): joined[case] for case, row in now.items()}
    ceilings = {
        name: max(found, old.ceilings.get(name, found), key=lambda ends: ends["per_s_p80"])
        for name, found in new.ceilings.items()
    }
    return replace(
        new,
        rows=[same.get(id(row), row) for row in new.rows],
        device=_meanwhile(old, new),
        ceilings=ceilings,
        history=old.history,
    )


def _joined(old: Row, new: Row) -> dict[str, Any]:
    runs = [*of_row(old), *of_row(new)]
    ms = [*old["ms_samples"], *new["ms_samples"]]
    means = {
        name: five_digits(statistics.fmean([old[name]] * (len(runs) - 1) + [value]))
        for name, value in new.items()
        if isinstance(value, int | float) and old.get(name, value) != value
    }
    return {**old, **new, **means, **percentiles(ms), "ms_samples": ms, "runs": runs}


def _meanwhile(old: Result, new: Result) -> dict[str, Any]:
    """The device; lowest, median (their mean) and highest of a reading are those of all runs."""
    found = {**old.device, **new.device}
    earlier = taken(old)
    for name in READ_MEANWHILE[:-1]:
        a, b = old.device.get(name), new.device.get(name)
        if a and b:
            middle = (a[1] * earlier + b[1]) / (earlier + 1)
            found[name] = [min(a[0], b[0]), five_digits(middle), max(a[2], b[2])]
    return found
