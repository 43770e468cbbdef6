"""The figures of the decode_attention page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View, at_ceiling
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import BANDWIDTH, OF_THE_HOST, TIME, ceiling, field, only, pick, values
from snippets._lab.draw.tables import columns, widget
from snippets._lab.draw.units import bandwidth as per_second
from snippets._lab.draw.units import between, count, percent, ratio, rough_ratio, size

OURS, CUDNN, FLASH, SDPA = "decode_attention", "torch:cudnn", "torch:flash", "torch:sdpa"
RIVALS = (CUDNN, FLASH, "flash_attention_3", "flashinfer")  # of them what was there
FLEX, FLOAT8 = "torch:flex", f"{OURS}:float8"
WIDENED, ROWS_FIRST = f"{FLOAT8}, bytes widened", f"{FLOAT8}, rows of q as rows"
APART = f"{OURS}:a program a head"
READER, ONLY_READS = f"{OURS}:only reads", "a kernel that only reads"
SMALL = 64e6  # bytes of keys and values: with fewer, what counts is microseconds
PAGE = "docs/posts/decode_attention.md"
CASE = ("group", "batch", "N")
BYTES = field("bytes_compulsory", "keys and values", units.size)


def _part(name):
    """What comes behind the implementation's name: "pages of 16"."""
    return name.split(":")[-1]


def _shapes(rows):
    return list(dict.fromkeys((r["batch"], r["N"]) for r in rows))


def splits(results, rows):
    gains, loss = [], []
    for batch, N in _shapes(rows):
        mine = pick(rows, batch=batch, N=N)
        one = only(mine, splits=1)
        best = min(mine, key=TIME)
        (ours,) = (r for r in mine if OURS in r["chosen_by"])
        gains.append(TIME(one) / TIME(best))
        loss.append(TIME(ours) / TIME(best) - 1)
    single = [r for r in pick(rows, batch=1) if r["N"] == max(values(pick(rows, batch=1), "N"))]
    alone, best_alone = only(single, splits=1), min(single, key=TIME)
    most = ceiling(results[0], "read")
    return Figure(
        finding=f"The best number of splits is up to {ratio(max(gains))} as fast as one. In the "
        f"{len(loss)} shapes that were timed our rule "
        f"{f'loses at most {percent(max(loss))} against it' if max(loss) else 'finds it'}.",
        caption="One new token, four query heads on each of eight heads of keys, D 128, "
        "bfloat16, L2 flushed. One split writes the result itself; from two on a second kernel "
        "combines them.",
        numbers={
            "keys": alone["N"],
            "alone": percent(BANDWIDTH(alone) / most),
            **{
                name: percent(TIME(only(single, splits=n)) / TIME(best_alone) - 1)
                for n, name in ((12, "twelve"), (32, "thirty_two"))
            },
            "best": percent(BANDWIDTH(best_alone) / most),
        },
        claims={f"{PAGE}: About 16, but 12 take only": best_alone["splits"] == 16},
        plot=charts.lines(
            results,
            [Series(OURS, where={})],
            "splits",
            views=[
                View(f"{batch} × {count(N)} keys", {"batch": batch, "N": N})
                for batch, N in _shapes(rows)
            ],
        ),
    )


def combining(rows):
    late = f"{OURS}:in order"
    early = Comparison(rows, OURS, [late], ("batch", "N", "splits"))[late]
    gain = between(early.values(), ratio)
    return Figure(
        finding=f"Starting the second kernel early makes a call {gain} as fast.",
        numbers={"early": gain},
        claims={f"{PAGE}: short ones the most": max(early, key=early.get).N == 512},
    )


def bandwidth(results, rows):
    beside_ = Comparison(rows, OURS, RIVALS, CASE)
    there = [OURS, *(name for name in RIVALS if beside_[name])]
    best = beside_.best(RIVALS)
    middle = {name: beside_.row(name, beside_.case(4, 64, 8_192)) for name in (OURS, *RIVALS)}
    speeds = {name: BANDWIDTH(row) for name, row in middle.items() if row}
    most = ceiling(results[0], "read")
    large = [r for r in pick(rows) if r["bytes_compulsory"] >= 500e6]
    of_reading = Comparison(large, OURS, [READER], CASE)[READER]
    return Figure(
        finding="From 500 MB of keys and values on, a call reads them at "
        f"{between(list(of_reading.values()), percent)} of the rate of a kernel that only reads "
        f"them. At every size it reaches {best.between()} of the speed of "
        f"{beside_.the_best(RIVALS)} ({best.verdicts()}).",
        caption="One new token, eight heads of keys of width 128, bfloat16, and a group of 1, 4 "
        "or 8 query heads on each. Each point is a number of sequences and their length. "
        "Compulsory bytes over the time, L2 flushed before each call. The line is the rate of a "
        f"kernel that only reads, over 2 GB ({per_second(most)}); others can be faster than it. "
        "FlashInfer's plan, one for all layers of a model, is made before the clock starts.",
        numbers={
            "ours": per_second(speeds[OURS]),
            "cudnn": per_second(speeds[CUDNN]),
            "flash": per_second(speeds[FLASH]),
            "best": best.between(),
        },
        plot=charts.lines(
            results,
            [
                Series(READER, ONLY_READS, like="ceiling", symbol="diamond", joined=False),
                *(Series(name, joined=False) for name in reversed(there)),  # ours on top
            ],
            BYTES,
            BANDWIDTH,
            charts.views("group of {}", "group", values(rows, "group")),
            log="x",
            references=[at_ceiling("read", "reading 2 GB")],
        ),
    )


FIRST_MODEL = {"name": "Llama 3.1 8B", "keys": 8_192, "size": 2, "batch": 64}


def tokens(results):
    """Bandwidths as GPUs have them, and models, for the calculator; the formula's cases beside."""
    (formula,) = (result for result in results if result.place == "interpreter")
    measured = [(r.device["name"], BANDWIDTH(only(r.rows))) for r in results if r.place == "gpu"]
    cases = formula.rows
    models = {r["name"]: [r[k] for k in ("layers", "heads", "D", "parameters")] for r in cases}
    fields = ("name", "keys", "size", "batch", "of_a_sequence", "seconds")
    at = [only(cases, **FIRST_MODEL | {"name": name}) for name in models]
    shown = [
        {
            "model": r["name"],
            "weights": size(r["parameters"] * r["size"]),
            "cache of a sequence": size(r["of_a_sequence"]),
            "read in a step": size(r["parameters"] * r["size"] + r["batch"] * r["of_a_sequence"]),
        }
        for r in at
    ]
    return Figure(
        finding="How many tokens per second memory allows.",
        caption="A step reads the weights once for all sequences, and every sequence's keys and "
        "values. All else comes on top, so this is an upper bound. The formula is that of "
        "tokens.py, written once more in JavaScript and tested against it.",
        sources=results,  # what it says is of all GPUs
        table=shown,
        widget=widget(
            "tokens",
            "decode_tokens",
            "[The cases](/figures/decode_attention/tokens_cases.json)",
            shown,
            "64 sequences of 8,192 keys, 16 bits:",
        ),
        extra_files={
            "tokens_cases.json": {
                "first": FIRST_MODEL,
                "models": [[name, *facts] for name, facts in models.items()],
                "measured": measured,
                "cases": [[r[field] for field in fields] for r in cases],
            }
        },
    )


HELD = 64  # rows that a program of the kernel holds at most


def intensity(rows):
    rows = sorted(pick(rows, implementation=OURS), key=lambda r: (r["rows"], TIME(r)))
    held = [r for r in rows if r["rows"] <= HELD][-1]
    more = next(r for r in rows if r["rows"] > HELD)
    return Figure(
        finding=f"With {held['rows']} rows a call takes {TIME.text(held)}, with {more['rows']} "
        f"{TIME.text(more)}: sixteen sequences of 8,192 keys, eight heads of keys, D 128.",
        numbers={
            "held": held["rows"],
            "time": TIME.text(held),
            "more": more["rows"],
            "longer": TIME.text(more),
        },
    )


def sharing(rows):
    slower = Comparison(rows, OURS, [APART], ("group", "batch"))[APART]
    four, eight = (between(slower.where(group=n).values(), ratio) for n in (4, 8))
    return Figure(
        finding="With a program for each query head a call takes longer: of groups of four "
        f"{four}, of groups of eight {eight}.",
        numbers={"four": four, "eight": eight},
    )


def pages(rows):
    rows = _middle_runs(rows)
    names = values(pick(rows), "implementation")
    long = [r for r in pick(rows) if r["bytes_compulsory"] >= SMALL * r["calls"]]

    def against(name, of, some):
        return Comparison(some, of, [name], ("batch", "N"))[name].values()

    lost = {  # the share of the speed that is lost
        _part(name): 1 - 1 / max(against(name, OURS, long))
        for name in names
        if name.startswith(f"{OURS}:")
    }
    gains = {
        _part(name): max(against(name, f"{OURS}:{_part(name)}", rows))
        for name in names
        if name.startswith(f"{FLEX}:")
    }
    return Figure(
        finding=f"From {size(SMALL)} of keys and values on, pages cost at most "
        f"{percent(max(lost.values()))} of a contiguous cache's speed.",
        numbers={
            "small": size(SMALL),
            "cost_16": percent(lost["pages of 16"]),
            "flex": between(gains.values(), ratio),
        },
        claims={
            f"{PAGE}: By less than a tenth": 0 < max(lost.values()) < 0.1,
            f"{PAGE}: most on those of 16": max(gains, key=gains.get) == "pages of 16",
        },
    )


def float8(rows):
    queued, clean = (pick(rows, regime=x) for x in ("queued", "queued, L2 clean"))

    def beside(some, ours, other):
        return Comparison(some, ours, [other], ("batch", "N"))[other]

    faster, in_a_clean_cache = (beside(some, FLOAT8, OURS) for some in (queued, clean))
    shortest = min(pick(queued, implementation=FLOAT8), key=BYTES)
    case = {key: shortest[key] for key in ("batch", "N", "implementation")}
    off = {name: [r["off"] for r in pick(rows, implementation=name)] for name in (OURS, FLOAT8)}
    widened, rows_first = (beside(queued, FLOAT8, x) for x in (WIDENED, ROWS_FIRST))
    return Figure(
        finding=f"A cache in float8 is {between(faster.values(), ratio)} as fast as one in "
        f"bfloat16 ({faster.verdicts()}).",
        numbers={
            "faster": between(faster.values(), ratio),
            "clean": between(in_a_clean_cache.values(), ratio),
            "bytes": BYTES.text(shortest),
            "written": units.time(TIME(shortest) - TIME(only(clean, **case))),
            "of": TIME.text(shortest),
            "rows_first": between(rows_first.values()),
            "off": percent(max(off[FLOAT8])),
            "off_before": percent(max(off[OURS])),
            "window": between(beside(queued, f"{OURS}:window", OURS).values(), ratio),
            "widened": between(widened.values()),
        },
        claims={
            f"{PAGE}: where half the bytes promise twice": max(in_a_clean_cache.values()) < 2,
            f"{PAGE}: Converting the numbers costs nothing": min(widened.values()) > 0.98,
        },
    )


def popular(rows):
    most = per_second(max(map(BANDWIDTH, rows)))
    return Figure(
        finding=f"Choices of the page Your kernel, decoding, at up to {most}.",
        table=columns(rows, {"choice": "choice", "time": TIME, "rate": BANDWIDTH}),
        numbers={"most": most},
    )


def _middle_runs(rows):
    """Of an implementation's runs of a case the one whose median is in the middle."""
    runs = {}
    for row in pick(rows):
        runs.setdefault((row["implementation"], row["batch"], row["N"]), []).append(row)
    timed = [sorted(found, key=lambda r: r["ms_p50"])[len(found) // 2] for found in runs.values()]
    return timed + [row for row in rows if "error" in row]


def ragged(rows):
    alike = only(rows, implementation=OURS, batch=16, kind="all alike")
    slower, cut = (
        TIME(only(rows, implementation=name, batch=16, kind="one holds a quarter")) / TIME(alike)
        for name in (OURS, f"{OURS}:32 splits")
    )
    return Figure(
        finding="With splits by the rule, a batch of 16 in which one sequence holds a quarter of "
        f"the keys takes {ratio(slower)} as long as one of equal lengths.",
        numbers={"slower": ratio(slower), "cut": ratio(cut)},
    )


def invariance(rows):
    same = f"{OURS}:batch-invariant"
    price = Comparison(rows, OURS, [same], ("batch", "N"))[same]
    longer = between(price.values(), ratio)
    return Figure(
        finding=f"With the same bits in every batch a call takes {longer} as long as with our "
        "rule.",
        numbers={"longer": longer},
        claims={
            f"{PAGE}: most for a single sequence of 2,048 keys": max(price, key=price.get)
            == (1, 2048)
        },
    )


def host_time(rows):
    two = only(rows, implementation=f"{OURS}:two launches")
    times = TIME(two) / TIME(only(rows, implementation=SDPA))
    return Figure(
        finding=f"A call with two launches keeps the host for {OF_THE_HOST.text(two)}, "
        f"{rough_ratio(times)} as long as one of PyTorch's SDPA.",
        claims={
            f"{PAGE}: Without one, the host needs about twice as long for a call": 1.5 < times < 2.5
        },
    )
