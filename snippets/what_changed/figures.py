"""Which versions stand behind each room's numbers, and how far a repeated measurement moved."""

from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.rows import device_name
from snippets._lab.draw.tables import listed
from snippets._lab.draw.units import ratio, rough_ratio
from snippets._lab.results.store import DataError

CALLED = {
    "python": "Python",
    "torch": "torch",
    "triton": "Triton",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
}
LINKED = 3  # files: every result of the table has one
NONE = ("none", "absent", "unknown")  # where a version does not apply


@from_all
def versions(results):
    """A row for each set of versions: the rooms with results of it, and the oldest one's day."""
    sets = {}
    for r in results:
        if r.place in ("gpu", "interpreter", "compiler"):
            where = r.label if r.place == "gpu" else r.place
            there = [r.versions[name] for name in CALLED]
            sets.setdefault((where, *there, r.device.get("driver")), []).append(r)
    if not sets:
        raise DataError("no result names its versions")
    heads = ("where", *CALLED.values(), "driver")
    rows = [
        {
            **{h: None if v in NONE else v for h, v in zip(heads, key, strict=True)},
            "measured since": min(r.date for r in found),
            "posts and lab pages": listed(sorted({r.post for r in found})),
        }
        for key, found in sets.items()
    ]
    oldest = [min(found, key=lambda r: r.measured_at) for found in sets.values()]
    first = min(r.date for r in oldest)
    return Figure(
        finding=f"{len(rows)} sets of versions; the oldest result is of {first}.",
        caption="A GPU's row has the results timed on it. The interpreter runs kernels on a CPU, "
        "the compiler translates them without running any.",
        table=rows,
        open_table=True,
        sources=_first(oldest, results),
    )


@from_all
def renewals(results):
    """A row for each measurement that repeated another with nothing changed, the latest first."""
    again = [
        (result, when, entry)
        for result in results
        for (when, versions), entry in zip(_replaced_by(result), result.history, strict=True)
        if entry["changed"] == [] and entry["versions"] == versions
    ]
    again.sort(key=lambda item: item[1], reverse=True)
    return Figure(
        finding=f"{len(again)} results were measured again with nothing changed.",
        caption="A row is a result measured twice with the same versions and code: how many times "
        "are in both, and how far they moved.",
        table=[
            {
                "result": f"{new.post}/{new.result}",
                "device": device_name(new),
                "before": entry["measured_at"][:10],
                "now": when[:10],
                "times": entry["compared"],
                "now ÷ before": _range(entry["moved"]),
            }
            for new, when, entry in again
        ],
        open_table=True,
        sources=_first((result for result, _, _ in again), results),
    )


def _replaced_by(result):
    """(when, versions) of what came after each entry of a history."""
    entries = [(entry["measured_at"], entry["versions"]) for entry in result.history[1:]]
    return [*entries, (result.measured_at, result.versions)] if result.history else []


def _first(of, results):
    """The results that a table begins with, to be linked; any where it is empty."""
    there = {(r.folder, r.post, r.result): r for r in of}
    return tuple(there.values())[:LINKED] or tuple(results[:1])


def _range(moved):
    """From the least to the largest of what now ÷ before is."""
    ends = sorted(moved, key=_quotient)
    return " to ".join(dict.fromkeys(map(_factor, (*ends[:1], *ends[-1:])))) or None


def _factor(change):
    host = change["case"].get("clock") == "host" or change["case"].get("regime") == "as called"
    return (rough_ratio if host else ratio)(_quotient(change))


def _quotient(change):
    return change["now"]["ms_p50"] / change["before"]["ms_p50"]
