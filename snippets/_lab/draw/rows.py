"""Rows of raw numbers: which of them, and what is derived from one.

A quantity is a number of each row with its name and unit, the same for an axis, a column of a table
and a sentence. Rates, bandwidths and intensities are derived here and nowhere else.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snippets._lab.draw import units
from snippets._lab.draw.units import Unit
from snippets._lab.results.store import DataError, Result
from snippets._lab.results.verdict import Verdict, verdicts

Row = Mapping[str, Any]


def pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Rows with these values that have a measurement."""
    return [r for r in rows if not r.get("error") and all(r[k] == v for k, v in wanted.items())]


def only(rows: Iterable[Row], **wanted: Any) -> Row:
    """The one row with these values. Raises DataError if there is none, or more than one."""
    found = pick(rows, **wanted)
    if len(found) != 1:
        raise DataError(f"{len(found)} rows have {wanted}; one was expected")
    return found[0]


def values(rows: Iterable[Row], axis: str) -> list[Any]:
    """The values of a field, each once: numbers by size, everything else as it comes."""
    found = list(dict.fromkeys(r[axis] for r in rows if axis in r))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in found)
    return sorted(found) if numbers else found


def derived(
    results: Sequence[Result], of: Callable[[Result], Iterable[dict[str, Any]]]
) -> list[Result]:
    """The same devices with other rows: what `of` makes of each result, for a chart to draw."""
    return [replace(result, rows=list(of(result))) for result in results]


def gpus(results: Sequence[Result]) -> list[Result]:
    """The results that a GPU measured."""
    return [r for r in results if r.place == "gpu"]


def result_of(results: Iterable[Result], post: str, name: str, folder: str = "") -> Result:
    """A result by its name, in this folder of the data or else the first that a GPU measured."""
    named = [r for r in results if (r.post, r.result) == (post, name)]
    found = [r for r in named if (r.folder == folder if folder else r.place == "gpu")]
    if not found:
        raise DataError(f"{post}/{name} is not measured on {folder or 'a GPU'}")
    return found[0]


def compiled(results: Sequence[Result]) -> list[Result]:
    """The results of compiling ahead of time, by the capability of their target."""
    found = [r for r in results if r.place == "compiler"]
    return sorted(found, key=lambda r: (len(target(r)), target(r)))


def gpus_then_compiled(results: Sequence[Result]) -> list[Result]:
    """What the GPUs compiled, then what was compiled ahead of time for others."""
    return [*gpus(results), *compiled(results)]


def target(result: Result) -> str:
    """What a result was compiled for: "sm_90"; for a GPU's, its folder."""
    return result.folder.rpartition("/")[2]


def device_name(result: Result) -> str:
    """What a chart calls a device, with markup escaped; of what was compiled ahead, the target."""
    label = result.label.partition(",")[0] if result.place == "compiler" else result.label
    return html.escape(label)


def ceiling(result: Result, unit: str) -> float:
    """The highest rate of a run: bytes/s or FLOP/s; "memory" is the fastest way to move bytes."""
    ways = ("read", "write", "copy") if unit == "memory" else (unit,)
    return float(max(result.ceilings[way]["per_s_p50"] for way in ways))


def ridge(result: Result, unit: str, memory: str = "memory") -> float:
    """FLOP a byte from which on a unit, and not memory, is the ceiling."""
    return ceiling(result, unit) / ceiling(result, memory)


def rate(row: Row) -> float:
    """FLOP/s of a timed row."""
    return float(row["flops"] / row["ms_p50"] * 1e3)


def moved(row: Row, field: str = "bytes_compulsory") -> float:
    """Bytes/s of a timed row: of its compulsory bytes, or of another count."""
    return float(row[field] / row["ms_p50"] * 1e3)


def spread(row: Row) -> str:
    """Median and spread of a timed row, for whoever points at it; of a derived one, its time."""
    if "ms_p20" not in row:
        return units.time(row["ms_p50"])
    low, middle, high = (units.time(row[f"ms_{p}"]) for p in ("p20", "p50", "p80"))
    return f"{middle}<br>p20–p80: {low} – {high}"


class Gain(float):
    """How many times as fast one timed row is as another: above 1 ours takes less time.

    `word` is the verdict on it: "ahead", "behind", "level" or "undecided"; "" for a ratio that was
    not taken in enough runs for one.
    """

    word: str

    def __new__(cls, ours: Row, other: Row, found: Verdict | None) -> "Gain":
        """From the two rows and the verdict on them."""
        gain = super().__new__(cls, found.ratio if found else other["ms_p50"] / ours["ms_p50"])
        gain.word = found.word if found else ""
        return gain


def gains(pairs: Mapping[Any, tuple[Row, Row]]) -> dict[Any, Gain]:
    """Gains that are read together, by what they are of: pairs of timed rows, ours first."""
    found = verdicts(pairs.values())
    return {key: Gain(*pair, one) for (key, pair), one in zip(pairs.items(), found, strict=True)}


@dataclass(frozen=True)
class Quantity:
    """A number of a row, what it is called, and its unit."""

    name: str
    of: str | Callable[[Row], float | None]  # a field, or what makes the number
    unit: Unit = units.number

    def __call__(self, row: Row) -> float | None:
        """The number of one row; None where the row has none."""
        return row.get(self.of) if isinstance(self.of, str) else self.of(row)

    def text(self, row: Row) -> str:
        """The number with its unit, "–" where there is none."""
        value = self(row)
        return "–" if value is None else self.unit(value)

    def called(self, name: str) -> "Quantity":
        """The same number by another name."""
        return replace(self, name=name)


def field(name: str, called: str = "", unit: Unit = units.number) -> Quantity:
    """A field of the rows as a quantity."""
    return Quantity(called or name, name, unit)


def quantity(of: "str | Quantity") -> Quantity:
    """A quantity; of a field's name, the whole numbers in it."""
    return of if isinstance(of, Quantity) else Quantity(of, of, units.whole)


def over(count_field: str, called: str = "") -> Quantity:
    """So many bytes over the time they took, as a bandwidth."""
    return Quantity(called or "bandwidth", lambda r: moved(r, count_field), units.bandwidth)


TIME = field("ms_p50", "time", units.time)
OF_THE_HOST = field("ms_p50", "time of the host", units.host_time)
RATE = Quantity("rate", rate, units.flops)
BANDWIDTH = over("bytes_compulsory")
