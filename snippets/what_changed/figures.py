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
LARGEST, LISTED = 15, 100  # moves that are shown, and that the figure's data have
NONE = ("none", "absent", "unknown")  # where a version does not apply


@from_all
def versions(results):
    """A row for each post and place: the versions of all its results, and the oldest one's day."""
    named = [(r.post, _where(r)) for r in results if r.place in ("gpu", "interpreter", "compiler")]
    groups = {key: [r for r in results if (r.post, _where(r)) == key] for key in sorted(set(named))}
    if not groups:
        raise DataError("no result names its versions")
    oldest = {key: min(found, key=lambda r: r.measured_at) for key, found in groups.items()}
    rows = [
        {
            "post": post,
            "where": where,
            "results": len(found),
            **{CALLED[name]: _of(found, name) for name in VERSIONS},
            "driver": listed(sorted({r.device.get("driver") or "–" for r in found})),
            "all verified since": oldest[post, where].date,
        }
        for (post, where), found in groups.items()
    ]
    mixed = sum(any(len(_each(found, name)) > 1 for name in VERSIONS) for found in groups.values())
    first = min(oldest.values(), key=lambda r: r.measured_at)
    return Figure(
        finding=f"{len(groups)} sets of results, {mixed} of them with several versions; the "
        f"oldest is of {first.date}.",
        caption="A row for each post and place, from the provenance of its results: the versions "
        "with which they were last measured, and the day since which all of them have been. "
        "Where a cell has two versions, only some results have been measured with the newer one.",
        table=rows,
        open_table=True,
        sources=_first(sorted(oldest.values(), key=lambda r: r.measured_at), results),
    )


@from_all
def renewals(results):
    """A row for each measurement that replaced another, the latest first."""
    found = _renewals(results)
    again = [
        change
        for _, (_, versions), entry in found
        if entry["changed"] == [] and entry["versions"] == versions
        for change in entry["moved"]
    ]
    return Figure(
        finding=f"{len(found)} new measurements; with the same code and versions, now ÷ before is "
        f"{_range(again)}.",
        caption="A row for each file of times that another one replaced, the latest first: what "
        "differs in versions and in code, how many times are in both, and the range of now ÷ "
        "before over the times that are kept, the farthest among them. Both sides are single "
        "measurements, so a quotient has no verdict.",
        table=[
            {
                "result": f"{new.post}/{new.result}",
                "device": device_name(new),
                "before": entry["measured_at"][:10],
                "now": when[:10],
                "other versions": _other_versions(entry, new_versions),
                "other code": _other_code(entry["changed"]),
                "compared": entry["compared"],
                "now ÷ before": _range(entry["moved"]),
            }
            for new, (when, new_versions), entry in found
        ]
        or [{"result": "–", "now ÷ before": None}],
        open_table=True,
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
    largest = ["<div markdown>", "", *table(rows[:LARGEST]), "", "</div>"] if rows else []
    return Figure(
        finding=f"{faster} times became shorter, {slower} longer.",
        caption=f"The largest {LARGEST} changes; this figure's data have up to {LISTED}, the "
        "files of the results all that are kept. Of the host's times one digit is shown: more do "
        "not repeat. Now ÷ before: below 1 it is faster than it was.",
        table=rows[:LISTED] or [{"result": "–"}],
        widget="\n".join(largest),
        sources=_first((result for result, _, _ in every), results),
    )


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


def _where(result):
    return {"interpreter": "interpreter", "compiler": "compiler"}.get(result.place, result.label)


def _each(found, name):
    return Counter(r.versions[name] for r in found)


def _of(found, name):
    each = [version for version in sorted(_each(found, name)) if version not in NONE]
    return listed(each) if each else "–"


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
