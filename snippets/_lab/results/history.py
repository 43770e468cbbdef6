"""What a result replaced: a summary of the measurement before, kept in the file of the new one."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from snippets._lab.results.result import Result

FARTHEST = 20  # times of a renewal, those that moved most
TIMES = ("ms_p20", "ms_p50", "ms_p80")
# How the fields begin that came out of a measurement: not what a row was asked for.
CAME_OUT = (
    *("ms_", "bytes_", "flops", "fits_", "registers", "shared_", "spill_", "stack_"),
    *("readings", "power_", "sm_clock_"),  # of the GPU, meanwhile
)
Row = Mapping[str, Any]


def following(new: Result, old: Result) -> Result:
    """The new result with the old one in its history; what no GPU has timed keeps none.

    An entry says when and with what the old one was measured, which definitions differ (None where
    it recorded none), how many cases both timed, and the times of the FARTHEST.
    """
    if new.place != "gpu" or old.place != "gpu":
        return new
    before, now = (by_case(result.rows) for result in (old, new))
    if not before and not now:
        return new
    both = [case for case in now if case in before]
    apart = {case: abs(math.log(now[case]["ms_p50"] / before[case]["ms_p50"])) for case in both}
    farthest = sorted(both, key=apart.__getitem__, reverse=True)[:FARTHEST]
    entry = {
        "measured_at": old.measured_at,
        "commit": old.commit,
        "versions": old.versions,
        "driver": old.device.get("driver"),
        "source_hash": old.source_hash,
        "changed": _differing(old, new) if old.code else None,
        "compared": len(both),
        "dropped": len(before) - len(both),
        "added": len(now) - len(both),
        "moved": [
            {
                "case": json.loads(case),
                "before": {name: before[case][name] for name in TIMES},
                "now": {name: now[case][name] for name in TIMES},
            }
            for case in farthest
        ],
    }
    return replace(new, history=[*old.history, entry])


def by_case(rows: Iterable[Row]) -> dict[str, Row]:
    """Timed rows by what was timed; those that cannot be told apart are left out."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if "ms_p50" in row:
            found.setdefault(json.dumps(_asked_for(row), sort_keys=True), []).append(row)
    return {case: same[0] for case, same in found.items() if len(same) == 1}


def _asked_for(row: Row) -> dict[str, Any]:
    """What a row was asked for: words, sizes and choices. Fractions and bytes are what came out."""
    return {
        name: value
        for name, value in row.items()
        if isinstance(value, str | int) and not name.startswith(CAME_OUT)
    }


def _differing(old: Result, new: Result) -> list[str]:
    """The definitions that the two were not both measured with."""
    a, b = (
        {(f"{file}: {name}", value) for file, own in r.code.items() for name, value in own.items()}
        for r in (old, new)
    )
    return sorted({name for name, _ in a ^ b})
