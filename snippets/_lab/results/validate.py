"""What is asked of a stored result before anything is drawn from it. No torch.

A result's seal says that its file is as it was written; this says whether to believe what was
written. Every fault is named by its file and, where it lies in one, its row.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from snippets._lab.results.physics import PhysicsError, percentiles, refuse_impossible
from snippets._lab.results.result import Result, folder_name
from snippets._lab.results.staleness import source_hash

BEGINNING = datetime(2026, 11, 1, tzinfo=UTC)  # nothing was measured before
CLOCKS_DIFFER = timedelta(days=1)  # by less than this, whatever two machines think it is
MATMULS = {f"matmul_{dtype}" for dtype in ("float16", "bfloat16", "float32", "tf32")}
CEILINGS = {"read", "write", "copy", "fma_float32"} | MATMULS
FEWEST_SAMPLES = 5  # fewer have no 20th percentile of their own
GATED = {"ms_p50", "bytes_compulsory", "flops", "dtype"}


def faults(result: Result) -> Iterator[str]:
    """What cannot be believed about a result."""
    name, target = result.label, result.folder.removeprefix("compiler/")
    belongs = {
        "gpu": result.folder == folder_name(name),
        "compiler": name.startswith(f"{target},"),
        "interpreter": result.folder == "interpreter",
        "browser": result.folder == "browser",
    }
    if not belongs.get(result.place):
        yield f"what {name!r} said as {result.place!r} does not belong in {result.folder}"
    when = datetime.fromisoformat(result.measured_at)
    if not BEGINNING <= when <= datetime.now(UTC) + CLOCKS_DIFFER:
        yield f"'measured_at' is {when}: before {BEGINNING:%Y-%m-%d}, or yet to come"
    if result.place == "gpu" and (missing := CEILINGS - result.ceilings.keys()):
        yield f"ceilings lacks {', '.join(sorted(missing))}: without them no time can be checked"
    if result.code and result.source_hash != (made := source_hash(result.code)):
        yield f"'source_hash' is {result.source_hash}, but its definitions make {made}"
    seen: dict[str, int] = {}
    for number, row in enumerate(result.rows):
        if fault := _of_a_row(row, result.ceilings):
            yield f"rows.{number}{fault}"
        timed = "ms_p50" in row  # what was measured, without what came of it
        own = {k: v for k, v in row.items() if not (timed and k.startswith("ms_"))}
        case = json.dumps(own, sort_keys=True)
        if "line" not in row and seen.setdefault(case, number) != number:
            yield f"rows.{number} measures the same as rows.{seen[case]}"


def _of_a_row(row: dict[str, Any], ceilings: dict[str, Any]) -> str:
    if "ms_p50" not in row:
        return ""
    samples = row.get("ms_samples", ())
    if len(samples) < FEWEST_SAMPLES:
        return f".ms_samples holds fewer than the {FEWEST_SAMPLES} times that a median is taken of"
    if min(samples) <= 0:
        return f".ms_samples holds {min(samples)}; a time is positive"
    if sum(row.get("runs", [len(samples)])) != len(samples):
        return f".runs is {row['runs']}, not how many of its {len(samples)} samples each run gave"
    for name, value in percentiles(samples).items():
        if row.get(name) != value:
            return f".{name} is {row.get(name)}, but its own samples give {value}"
    try:
        if ceilings and row.keys() >= GATED:
            refuse_impossible(row, ceilings)
    except PhysicsError as error:
        return f" claims {error}"
    return ""
