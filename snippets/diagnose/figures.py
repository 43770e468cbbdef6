"""The figures of the page about `make diagnose`: its verdicts, and all that it can name."""

from collections import Counter
from difflib import unified_diff

from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import only
from snippets._lab.draw.tables import Prose

EXAMPLES = {  # section of the page → the case that it shows
    "strides": "rows: V with K's strides",
    "outside": "tiled: no mask for rows of K",
    "nan": "tiled: exp(new - old) in the first tile",
    "error": "tiled: no such function",
}


def kernels(rows):
    verdicts = Counter(row["verdict"] for row in rows)
    joined = {row["planted"].count(" + ") for row in rows if row["verdict"] == "no name"}
    return Figure(
        finding=f"Of {len(rows)} kernels, {verdicts['right']} get the right verdict, "
        f"{verdicts['no name']} stay without a name, and {verdicts['wrong name']} get a wrong one.",
        table=[
            {
                "kernel": row["style"],
                "planted": row["planted"],
                "named": row["named"] or Prose(row["said"].partition("\n")[0]),
                "verdict": row["verdict"],
            }
            for row in rows
        ],
        numbers={
            "all": len(rows),
            "right": verdicts["right"],
            "unnamed": verdicts["no name"],
            "wrong": verdicts["wrong name"],
        },
        claims={"docs/lab/diagnose.md: with two mistakes at once": joined == {1}},
        pieces={name: _example(only(rows, case=case)) for name, case in EXAMPLES.items()},
    )


def _example(row):
    """What was changed, and what the command answered."""
    old, new = (row[which].splitlines() for which in ("old", "new"))
    changed = list(unified_diff(old, new, n=0, lineterm=""))[2:]  # after the names of the files
    return "\n".join(
        [
            "```diff",
            *(line for line in changed if line.startswith(("-", "+"))),
            "```",
            "",
            "```console",
            "$ make diagnose FILE=my_kernel.py",
            row["said"],
            "```",
        ]
    )


def mistakes(rows):
    return Figure(
        finding=f"{len(rows)} mistakes have a name.",
        table=[
            {"mistake": row["mistake"], "what you are told": Prose(row["sentence"])} for row in rows
        ],
        numbers={"all": len(rows)},
    )
