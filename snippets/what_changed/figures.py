"""What new measurements changed, and which versions stand behind each room's numbers."""

import math
from collections import Counter

from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.rows import OF_THE_HOST, TIME, device_name
from snippets._lab.draw.tables import Numeral, case, listed, table
from snippets._lab.draw.units import ratio, rough_ratio
from snippets._lab.results.store import VERSIONS, DataError

CALLED = {
    "python": "Python",
    "torch": "torch",
    "triton": "Triton",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
}
LINKED = 3  # files: every result of the table has one
LARGEST, LISTED = 5, 100  # moves that are shown, and that the figure's data have
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
    """A row for each measurement that replaced another, the latest first; repeats are shown."""
    found = _renewals(results)
    again = [
        (new, when, entry)
        for new, (when, versions), entry in found
        if entry["changed"] == [] and entry["versions"] == versions
    ]
    return Figure(
        finding=f"{len(again)} of {len(found)} new measurements repeat the old one.",
        caption="A row is a result measured twice with the same versions and code: how many times "
        "are in both, and how far they moved. This figure's data list all new measurements.",
        table=[
            _ends(new, when, entry)
            | {
                "other versions": _other_versions(entry, new_versions),
                "other code": _other_code(entry["changed"]),
            }
            for new, (when, new_versions), entry in found
        ],
        widget=_shown([_ends(*item) for item in again]),
        sources=_first((result for result, _, _ in found), results),
    )


@from_all
def moves(results):
    """A row for each time that is kept of a renewal, the largest change first."""
    every = [
        (new, when, change)
        for new, (when, _), entry in _renewals(results)
        for change in entry["moved"]
    ]
    every.sort(key=lambda item: _how_far(item[2]), reverse=True)
    faster, slower = (
        sum(sign * math.log(_quotient(change)) > 0 for _, _, change in every) for sign in (-1, 1)
    )
    rows = [
        {
            "result": f"{new.post}/{new.result}",
            "device": device_name(new),
            "case": _case(change["case"]),
            "before": Numeral(_clock(change)(change["before"])),
            "now": Numeral(_clock(change)(change["now"])),
            "now ÷ before": Numeral(_factor(change)),
            "measured": when[:10],
        }
        for new, when, change in every
    ]
    largest = {}
    for row in rows:
        largest.setdefault(row["result"], row)
    return Figure(
        finding=f"{faster} times became shorter, {slower} longer.",
        caption=f"The largest change of a result, for {LARGEST} results. This figure's data have "
        f"up to {LISTED} changes.",
        table=rows[:LISTED],
        widget=_shown([*largest.values()][:LARGEST]),
        sources=_first((result for result, _, _ in every), results),
    )


def _shown(rows):
    """The rows that the page shows of a longer table."""
    return "\n".join(["<div markdown>", "", *table(rows), "", "</div>"]) if rows else ""


def _ends(new, when, entry):
    """A measurement and the one that it replaced."""
    return {
        "result": f"{new.post}/{new.result}",
        "device": device_name(new),
        "before": entry["measured_at"][:10],
        "now": when[:10],
        "times": entry["compared"],
        "now ÷ before": _range(entry["moved"]),
    }


def _renewals(results):
    """(result, (when, versions) of what replaced, entry) of every entry, the latest first."""
    found = [
        (result, now, entry)
        for result in results
        for now, entry in zip(_replaced_by(result), result.history, strict=True)
    ]
    return sorted(found, key=lambda item: item[1][0], reverse=True)


def _replaced_by(result):
    """(when, versions) of what came after each entry of a history."""
    entries = [(entry["measured_at"], entry["versions"]) for entry in result.history[1:]]
    return [*entries, (result.measured_at, result.versions)] if result.history else []


def _first(of, results):
    """The results that a table begins with, to be linked; any where it is empty."""
    there = {(r.folder, r.post, r.result): r for r in of}
    return tuple(there.values())[:LINKED] or tuple(results[:1])


def _other_versions(entry, now):
    other = [
        f"{CALLED[name]} {entry['versions'][name]} → {now[name]}"
        for name in VERSIONS
        if entry["versions"].get(name) != now.get(name)
    ]
    return ", ".join(other) or "–"


def _other_code(changed):
    if changed is None:
        return "not recorded"
    files = Counter(name.partition(": ")[0] for name in changed)
    return ", ".join(f"{file} ({number})" for file, number in files.items()) or "–"


def _case(found):
    """What was timed, in words: the implementation first, labels left out."""
    axes = {k: v for k, v in found.items() if k != "label"}
    return case(axes, *sorted(axes, key=lambda name: name != "implementation"))


def _range(moved):
    """From the least to the largest of what now ÷ before is."""
    ends = sorted(moved, key=_quotient)
    return " to ".join(dict.fromkeys(map(_factor, (*ends[:1], *ends[-1:])))) or None


def _of_the_host(change):
    return change["case"].get("clock") == "host" or change["case"].get("regime") == "as called"


def _clock(change):
    return (OF_THE_HOST if _of_the_host(change) else TIME).text


def _factor(change):
    return (rough_ratio if _of_the_host(change) else ratio)(_quotient(change))


def _quotient(change):
    return change["now"]["ms_p50"] / change["before"]["ms_p50"]


def _how_far(change):
    """Twice as fast is as far as twice as slow."""
    return abs(math.log(_quotient(change)))
