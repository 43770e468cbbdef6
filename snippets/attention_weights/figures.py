"""The figures of the attention_weights page: each draws the result of the same name."""

from statistics import mean, median

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import TIME, derived, field, only, pick, values
from snippets._lab.draw.tables import cell, columns, listed
from snippets._lab.draw.units import count, decimals, percent, ratio, size, time

from .static_map import light_map

OURS, CAUSAL, EAGER = "attention_weights", "attention_weights, causal", "torch:eager"
WITH, WITHOUT = "with 1/√d", "without"
PAGE = "docs/posts/attention_weights.md"


def _heads(places):
    """[[5, 4], [5, 11]] → "layer 5 heads 4 and 11"."""
    layers = {}
    for layer, head in places:
        layers.setdefault(layer, []).append(str(head))
    return listed(
        f"layer {layer} head{'s' * (len(heads) > 1)} {listed(heads)}"
        for layer, heads in layers.items()
    )


def _word(token):
    return f"*{cell(token)}*"


def attention_map(results):
    result = results[0]
    sentences = values(result.rows, "sentence")
    shown = {s: sorted(pick(result.rows, sentence=s), key=_layer) for s in sentences}
    files = {f"attention_map_{s}.json": _map_file(result, shown[s]) for s in sentences}
    links = "\n".join(
        f"[{cell(shown[s][0]['text'])}](/figures/attention_weights/attention_map_{s}.json)"
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
    given = [weights[query][key] for r in first for weights in r["weights"]]
    asks, answers = _word(tokens[query]), _word(tokens[key])
    return Figure(
        finding=f"In layer {layer} head {head}, {asks} gives {percent(weight)} of its attention "
        f"to {answers}.",
        caption=f"The weights of all {len(given)} heads of all-MiniLM-L6-v2, computed by [a "
        f"kernel you can read](/posts/attention_weights.md#kernel) on {cell(result.label)} from "
        "queries and keys captured in the model. A row is a query and sums to one; a stronger "
        "color means more. Layers and heads count from zero.",
        table=columns(
            [
                {
                    "text": layers[0]["text"],
                    "tokens": len(layers[0]["tokens"]),
                    "weights": len(given) * len(layers[0]["tokens"]) ** 2,
                    "difference": max(r["difference_largest"] for r in layers),
                    "of_allowed": max(r["difference_of_allowed"] for r in layers),
                }
                for layers in shown.values()
            ],
            {
                "sentence": "text",
                "tokens": "tokens",
                "weights": "weights",
                "largest difference from the model": field("difference", unit=units.difference),
                "of what rounding may do": lambda r: percent(r["of_allowed"]),
            },
        ),
        widget='<div class="am-map" data-widget="attention_map" '
        f'data-sentences="{" ".join(sentences)}" data-layer="{layer}" '
        f'data-head="{head}" data-token="{query}" role="group" '
        f'aria-label="Interactive attention map" markdown>\n{links}\n\n'
        f"{light_map(tokens, first[layer]['weights'][head], layer, head, query)}\n\n</div>",
        extra_files=files,
        numbers={
            "difference": units.error(max(r["difference_largest"] for r in result.rows)),
            "of_bound": percent(max(r["difference_of_allowed"] for r in result.rows)),
            "heads": len(given),
            "found": len(found),
            "most": decimals(max(found)[0]),
            "mean": decimals(mean(given)),
            "equal": decimals(1 / len(tokens)),
        },
        claims={
            f"{PAGE}: layer 5 head 11 gives it most": max(found)[1:] == (5, 11),
            f"{PAGE}: no more than an equal share": mean(given) < 1.1 / len(tokens),
        },
    )


def _layer(row):
    return row["layer"]


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


def claims(results):
    rows = results[0].rows

    def said(row, name):
        return listed(dict.fromkeys(_word(row["tokens"][i]) for i in row[name]))

    def bare(name):
        return lambda row: listed(dict.fromkeys(row["tokens"][i] for i in row[name]))

    sat, it = only(rows, name="sat"), only(rows, name="it")
    soft, still = only(rows, name="it_is_the_mat"), only(rows, name="it_is_still_the_cat")
    return Figure(
        finding=f"{_word('sat')} attends to {said(sat, 'attended')} and ignores "
        f"{said(sat, 'ignored')} in {len(sat['agree'])} of {sat['heads']} heads.",
        caption="A head agrees if each token that should be attended to gets more than an equal "
        "share and each that should be ignored gets less. Looked up in the model's own weights; "
        "layers and heads count from zero.",
        table=columns(
            rows,
            {
                "sentence": "text",
                "token": lambda r: r["tokens"][r["query"]],
                "is said to attend to": bare("attended"),
                "and to ignore": bare("ignored"),
                f"heads that agree, of {sat['heads']}": lambda r: len(r["agree"]),
                "heads in which it gets most": lambda r: len(r["strongest_key"]),
                "most": lambda r: f"{decimals(r['most'])}, {_heads([r['head_of_most']])}",
                "mean over heads": field("mean_attended", unit=units.fraction),
            },
        ),
        open_table=True,
        numbers={
            "agree": len(sat["agree"]),
            "attended": decimals(sat["mean_attended"]),
            "ignored": decimals(sat["mean_ignored"]),
            "start": decimals(sat["mean_first"]),
            "still": decimals(still["most"]),
            "before": decimals(it["most"]),
            "cat_heads": len(still["strongest_key"]),
            "mat": decimals(soft["most"]),
        },
        claims={
            f"{PAGE}: only in the first layer and the last": {layer for layer, _ in sat["agree"]}
            == {0, 5},
            f"{PAGE}: Still layer 5 head 11 gives": still["head_of_most"] == [5, 11],
        },
    )


def heads_of_the_model(results):
    rows = results[0].rows
    share = field("to_first", "share", units.fraction)
    entropy = field("entropy_relative", "entropy", units.fraction)
    back, ahead = (max(rows, key=lambda r, k=k: r[k]) for k in ("to_previous", "to_next"))
    sharp, flat = min(rows, key=entropy), max(rows, key=entropy)
    return Figure(
        finding=f"{sum(r['to_first'] > 0.5 for r in rows)} of {len(rows)} heads give more than "
        "half of their attention to the start token.",
        caption="Share of the attention that goes to `[CLS]`, averaged over the queries of the "
        "map's sentences. Point at a head to see the entropy of its rows; 1 means equal weights. "
        "Layers and heads count from zero.",
        plot=charts.heatmap(
            results, "head", "layer", share, told=lambda r: f"entropy {entropy.text(r)}"
        ),
        numbers={
            "mean": decimals(mean(r["to_first"] for r in rows)),
            "to_previous": decimals(back["to_previous"]),
            "to_next": decimals(ahead["to_next"]),
            "sharp": entropy.text(sharp),
            "flat": entropy.text(flat),
        },
        claims={
            f"{PAGE}: Layer 0 head 2 looks at the token before": _place(back) == (0, 2),
            f"{PAGE}: layer 1 head 8 at the token after": _place(ahead) == (1, 8),
            f"{PAGE}: The sharpest head is that first one": _place(sharp) == (0, 2),
            f"{PAGE}: the flattest is its neighbor, head 3": _place(flat) == (0, 3),
        },
    )


def _place(row):
    return row["layer"], row["head"]


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


def scaling(results):
    rows = results[0].rows
    keys, widths = rows[0]["keys"], values(rows, "d")
    drawn = derived(results, lambda result: _over_seeds(result.rows))
    at = {(r["name"], r["d"], r["scaled"]): r["median"] for r in drawn[0].rows}

    def below(name):
        """From which width on a quantity is smaller without the scale than with it."""
        return min(d for d in widths if at[name, d, False] < at[name, d, True])

    last = widths[-1]
    peak = max(widths, key=lambda d: at["gradient_norm", d, False])
    left = at["gradient_norm_median", last, False]
    ends = ("lowest", "highest")
    deviation = {scaled: at["logits_deviation", 64, scaled] for scaled in (False, True)}
    return Figure(
        finding=f"Without 1/√d, scores of {last} columns have a standard deviation of "
        f"{count(at['logits_deviation', last, False])} and the softmax keeps "
        f"{percent(at['entropy_relative', last, False])} of its entropy; with it, at least "
        f"{percent(min(at['entropy_relative', d, True] for d in widths))} at every width.",
        caption=f"{keys} queries and keys drawn from N(0, 1), in float64; median of "
        f"{len(values(rows, 'seed'))} draws, bars from the lowest to the highest. Entropy "
        "relative to equal weights; the gradient is the matrix of ∂weight/∂score of a row, its "
        "norm the root of the sum of squares, averaged over rows (dotted: the row in the middle).",
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
                    "deviation of the scores",
                    {"quantity": "logits_deviation"},
                    y=field("median", "standard deviation"),
                    log="xy",
                ),
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
            "keys": keys,
            "deviation": decimals(deviation[False]),
            "deviation_scaled": decimals(deviation[True]),
            "largest": decimals(at["largest_weight", 64, False]),
            "largest_scaled": decimals(at["largest_weight", 64, True], 3),
            "gradient": decimals(at["gradient_norm", peak, False]),
            "gradient_scaled": decimals(at["gradient_norm", peak, True]),
            "peak": peak,
            "below": below("gradient_norm"),
            "below_typical": below("gradient_norm_median"),
            "last": last,
            "left_share": percent(left / at["gradient_norm_median", last, True]),
        },
        claims={
            f"{PAGE}: More than one half": at["largest_weight", 64, False] > 0.5,
            f"{PAGE}: the gradient does not simply vanish": at["gradient_norm", peak, False]
            > at["gradient_norm", peak, True],
        },
    )


def error(results):
    rows = results[0].rows
    closer = [r for r in rows if r["error_largest"] <= r["pytorch_error_largest"]]
    return Figure(
        finding=f"The kernel is as close to float64 as eager PyTorch or closer in {len(closer)} "
        f"of {len(rows)} cases.",
        caption="Largest difference of a weight from the float64 softmax of the same rounded "
        f"inputs, over that of eager PyTorch: below 1 the kernel is closer. D {rows[0]['D']}. The "
        "kernel keeps float32 inside and rounds once; eager PyTorch rounds the scores to the "
        "input's dtype.",
        plot=charts.closeness(results, OURS, EAGER),
    )


def forward(results):
    rows = results[0].rows
    heads, D, lengths = rows[0]["heads"], rows[0]["D"], values(rows, "N")
    compared = Comparison(rows, OURS, [CAUSAL, EAGER], by=("dtype", "N"))
    few, usual = lengths[0], 1024
    ours, causal, eager = (
        compared.ms(name, compared.case("float32", usual)) for name in (OURS, CAUSAL, EAGER)
    )
    large = compared.row(EAGER, compared.case("float32", lengths[-1]))
    given = large["bytes_compulsory"] - large["bytes_of_weights"]  # q and k

    def behind(N, dtype="float32"):
        return ratio(1 / compared[EAGER][compared.case(dtype, N)])

    return Figure(
        finding=f"At {usual} queries the kernel takes {behind(usual)} the time of eager PyTorch "
        f"in float32 and {behind(usual, dtype='float16')} in float16.",
        caption=f"{heads} heads, D {D}; the weights only, no values. Both axes logarithmic: down "
        "is faster. Medians; L2 is flushed before every call, and the three take turns.",
        plot=charts.lines(
            results,
            [OURS, Series(CAUSAL, dash="dash", symbol="circle-open"), EAGER],
            "N",
            TIME,
            charts.views("{}", "dtype", values(rows, "dtype")),
        ),
        numbers={
            "few": few,
            "small": behind(few),
            "n": usual,
            "ours": time(ours),
            "causal": time(causal),
            "causal_share": percent(causal / ours),
            "eager": time(eager),
            "last": large["N"],
            "heads": heads,
            "weights": size(large["bytes_of_weights"]),
            "times": count(large["bytes_of_weights"] / given),
        },
    )
