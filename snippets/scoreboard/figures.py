"""The figures of the scoreboard: each draws the result of the same name."""

import re
import statistics
from itertools import pairwise

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import ERROR, Reference, Series, at_ceiling
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import BEST, named
from snippets._lab.draw.rows import (
    RATE,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    gpus,
    only,
    pick,
    rate,
    result_of,
    values,
)
from snippets._lab.draw.tables import beside, case, cell, columns, table
from snippets._lab.draw.units import between, count, flops, many, measured_ratio, ratio, share, size
from snippets._lab.results.store import DataError
from snippets._lab.rooms import source_file

from . import front
from .differences import lines_of_code
from .regime_rows import (
    AS_CALLED,
    CELL,
    COMPILED,
    CUDNN,
    FLASH,
    IN_A_GRAPH,
    LAST,
    OF_CUDNN,
    PACKAGES,
    QUEUED,
    REGIMES,
    SUSTAINED,
    beside_cudnn,
    missing,
    quotient,
    regimes_of,
    remark,
    seen,
    versioned,
    within,
)
from .road import MS, player

SDPA = "torch:sdpa"
PAGE, HOPPER_PAGE = "docs/lab/scoreboard.md", "docs/posts/hopper_attention.md"
ROOFS = {"matmul_float16": "float16", "fma_float32": "float32"}  # names short enough for a phone


def _lines(row):
    """Lines of code of a row's kernel; PyTorch's are not ours to count."""
    name = row["implementation"]
    return None if name.startswith("torch:") else lines_of_code(source_file(name))


WRONG = ("tiled_attention", "mutants")


@from_all
def race(results):
    """For a reader's own text of a kernel: its launch, ceilings of GPUs, and measured times."""
    (launched,) = (r for r in results if (r.post, r.result) == ("scoreboard", "race"))
    board = gpus([r for r in results if (r.post, r.result) == ("scoreboard", "kernels")])
    case_ = {key: launched.rows[0][key] for key in ("dtype", "heads", "D", "N")}
    timed = {r.label: [row for row in pick(r.rows, **case_) if row["label"]] for r in board}
    first = only(timed[board[0].label], implementation=launched.rows[0]["implementation"])
    cards = [
        {
            "name": r.label,
            "ceilings": {unit: ceiling(r, unit) for unit in ("read", *ROOFS)},
            "times": [[named(row["implementation"]), TIME(row)] for row in timed[r.label]],
        }
        for r in board
    ]
    return Figure(
        finding="[How a reader's kernel is launched](/figures/scoreboard/race_launches.json).",
        table=[
            {"kernel": r["implementation"], "grid": r["launch"]["grid"][0]} for r in launched.rows
        ],
        numbers={"keys": case_["N"]},
        extra_files={
            "race_launches.json": {
                "case": case_ | {"bytes": first["bytes_compulsory"]},
                "cards": cards,
                "launches": {r["launch"]["kernel"]: r["launch"] for r in launched.rows},
            }
        },
        sources=(launched, *board),
    )


@from_all
def road(results):
    small = result_of(results, *KERNELS)
    large = result_of(results, *LARGE, small.folder)
    N = max(values(small.rows, "N"))
    rows = [r for r in pick(small.rows, N=N) if r["step"]]
    sdpa = only(small.rows, N=N, implementation=SDPA)
    of_sdpa = [measured_ratio(TIME(row) / TIME(sdpa)) for row in rows]
    full = Comparison(pick(large.rows, dtype="bfloat16"), LAST, by=CELL)
    one = full.row(LAST, full.cases[0])
    times = [MS.text(row).replace(" ", "\u00a0") for row in (rows[0], rows[-1], sdpa)]
    stops = columns(
        rows, {"kernel": "implementation", "time": MS, "rate": RATE, "what it is": "label"}
    )
    return Figure(
        finding=f"Attention, from {times[0]} to {times[1]}. PyTorch's SDPA takes {times[2]}.",
        caption=f"{cell(small.label)}, the GPU's time alone. Stops: {rows[0]['heads']} heads of "
        f"{N} queries and keys, D {rows[0]['D']}, float16, all timed in one run. The drawing is of "
        "a smaller attention, negative numbers hollow.",
        table=stops,
        widget=player(
            rows,
            [sdpa, only(small.rows, N=N, implementation="torch:eager")],
            of_sdpa,
            {"hopper ÷ SDPA on cuDNN": full[CUDNN], "hopper ÷ FlashAttention": full.best()},
            _with_the_gpu_full([*full[CUDNN].words], [*full.best().words]),
            f"The {rows[0]['heads']} heads above leave part of it idle; "
            f"{count(one['batch'] * one['N'])} tokens fill it. Right of the line ours is faster; a "
            "hollow dot is too close to call. FlashAttention is version 3 or 4, whichever is "
            "faster.",
            table(stops),
        ),
        claims={
            "snippets/scoreboard/road.py: Without tensor cores the time goes back up": [
                row["implementation"] for before, row in pairwise(rows) if TIME(row) > TIME(before)
            ]
            == ["tiled_attention"],
        },
        sources=(small, large),
    )


def _with_the_gpu_full(cudnn, flash):
    """What the verdicts of the last kernel come to, beside two others."""
    if not any(cudnn):
        return "With the GPU full"
    ahead, behind = flash.count("ahead"), flash.count("behind")
    return (
        f"With the GPU full, hopper is ahead of cuDNN in {cudnn.count('ahead')} of {len(cudnn)} "
        f"shapes; of FlashAttention in {ahead}, behind it in {behind}."
    )


@from_all
def proof(results):
    result = next(r for r in results if (r.post, r.result) == WRONG)
    row = only(result.rows, mutant=front.SHOWN)
    error, allowed = (float(x) for x in re.findall(r"(?:difference|allowed) (\S+)", row["message"]))
    return Figure(
        finding="Spoil one line of the running softmax, and the result is off by "
        f"{ratio(error / allowed)} what the test allows.",
        caption=f"One of {len(result.rows)} wrong versions of {result.post}, word for word as "
        "recorded; the tests reject every one, and the right kernel passes them all.",
        table=[{"part": part, "recorded": row[part]} for part in PARTS],
        widget=front.proof(result.post, row, error, allowed),
        sources=(result,),
    )


PARTS = ("mutant", "old", "new", "killed_by", "message", "derived", "diagnosis")


# Regimes.


def regimes(results, rows):
    there, names = regimes_of(rows), versioned(rows)
    beside_others = {regime: within(rows, regime) for regime in there}
    if LAST not in names:
        raise DataError(f"{LAST} was not timed: {'; '.join(missing(rows))}")
    queued, shown = beside_others[QUEUED], SUSTAINED if SUSTAINED in there else QUEUED
    best = {regime: x.best() or x[CUDNN] for regime, x in beside_others.items()}
    cudnn = {regime: x[CUDNN] for regime, x in beside_others.items()}
    flash = {
        regime: Comparison(pick(rows, regime=regime), FLASH, by=CELL)[CUDNN] for regime in there
    }
    called, compiled = (within(rows, x).rows[LAST] for x in (AS_CALLED, COMPILED))
    slower = [row["ms_p50"] / called[cell_]["ms_p50"] for cell_, row in compiled.items()]
    hot = [r for r in rows if r.get("regime") == SUSTAINED and r.get("readings")]
    at = ", ".join(count(N) for N in values(pick(rows, regime=SUSTAINED), "N"))
    return Figure(
        finding=f"{shown.capitalize()}, {LAST} reaches {best[shown].between()} of the rate of "
        f"{queued.the_best() or 'cuDNN'}, and {cudnn[shown].between()} of cuDNN's.",
        caption=f"bfloat16, {count(rows[0]['batch'] * rows[0]['N'])} tokens and "
        f"{rows[0]['heads'] * rows[0]['D']} columns in every cell; right is faster. Sustained at "
        f"N {at}: three seconds back to back, the first not counted." + _not_timed(rows),
        table=_cells(rows, names),
        plot=charts.dots(
            derived(results, lambda result: beside_cudnn(result, ("regime", *CELL))),
            [
                Series(LAST, f"{case(at, 'D', 'causal')}, {at['N'] // 1024}k", at)
                for cell_ in sorted(
                    {tuple(r[axis] for axis in CELL) for r in rows}, key=lambda x: x[::-1]
                )
                for at in [dict(zip(CELL, cell_, strict=True))]
            ],
            OF_CUDNN,
            {regime: {"regime": regime} for regime in there[:3]},
            **_beside_cudnn(names),
        ),
        numbers={
            **{
                f"{name}_{regime.rpartition(' ')[2]}": found[regime].between()
                for name, found, named in (
                    ("best", best, (SUSTAINED, QUEUED, AS_CALLED)),
                    ("flash", flash, (SUSTAINED, AS_CALLED)),
                )
                for regime in named
                if regime in found
            },
            "short_called": cudnn[AS_CALLED].where(N=1024).between(),
            "graph": cudnn[IN_A_GRAPH].where(N=1024).between(),
            "compiled": cudnn[COMPILED].between(),  # of N 1024 alone
            "compiled_of_called": f"{between(slower)}×",
            "host": units.host_time(_host(rows, LAST)),
            "host_cudnn": units.host_time(_host(rows, CUDNN)),
            "watts": between([r["power_w"] for r in hot], units.watts),
            "clock": between([r["sm_clock_mhz"] for r in hot], units.megahertz),
            "limit": units.watts(results[0].device["power_limit_w"]),
        }
        if hot
        else {},
        claims={
            f"{PAGE}: holds the clock down all the time": all(
                r["power_capped"] > 0.95 for r in hot
            ),
            f"{PAGE}: neither heat nor the hardware slows it": not any(
                r.get("slowdowns") for r in hot
            ),
            f"{PAGE}: does not make a single call faster": min(slower) > 1,
            f"{PAGE}: is ahead of cuDNN in every case": {*cudnn[QUEUED].words} == {"ahead"},
            f"{PAGE}: is ahead of both": {*best[QUEUED].where(N=16384).words} == {"behind"},
            f"{HOPPER_PAGE}: : behind without a mask, too close to call with one": all(
                gain.word in (("level", "undecided") if at.causal else ("behind",))
                for at, gain in best[SUSTAINED].items()
            ),
            f"{HOPPER_PAGE}: and is behind in none; our launcher": best[AS_CALLED].never_behind,
        }
        if hot
        else {},
    )


def _host(rows, name):
    """What a call costs the host, in the median of the cells."""
    called = pick(rows, implementation=name, regime=AS_CALLED)
    return statistics.median(r["ms_host"] for r in called)


def _not_timed(rows):
    return "".join(f" Not timed: {told}." for told in missing(rows))


def _beside_cudnn(names):
    """A mark for each of the others, and cuDNN as the line at 1: what two charts share."""
    others = [Series(n, told, {"implementation": n}) for n, told in names.items() if n != CUDNN]
    line = Reference("cuDNN", 1.0, across="x", key=CUDNN)
    return {"groups": others, "log": False, "references": [line]}


def _quotients(names, at, ours=LAST):
    """How many times as fast ours is as cuDNN and as each package, in one case of a table."""
    return {
        f"{named(ours)} ÷ {told}": quotient(name, ours)(at)
        for name, told in names.items()
        if name in (CUDNN, *PACKAGES)
    }


def _cells(rows, names):
    """A line for each cell and regime: the rates, their quotients, power and clock."""
    timed = [r for r in rows if r.get("regime") in REGIMES]
    timed.sort(key=lambda r: (*(r[axis] for axis in CELL), REGIMES.index(r["regime"])))

    def more(at):
        here = [at[name] for name in names if at[name]]
        return {
            **_quotients(names, at),
            "power": seen(here, "power_w", units.watts),
            "SM clock": seen(here, "sm_clock_mhz", units.megahertz),
            "remark": remark(here),
        }

    called = {told: name for name, told in names.items()}
    return beside(timed, [*CELL, "regime"], called, RATE, more)


def launchers(rows):
    fast = min(pick(rows, regime=QUEUED), key=TIME)["implementation"]
    mine = {r["regime"]: r for r in pick(rows, implementation=fast)}
    called = {r["implementation"]: r for r in pick(rows, regime=AS_CALLED)}
    queued = {r["implementation"]: r for r in pick(rows, regime=QUEUED)}
    worst = max(called, key=lambda name: TIME(called[name]) - TIME(queued[name]))
    return Figure(
        finding=f"{named(fast)} takes {TIME.text(mine[QUEUED])} queued and "
        f"{units.host_time(TIME(mine[AS_CALLED]))} as called: on small work the host is most of "
        "it.",
        numbers={"worst": units.rough_ratio(TIME(called[worst]) / TIME(queued[worst]))},
        claims={
            f"{PAGE}: `composed_attention` loses the most to the host": worst
            == "composed_attention"
        },
    )


TRAINED, TRITON = "hopper_backward", "flash_backward"  # each with the forward it belongs to


def kernels(results, rows):
    N = max(values(rows, "N"))
    ours = [r for r in pick(rows, N=N) if r["step"]]
    slow, fast = max(ours, key=TIME), min(ours, key=TIME)
    winner = min(pick(rows, N=N), key=TIME)
    hungry = max(pick(rows, N=N), key=lambda r: r["bytes_peak"])
    peak = ceiling(results[0], "matmul_float16")
    scale = flops.scale([rate(fast)])
    steps = {r["implementation"]: TIME(r) for r in ours}
    last, before = ([*map(TIME, pick(rows, implementation=name))] for name in (LAST, FLASH))
    return Figure(
        finding=f"From {scale.number(rate(slow))} to {scale.text(rate(fast))}: at N {N} "
        f"{fast['implementation']} is {units.measured_ratio(TIME(slow) / TIME(fast))} as fast as "
        f"{slow['implementation']} on the same work.",
        caption=f"{rows[0]['heads']} heads, D {rows[0]['D']}, float16, all in turn in one run; "
        "right is faster. The gray lines are what plain products reached at best in the same run.",
        table=_board(results),
        plot=charts.dots(
            results,
            [r["implementation"] for r in sorted(pick(rows, N=N), key=TIME)],
            RATE,
            charts.views("N {}", "N", values(rows, "N")[::-1]),
            references=[at_ceiling(unit, name, across="x") for unit, name in ROOFS.items()],
            ends=(min(map(rate, pick(rows))) / 2, 4 * peak),  # room for the ceilings' names
            texts=True,
        ),
        numbers={
            "best": flops(rate(winner)),
            "best_share": share(rate(winner), peak),
            "behind": ratio(TIME(fast) / TIME(winner)),
            **{
                f"to_{name.partition('_')[0]}": ratio(max(change, 1 / change))
                for (_, one), (name, two) in pairwise(steps.items())
                for change in [one / two]
            },
            "last_short": ratio(before[0] / last[0]) if last else 0,
            "memory": size(hungry["bytes_peak"]),
            "result": size(hungry["bytes_result"]),
        },
        claims={
            f"{PAGE}: the fastest of these is PyTorch's own SDPA": winner["implementation"]
            == "torch:sdpa",
            f"{PAGE}: At N 4096 `vectorized_attention` cannot run: too many keys": N == 4096
            and [r["implementation"] for r in rows if r["N"] == N and r.get("error")]
            == ["vectorized_attention"],
            f"{PAGE}: each is faster than the previous one, but for `tiled_attention`": [
                name for (_, one), (name, two) in pairwise(steps.items()) if two > one
            ]
            == ["tiled_attention"],
            f"{PAGE}: PyTorch's math backend needs the most memory": hungry["implementation"]
            == "torch:math",
        },
    )


def _board(results):
    """The table of all devices: at each length the slowest first, before it what does not run."""
    lines = []
    for_each = [(result, N) for result in results for N in values(result.rows, "N")]
    for result, N in for_each:
        best = min(TIME(r) for r in pick(result.rows, N=N))
        timed = sorted(pick(result.rows, N=N), key=TIME, reverse=True)
        failed = [r for r in result.rows if r["N"] == N and r.get("error")]
        lines += [{**r, "device": result.label, "best": best} for r in failed + timed]
    return columns(
        lines,
        {
            **({"device": "device"} if len(results) > 1 else {}),
            "kernel": lambda r: named(r["implementation"]),
            "N": "N",
            "time": TIME,
            "rate": Quantity("rate", lambda r: rate(r) if "flops" in r else None, units.flops),
            "times the best": lambda r: None if r.get("error") else ratio(TIME(r) / r["best"]),
            "largest error": field("error_largest", unit=units.difference),
            "peak memory": field("bytes_peak", unit=units.size),
            "lines of code": _lines,
            "remark": lambda r: r.get("error"),
        },
    )


# The front page.

KERNELS, LARGE = ("scoreboard", "kernels"), ("hopper_attention", "forward")


def training(results, rows):
    compared = Comparison(rows, TRAINED, [TRITON, CUDNN, "torch:flash", *PACKAGES], by=CELL)
    if not compared[CUDNN]:
        raise DataError(f"{TRAINED} was not timed: {'; '.join(missing(rows))}")
    shown = [TRAINED, *(name for name in compared.others if compared[name])]
    rivals = BEST if compared.best() else [CUDNN]
    best = compared.best(rivals)
    versions = {r["implementation"]: r["version"] for r in pick(rows) if r.get("version")}
    told = {n: f"{named(n)} {versions[n]}" if n in versions else named(n) for n in shown}
    return Figure(
        finding="Forward and backward together, the Hopper pair reaches "
        f"{best.between()} times the rate of {compared.the_best(rivals, told.get)}: "
        f"{best.verdicts()}.",
        caption=f"bfloat16, queued: {count(rows[0]['batch'] * rows[0]['N'])} tokens and "
        f"{rows[0]['heads'] * rows[0]['D']} columns in every case. Higher is faster."
        + _not_timed(rows),
        plot=charts.lines(results, shown, "N", RATE, charts.by_mask(rows), columns=2, log="x"),
        numbers={"cudnn": compared[CUDNN].between(), "triton": compared[TRITON].between()},
        claims={f"{PAGE}: it is faster in each case": min(compared[CUDNN].values()) > 1},
    )


def _grid_of(row):
    """A grid in words: "D 64, 3 heads, causal", "D 64, N 999, 4 heads on 2, …"."""
    what = many(row["tiles"], "tile") if "tiles" in row else many(row["heads"], "head")
    if "heads_kv" in row:
        what = f"N {cell(row['N'])}, {what} on {row['heads_kv']}, batch {row['batch']}"
    return f"D {row['D']}, {what}" + ", causal" * row["causal"]


def grids(results):
    shown = derived(results, lambda r: ({**row, "grid": _grid_of(row)} for row in r.rows))
    rows = shown[0].rows
    names = versioned(rows)
    compared = Comparison(rows, LAST, [CUDNN], ["grid"])
    rivals = BEST if compared.best() else [CUDNN]
    best = compared.best(rivals)
    if not best:
        raise DataError(f"{LAST} was not timed: {'; '.join(missing(rows))}")
    return Figure(
        finding=f"On shapes that no tile was tuned on, {LAST} reaches {best.between()} of the rate "
        f"of {compared.the_best(rivals, names.get)} ({best.verdicts()}), least at "
        f"{best.worst.grid}.",
        caption="bfloat16, queued. *n on m*: n heads of queries, m of keys. In the three shapes "
        "of one head, the tiles of 128 queries are one fewer than the multiprocessors, as many, "
        "and one more. Right is faster." + _not_timed(rows),
        plot=charts.dots(
            derived(shown, lambda result: beside_cudnn(result, ["grid"])),
            [Series(LAST, at, {"grid": at}) for at in values(rows, "grid")],
            OF_CUDNN,
            **_beside_cudnn(names),
        ),
        numbers={"cudnn": compared[CUDNN].between()},
        claims={
            f"{PAGE}: and is behind it nowhere": compared[CUDNN].never_behind,
            f"{PAGE}: our own `flash_attention` is ahead of it in two": Comparison(
                rows, LAST, [FLASH], ["grid"]
            )[FLASH].words.count("behind")
            == 2,
        },
    )


KINDS = ("effect", "kernel", "PyTorch")  # from top to bottom


def _called(row):
    """What a row is of: an effect in its own words, or an implementation by its name."""
    return row["label"] or named(row["implementation"])


def _like(rows, name):
    """Whose look a name has: a model of one effect is gray, what really runs its own."""
    effect = any(r["kind"] == "effect" for r in rows if r["implementation"] == name)
    return "context" if effect else name


def budget(results):
    shown = gpus(results) or results[:1]
    result = shown[0]
    rows = pick(result.rows)
    N = min(values(rows, "N"))  # all kernels take it

    def at(name, dtype="float16"):
        return only(rows, implementation=name, dtype=dtype, N=N)["error_largest"]

    stored, weights, exp, exp2 = (at(name) for name in ("stored", "weights", "exp", "exp2"))
    tf32, plain = at("tf32", "float32"), at("torch:eager", "float32")
    real = [r["error_largest"] for r in pick(rows, implementation="torch:eager, TF32", N=N)]
    called = {r["implementation"]: _called(r) for kind in KINDS for r in pick(rows, kind=kind)}
    return Figure(
        finding=f"In float16 storing the result costs {units.error(stored)} and weights of 16 bits "
        f"cost {units.error(weights)}; exp2 in float32 costs {units.error(exp2)}, and exp "
        f"{units.error(exp)}.",
        caption=f"N {N}, D {rows[0]['D']}; largest difference from float64 attention of the same "
        "rounded inputs. Gray: PyTorch models with all in float64 except the one effect. Colored: "
        "what really runs, with all its effects together.",
        plot=charts.dots(
            shown,
            [
                Series(name, told, {"implementation": name}, like=_like(rows, name))
                for name, told in called.items()
            ],
            field("error_largest", ERROR.name, units.difference),
            {dtype: {"dtype": dtype, "N": N} for dtype in values(rows, "dtype")},
        ),
        numbers={
            "weights": ratio(weights / stored),
            "tf32": units.error(tf32),
            "real": units.error(real[0] if real else tf32),
            "plain": units.error(plain),
        },
        claims={
            f"{PAGE}: is seen beside the rounding of a 16-bit result": max(exp, exp2) < stored / 10
        },
    )
