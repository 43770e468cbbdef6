"""The figures of the scoreboard: each draws the result of the same name."""

import re
import statistics
from itertools import pairwise

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import ERROR, Reference, Series, View, at_ceiling
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
    values,
)
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import (
    count,
    decimals,
    flops,
    measured_ratio,
    percent,
    ratio,
    share,
    significant,
    size,
    thousands,
)
from snippets._lab.draw.words import Words, between, case, cell, listed, many, standing
from snippets._lab.results.store import DataError
from snippets._lab.rooms import source_file

from . import front
from .differences import lines_of_code, steps_html
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

ROOFS = {"matmul_float16": "float16", "fma_float32": "float32"}  # names short enough for a phone
NEGLIGIBLE = 0.1  # of the rounding of a result: smaller is not seen
words = Words(__file__)


def _lines(row):
    """Lines of code of a row's kernel; PyTorch's are not ours to count."""
    name = row["implementation"]
    return None if name.startswith("torch:") else lines_of_code(source_file(name))


def kernels(results):
    rows = results[0].rows
    N = max(values(rows, "N"))
    ours = [r for r in pick(rows, N=N) if r["step"]]
    slow, fast = max(ours, key=TIME), min(ours, key=TIME)
    winner = min(pick(rows, N=N), key=TIME)
    hungry = max(pick(rows, N=N), key=lambda r: r["bytes_peak"])
    worst = max(pick(rows), key=lambda r: r["error_largest"])
    peak = ceiling(results[0], "matmul_float16")
    scale = flops.scale([rate(fast)])
    return Figure(
        finding=words(
            "kernels",
            slow_rate=scale.number(rate(slow)),
            fast_rate=scale.text(rate(fast)),
            N=N,
            slow=slow["implementation"],
            fast=fast["implementation"],
            times=measured_ratio(TIME(slow) / TIME(fast)),
        ),
        caption=words("kernels.caption", heads=rows[0]["heads"], D=rows[0]["D"]),
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
        open_table=True,
        sentences={
            "best": words(
                "kernels.best",
                N=N,
                winner=named(winner["implementation"]),
                rate=flops(rate(winner)),
                share=share(rate(winner), peak),
                fast=fast["implementation"],
                times=ratio(TIME(fast) / TIME(winner)),
            ),
            "order": words(
                "kernels.order",
                N=N,
                first=ours[0]["implementation"],
                changes=", ".join(_change(before, after) for before, after in pairwise(ours)),
            ),
            "last": _last(rows),
            "error": words(
                "kernels.error",
                error=units.error(worst["error_largest"]),
                worst=named(worst["implementation"]),
            ),
            "memory": words(
                "kernels.memory",
                hungry=named(hungry["implementation"]),
                peak=size(hungry["bytes_peak"]),
                result=size(hungry["bytes_result"]),
            ),
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


def _change(before, after):
    """How much faster or slower a kernel is than the one before it."""
    faster = TIME(before) / TIME(after)
    said = f"{ratio(max(faster, 1 / faster))} {'faster' if faster > 1 else 'slower'}"
    return f"{after['implementation']} is {said}"


def _last(rows):
    """What the last kernel, for one architecture, adds to the one before it."""
    step = max(r["step"] for r in rows if r["step"])
    name = next(r["implementation"] for r in rows if r["step"] == step)
    pairs = [(only(rows, N=r["N"], step=step - 1), r) for r in pick(rows, step=step)]
    if not pairs:
        reason = next(r["error"] for r in rows if r["step"] == step)
        return words("kernels.not_here", last=name, reason=reason)
    gains = [f"{ratio(TIME(before) / TIME(last))} at N {cell(last['N'])}" for before, last in pairs]
    before = pairs[0][0]["implementation"]
    return words("kernels.last", last=name, before=before, gains=", ".join(gains))


# The front page.

KERNELS, LARGE = ("scoreboard", "kernels"), ("hopper_attention", "forward")
WRONG = ("tiled_attention", "mutants")


@from_all
def claim(results):
    if not front.has(results, KERNELS, LARGE):
        return None
    small = front.result_of(results, *KERNELS)
    large = front.result_of(results, *LARGE, small.folder)
    N = max(values(small.rows, "N"))
    ours = [r for r in pick(small.rows, N=N) if r["step"]]
    first, fast = ours[0], min(ours, key=TIME)
    found = Comparison(pick(large.rows, dtype="bfloat16"), LAST, [CUDNN], CELL)
    best = max((found.row(LAST, at) for at in found.cases), key=rate)
    share_of_peak = share(rate(best), ceiling(large, "matmul_bfloat16"))
    told = [
        (measured_ratio(TIME(first) / TIME(fast)), words("claim.faster")),
        (front.of_cudnn(found[CUDNN]), words("claim.cudnn", standing=found[CUDNN].standing())),
        (share_of_peak, words("claim.peak")),
    ]
    return Figure(
        finding=words(
            "claim",
            slow=units.milliseconds(TIME(first)),
            fast=units.milliseconds(TIME(fast)),
        ),
        caption=words(
            "claim.caption",
            device=small.label,
            heads=first["heads"],
            N=N,
            D=first["D"],
            tokens=best["batch"] * best["N"],
            first=first["implementation"],
            fast=fast["implementation"],
        ),
        table=[{"number": value, "what": what} for value, what in told],
        widget=front.numbers(told),
        sources=(small, large),
    )


@from_all
def road(results):
    if not front.has(results, KERNELS):
        return None
    result = front.result_of(results, *KERNELS)
    N = max(values(result.rows, "N"))
    rows = [r for r in result.rows if r["N"] == N and r["label"]]
    ours = [r for r in pick(rows) if r["step"]]
    first, fast = ours[0], min(ours, key=TIME)
    return Figure(
        finding=words(
            "road",
            slow=units.milliseconds(TIME(first)),
            fast=units.milliseconds(TIME(fast)),
            times=measured_ratio(TIME(first) / TIME(fast)),
        ),
        caption=words("road.caption", device=result.label, heads=first["heads"], N=N, D=first["D"]),
        table=columns(
            rows,
            {
                "kernel": lambda r: named(r["implementation"]),
                "time": TIME,
                "rate": Quantity("rate", lambda r: rate(r) if "flops" in r else None, units.flops),
                "remark": lambda r: r.get("error"),
            },
        ),
        widget=front.rungs(rows),
        sources=(result,),
    )


@from_all
def ahead(results):
    if not front.has(results, LARGE):
        return None
    result = front.result_of(results, *LARGE)
    rows = pick(result.rows, dtype="bfloat16")
    lengths = values(rows, "N")
    N = lengths[len(lengths) // 2]
    found = Comparison(rows, LAST, [name for name in front.BESIDE if name != LAST], CELL)
    one = found.row(LAST, found.cases[0])
    rivals = BEST if found.best() else [CUDNN]
    best = found.best(rivals)
    return Figure(
        finding=words(
            "ahead",
            ours=LAST,
            between=best.between(),
            best=found.the_best(rivals),
            standing=best.standing(),
        ),
        caption=words(
            "ahead.caption",
            device=result.label,
            tokens=one["batch"] * one["N"],
            columns=one["heads"] * one["D"],
            N=N,
        ),
        table=columns(
            [
                dict(zip(CELL, at, strict=True)) | {n: found.row(n, at) for n in front.BESIDE}
                for at in found.cases
            ],
            {
                **{axis: axis for axis in CELL},
                **{
                    named(name): Quantity(
                        "rate", lambda line, name=name: line[name] and rate(line[name]), units.flops
                    )
                    for name in front.BESIDE
                    if found[name] or name == LAST
                },
            },
        ),
        widget=front.bars(rows, N),
        sources=(result,),
    )


@from_all
def proof(results):
    result = next(r for r in results if (r.post, r.result) == WRONG)
    row = only(result.rows, mutant=front.SHOWN)
    error, allowed = (float(x) for x in re.findall(r"(?:difference|allowed) (\S+)", row["message"]))
    return Figure(
        finding=words("proof", times=ratio(error / allowed)),
        caption=words("proof.caption", post=result.post, count=len(result.rows)),
        table=[{"part": part, "recorded": row[part]} for part in PARTS],
        widget=front.proof(row, error, allowed),
        sources=(result,),
    )


PARTS = ("mutant", "old", "new", "killed_by", "message", "derived", "diagnosis")


def ladder(results):
    every = results[0].rows
    rows = pick(every)
    unrecorded = {r["implementation"]: r["error"] for r in every if r.get("error")}
    paths = {r["implementation"]: source_file(r["implementation"]) for r in every}
    lines = {name: lines_of_code(path) for name, path in paths.items()}
    first, last = rows[0], rows[-1]
    facts = {
        r["implementation"]: words(
            "ladder.fact",
            lines=lines[r["implementation"]],
            launches=many(r["launches"], "launch", "launches"),
            each=significant(r["loads"] / r["programs"]),
            bytes=thousands(r["bytes_loaded"]),
        )
        for r in rows
    }
    facts |= {name: f"{lines[name]} lines of code. {why}." for name, why in unrecorded.items()}
    return Figure(
        finding=words(
            "ladder",
            first=first["implementation"],
            last=last["implementation"],
            first_bytes=thousands(first["bytes_loaded"]),
            last_bytes=thousands(last["bytes_loaded"]),
            first_lines=lines[first["implementation"]],
            last_lines=lines[last["implementation"]],
            more=listed([f"{name} has {lines[name]}" for name in unrecorded]),
        ),
        caption=words(
            "ladder.caption",
            **{name: first[name] for name in ("M", "N", "D", "dtype")},
            unrecorded=" ".join(f"{name}: {why}." for name, why in unrecorded.items()),
        ),
        table=columns(
            every,
            {
                "kernel": "implementation",
                "lines of code": lambda r: lines[r["implementation"]],
                "launches": lambda r: r.get("launches"),
                "programs": lambda r: r.get("programs"),
                "loads per program": Quantity("", _over("loads", "programs")),
                "bytes loaded": lambda r: r.get("bytes_loaded"),
                "of the compulsory": Quantity(
                    "", _over("bytes_loaded", "bytes_compulsory"), units.times
                ),
            },
        ),
        open_table=True,
        widget=steps_html(paths, facts),
    )


def _over(count, whole):
    """One count of a row over another, where there are any."""
    return lambda r: r[count] / r[whole] if count in r else None


# Regimes.


def regimes(results):
    rows = results[0].rows
    there, names = regimes_of(rows), versioned(rows)
    beside_others = {regime: within(rows, regime) for regime in there}
    if LAST not in names:
        raise DataError(f"{LAST} was not timed: {'; '.join(missing(rows))}")
    cudnn = _three({regime: found[CUDNN] for regime, found in beside_others.items()})
    return Figure(
        finding=words("regimes.best", ours=LAST, **_best(beside_others, names), cudnn=cudnn)
        if beside_others[QUEUED].best()
        else words("regimes", ours=LAST, found=cudnn),
        caption=words(
            "regimes.caption",
            tokens=rows[0]["batch"] * rows[0]["N"],
            columns=rows[0]["heads"] * rows[0]["D"],
            sustained=listed(values(pick(rows, regime=SUSTAINED), "N")),
            missing="".join(f" Not timed: {told}." for told in missing(rows)),
        )
        if SUSTAINED in there
        else "",
        table=_cells(rows, names),
        plot=charts.dots(
            derived(results, lambda result: beside_cudnn(result, ("regime", *CELL))),
            [
                Series(
                    LAST, case(dict(zip(CELL, at, strict=True))), dict(zip(CELL, at, strict=True))
                )
                for at in sorted({tuple(r[axis] for axis in CELL) for r in pick(rows)})
            ],
            OF_CUDNN,
            {regime: {"regime": regime} for regime in there[:3]},
            **_beside_cudnn(names),
        ),
        sentences=_about_regimes(results[0], beside_others, names),
    )


def _beside_cudnn(names):
    """A mark for each of the others, and cuDNN as the line at 1: what two charts share."""
    others = [Series(n, told, {"implementation": n}) for n, told in names.items() if n != CUDNN]
    line = Reference("cuDNN", 1.0, across="x", key=CUDNN)
    return {"groups": others, "log": False, "references": [line]}


def _cells(rows, names):
    """A line for each cell and regime: the rates, their quotients, power and clock."""
    timed = [r for r in rows if "regime" in r]
    order = {regime: i for i, regime in enumerate(regimes_of(rows))}
    lines = sorted(
        {(*(r[axis] for axis in CELL), order[r["regime"]], r["regime"]) for r in pick(timed)}
    )
    table = []
    for *cell_, _, regime in lines:
        at = dict(zip(CELL, cell_, strict=True))
        here = [r for r in timed if r["regime"] == regime and all(r[a] == at[a] for a in CELL)]
        by_name = {r["implementation"]: r for r in pick(here)}
        table.append({**at, "regime": regime, "rows": here, **dict.fromkeys(names), **by_name})

    def rate_of(name):
        return Quantity("rate", lambda line: line[name] and rate(line[name]), units.flops)

    quotients = {
        f"{named(LAST)} ÷ {told}": quotient(name)
        for name, told in names.items()
        if name in (CUDNN, *PACKAGES)
    }
    return columns(
        table,
        {
            **{axis: axis for axis in CELL},
            "regime": "regime",
            **{told: rate_of(name) for name, told in names.items()},
            **quotients,
            "power": lambda line: seen(line["rows"], "power_w", "W"),
            "SM clock": lambda line: seen(line["rows"], "sm_clock_mhz", "MHz"),
            "remark": lambda line: remark(line["rows"]),
        },
    )


def _about_regimes(result, beside_others, names):
    """The sentences about regimes: what each costs whom, and where a package stands."""
    rows = pick(result.rows)
    hosts = {
        name: statistics.median(
            r["ms_host"] for r in pick(rows, implementation=name, regime=AS_CALLED)
        )
        for name in names
    }
    hot = [r for r in rows if r.get("regime") == SUSTAINED and r.get("readings")]
    said = {
        "host": words(
            "regimes.host",
            hosts=listed(f"{units.host_time(ms)} ({names[name]})" for name, ms in hosts.items()),
        ),
        "remedies": words(
            "regimes.remedies",
            found=listed(
                f"{beside_others[regime][CUDNN].between()} {regime}"
                for regime in (AS_CALLED, IN_A_GRAPH, COMPILED)
                if regime in beside_others
            ),
            ours=LAST,
        ),
        "power": words(
            "regimes.power",
            limit=f"{count(result.device['power_limit_w'])} W"
            if result.device.get("power_limit_w")
            else "not told",
            watts=seen(hot, "power_w", "W"),
            clocks=seen(hot, "sm_clock_mhz", "MHz"),
            capped=between([r["power_capped"] for r in hot], percent),
            slowed=_slowed(hot),
        )
        if hot
        else words("regimes.unread"),
    }
    for name, key in ((LAST, "hopper"), (FLASH, "flash")):
        beside_cudnn_ = {
            regime: Comparison(pick(rows, regime=regime), name, by=CELL)[CUDNN]
            for regime in beside_others
        }
        said[key] = words("regimes.kernel", name=name, found=_three(beside_cudnn_))
    queued = beside_others[QUEUED].best()
    said["package"] = (
        words("regimes.package", ours=LAST, **_best(beside_others, names), worst=case(queued.worst))
        if queued
        else words("regimes.no_package", missing="; ".join(missing(result.rows)))
    )
    return said


def _best(beside_others, names):
    """What the best there is is called, and where ours stands beside it in each regime."""
    return {
        "best": beside_others[QUEUED].the_best(called=names.get),
        "found": _three({regime: x.best() for regime, x in beside_others.items()}),
    }


def _three(found):
    """How many times as fast in each regime, and the verdicts: "0.9 to 1.1 queued (ahead in …)"."""
    told, all_lengths = [], len({at.N for x in found.values() for at in x})
    for regime in (SUSTAINED, QUEUED, AS_CALLED):
        if x := found.get(regime):
            lengths = sorted({at.N for at in x})
            where = f" at N {listed(lengths)}" * (len(lengths) < all_lengths)
            told.append(f"{x.between()} {regime}{where}{x.standing(' (', ')')}")
    return listed(told)


def _slowed(rows):
    """What slowed the GPU beside its power limit, in a sentence."""
    found = sorted({word for r in rows for word in r.get("slowdowns", ())})
    return words("regimes.slowed", what=listed(found)) if found else words("regimes.not_slowed")


def launchers(results):
    rows = results[0].rows
    there = regimes_of(rows)
    names = list(dict.fromkeys(r["implementation"] for r in pick(rows)))
    fast = min(pick(rows, regime=QUEUED), key=TIME)["implementation"]
    mine = {r["regime"]: r for r in pick(rows, implementation=fast)}
    one = rows[0]
    called = {
        r["implementation"]: TIME(r)
        / TIME(only(rows, implementation=r["implementation"], regime=QUEUED))
        for r in pick(rows, regime=AS_CALLED)
    }
    worst = max(called, key=called.get)
    return Figure(
        finding=words(
            "launchers",
            fast=named(fast),
            queued=TIME.text(mine[QUEUED]),
            called=units.host_time(TIME(mine[AS_CALLED])),
        ),
        caption=words("launchers.caption", heads=one["heads"], N=one["N"], D=one["D"]),
        table=columns(
            [
                {"name": name, **{r["regime"]: r for r in pick(rows, implementation=name)}}
                for name in names
            ],
            {
                "kernel": lambda line: named(line["name"]),
                **{regime: _time_in(regime) for regime in there},
                **{f"of cuDNN, {regime}": _of_cudnn_in(rows, regime) for regime in there},
                "host": Quantity("host", lambda line: line[AS_CALLED]["ms_host"], units.host_time),
                "remark": lambda line: remark([line[regime] for regime in there if regime in line]),
            },
        ),
        plot=charts.dots(
            results, names, TIME, {regime: {"regime": regime} for regime in there}, columns=2
        ),
        sentences={
            "called": words(
                "launchers.called", worst=named(worst), times=units.rough_ratio(called[worst])
            ),
        },
    )


def _time_in(regime):
    return Quantity("time", lambda line: line.get(regime) and TIME(line[regime]), units.time)


def _of_cudnn_in(rows, regime):
    cudnn = only(rows, implementation=CUDNN, regime=regime)
    return lambda line: decimals(TIME(cudnn) / TIME(line[regime])) if line.get(regime) else None


TRAINED, TRITON = "hopper_backward", "flash_backward"  # each with the forward it belongs to


def training(results):
    rows = results[0].rows
    compared = Comparison(rows, TRAINED, [TRITON, CUDNN, "torch:flash", *PACKAGES], by=CELL)
    if not compared[CUDNN]:
        raise DataError(f"{TRAINED} was not timed: {'; '.join(missing(rows))}")
    shown = [TRAINED, *(name for name in compared.others if compared[name])]
    rivals = BEST if compared.best() else [CUDNN]
    best = compared.best(rivals)
    versions = {r["implementation"]: r["version"] for r in pick(rows) if r.get("version")}
    told = {n: f"{named(n)} {versions[n]}" if n in versions else named(n) for n in shown}
    return Figure(
        finding=words(
            "training",
            ours=TRAINED,
            between=best.between(),
            best=compared.the_best(rivals, told.get),
            standing=best.standing(),
        ),
        caption=words(
            "training.caption",
            tokens=rows[0]["batch"] * rows[0]["N"],
            columns=rows[0]["heads"] * rows[0]["D"],
            missing="".join(f" Not timed: {told}." for told in missing(rows)),
        ),
        table=beside(
            rows,
            list(CELL),
            {label: name for name, label in told.items()},
            RATE,
            more=lambda at: {
                f"÷ {told[name]}": quotient(name, TRAINED)(at)
                for name in (CUDNN, *PACKAGES)
                if name in told
            },
        ),
        plot=charts.lines(
            results,
            shown,
            "N",
            RATE,
            [
                View(f"D {D}, {'causal' if causal else 'no mask'}", {"D": D, "causal": causal})
                for D in values(rows, "D")
                for causal in (False, True)
            ],
            columns=2,
            log="x",
        ),
        sentences={
            "standing": words(
                "training.standing",
                between=compared[CUDNN].between(),
                standing=compared[CUDNN].standing(),
            ),
            "triton": words("training.triton", between=compared[TRITON].between()),
        },
    )


LEAST = 0.9  # of the best's rate: what a kernel should do whatever the grid


def _grid_of(row):
    """A grid in words: "D 64, 3 heads, causal", "D 128, 131 tiles", "D 64, 15 heads on 5, …"."""
    what = many(row["tiles"], "tile") if "tiles" in row else many(row["heads"], "head")
    if "heads_kv" in row:
        what += f" on {row['heads_kv']}, N {cell(row['N'])}, batch {row['batch']}"
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
    at_each = {at.grid: gain for at, gain in best.items()}
    below = [grid for grid, gain in at_each.items() if gain < LEAST]
    lines = {r["grid"]: {"grid": r["grid"], "N": r["N"], "rows": []} for r in rows}
    for r in rows:
        lines[r["grid"]]["rows"].append(r)
        lines[r["grid"]] |= {} if r.get("error") else {r["implementation"]: r}

    def time_of(name):
        return Quantity("time", lambda line: line.get(name) and TIME(line[name]), units.time)

    return Figure(
        finding=words(
            "grids",
            ours=LAST,
            best=compared.the_best(rivals, names.get),
            between=between(at_each.values()),
            standing=standing(at_each.values(), " (", ")"),
            worst=min(at_each, key=at_each.get),
        ),
        caption=words(
            "grids.caption", missing="".join(f" Not timed: {told}." for told in missing(rows))
        ),
        table=columns(
            lines.values(),
            {
                "grid": "grid",
                "N": "N",
                **{told: time_of(name) for name, told in names.items()},
                **{
                    f"{named(LAST)} ÷ {told}": quotient(name)
                    for name, told in names.items()
                    if name in (CUDNN, *PACKAGES)
                },
            },
        ),
        plot=charts.dots(
            derived(shown, lambda result: beside_cudnn(result, ["grid"])),
            [Series(LAST, at, {"grid": at}) for at in lines],
            OF_CUDNN,
            **_beside_cudnn(names),
        ),
        sentences={
            "least": words("grids.below", least=percent(LEAST), below=listed(below))
            if below
            else words("grids.reached", least=percent(LEAST)),
            "standing": words(
                "grids.standing",
                ours=LAST,
                between=compared[CUDNN].between(),
                standing=compared[CUDNN].standing(),
            ),
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
    said = "as much as" if exp2 == exp else "less than" if exp2 < exp else "more than"
    called = {r["implementation"]: _called(r) for kind in KINDS for r in pick(rows, kind=kind)}
    return Figure(
        finding=words(
            "budget",
            **{name: units.error(at(name)) for name in ("stored", "weights", "exp", "exp2")},
            said=said,
        ),
        caption=words("budget.caption", N=N, D=rows[0]["D"]),
        table=columns(
            [{**r, "device": x.label} for x in shown for r in pick(x.rows)],
            {
                **({"device": "device"} if len(shown) > 1 else {}),
                "what": "kind",
                "of": _called,
                "dtype": "dtype",
                "M": lambda r: r.get("M", r["N"]),
                "N": "N",
                "largest": field("error_largest", unit=units.difference),
                "mean": field("error_mean", unit=units.difference),
            },
        ),
        plot=charts.dots(
            shown,
            [
                Series(name, told, {"implementation": name}, like=_like(rows, name))
                for name, told in called.items()
            ],
            field("error_largest", ERROR.name, units.difference),
            {dtype: {"dtype": dtype, "N": N} for dtype in values(rows, "dtype")},
        ),
        sentences={
            "tf32": words(
                "budget.tf32",
                tf32=units.error(tf32),
                real=words("budget.real", real=units.error(real[0]), device=cell(result.label))
                if real
                else "",
                plain=units.error(plain),
                less=ratio((real[0] if real else tf32) / plain),
            ),
            "weights": words("budget.weights", times=ratio(weights / stored)),
            "exp": words(
                "budget.exp",
                exp2=units.error(exp2),
                exp=units.error(exp),
                verdict="beside the rounding of a 16-bit result neither is seen"
                if max(exp, exp2) < NEGLIGIBLE * stored
                else "not small beside the rounding of the result",
            ),
        },
    )
