"""The grid of inputs: every cell of every device, and what each launcher must show."""

from collections import Counter

from snippets._lab.draw.figure import Figure
from snippets._lab.draw.units import share
from snippets._lab.results.store import DataError

OUTCOMES = ("passed", "refused", "failed", "does not fit")
AXES = ("dtype", "mask", "layout", "configuration")
FILTERS = ("launcher", "device", "dtype", "mask", "layout", "outcome")
COLUMNS = (*FILTERS[:5], "configuration", "M", "N", "D", "error", "allowed", "outcome", "reason")


def grid(results):
    every = [
        {"device": result.label, "error": row.get("error_largest"), **row}
        for result in results
        for row in result.rows
    ]
    launchers = sorted({row["launcher"] for row in every})
    for launcher in launchers:
        _refuse_what_is_skipped_everywhere(
            launcher, [r for r in every if r["launcher"] == launcher]
        )
    # The title speaks of the interpreter and the first GPU: a reader's card does not change it.
    first = next((r.label for r in results if r.place == "gpu"), None)
    ours = {r.label for r in results if r.place != "gpu"} | {first}
    titled = [row for row in every if row["device"] in ours]
    outcomes = Counter(row["outcome"] for row in titled)
    return Figure(
        finding=f"{len(launchers)} launchers, {len(titled)} cells: {outcomes['passed']} are "
        f"within rounding of float64, {outcomes['refused']} are refused with a clear error, and "
        f"{outcomes['failed']} fail.",
        caption="Each cell is one call of a launcher. The interpreter computes bfloat16 wrongly, "
        "so those cells come from a GPU.",
        table=[_summary(name, [r for r in every if r["launcher"] == name]) for name in launchers],
        open_table=True,
        widget='<div class="am-coverage" data-widget="coverage" markdown>\n'
        "[The cells' data](/figures/coverage/grid_cells.json){ .am-source }\n</div>",
        extra_files={
            "grid_cells.json": {
                "columns": list(COLUMNS),
                "filters": list(FILTERS),
                "rows": [[row.get(name) for name in COLUMNS] for row in every],
            }
        },
        claims={"docs/lab/method.md: No cell fails": all(r["outcome"] != "failed" for r in every)},
    )


def _summary(name, rows):
    passed = [r for r in rows if r["outcome"] == "passed"]
    worst = max(passed, key=lambda r: r["error"] / r["allowed"])
    return {
        "launcher": name,
        "cells": len(rows),
        **{outcome: sum(r["outcome"] == outcome for r in rows) for outcome in OUTCOMES},
        "configurations": len({r["configuration"] for r in passed}),
        "largest error, of what is allowed": share(worst["error"], worst["allowed"]),
    }


def _refuse_what_is_skipped_everywhere(launcher, rows):
    """Each value of an axis must pass somewhere; a layout may be refused, but must be tried."""
    for axis in AXES:
        for value in sorted({r[axis] for r in rows}):
            seen = {r["outcome"] for r in rows if r[axis] == value}
            if "passed" in seen or "failed" in seen or (axis == "layout" and "refused" in seen):
                continue
            raise DataError(
                f"{launcher}: {axis} {value!r} is skipped everywhere: {', '.join(seen)}"
            )
    if not any(r["outcome"] == "passed" for r in rows):
        raise DataError(f"{launcher} passes nowhere")
