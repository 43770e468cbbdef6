"""The figures that every room has: its mutants, and what its file prints."""

import re
from collections.abc import Mapping
from typing import Any

from snippets._lab.draw.figure import Figure
from snippets._lab.results.store import Result
from snippets._lab.rooms import source_file


def mutants(results: list[Result]) -> Figure:
    """The wrong kernels of a room and the test that rejected each."""
    rows = results[0].rows
    what = source_file(results[0].post).stem  # kernel or module
    named = sum(bool(r.get("derived")) for r in rows)
    how = (
        f" The wrong numbers alone name {named} of the {len(rows)} mistakes: they are those of a "
        "PyTorch model of that mistake."
    )
    return Figure(
        finding=f"{len(rows)} wrong {what}s, and the tests reject every one.",
        caption=f"Each line is the page's {what} with one mistake, the first test that saw it, and "
        f"the largest difference from float64 beside what is allowed. The unchanged {what} passes "
        "the same tests." + how * bool(named),
        table=[
            {
                "mistake": r["mutant"],
                "rejected by": r["killed_by"],
                **_error_and_bound(r["message"]),
                "diagnosis": r["diagnosis"] + _said_by_output(r) * bool(named),
            }
            for r in rows
        ],
        open_table=True,
        table_class="am-kills",
    )


def _said_by_output(row: Mapping[str, Any]) -> str:
    """What to add where the output alone gives no name, or the name of a mistake next to it."""
    derived = row.get("derived")
    if derived == row["mutant"]:
        return ""
    return f" (By its output: {derived or 'no known mistake'}.)"


def _error_and_bound(message: str) -> dict[str, str]:
    found = re.search(r"difference (\S+) .*?allowed (\S+)", message)
    return {"error": found[1] if found else message, "allowed": found[2] if found else ""}


def report(results: list[Result]) -> Figure:
    """What `python kernel.py` printed, word for word, in one section for each device."""
    command = f"python {source_file(results[0].post).name}"
    sentences = {
        r.folder: "\n".join(["```console", f"$ {command}", *(x["line"] for x in r.rows), "```"])
        for r in results
    }
    return Figure(
        finding="The file checks itself.",
        caption=f"What `{command}` prints, the file lying alone in an empty folder.",
        table=[{"device": r.label, "line": x["line"]} for r in results for x in r.rows],
        sentences=sentences,
    )
