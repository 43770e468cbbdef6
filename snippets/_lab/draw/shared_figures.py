"""Figures of several rooms: wrong kernels, what a file prints, what a call costs the host."""

from collections.abc import Sequence

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import OF_THE_HOST, pick, values
from snippets._lab.draw.tables import Prose
from snippets._lab.draw.units import between, host_time, rough_ratio
from snippets._lab.results.store import Result
from snippets._lab.rooms import source_file

A_CALL = "a call"  # of the host's time, the whole


def mutants(results: list[Result]) -> Figure:
    """The wrong kernels of a room and the test that rejected each."""
    rows = results[0].rows
    what = source_file(results[0].post).stem  # kernel or module
    return Figure(
        finding=f"{len(rows)} wrong {what}s, and the tests reject every one.",
        table=[
            {
                "mistake": r["mutant"],
                "what it does": Prose(r["diagnosis"]),
                "rejected by": r["killed_by"],
            }
            for r in rows
        ],
        numbers={"count": len(rows)},
    )


def report(results: list[Result]) -> Figure:
    """What `python kernel.py` printed, word for word, in one section for each device."""
    command = f"python {source_file(results[0].post).name}"
    printed = {
        r.folder: "\n".join(["```console", f"$ {command}", *(x["line"] for x in r.rows), "```"])
        for r in results
    }
    return Figure(
        finding="The file checks itself.",
        caption=f"What `{command}` prints, the file lying alone in an empty folder.",
        table=[{"device": r.label, "line": x["line"]} for r in results for x in r.rows],
        pieces=printed,
    )


def host(results: Sequence[Result], names: Sequence[str]) -> Figure:
    """The host's time for a call of each of `names`, ours first, PyTorch's last, and of our parts.

    A row is a `part` of a call at one D; the whole is A_CALL.
    """
    rows = results[0].rows
    ours, theirs = (pick(rows, part=A_CALL, implementation=name) for name in (names[0], names[-1]))
    pairs = [one["ms_p50"] / other["ms_p50"] for one, other in zip(ours, theirs, strict=True)]
    parts = [part for part in values(rows, "part") if part != A_CALL]
    whole = [Series(name, where={"implementation": name, "part": A_CALL}) for name in names]
    each = [Series(names[0], part, {"part": part}, shade=3) for part in parts]
    # A launch whose kernel is kept, and one whose kernel Triton has to find.
    kept, asked = ([r["ms_p50"] for r in pick(rows, part=part)] for part in parts[-2:])
    busy = between([r["ms_p50"] for r in ours], host_time)
    return Figure(
        finding=f"A call keeps the host busy for {busy}, {between(pairs, rough_ratio)} as long as "
        "one of PyTorch's SDPA.",
        caption="The host's own time for a call, among many back to back, while the GPU's work "
        f"is shorter: bfloat16, no mask, {rows[0]['heads']} heads, {rows[0]['N']} queries and "
        "keys. Below the whole calls, parts of ours, each made by itself. “Found by Triton” is "
        "the launch without the kept kernel.",
        plot=charts.bars(
            results, [*whole, *each], OF_THE_HOST, charts.views("D {}", "D", values(rows, "D"))
        ),
        numbers={
            "busy": busy,
            "kept": between(kept, host_time),
            "asked": between(asked, host_time),
        },
    )
