"""What is asked of a stored result before anything is drawn from it. No torch.

A file may have been damaged, edited or copied to the wrong place. Every fault is named by its file
and, where it lies in one, its row.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from snippets._lab.results.physics import PhysicsError, percentiles, refuse_impossible
from snippets._lab.results.result import Result

BEGINNING = datetime(2026, 11, 1, tzinfo=UTC)  # nothing was measured before
CLOCKS_DIFFER = timedelta(days=1)  # by less than this, whatever two machines think it is
MATMULS = {f"matmul_{dtype}" for dtype in ("float16", "bfloat16", "float32", "tf32")}
CEILINGS = {"read", "write", "copy", "fma_float32"} | MATMULS
ENDS = ("per_s_p20", "per_s_p50", "per_s_p80")
FEWEST_SAMPLES = 5  # fewer have no 20th percentile of their own
GATED = {"ms_p50", "bytes_compulsory", "flops", "dtype"}
Number = int | float


def faults(result: Result, folder_of: Callable[[str], str]) -> Iterator[str]:
    """What cannot be believed about a result; `folder_of` names the folder of a device."""
    yield from _of_the_place(result, folder_of)
    yield from _of_the_date(result.measured_at)
    if result.place == "gpu":
        yield from _of_the_ceilings(result.ceilings)
    seen: dict[str, int] = {}
    for number, row in enumerate(result.rows):
        for fault in _of_a_row(row, result.ceilings):
            yield f"rows.{number}{fault}"
        case = json.dumps(_case(row), sort_keys=True)
        if "line" not in row and seen.setdefault(case, number) != number:
            yield f"rows.{number} measures the same as rows.{seen[case]}"


def _of_the_place(result: Result, folder_of: Callable[[str], str]) -> Iterator[str]:
    name = result.label
    if result.place == "gpu" and result.folder != folder_of(name):
        yield f"{name!r} was measured, whose folder is {folder_of(name)}, not {result.folder}"
    if result.place == "compiler":
        target = result.folder.removeprefix("compiler/")
        if not name.startswith(f"{target},"):
            yield f"{name!r} was compiled for, which does not belong in {result.folder}"
    if result.place == "interpreter" and result.folder != "interpreter":
        yield f"what the interpreter says belongs in interpreter, not in {result.folder}"


def _of_the_date(measured_at: str) -> Iterator[str]:
    try:
        when = datetime.strptime(measured_at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        yield f"'measured_at' is {measured_at!r}, which is no date"
        return
    if not BEGINNING <= when <= datetime.now(UTC) + CLOCKS_DIFFER:
        yield f"'measured_at' is {measured_at}: before {BEGINNING:%Y-%m-%d}, or yet to come"


def _of_the_ceilings(ceilings: dict[str, Any]) -> Iterator[str]:
    if missing := CEILINGS - ceilings.keys():
        yield f"ceilings lacks {', '.join(sorted(missing))}: without them no time can be checked"
    for name, found in ceilings.items():
        ends: list[Any] = [found.get(end) for end in ENDS] if isinstance(found, dict) else [None]
        if not all(_is_number(end) and end > 0 for end in ends) or ends != sorted(ends):
            yield f"ceilings.{name} is {found!r}; {', '.join(ENDS)} must rise from above 0"


def _of_a_row(row: dict[str, Any], ceilings: dict[str, Any]) -> Iterator[str]:
    times = {name: value for name, value in row.items() if name.startswith("ms_")}
    samples = times.pop("ms_samples", None)
    for name, value in times.items():
        if not _is_number(value):
            yield f".{name} is {value!r}, not a number"
            return
        if value <= 0:
            yield f".{name} is {value}; a time is positive"
            return
    if "ms_p50" not in row:
        return
    if not isinstance(samples, list) or len(samples) < FEWEST_SAMPLES:
        yield f".ms_samples holds fewer than the {FEWEST_SAMPLES} times that a median is taken of"
        return
    if not all(_is_number(sample) and sample > 0 for sample in samples):
        yield ".ms_samples holds something that is no time"
        return
    for name, value in percentiles(samples).items():
        if row.get(name) != value:
            yield f".{name} is {row.get(name)}, but its own samples give {value}"
            return
    if ceilings and row.keys() >= GATED:
        try:
            refuse_impossible(row, ceilings)
        except (PhysicsError, KeyError, TypeError) as error:
            yield f" claims {error}"


def _case(row: dict[str, Any]) -> dict[str, Any]:
    """What was measured, without what came of it."""
    timed = "ms_p50" in row
    return {k: v for k, v in row.items() if not (timed and k.startswith("ms_"))}


def _is_number(value: Any) -> bool:
    return isinstance(value, Number) and not isinstance(value, bool)
