"""The figures of the language_model page: each draws the result of the same name."""

import itertools
import statistics

from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import TIME, Quantity, derived, field, only, pick, values
from snippets._lab.draw.tables import Numeral, beside, columns, table
from snippets._lab.draw.units import decimals, millions, percent, ratio, size, time
from snippets._lab.draw.words import Prose, Words, between, listed, many, yes

OURS, HOPPER, EAGER = "flash_backward", "hopper_backward", "torch:eager"
BACKENDS = ("torch:flash", "torch:cudnn", "torch:math")
LOSS = field("loss", "loss, nats per byte")
APART = field("loss", "nats per byte")
STEP = field("step", "step")
SHARE = field("share", "share of the weight", percent)
SMOOTHED = 10  # steps of a point of a curve
RIGHT = "none"
WIDEST = 88  # signs in a line of a sample
FACTOR = 1.5  # how much farther ours may be from a backend than two backends are apart
# Student's t for 95 % intervals, by degrees of freedom from 1. More seeds take the last, which
# makes their intervals a little too wide.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
words = Words(__file__)


def _measured(result):
    """The rows of a result that were measured: those that describe it are not."""
    return [r for r in result.rows if "about" not in r and not r.get("error")]


def _about(result, what):
    return next(r for r in result.rows if r.get("about") == what)


def _points(losses, **case):
    """Means of SMOOTHED steps as rows of a chart."""
    for at in range(0, len(losses), SMOOTHED):
        group = losses[at : at + SMOOTHED]
        yield {**case, "step": at + len(group) / 2, "loss": statistics.fmean(group)}


def _distances(rows):
    """(largest distance of ours from PyTorch's runs, largest between two of those), of means.

    A backend that was run again from the same seeds counts twice: its two means differ by chance.
    """
    mine, there = (
        [
            mean
            for name, again in itertools.product(names, (False, True))
            if (mean := _mean([r for r in rows if _run(r) == (name, again)]))
        ]
        for names in ((OURS, HOPPER), BACKENDS)
    )
    return (
        max(abs(one - other) for one, other in itertools.product(mine, there)),
        max(abs(one - other) for one, other in itertools.combinations(there, 2)),
    )


def _complete(rows):
    """The runs from seeds that all but the one in float32 were made from."""
    rows = [r for r in rows if r["implementation"] != EAGER]
    everyone = set(map(_run, rows))
    there = {seed: set(map(_run, pick(rows, seed=seed))) for seed in values(rows, "seed")}
    return [r for r in rows if there[r["seed"]] == everyone]


def _run(row):
    """(attention, whether it was run again from the same seeds)."""
    return row["implementation"], row.get("again", False)


def _once(rows):
    return [r for r in rows if not r.get("again")]


def _bound(rows):
    """What the bound says of ours, and what it would say without second runs, if there are any."""
    yield _judged(rows, "losses.within", "losses.outside", seeds=_seeds(rows))
    if len(_once(rows)) < len(rows):
        yield _judged(_once(rows), "losses.once.within", "losses.once.outside")


def _judged(rows, within, outside, **fields):
    """One of two sections of words.md."""
    ours, theirs = _distances(rows)
    section = within if ours <= FACTOR * theirs else outside
    return words(section, times=ratio(ours / theirs), **fields)


def _singly(rows):
    """The same of single runs from one seed."""
    ones = [_distances(pick(rows, seed=seed)) for seed in values(rows, "seed")]
    return tuple(map(max, zip(*ones, strict=True)))


def _paired(rows, compared):
    """(mean, half of its 95 % interval) of rows minus the mean of PyTorch's runs, seed by seed.

    None with fewer than two seeds in common. Pairing takes out what a seed does to all runs, and
    the interval takes its width from how much the differences scatter from seed to seed.
    """
    there = [r for r in compared if r["implementation"] in BACKENDS]
    apart = [_end(row) - _mean(same) for row in rows if (same := pick(there, seed=row["seed"]))]
    if len(apart) < 2:
        return None
    t = STUDENT[min(len(apart) - 1, len(STUDENT)) - 1]
    return statistics.fmean(apart), t * statistics.stdev(apart) / len(apart) ** 0.5


def _interval(found):
    mean, half = found
    return f"{decimals(mean, 4)} ± {_four(half)}"


def _told_apart(found):
    """Whether an interval leaves zero out."""
    mean, half = found
    return abs(mean) > half


def _paired_ours(rows):
    """What the comparison seed by seed says of ours."""
    found = {
        name: paired
        for name in (OURS, HOPPER)
        if (paired := _paired(pick(rows, implementation=name), rows))
    }
    if not found:
        return words("losses.paired.none")
    intervals = listed(f"{_interval(paired)} with `{name}`" for name, paired in found.items())
    apart = [name for name, paired in found.items() if _told_apart(paired)]
    if apart:
        outcome = words("losses.paired.apart", names=listed(f"`{name}`" for name in apart))
    else:
        largest = max(abs(mean) + half for mean, half in found.values())
        outcome = words("losses.paired.same", largest=_four(largest))
    return f"{words('losses.paired', intervals=intervals)} {outcome}"


def _mean(rows):
    """The loss at the end, the mean of the seeds; None without a run."""
    return statistics.fmean(map(_end, rows)) if rows else None


def losses(results):
    result = results[0]
    rows = _complete(_measured(result))
    ours, theirs = _distances(rows)
    singly = dict(zip(("ours", "theirs"), map(_four, _singly(rows)), strict=True))
    text, model = _about(result, "text"), _about(result, "model")
    drawn = derived(results, lambda r: _curves(_measured(r)))
    panels = [
        View("the loss", {"panel": "loss"}),
        View("minus the mean of PyTorch's backends", {"panel": "apart"}, y=APART),
    ]
    shown = [
        name
        for name in (OURS, HOPPER, *BACKENDS, EAGER)
        if pick(drawn[0].rows, implementation=name)
    ]
    return Figure(
        finding=words("losses", ours=_four(ours), theirs=_four(theirs), seeds=_seeds(rows)),
        caption=words(
            "losses.caption",
            smoothed=SMOOTHED,
            parameters=millions(model["parameters"]),
            files=many(text["files"], "file"),
            size=size(text["bytes"]),
            python=text["python"],
        ),
        table=columns(
            _measured(result),
            {
                "attention": lambda r: named(r["implementation"]) + ", again" * r.get("again", 0),
                "seed": "seed",
                "steps": lambda r: len(r["losses"]),
                "last fifth, nats per byte": lambda r: decimals(_end(r), 4),
                "held out, nats per byte": lambda r: decimals(r["held_out"], 4),
                "seconds": lambda r: decimals(r["seconds_in_all"], 1),
            },
        ),
        plot=charts.lines(drawn, shown, STEP, LOSS, panels, log="", from_zero=False, columns=2),
        sentences={
            "bound": " ".join(_bound(rows)),
            "singly": words("losses.singly", **singly),
            "paired": _paired_ours(rows),
        },
    )


def _curves(rows):
    """The mean curves of the seeds, and how far each is from that of PyTorch's backends."""
    shown = [*_once(_complete(rows)), *pick(rows, implementation=EAGER)]
    curves = {
        name: _mean_curve(pick(shown, implementation=name))
        for name in values(shown, "implementation")
    }
    there = [curves[name] for name in BACKENDS if name in curves]
    mean = [statistics.fmean(losses) for losses in zip(*there, strict=True)]
    for name, losses in curves.items():
        yield from _points(losses, implementation=name, panel="loss")
        if name != EAGER:  # float32 is another computation, not another order of the same sums
            apart = [loss - at for loss, at in zip(losses, mean, strict=True)]
            yield from _points(apart, implementation=name, panel="apart")


def _mean_curve(rows):
    """The loss of each step, the mean of the seeds."""
    return [statistics.fmean(each) for each in zip(*(r["losses"] for r in rows), strict=True)]


def _end(row):
    """The loss at the end of a run: the mean of its last fifth."""
    return statistics.fmean(row["losses"][-(len(row["losses"]) // 5) :])


def _four(loss):
    return decimals(loss, 4)


def _seeds(rows):
    return many(len(values(rows, "seed")), "seed")


def faults(results):
    rows = _measured(results[0])
    ends = _ends_by_fault(rows)
    apart = {fault: abs(end - ends[RIGHT]) for fault, end in ends.items() if fault != RIGHT}
    drawn = derived(results, lambda r: _by_fault(_measured(r)))
    series = [
        Series(OURS, "right" if fault == RIGHT else fault, {"fault": fault}, shade=i)
        for i, fault in enumerate(ends)
    ]
    return Figure(
        finding=words(
            "faults",
            least=_four(min(apart.values())),
            most=decimals(max(apart.values()), 2),
        ),
        caption=words("faults.caption", smoothed=SMOOTHED, seeds=_seeds(rows)),
        table=_table_of_faults(rows, apart),
        plot=charts.lines(drawn, series, STEP, LOSS, log="", from_zero=False),
    )


def _ends_by_fault(rows):
    return {fault: _mean(pick(rows, fault=fault)) for fault in values(rows, "fault")}


def _table_of_faults(rows, apart, **more):
    """A row for each fault: how far it is from the right curves, and its held-out loss."""
    return [
        {
            "fault": fault,
            "from the right curve, nats per byte": Numeral(_four(distance)),
            "held out, nats per byte": Numeral(
                _four(statistics.fmean(r["held_out"] for r in pick(rows, fault=fault)))
            ),
            **{title: cell(fault) for title, cell in more.items()},
        }
        for fault, distance in apart.items()
    ]


def _by_fault(rows):
    for fault in values(rows, "fault"):
        yield from _points(_mean_curve(pick(rows, fault=fault)), fault=fault)


@from_all
def verdict(results):
    """Which of the wrong backwards the bound on loss curves finds."""
    mine = {r.result: r for r in reversed(results) if r.post == "language_model"}
    if not mine.keys() >= {"losses", "faults"}:
        return None
    compared = _complete(_measured(mine["losses"]))
    bound = FACTOR * _distances(compared)[1]
    rows = _measured(mine["faults"])
    ends = _ends_by_fault(rows)
    apart = {fault: abs(end - ends[RIGHT]) for fault, end in ends.items() if fault != RIGHT}
    missed = [fault for fault, distance in apart.items() if distance <= bound]
    # The same runs, as they were made for the other figure.
    again = _mean(pick(compared, implementation=OURS))
    near = (
        words("verdict.near", fault=f"“{fault}”", apart=_four(abs(ends[fault] - again)))
        for fault in missed
    )
    paired = {fault: _paired(pick(rows, fault=fault), compared) for fault in apart}
    finding = words("verdict", faults=len(apart))
    if missed:
        finding = words(
            "verdict.missed",
            found=len(apart) - len(missed),
            faults=len(apart),
            missed=listed(f"“{fault}”" for fault in missed),
        )
    return Figure(
        finding=finding,
        caption=words("verdict.caption", bound=_four(bound), seeds=_seeds(rows)),
        table=_table_of_faults(
            rows,
            apart,
            **{
                "outside the bound": lambda fault: yes(apart[fault] > bound),
                "minus PyTorch's, paired": lambda fault: _cell(paired[fault]),
            },
        ),
        open_table=True,
        sentences={
            "twice": " ".join(
                (
                    words("verdict.twice", apart=_four(abs(ends[RIGHT] - again)))
                    if ends[RIGHT] != again
                    else words("verdict.same"),
                    *near,
                )
            ),
            "paired": _paired_faults(paired),
        },
        sources=(mine["losses"], mine["faults"]),
    )


def _cell(paired):
    return Numeral(_interval(paired)) if paired else "–"


def _paired_faults(paired):
    """Which of the wrong backwards the comparison seed by seed finds."""
    if not all(paired.values()):
        return words("losses.paired.none")
    missed = [fault for fault, found in paired.items() if not _told_apart(found)]
    if missed:
        return words("verdict.paired.missed", missed=listed(f"“{fault}”" for fault in missed))
    return words("verdict.paired", faults=len(paired))


def repeated(results):
    rows = _measured(results[0])
    exact = only(rows, deterministic=True)
    key = "repeated" if exact["weights_that_differ"] == 0 else "repeated.not"
    return Figure(
        finding=words(key, steps=exact["steps"]),
        caption=words("repeated.caption"),
        table=columns(
            rows,
            {
                "deterministic": "deterministic",
                "steps": "steps",
                "weights": "weights",
                "weights that differ": "weights_that_differ",
            },
        ),
        open_table=True,
    )


def training(results):
    row = only(_measured(results[0]))
    lowest = min(row["validation"], key=lambda pair: pair[1])
    seconds = decimals(row["seconds_in_all"], 0)
    parameters = millions(_about(results[0], "model")["parameters"])
    drawn = derived(results, lambda r: _learned(_measured(r)))
    series = [
        Series(row["implementation"], "learned from", {"text": "learned from"}),
        Series(row["implementation"], "held out", {"text": "held out"}, shade=2),
    ]
    return Figure(
        finding=words("training", loss=decimals(lowest[1], 3), step=lowest[0]),
        caption=words("training.caption", smoothed=SMOOTHED),
        table=[
            {"step": at, "held out, nats per byte": decimals(loss, 4)}
            for at, loss in row["validation"]
        ],
        plot=charts.lines(drawn, series, STEP, LOSS, log="", from_zero=False),
        sentences={
            "seconds": words(
                "training.seconds",
                steps=len(row["losses"]),
                seconds=seconds,
                kernel=f"`{row['implementation']}`",
            ),
            "front": words("training.front", parameters=parameters, seconds=seconds),
        },
    )


def _learned(rows):
    for row in rows:
        yield from _points(row["losses"], text="learned from")
        for at, loss in row["validation"]:
            yield {"text": "held out", "step": at, "loss": loss}


def samples(results):
    rows = _measured(results[0])
    prompt = rows[0]["prompt"]
    there = values(rows, "step")
    # A run that stops early has no step 1000: the last one before it is shown instead.
    wanted = {"beginning": 0, "hundred": 100, "thousand": 1000, "end": max(there)}
    at = {name: max(step for step in there if step <= wish) for name, wish in wanted.items()}
    return Figure(
        finding=words("samples"),
        caption=words("samples.caption", temperature=rows[0]["temperature"]),
        table=columns(
            rows,
            {
                "step": "step",
                "prompt": lambda r: _code(r["prompt"]),
                "what it says": lambda r: _code(r["text"]),
            },
        ),
        sentences={
            name: f"{words('samples.at', step=step)}\n\n"
            + _quoted(only(rows, step=step, prompt=prompt)["text"])
            for name, step in at.items()
        },
    )


def _quoted(text):
    """A sample as a block of text; what could end the block is left out."""
    return "\n".join(["```text", *_lines(text), "```"])


def _code(text):
    """A sample in a cell of a table."""
    return Prose(f"`{_printable(text)}`")


def _lines(text):
    """The lines of a sample; one that a model does not end is broken."""
    for line in _printable(text).splitlines():
        yield from (line[at : at + WIDEST] for at in range(0, max(len(line), 1), WIDEST))


def _printable(text):
    """ASCII as it is, and a dot for every other byte or letter."""
    shown = "".join(c if c.isascii() and (c.isprintable() or c == "\n") else "·" for c in text)
    return shown.replace("`", "'")


def looked_at(results):
    rows = [r for r in _measured(results[0]) if "kind" in r]
    kinds = values(rows, "kind")
    last = max(values(rows, "step"))
    ends = {kind: only(rows, kind=kind, step=last) for kind in kinds}
    best = {kind: _best(row["shares"]) for kind, row in ends.items()}
    drawn = derived(results, lambda r: _followed(r, best))
    series = [Series(OURS, kind, {"kind": kind}, shade=i) for i, kind in enumerate(kinds)]
    largest = {kind: _at(ends[kind], best[kind]) for kind in kinds}
    return Figure(
        finding=words("looked_at", **{_field(kind): percent(x) for kind, x in largest.items()}),
        caption=words("looked_at.caption"),
        table=columns(
            sorted(rows, key=lambda r: (kinds.index(r["kind"]), r["step"])),
            {
                "looks at": "kind",
                "step": "step",
                "layer": lambda r: best[r["kind"]][0] + 1,
                "head": lambda r: best[r["kind"]][1] + 1,
                "share of its weight": Quantity("", lambda r: _at(r, best[r["kind"]]), percent),
                "even weights": field("even", unit=percent),
                "positions": "positions",
            },
        ),
        plot=charts.lines(drawn, series, STEP, SHARE, log=""),
        sentences={"others": _others(rows, best)},
    )


def _others(rows, best):
    """The first step at which another head was ahead of the one that ends best, by kind."""
    ahead = {}
    for row in sorted(rows, key=lambda r: r["step"]):
        kind, place = row["kind"], _best(row["shares"])
        if row["step"] and place != best[kind] and kind not in ahead:
            ahead[kind] = words(
                "looked_at.ahead",
                kind=kind,
                layer=place[0] + 1,
                head=place[1] + 1,
                step=row["step"],
                share=percent(_at(row, place)),
            )
    if not ahead:
        return words("looked_at.same")
    return words("looked_at.moved", heads="; ".join(ahead.values()))


def _field(kind):
    return kind.partition(" ")[0]


def _best(shares):
    """Layer and head of the largest share."""
    places = itertools.product(range(len(shares)), range(len(shares[0])))
    return max(places, key=lambda at: shares[at[0]][at[1]])


def _at(row, place):
    return row["shares"][place[0]][place[1]]


def _followed(result, best):
    for row in _measured(result):
        if "kind" in row:
            yield {**row, "share": _at(row, best[row["kind"]])}


@from_all
def maps(results):
    """The stored maps of a few heads, with a slider over the steps."""
    found = [r for r in results if (r.post, r.result) == ("language_model", "looked_at")]
    if not found:
        return None
    rows = [r for r in _measured(found[0]) if "map" in r]
    steps, kinds = values(rows, "step"), values(rows, "map")
    by = {(r["map"], r["step"]): r for r in rows}
    first = [by[kind, steps[0]] for kind in kinds]
    shown = [
        {"chosen for": r["map"], "layer": r["layer"] + 1, "head": r["head"] + 1} for r in first
    ]
    heads = [
        {
            "name": f"{r['map']}: layer {r['layer'] + 1}, head {r['head'] + 1}",
            "weights": [by[r["map"], step]["weights"] for step in steps],
        }
        for r in first
    ]
    return Figure(
        finding=words("maps"),
        caption=words("maps.caption"),
        table=shown,
        widget="\n".join(
            [
                '<div class="am-history" data-widget="checkpoint_map" markdown>',
                "[The weights](/figures/language_model/maps_steps.json){ .am-source }",
                "",
                *table(shown),
                "",
                "</div>",
            ]
        ),
        extra_files={"maps_steps.json": {"text": first[0]["text"], "steps": steps, "heads": heads}},
        sources=found[:1],
    )


def steps(results):
    result = results[0]
    rows = _measured(result)
    names = [name for name in (OURS, HOPPER, *BACKENDS) if pick(rows, implementation=name)]
    best = HOPPER if HOPPER in names else OURS
    plain = [r for r in rows if not r["compiled"]]
    parts = {
        "one training step": {"part": "step", "compiled": False},
        "its attention alone": {"part": "attention", "compiled": False},
    }
    panels = [View(title, where) for title, where in parts.items()]
    shares = [_share(plain, best, N) for N in values(plain, "N")]
    given = {name: name for name in names}
    return Figure(
        finding=words("steps", shares=between(shares, percent)),
        caption=words("steps.caption"),
        table=beside(rows, ["part", "compiled", "N"], given, TIME),
        plot=charts.lines(derived(results, _measured), names, "N", TIME, panels, columns=2),
        sentences={
            "memory": words(
                "steps.memory",
                ours=size(_longest(plain, best)["peak_bytes"]),
                N=_longest(plain, best)["N"],
            ),
            "attention": words(
                "steps.attention",
                times=listed(
                    f"{_over_cudnn(rows, name, 'attention', False)} with `{name}`"
                    for name in (OURS, HOPPER)
                    if name in names
                ),
            ),
            "compiled": words("steps.compiled", times=_over_cudnn(rows, best, "step", True)),
        },
    )


def _share(rows, name, N):
    """The part of a step that its attention takes."""
    case = {"implementation": name, "N": N}
    whole, part = (only(rows, part=p, **case)["ms_p50"] for p in ("step", "attention"))
    return part / whole


def _longest(rows, name):
    return max(pick(rows, part="step", implementation=name), key=lambda r: r["N"])


def _over_cudnn(rows, name, part, compiled):
    """Times of one of ours over cuDNN's, of the lengths where both are there; in words."""
    quotients = []
    for N in values(rows, "N"):
        found = {
            r["implementation"]: r["ms_p50"]
            for r in pick(rows, part=part, compiled=compiled)
            if r["N"] == N
        }
        if name in found and "torch:cudnn" in found:
            quotients.append(found[name] / found["torch:cudnn"])
    return between(quotients, ratio) if quotients else "–"


def sampling(results):
    rows = _measured(results[0])
    ways = values(rows, "way")
    one = [r for r in rows if r["batch"] == min(values(rows, "batch"))]
    longest = max(values(one, "N"))
    by = {r["way"]: r["ms_p50"] for r in one if r["N"] == longest}
    fastest = min(by, key=by.__getitem__)
    return Figure(
        finding=words(
            "sampling",
            fastest=fastest,
            time=time(by[fastest]),
            N=longest,
        ),
        caption=words("sampling.caption"),
        table=beside(rows, ["batch", "N"], {way: way for way in ways}, TIME, name="way"),
        open_table=True,
    )
