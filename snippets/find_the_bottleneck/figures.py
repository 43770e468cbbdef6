"""The figures of the page: how far kernels are from both ceilings, and what experiments showed."""

from collections import Counter
from typing import Any, NamedTuple

from snippets._lab.draw.drawings import LINES, MUTED, PHONE, STRONG, box, svg, words
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import identity, named
from snippets._lab.draw.rows import TIME, ceiling, gpus, moved, only, pick, rate, target
from snippets._lab.draw.tables import columns
from snippets._lab.draw.units import count, host_time, percent, time
from snippets._lab.draw.words import Words, case, many
from snippets._lab.results.store import DataError

from .experiments import EXPERIMENTS, VERDICTS, outcome

say = Words(__file__)
HALF = 0.5  # of a ceiling: what reaches it is limited by it
HOPPER = "sm_90"  # the target whose compiled kernels say which units they use
BAR = 11  # pixels: how tall
LISTED = ("vectorized_attention", "coalescing", "flash_attention")  # by the page, in words


class Shown(NamedTuple):
    """A kernel to compare with both ceilings: what it is called, and where its row is."""

    label: str
    measured: str  # post/result
    where: dict[str, Any]
    field: str = "bytes_compulsory"  # each tensor once
    tensor: bool | None = None  # None: as its compiled kernel says


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
        True,
    ),
    Shown("one key at a time", "scoreboard/kernels", LONG | {"implementation": "basic_attention"}),
    Shown("running softmax", "scoreboard/kernels", LONG | {"implementation": "tiled_attention"}),
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
    launches = _of(results, "multi_head_attention", "empty_launch")
    compiled = _of(results, "your_gpu", "kernels", HOPPER)
    sources = {it.measured: _of(results, *it.measured.split("/")) for it in SHOWN}
    rows = [_shares(it, sources[it.measured], compiled) for it in SHOWN]
    empty = {
        clock: only(launches.rows, implementation="empty Triton kernel", clock=clock)
        for clock in ("gpu", "host")
    }
    limits = Counter(r["limit"] for r in rows)
    return Figure(
        finding=say(
            "ceilings",
            all=many(len(rows), "kernel"),
            memory=many(limits["memory"], "is", "are"),
            arithmetic=many(limits["arithmetic"], "is", "are"),
            neither=many(limits["neither"], "reaches", "reach"),
        ),
        caption=say("ceilings.caption"),
        table=columns(
            rows,
            {
                "kernel": "label",
                "case": "case",
                "time": TIME,
                "units": "units",
                "of memory's ceiling": lambda r: percent(r["memory"]),
                "of its units' ceiling": lambda r: percent(r["arithmetic"]),
                "limited by": "limit",
            },
        ),
        open_table=True,
        sentences={
            "host": say(
                "host",
                gpu=time(empty["gpu"]["ms_p50"] / empty["gpu"]["launches"]),
                host=host_time(empty["host"]["ms_p50"] / empty["host"]["launches"]),
            ),
        },
        sources=(*sources.values(), launches, compiled),
    )


def _shares(it, result, compiled):
    """Which part of each ceiling a kernel reaches, and which of them limits it."""
    row = only(result.rows, **it.where)
    tensor = _on_tensor_cores(row, compiled) if it.tensor is None else it.tensor
    unit = f"matmul_{row['dtype']}" if tensor else "fma_float32"
    memory = moved(row, it.field) / ceiling(result, "read")
    arithmetic = rate(row) / ceiling(result, unit)
    limit = "memory" if memory > arithmetic else "arithmetic"
    axes = [axis for axis in ("dtype", "D", "M", "N") if axis in row]
    return {
        "label": it.label,
        "case": case(row, *axes),
        "ms_p50": row["ms_p50"],
        "units": "tensor cores" if tensor else "float32 units",
        "memory": memory,
        "arithmetic": arithmetic,
        "limit": limit if max(memory, arithmetic) >= HALF else "neither",
    }


def _on_tensor_cores(row, compiled):
    """Whether the compiled kernel of a launcher has an instruction for them."""
    names = (row["implementation"], row["dtype"])
    kernels = [r for r in compiled.rows if (r["launcher"], r["dtype"]) == names]
    if not kernels:
        raise DataError(f"{row['implementation']} is not compiled for {HOPPER}")
    return any(r.get("tensor_core") not in (None, "none") for r in kernels)


@from_all
def experiments(results):
    """A bar for each experiment: what is left of the time after one change."""
    sources, rows = {}, []
    for kernel, made in EXPERIMENTS.items():
        for it in made:
            result = sources.setdefault(it.measured, _of(results, *it.measured.split("/")))
            before, after = it.rows(result)
            found = outcome(before, after)
            rows.append(
                {"kernel": kernel, "it": it, "before": before, "after": after, "found": found}
            )
    counts = {verdict: sum(r["found"].verdict == verdict for r in rows) for verdict in VERDICTS}
    spilling = next(r for r in rows if r["kernel"] == "vectorized_attention")
    return Figure(
        finding=say(
            "experiments",
            all=many(len(rows), "suspicion"),
            causes=many(counts["cause"], "is a cause", "are causes"),
            parts=many(counts["part"], "explains", "explain"),
            refuted=many(counts["refuted"], "explains", "explain"),
        ),
        caption=say("experiments.caption"),
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
        sentences={
            **{kernel: _list(kernel, rows) for kernel in LISTED},
            "loads": _told(rows[0]),
            "spills": _about_spills(spilling),
            "compiled": _about_compiled(results),
        },
        sources=(*sources.values(), _of(results, "vectorized_attention", "registers", HOPPER)),
    )


def _list(kernel, rows):
    """The experiments on one kernel: the suspicion, the change, and what is left of the time."""
    return "\n".join(f"- {_told(r)}" for r in rows if r["kernel"] == kernel)


def _told(row):
    """One experiment in three sentences."""
    return (
        f"*Suspicion:* {row['it'].hypothesis}. *Experiment:* {row['it'].change}. "
        f"{percent(row['found'].left)} of the time is left: **{VERDICTS[row['found'].verdict]}**."
    )


def _about_spills(row):
    before, after = row["before"], row["after"]
    return say(
        "spills",
        tile=case(before, "N", "D"),
        warps=before["num_warps"],
        stack=count(before["stack_bytes"]),
        more=after["num_warps"],
        left=count(after["stack_bytes"]),
        time=time(before["ms_p50"]),
        faster=time(after["ms_p50"]),
    )


def _about_compiled(results):
    """The largest tile that fits and the next one, as the compiler reports them."""
    rows = pick(_of(results, "vectorized_attention", "registers", HOPPER).rows, D=64)
    spilling = [r for r in rows if r["stack_bytes"]]
    fitting = [r for r in rows if not r["stack_bytes"]]
    if not spilling or not fitting:
        raise DataError("no tile spills, or all do: there is nothing to tell apart")
    fits, spills = max(fitting, key=lambda r: r["N"]), min(spilling, key=lambda r: r["N"])
    return say(
        "compiled",
        fits=case(fits, "N", "D"),
        registers=fits["registers"],
        spills=case(spills, "N", "D"),
        most=spills["registers"],
        bytes=count(spills["spill_store_bytes"] + spills["spill_load_bytes"]),
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


def _of(results, post, result, compiled_for=""):
    """The reference device's result of a name, or what was compiled for a target."""
    named_so = [r for r in results if (r.post, r.result) == (post, result)]
    if compiled_for:
        found = [r for r in named_so if r.place == "compiler" and target(r) == compiled_for]
    else:
        found = gpus(named_so)
    if not found:
        raise DataError(f"{post}/{result} is not measured")
    return found[0]
