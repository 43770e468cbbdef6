"""How quick the site is, as a table: what a page may cost, and what each was measured to cost.

The samples lie under docs/data like all that is measured. A page asks for the table by an element
(`<div class="am-speed" data-result="browser/page_speed/pages"></div>`) that a build replaces.
"""

import itertools
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snippets._lab.results import store
from snippets._lab.results.store import Result

PLACE = re.compile(r'<div class="am-speed" data-result="(?P<result>[^"]+)"></div>')
FIGURE_GRACE_MS, FIGURE_FACTOR = 2000, 2.5

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Budget:
    """What a page may cost: `limit`, of the stock page's value where `ratio`, or more: `floor`."""

    field: str
    title: str
    unit: str
    limit: float
    ratio: bool = False
    floor: float = 0.0  # less is not told from nothing

    def allowed(self, stock: float) -> float:
        return max(self.floor, self.limit * (stock if self.ratio else 1))


BUDGETS = (
    Budget("first_paint_ms", "first paint", "ms", 0.6, ratio=True),
    Budget("largest_paint_ms", "largest paint", "ms", 0.65, ratio=True),
    Budget("shift", "layout shift", "", 0.02),
    Budget("blocking_ms", "blocking", "ms", 0.8, ratio=True, floor=150),
    Budget("bytes", "bytes before a figure", "kB", 145_000),  # a dozen drawings are text too
    Budget("requests", "requests", "", 11),
    Budget("index_bytes", "search index", "kB", 155_000),
)

ALWAYS = ("first_paint_ms", "largest_paint_ms", "bytes", "requests")  # of every page more than zero


def shown(markdown: str, data: Path) -> str:
    """Markdown with the table where it is asked for. Raises DataError if it was never measured."""

    def drawn(match: re.Match[str]) -> str:
        folder, post, result = match["result"].rsplit("/", 2)
        return table(store.read(store.path_of(folder, post, result, data), data))

    return PLACE.sub(drawn, markdown)


def by_page(result: Result) -> dict[str, dict[str, Rows]]:
    """The samples of each page: {"posts/x/": {"ours": [...], "stock": [...]}}."""
    found: dict[str, dict[str, Rows]] = {}
    for row in result.rows:
        found.setdefault(row["page"], {}).setdefault(row["site"], []).append(row)
    return found


def renewed(new: Result, old: Result) -> Result:
    """The old result with the pages of the new one in place of its own.

    Raises DataError for an old one of another machine, browser or recipe.
    """
    if changed := [name for name in old.device if old.device[name] != new.device.get(name)]:
        raise store.DataError(f"not stored: {', '.join(changed)} changed, so measure all pages")
    if old.source_hash != new.source_hash:
        raise store.DataError("not stored: the recipe changed, so measure all pages")
    measured = {row["page"] for row in new.rows}
    rows = [*new.rows, *(row for row in old.rows if row["page"] not in measured)]
    rows.sort(key=lambda row: (row["page"], row["site"]))
    return Result(**{**vars(new), "rows": rows})


def median(rows: Rows, field: str) -> float | None:
    """The median of a field, None where a page has none."""
    values = [row[field] for row in rows if row[field] is not None]
    return statistics.median(values) if values else None


def over(result: Result) -> list[str]:
    """Sentences about the pages and budgets that do not agree.

    Raises DataError where there is no page, and where a page of either site was never painted:
    nothing is below every limit.
    """
    found: list[str] = []
    pages = by_page(result)
    if not pages:
        raise store.DataError("no page was measured")
    for page, both in pages.items():
        for site, field in itertools.product(("ours", "stock"), ALWAYS):
            if not median(both.get(site, []), field):
                raise store.DataError(f"/{page} ({site}) has no {field}: it was not measured")
        for budget in BUDGETS:
            ours, stock = (median(both[s], budget.field) or 0 for s in ("ours", "stock"))
            limit = budget.allowed(stock)
            if ours > limit:
                found.append(f"/{page}: {budget.title} {ours:g}, allowed {limit:g}")
        drawn, allowed = median(both["ours"], "figure_ms"), figure_limit_ms(result, both["ours"])
        if drawn is not None and drawn > allowed:
            found.append(f"/{page}: figure drawn after {drawn:.0f} ms, allowed {allowed:.0f} ms")
    return found


def figure_limit_ms(result: Result, rows: Rows) -> float:
    """How long a figure may take: by the bytes it needs on this network, and the slow CPU."""
    transfer = 1000 * (median(rows, "figure_bytes") or 0) / result.device["download_bytes_per_s"]
    return float(FIGURE_FACTOR * (result.device["latency_ms"] + transfer) + FIGURE_GRACE_MS)


def table(result: Result) -> str:
    """The Markdown that a page shows."""
    heads = [b.title + (f", {b.unit}" if b.unit else "") for b in BUDGETS]
    lines = [
        f"| page | {' | '.join(heads)} | figure drawn, ms |",
        f"| --- |{' ---: |' * (len(heads) + 1)}",
        f"| allowed | {' | '.join(map(_limit, BUDGETS))} | by its bytes |",
    ]
    for page, both in by_page(result).items():
        cells = [_cell(b, both) for b in BUDGETS]
        drawn = median(both["ours"], "figure_ms")
        allowed = figure_limit_ms(result, both["ours"])
        cells.append("–" if drawn is None else f"{drawn:.0f} (of {allowed:.0f})")
        lines.append(f"| /{page} | {' | '.join(cells)} |")
    missed = over(result)
    verdict = (
        "Every page keeps every limit." if not missed else f"Over the limit: {'; '.join(missed)}."
    )
    device = result.device
    place = f"{result.folder}/{result.post}/{result.result}"
    origin = (
        f"Medians of {device['runs']}, {result.date}, {device['browser']}, "
        f"{device['name']} slowed {device['cpu_slowed']} times, "
        f"{device['latency_ms']:g} ms per request, "
        f"{device['download_bytes_per_s'] / 1000:.0f} kB/s, {device['width']} px wide. "
        f"[All samples](/data/{place}.json)."
        f'<span class="am-stale" data-result="{place}"></span>'
    )
    return "\n".join([verdict, "", *lines, "", origin, ""])


def _limit(budget: Budget) -> str:
    if budget.ratio:
        return f"{budget.limit:g} × stock" + (f", or {budget.floor:g}" if budget.floor else "")
    return f"{budget.limit / 1000:g}" if budget.unit == "kB" else f"{budget.limit:g}"


def _cell(budget: Budget, both: dict[str, Rows]) -> str:
    ours, stock = (median(both[s], budget.field) or 0 for s in ("ours", "stock"))
    if budget.unit == "kB":
        return f"{ours / 1000:.0f} ({stock / 1000:.0f})"
    if budget.ratio and stock:
        return f"{ours:.0f} ({stock:.0f}), {ours / stock:.2f} ×"
    return f"{ours:.3g} ({stock:.3g})"
