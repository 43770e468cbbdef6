"""Figures of several rooms: wrong kernels, and what a file prints."""

from snippets._lab.draw.figure import Figure
from snippets._lab.draw.tables import Prose
from snippets._lab.results.store import Result
from snippets._lab.rooms import source_file


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
