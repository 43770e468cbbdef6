"""The figures of the page: how far kernels are from both ceilings, and what experiments showed."""

from collections import Counter
from typing import Any, NamedTuple

from snippets._lab.draw.drawings import LINES, MUTED, PHONE, STRONG, box, svg, words
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import identity, named
from snippets._lab.draw.limits import limit
from snippets._lab.draw.rows import TIME, only, result_of
from snippets._lab.draw.tables import case, columns
from snippets._lab.draw.units import count, host_time, many, percent, time

from .experiments import EXPERIMENTS, VERDICTS, outcome

PAGE = "docs/lab/find_the_bottleneck.md"
HOPPER = "compiler/sm_90"  # the target of the compiled kernels
BAR = 11  # pixels: how tall


class Shown(NamedTuple):
    """A kernel to compare with both ceilings: what it is called, and where its row is."""

    label: str
    measured: str  # post/result
    where: dict[str, Any]
    field: str = "bytes_compulsory"  # each tensor once
    tensor: bool = True  # multiplies on tensor cores


LONG = {"heads": 8, "D": 64, "N": 4096}
FULL = {"dtype": "float16", "causal": False, "D": 128, "N": 4096}
COPY = {"implementation": "coalescing", "dtype": "float32"}
SHOWN = [
    Shown("a copy", "coalescing/strides", COPY | {"stride": 1}, "bytes_useful", False),
    Shown(
        "the same with stride 32",
        "coalescing/strides",
        COPY | {"stride": 32},
        "bytes_useful",
        False,
    ),
    Shown(
        "PyTorch, one query and a long cache",
        "attention_memory/intensity",
        {"implementation": "torch:sdpa", "M": 1, "N": 131_072},
        "bytes_moved",
    ),
    Shown(
        "one key at a time",
        "scoreboard/kernels",
        LONG | {"implementation": "basic_attention"},
        tensor=False,
    ),
    Shown(
        "running softmax",
        "scoreboard/kernels",
        LONG | {"implementation": "tiled_attention"},
        tensor=False,
    ),
    Shown(
        "on tensor cores", "flash_attention/forward", FULL | {"implementation": "flash_attention"}
    ),
    Shown(
        "warps with roles",
        "hopper_attention/forward",
        FULL | {"implementation": "hopper_attention"},
    ),
]


@from_all
def ceilings(results):
    """How much of memory's ceiling and of its units' each of some kernels reaches."""
    launches = result_of(results, "multi_head_attention", "empty_launch")
    sources = {it.measured: result_of(results, *it.measured.split("/")) for it in SHOWN}
    rows = [_shares(it, sources[it.measured]) for it in SHOWN]
    empty = {
        clock: only(launches.rows, implementation="empty Triton kernel", clock=clock)
        for clock in ("gpu", "host")
    }
    limits = Counter(r["by"] for r in rows)
    return Figure(
        finding=f"Of {many(len(rows), 'kernel')}, {many(limits['memory'], 'is', 'are')} limited by "
        f"memory and {many(limits['arithmetic'], 'is', 'are')} limited by arithmetic; "
        f"{many(limits['neither'], 'reaches', 'reach')} half of neither ceiling.",
        caption="Shares of what the same run reads, and computes on the same units, at best. From "
        "half of a ceiling on we say that it limits. Queued calls.",
        table=columns(
            rows,
            {
                "kernel": "label",
                "case": "case",
                "time": TIME,
                "of memory's ceiling": lambda r: percent(r["memory"]),
                "of its units' ceiling": lambda r: percent(r["arithmetic"]),
                "limited by": "by",
            },
        ),
        open_table=True,
        numbers={
            "gpu": time(empty["gpu"]["ms_p50"] / empty["gpu"]["launches"]),
            "host": host_time(empty["host"]["ms_p50"] / empty["host"]["launches"]),
        },
        sources=(*sources.values(), launches),
    )


def _shares(it, result):
    """Which part of each ceiling a kernel reaches, and which of them limits it."""
    row = only(result.rows, **it.where)
    axes = [axis for axis in ("dtype", "D", "M", "N") if axis in row]
    return {
        "label": it.label,
        "case": case(row, *axes),
        "ms_p50": row["ms_p50"],
        **limit({**row, "product": it.tensor}, result, it.field)._asdict(),
    }


@from_all
def experiments(results):
    """A bar for each experiment: what is left of the time after one change."""
    sources, rows = {}, []
    for kernel, made in EXPERIMENTS.items():
        for it in made:
            result = sources.setdefault(it.measured, result_of(results, *it.measured.split("/")))
            before, after = it.rows(result)
            found = outcome(before, after)
            rows.append(
                {"kernel": kernel, "it": it, "before": before, "after": after, "found": found}
            )
    counts = {verdict: sum(r["found"].verdict == verdict for r in rows) for verdict in VERDICTS}
    spilling = next(r for r in rows if r["kernel"] == "vectorized_attention")
    before, after = spilling["before"], spilling["after"]
    compiled = result_of(results, "vectorized_attention", "registers", HOPPER)
    fits, spills = (only(compiled.rows, D=64, N=N) for N in (256, 512))
    flash = [r["found"].verdict for r in rows if r["kernel"] == "flash_attention"]
    return Figure(
        finding=f"Of {many(len(rows), 'suspicion')}, "
        f"{many(counts['cause'], 'is a cause', 'are causes')}; "
        f"{many(counts['part'], 'explains', 'explain')} less than a fifth of the time, and "
        f"{many(counts['refuted'], 'explains', 'explain')} nothing.",
        caption="What is left of the time after one change, in color where that is a cause: it "
        "saves at least a fifth. Savings do not add up.",
        table=[
            {
                "kernel": named(r["kernel"]),
                "suspicion": r["it"].hypothesis,
                "experiment": r["it"].change,
                "before": time(r["before"]["ms_p50"]),
                "after": time(r["after"]["ms_p50"]),
                "left": percent(r["found"].left),
                "so it is": VERDICTS[r["found"].verdict],
            }
            for r in rows
        ],
        widget=_bars(rows),
        numbers={
            "registers": fits["registers"],
            "spilling": spills["registers"],
            "spilled": f"{spills['spill_store_bytes'] + spills['spill_load_bytes']} bytes",
            "loads": percent(rows[0]["found"].left),
            "stack": f"{count(before['stack_bytes'])} bytes",
            "time": time(before["ms_p50"]),
            "stack_left": f"{count(after['stack_bytes'])} bytes",
            "time_left": time(after["ms_p50"]),
            "stride": percent(next(r["found"].left for r in rows if r["kernel"] == "coalescing")),
            **{
                name: percent(r["found"].left)
                for name, r in zip(
                    ("flight", "exp", "masks", "queries"),
                    [r for r in rows if r["kernel"] == "flash_attention"],
                    strict=True,
                )
            },
        },
        claims={
            f"{PAGE}: half of the suspicions were not a cause": counts["cause"] == len(rows) / 2,
            f"{PAGE}: and nothing spills": not fits["stack_bytes"] and bool(spills["stack_bytes"]),
            f"{PAGE}: bandwidth is not what it lacks": rows[0]["found"].left > 0.9,
            f"{PAGE}: The spills are a cause": spilling["found"].verdict == "cause",
            f"{PAGE}: Only the first saves a fifth; the last makes it slower": flash
            == ["cause", "part", "part", "refuted"],
        },
        sources=(*sources.values(), compiled),
    )


def _bars(rows):
    """The time before as an empty bar and the time after as a full one, to one scale."""
    widest = max(1, *(r["found"].left for r in rows))
    scale = (PHONE - 44) / widest
    drawn, y, kernel = [], 0, None
    for r in rows:
        if r["kernel"] != kernel:
            kernel = r["kernel"]
            y += 22
            drawn.append(words(0, y, named(kernel), 12, 600, anchor="start"))
            y += 6
        left, cause = r["found"].left, r["found"].verdict == "cause"
        color = identity(kernel).color if cause else MUTED
        y += 14
        drawn += [
            words(0, y, f"{r['it'].hypothesis}?", 10.5, anchor="start"),
            box(0, y + 5, scale, BAR, LINES, 8, 1),
            box(0, y + 5, left * scale, BAR, color, STRONG if cause else 35),
            box(scale, y + 3, 1, BAR + 4, MUTED, 100),
            words(
                max(scale, left * scale) + 5,
                y + 4 + BAR,
                percent(left),
                10.5,
                600 if cause else 400,
                anchor="start",
            ),
        ]
        y += 26
    about = "What is left of the time after one change. " + " ".join(
        f"{named(r['kernel'])}, {r['it'].hypothesis}: {percent(r['found'].left)}." for r in rows
    )
    return svg(PHONE, y + 2, about, drawn)
