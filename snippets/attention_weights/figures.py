"""The figures of the attention_weights page: each draws the result of the same name."""

from statistics import mean, median

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.identity import named
from snippets._lab.draw.rows import TIME, Quantity, derived, field, only, pick, values
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import count, decimals, percent, ratio, size, time
from snippets._lab.draw.words import Words, cell, listed, yes

from .static_map import light_map

OURS, CAUSAL, EAGER = "attention_weights", "attention_weights, causal", "torch:eager"
WITH, WITHOUT = "with 1/√d", "without"
words = Words(__file__)


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
        finding=words(
            "attention_map",
            layer=layer,
            head=head,
            query=asks,
            share=percent(weight),
            key=answers,
        ),
        caption=words("attention_map.caption", heads=len(given), device=cell(result.label)),
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
        sentences={
            "model": words(
                "attention_map.model",
                difference=units.error(max(r["difference_largest"] for r in result.rows)),
                share=percent(max(r["difference_of_allowed"] for r in result.rows)),
            ),
            "it": words(
                "attention_map.it",
                found=len(found),
                heads=len(given),
                key=answers,
                query=asks,
                where=listed(f"layer {x} head {y} ({decimals(w)})" for w, x, y in found),
                mean=decimals(mean(given)),
                tokens=len(tokens),
                equal=decimals(1 / len(tokens)),
            ),
            "size": words(
                "attention_map.size",
                text=_word(first[0]["text"]),
                tokens=len(tokens),
                heads=len(given),
                weights=units.thousands(len(tokens) ** 2 * len(given)),
            ),
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
        finding=words(
            "claims",
            token=_word("sat"),
            attended=said(sat, "attended"),
            ignored=said(sat, "ignored"),
            agree=len(sat["agree"]),
            heads=sat["heads"],
        ),
        caption=words("claims.caption"),
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
        sentences={
            "sat": words(
                "claims.sat",
                agree=_heads(sat["agree"]),
                heads=sat["heads"],
                attended=said(sat, "attended"),
                mean_attended=decimals(sat["mean_attended"]),
                token=_word("sat"),
                ignored=said(sat, "ignored"),
                mean_ignored=decimals(sat["mean_ignored"]),
                start=_word(sat["tokens"][0]),
                mean_first=decimals(sat["mean_first"]),
            ),
            "it": words(
                "claims.it",
                strongest=_heads(it["strongest_key"]),
                token=_word("it"),
                attended=said(it, "attended"),
                most=decimals(it["most"]),
                head=_heads([it["head_of_most"]]),
            ),
            "control": words(
                "claims.control",
                text=_word(soft["text"]),
                still_head=_heads([still["head_of_most"]]),
                cat=said(still, "attended"),
                still_most=decimals(still["most"]),
                before=decimals(it["most"]),
                strongest=_heads(still["strongest_key"]),
                mat=said(soft, "attended"),
                most=decimals(soft["most"]),
                head=_heads([soft["head_of_most"]]),
            ),
        },
    )


def heads_of_the_model(results):
    rows = results[0].rows
    share = field("to_first", "share", units.fraction)
    entropy = field("entropy_relative", "entropy", units.fraction)
    back, ahead = (max(rows, key=lambda r, k=k: r[k]) for k in ("to_previous", "to_next"))
    sharp, flat = min(rows, key=entropy), max(rows, key=entropy)
    return Figure(
        finding=words(
            "heads_of_the_model", half=sum(r["to_first"] > 0.5 for r in rows), heads=len(rows)
        ),
        caption=words("heads_of_the_model.caption"),
        table=columns(
            rows,
            {
                "layer": "layer",
                "head": "head",
                "to [CLS]": share,
                "to [SEP]": field("to_last", unit=units.fraction),
                "to itself": field("to_self", unit=units.fraction),
                "to the token before": field("to_previous", unit=units.fraction),
                "to the token after": field("to_next", unit=units.fraction),
                "distance, tokens": lambda r: decimals(r["distance_tokens"], 1),
                "entropy, nats": field("entropy_nats", unit=units.fraction),
                "of log N": entropy,
            },
        ),
        plot=charts.heatmap(
            results, "head", "layer", share, told=lambda r: f"entropy {entropy.text(r)}"
        ),
        sentences={
            "first": words(
                "heads_of_the_model.first", mean=decimals(mean(r["to_first"] for r in rows))
            ),
            "previous": words(
                "heads_of_the_model.previous",
                back=_one_head(back).capitalize(),
                to_previous=decimals(back["to_previous"]),
                ahead=_one_head(ahead).capitalize(),
                to_next=decimals(ahead["to_next"]),
            ),
            "spread": words(
                "heads_of_the_model.spread",
                sharp=_one_head(sharp),
                lowest=entropy.text(sharp),
                flat=_one_head(flat),
                highest=entropy.text(flat),
            ),
        },
    )


def _one_head(row):
    return _heads([(row["layer"], row["head"])])


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

    def of(name):
        return Quantity(name, lambda r: at[name, r["d"], r["scaled"]])

    def below(name):
        """From which width on a quantity is smaller without the scale than with it."""
        found = [d for d in widths if at[name, d, False] < at[name, d, True]]
        return f"from d {min(found)}" if found else "at no width measured"

    last = widths[-1]
    peak = max(widths, key=lambda d: at["gradient_norm", d, False])
    left = at["gradient_norm_median", last, False]
    ends = ("lowest", "highest")
    return Figure(
        finding=words(
            "scaling",
            d=last,
            deviation=count(at["logits_deviation", last, False]),
            left=percent(at["entropy_relative", last, False]),
            kept=percent(min(at["entropy_relative", d, True] for d in widths)),
        ),
        caption=words("scaling.caption", keys=keys, draws=len(values(rows, "seed"))),
        table=columns(
            [{"d": d, "scaled": scaled} for d in widths for scaled in (False, True)],
            {
                "d": "d",
                "scale": lambda r: WITH if r["scaled"] else WITHOUT,
                "deviation of the scores": of("logits_deviation"),
                "entropy, nats": of("entropy_nats"),
                "of log N": of("entropy_relative"),
                "largest weight": of("largest_weight"),
                "gradient, mean row": of("gradient_norm"),
                "gradient, median row": of("gradient_norm_median"),
            },
        ),
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
        sentences={
            "deviation": words(
                "scaling.deviation",
                without=decimals(at["logits_deviation", 64, False]),
                scaled=decimals(at["logits_deviation", 64, True]),
            ),
            "weight": words(
                "scaling.weight",
                keys=keys,
                without=decimals(at["largest_weight", 64, False]),
                scaled=decimals(at["largest_weight", 64, True], 3),
            ),
            "gradient": words(
                "scaling.gradient",
                highest=decimals(at["gradient_norm", peak, False]),
                peak=peak,
                scaled=decimals(at["gradient_norm", peak, True]),
                below=below("gradient_norm"),
                typical=below("gradient_norm_median"),
                last=last,
                left=decimals(left, 4),
                share=percent(left / at["gradient_norm_median", last, True]),
            ),
        },
    )


def forward(results):
    rows = results[0].rows
    names = {named(name): name for name in (OURS, CAUSAL, EAGER)}
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
        finding=words(
            "forward", N=usual, single=behind(usual), half=behind(usual, dtype="float16")
        ),
        caption=words("forward.caption", heads=heads, D=D),
        table=beside(
            rows,
            ["dtype", "N"],
            names,
            more=lambda case: {
                "the weights": size(case[OURS]["bytes_of_weights"]),
                "smaller than L2": yes(case[OURS]["fits_l2"]),
            },
        ),
        plot=charts.lines(
            results,
            [OURS, Series(CAUSAL, dash="dash", symbol="circle-open"), EAGER],
            "N",
            TIME,
            charts.views("{}", "dtype", values(rows, "dtype")),
        ),
        sentences={
            "small": words("forward.small", N=few, ratio=behind(few)),
            "causal": words(
                "forward.causal",
                N=usual,
                causal=time(causal),
                full=time(ours),
                share=percent(causal / ours),
            ),
            "eager": words("forward.eager", N=usual, eager=time(eager)),
            "square": words(
                "forward.square",
                N=large["N"],
                heads=heads,
                weights=size(large["bytes_of_weights"]),
                times=count(large["bytes_of_weights"] / given),
            ),
        },
    )


def error(results):
    rows = results[0].rows
    largest = field("error_largest", "largest difference from float64", units.difference)
    theirs = field("pytorch_error_largest", unit=units.difference)
    return Figure(
        finding=words("error", closer=sum(largest(r) <= theirs(r) for r in rows), cases=len(rows)),
        caption=words("error.caption", D=rows[0]["D"]),
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "N": "N",
                "largest": largest,
                "mean": field("error_mean", unit=units.difference),
                f"{named(EAGER)}, largest": theirs,
                "allowed": field("allowed", unit=units.difference),
            },
        ),
        plot=charts.closeness(results, OURS, EAGER),
    )
