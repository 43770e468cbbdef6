"""What is asked of a stored result before anything is drawn from it. No torch.

A file may have been damaged, edited or copied to the wrong place. Every fault is named by its file
and, where it lies in one, its row.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from snippets._lab.results.history import TIMES
from snippets._lab.results.physics import PhysicsError, percentiles, refuse_impossible
from snippets._lab.results.result import Result
from snippets._lab.results.source_hash import DIGITS
from snippets._lab.results.staleness import source_hash

BEGINNING = datetime(2026, 11, 1, tzinfo=UTC)  # nothing was measured before
CLOCKS_DIFFER = timedelta(days=1)  # by less than this, whatever two machines think it is
MATMULS = {f"matmul_{dtype}" for dtype in ("float16", "bfloat16", "float32", "tf32")}
CEILINGS = {"read", "write", "copy", "fma_float32"} | MATMULS
ENDS = ("per_s_p20", "per_s_p50", "per_s_p80")
FEWEST_SAMPLES = 5  # fewer have no 20th percentile of their own
PLACES = ("gpu", "interpreter", "compiler", "browser")
GATED = {"ms_p50", "bytes_compulsory", "flops", "dtype"}
ENTRY = {  # of a history
    "measured_at": str,
    "commit": str,
    "versions": dict,
    "driver": str | None,
    "source_hash": str,
    "changed": list | None,
    "compared": int,
    "dropped": int,
    "added": int,
    "moved": list,
}
Number = int | float


def faults(result: Result, folder_of: Callable[[str], str]) -> Iterator[str]:
    """What cannot be believed about a result; `folder_of` names the folder of a device."""
    yield from _of_the_place(result, folder_of)
    yield from _of_the_date(result.measured_at)
    if result.place == "gpu":
        yield from _of_the_ceilings(result.ceilings)
    yield from _of_the_code(result)
    for number, entry in enumerate(result.history):
        for fault in _of_an_entry(entry):
            yield f"history.{number}{fault}"
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
    if result.place in ("interpreter", "browser") and result.folder != result.place:
        yield f"what the {result.place} says belongs in {result.place}, not in {result.folder}"
    if result.place not in PLACES:
        yield f"'place' is {result.place!r}; it is one of {', '.join(PLACES)}"


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
        if not _rising(ends):
            yield f"ceilings.{name} is {found!r}; {', '.join(ENDS)} must rise from above 0"


def _of_the_code(result: Result) -> Iterator[str]:
    for file, found in result.code.items():
        if not isinstance(found, dict) or not found:
            yield f"code.{file} is {found!r}, not the digests of definitions"
            return
        for name, value in found.items():
            if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{DIGITS}}}", value):
                yield f"code.{file}.{name} is {value!r}, not a digest"
                return
    if result.code and result.source_hash != (made := source_hash(result.code)):
        yield f"'source_hash' is {result.source_hash}, but its definitions make {made}"


def _of_an_entry(entry: Any) -> Iterator[str]:
    if not isinstance(entry, dict) or entry.keys() != ENTRY.keys():
        yield f" is {entry!r}, without what it replaced"
        return
    for name, kind in ENTRY.items():
        if not isinstance(entry[name], kind) or isinstance(entry[name], bool):
            yield f".{name} is {entry[name]!r}"
            return
    for number, moved in enumerate(entry["moved"]):
        whole = isinstance(moved, dict) and moved.keys() == {"case", "before", "now"}
        for when in ("before", "now"):
            times = moved[when] if whole else None
            ends = [times.get(name) for name in TIMES] if isinstance(times, dict) else [None]
            if not _rising(ends):
                yield f".moved.{number} is {moved!r}; {', '.join(TIMES)} must rise from above 0"
                return


def _rising(found: Iterable[Any]) -> bool:
    values = list(found)
    return all(_is_number(x) and x > 0 for x in values) and values == sorted(values)


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
    runs = row.get("runs", [len(samples)])
    whole = isinstance(runs, list) and all(type(count) is int and count > 0 for count in runs)
    if not whole or sum(runs) != len(samples):
        yield f".runs is {runs!r}, not how many of its {len(samples)} samples each run gave"
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
