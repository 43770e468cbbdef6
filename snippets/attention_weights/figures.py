"""The figures of the attention_weights page: each draws the result of the same name."""

from statistics import mean, median

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import derived, field, only, pick, values
from snippets._lab.draw.tables import cell, listed
from snippets._lab.draw.units import count, decimals, percent, ratio, size, time

from .static_map import light_map

OURS, CAUSAL, EAGER = "attention_weights", "attention_weights, causal", "torch:eager"
WITH, WITHOUT = "with 1/√d", "without"
PAGE = "docs/posts/attention_weights.md"


def _word(token):
    return f"*{cell(token)}*"


def attention_map(results):
    result = results[0]
    sentences = values(result.rows, "sentence")
    shown = {s: sorted(pick(result.rows, sentence=s), key=lambda r: r["layer"]) for s in sentences}
    files = {f"attention_map_{s}.json": _map_file(result, shown[s]) for s in sentences}
    links = "\n".join(
        f"[{cell(s)}](/figures/attention_weights/attention_map_{s}.json)"
        f'{{ .am-map-source data-sentence="{s}" }}'
        for s in sentences
    )
    first = shown[sentences[0]]
    tokens, (query, key) = first[0]["tokens"], first[0]["pairs"][0]
    found = _strongest(first, query, key)
    # The head that singles the query out: it gives the key more than it gives it on average.
    weight, layer, head = max(
        found, key=lambda f: f[0] - mean(row[key] for row in first[f[1]]["weights"][f[2]])
    )
    heads = [[*map(mean, zip(*one, strict=True))] for r in result.rows for one in r["weights"]]
    asks, answers = _word(tokens[query]), _word(tokens[key])
    return Figure(
        finding=f"In layer {layer} head {head}, {asks} looks most at {answers}.",
        caption="A stronger color means more. `[CLS]` and `[SEP]` are tokens that the model adds "
        "around a sentence; most heads give `[CLS]` the most.",
        widget='<div class="am-map" data-widget="attention_map" '
        f'data-sentences="{" ".join(sentences)}" data-layer="{layer}" '
        f'data-head="{head}" data-token="{query}" role="group" '
        f'aria-label="Interactive attention map" markdown>\n{links}\n\n'
        f"{light_map(tokens, first[layer]['weights'][head], layer, head, query)}\n\n</div>",
        extra_files=files,
        numbers={
            "shown": percent(weight),
            "difference": units.error(max(r["difference_largest"] for r in result.rows)),
            "found": len(found),
        },
        claims={
            f"{PAGE}: Each of these 72 *heads*": len(heads) == 72 * len(sentences),
            "snippets/attention_weights/figures.py: most heads give `[CLS]` the most": mean(
                each[0] == max(each) for each in heads
            )
            > 0.9,
            f"{PAGE}: these heads, layer 5 head 11: nearly every token looks at it": len(found) == 3
            and max(found)[1:] == (5, 11)
            and mean(row[key] == max(row) for row in first[5]["weights"][11]) > 0.75,
        },
    )


def _strongest(layers, query, key):
    """(weight, layer, head) of the heads in which a query gives most to a key, largest first."""
    found = [
        (weights[query][key], row["layer"], head)
        for row in layers
        for head, weights in enumerate(row["weights"])
        if weights[query][key] == max(weights[query])
    ]
    return sorted(found, reverse=True)


def _map_file(result, layers):
    """What the map's script reads of one sentence."""
    tokens = layers[0]["tokens"]
    return {
        "sentence": layers[0]["sentence"],
        "text": layers[0]["text"],
        "tokens": tokens,
        "layers": len(layers),
        "heads": len(layers[0]["weights"]),
        "weights": [r["weights"] for r in layers],
        "highlights": [
            {
                "layer": layer,
                "head": head,
                "token": query,
                "note": f"{tokens[query]} → {tokens[key]}, layer {layer} head {head}: "
                f"{decimals(weight)}",
            }
            for query, key in layers[0]["pairs"]
            for weight, layer, head in _strongest(layers, query, key)[:3]
        ],
        "device": result.label,
        "date": result.date,
    }


def claims(rows):

    def said(row, name):
        return listed(dict.fromkeys(_word(row["tokens"][i]) for i in row[name]))

    sat, it, still = (only(rows, name=name) for name in ("sat", "it", "it_is_still_the_cat"))
    return Figure(
        finding=f"{_word('sat')} attends to {said(sat, 'attended')} and ignores "
        f"{said(sat, 'ignored')} in {len(sat['agree'])} of {sat['heads']} heads: each token that "
        "should be attended to gets more than an equal share, each other less.",
        numbers={
            "agree": len(sat["agree"]),
            "attended": decimals(sat["mean_attended"]),
            "start": decimals(sat["mean_first"]),
            "still": decimals(still["most"]),
            "before": decimals(it["most"]),
        },
        claims={
            f"{PAGE}: In fewer than ten": len(sat["agree"]) < 10,
            f"{PAGE}: all of them in the first or the last": {layer for layer, _ in sat["agree"]}
            == {0, 5},
            f"{PAGE}: That head still gives *cat*": still["head_of_most"] == [5, 11],
        },
    )


def heads_of_the_model(results, rows):
    share = field("to_first", "share", units.fraction)
    entropy = field("entropy_relative", "entropy", units.fraction)
    back = max(rows, key=lambda r: r["to_previous"])
    start = mean(r["to_first"] for r in rows)
    return Figure(
        finding=f"{sum(r['to_first'] > 0.5 for r in rows)} of {len(rows)} heads give more than "
        "half of their attention to the start token.",
        caption="Share of the attention that goes to `[CLS]`, averaged over the queries of the "
        "map's sentences. Point at a head to see the entropy of its rows; 1 means equal weights. "
        "Layers and heads count from zero.",
        plot=charts.heatmap(
            results, "head", "layer", share, told=lambda r: f"entropy {entropy.text(r)}"
        ),
        numbers={"mean": decimals(start), "to_previous": decimals(back["to_previous"])},
        claims={
            f"{PAGE}: Nearly half of all attention": 0.45 <= start < 0.5,
            f"{PAGE}: Layer 0 head 2 does nothing": (back["layer"], back["head"]) == (0, 2)
            and back["to_previous"] >= 0.98,
        },
    )


def _over_seeds(rows):
    """For each width and scale: median, lowest and highest of each quantity over the draws."""
    names = [name for name in rows[0] if name not in ("d", "scaled", "seed", "keys")]
    for d in values(rows, "d"):
        for scaled in (False, True):
            draws = pick(rows, d=d, scaled=scaled)
            for name in names:
                found = [r[name] for r in draws]
                yield {
                    "d": d,
                    "scaled": scaled,
                    "name": name,
                    "quantity": name.removesuffix("_median"),
                    "middle": name.endswith("_median"),  # of the row in the middle, not the mean
                    "median": median(found),
                    "lowest": min(found),
                    "highest": max(found),
                }


def scaling(results, rows):
    keys, widths = rows[0]["keys"], values(rows, "d")
    drawn = derived(results, lambda result: _over_seeds(result.rows))
    at = {(r["name"], r["d"], r["scaled"]): r["median"] for r in drawn[0].rows}

    last = widths[-1]
    mean, left = (
        {d: at[name, d, False] / at[name, d, True] for d in widths}
        for name in ("gradient_norm", "gradient_norm_median")
    )
    ends = ("lowest", "highest")
    return Figure(
        finding="Without 1/√d, the softmax keeps "
        f"{percent(at['entropy_relative', 64, False])} of its entropy at 64 columns and "
        f"{percent(at['entropy_relative', last, False])} at {last}; with it, at least "
        f"{percent(min(at['entropy_relative', d, True] for d in widths))} at every width.",
        caption=f"{keys} queries and keys drawn from N(0, 1), in float64; median of "
        f"{len(values(rows, 'seed'))} draws, bars from the lowest to the highest. Entropy "
        "relative to equal weights; the gradient is the matrix of ∂weight/∂score of a row, its "
        "norm the root of the sum of squares, averaged over rows (dotted: the median row).",
        plot=charts.lines(
            drawn,
            [
                Series(OURS, WITH, {"scaled": True, "middle": False}, spread=ends),
                Series(OURS, WITHOUT, {"scaled": False, "middle": False}, shade=2, spread=ends),
                Series(
                    OURS,
                    f"{WITHOUT}, median row",
                    {"scaled": False, "middle": True},
                    shade=2,
                    dash="dot",
                    symbol="square-open",
                    spread=ends,
                ),
            ],
            field("d", unit=units.whole),
            field("median", "value"),
            [
                View(
                    "entropy of the softmax",
                    {"quantity": "entropy_relative"},
                    y=field("median", "share of log N"),
                ),
                View(
                    "norm of its gradient",
                    {"quantity": "gradient_norm"},
                    y=field("median", "norm of a row"),
                ),
            ],
            log="x",
        ),
        numbers={
            "largest": decimals(at["largest_weight", 64, False]),
            "largest_scaled": decimals(at["largest_weight", 64, True], 3),
            "half_share": percent(left[256]),
            "left_share": percent(left[last]),
        },
        claims={
            f"{PAGE}: how large is the largest of 256 weights": keys == 256,
            f"{PAGE}: More than one half": at["largest_weight", 64, False] > 0.5,
            f"{PAGE}: *larger* than with the scale, in the median row too": min(
                x[d] for x in (left, mean) for d in (64, 128)
            )
            > 1,
            f"{PAGE}: at 1024 columns": last == 1024,
        },
    )


def forward(rows):
    compared = Comparison(rows, OURS, [CAUSAL, EAGER], by=("dtype", "N"))
    usual = compared.case("float32", 1024)
    behind = {N: ratio(1 / compared[EAGER][compared.case("float32", N)]) for N in (16, 1024)}
    large = compared.row(EAGER, compared.case("float32", 4096))
    given = large["bytes_compulsory"] - large["bytes_of_weights"]  # q and k
    return Figure(
        finding=f"At 1024 queries the kernel takes {behind[1024]} the time of eager PyTorch in "
        f"float32: the weights only, {rows[0]['heads']} heads, D {rows[0]['D']}.",
        numbers={
            "small": behind[16],
            "ours": time(compared.ms(OURS, usual)),
            "causal": time(compared.ms(CAUSAL, usual)),
            "eager": time(compared.ms(EAGER, usual)),
            "weights": size(large["bytes_of_weights"]),
            "times": count(large["bytes_of_weights"] / given),
        },
        claims={f"{PAGE}: the weights of 16 heads": rows[0]["heads"] == 16},
    )
