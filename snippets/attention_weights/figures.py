"""The figures of the attention_weights page: each draws the result of the same name."""

from statistics import median

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from snippets._lab.draw.figure import (
    DASHES,
    Figure,
    cell,
    colour,
    hover,
    name_of,
    only,
    pick,
    ratio,
    time,
)

# The sentences of the map, the first by default, and in each the pairs of places (query, key) whose
# heads are pointed out.
SHOWN = {
    "pronoun": [(8, 2), (3, 2)],  # it → cat, sat → cat
    "agreement": [(6, 2)],  # are → keys
    "repetition": [(11, 2)],  # red → red
    "code": [(12, 6), (7, 3)],  # b → b, ) → (
}
LEGEND = {"orientation": "h", "y": -0.25, "x": 0}
WITH, WITHOUT = "with 1/√d", "without"
PANELS = {
    "logits_deviation": "deviation of the scores",
    "entropy_relative": "entropy of the softmax",
    "gradient_norm": "norm of its gradient",
}


def _heads(places):
    """[[5, 4], [5, 11]] → "layer 5 heads 4 and 11"."""
    layers = {}
    for layer, head in places:
        layers.setdefault(layer, []).append(str(head))
    return _and(
        f"layer {layer} head{'s' * (len(heads) > 1)} {_and(heads)}"
        for layer, heads in layers.items()
    )


def _and(words):
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _percent(share):
    return f"{share * 100:.2g} %" if share < 0.1 else f"{share * 100:.0f} %"


def _word(token):
    return f"*{cell(token)}*"


def _mean_of_column(shown, layer, head, key):
    """What all queries of a head give to a key on average: a head may send everybody there."""
    rows = shown["weights"][layer][head]
    return sum(row[key] for row in rows) / len(rows)


def attention_map(results):
    result = results[0]
    files, table, maps = {}, [], {}
    for sentence, pairs in SHOWN.items():
        layers = sorted(pick(result.rows, sentence=sentence), key=lambda r: r["layer"])
        tokens, weights = layers[0]["tokens"], [r["weights"] for r in layers]
        maps[sentence] = strongest = {
            pair: sorted(
                (
                    (head[pair[0]][pair[1]], layer, h)
                    for layer, heads in enumerate(weights)
                    for h, head in enumerate(heads)
                    if head[pair[0]][pair[1]] == max(head[pair[0]])
                ),
                reverse=True,
            )
            for pair in pairs
        }
        files[f"attention_map_{sentence}.json"] = {
            "sentence": sentence,
            "text": layers[0]["text"],
            "tokens": tokens,
            "layers": len(weights),
            "heads": len(weights[0]),
            "weights": weights,
            "highlights": [
                {
                    "layer": layer,
                    "head": head,
                    "token": query,
                    "note": f"{tokens[query]} attends to {tokens[key]}: {weight:.2f}",
                }
                for (query, key), found in strongest.items()
                for weight, layer, head in found[:3]
            ],
            "device": result.label,
            "date": result.date,
        }
        table.append(
            {
                "sentence": layers[0]["text"],
                "tokens": len(tokens),
                "weights": len(weights) * len(weights[0]) * len(tokens) ** 2,
                "largest difference from the model": max(r["difference_largest"] for r in layers),
                "of what rounding may do": f"{_percent(max(r['difference_of_allowed'] for r in layers))}",
            }
        )
    first = files[f"attention_map_{next(iter(SHOWN))}.json"]
    query, key = next(iter(SHOWN.values()))[0]
    found = maps["pronoun"][query, key]
    weight, layer, head = max(found, key=lambda f: f[0] - _mean_of_column(first, *f[1:], key))
    others = [w[query][key] for heads in first["weights"] for w in heads]
    links = "\n".join(
        f"[{cell(files[f'attention_map_{s}.json']['text'])}](/figures/attention_weights/"
        f'attention_map_{s}.json){{ .am-map-source data-sentence="{s}" }}'
        for s in SHOWN
    )
    return Figure(
        finding=f"In layer {layer} head {head}, {_word(first['tokens'][query])} gives "
        f"{_percent(weight)} of its attention to {_word(first['tokens'][key])}.",
        caption=f"The weights of all {first['layers'] * first['heads']} heads of all-MiniLM-L6-v2, "
        f"computed by this page's kernel on {cell(result.label)} from queries and keys captured in "
        "the model. A row is a query and sums to one; a stronger colour means more. Layers and heads count "
        "from zero.",
        table=table,
        widget=f'<div class="am-map" data-sentences="{" ".join(SHOWN)}" data-layer="{layer}" '
        f'data-head="{head}" data-token="{query}" role="group" '
        f'aria-label="Interactive attention map" markdown>\n{links}\n</div>',
        extra_files=files,
        sentences={
            "model": f"Over all sentences and heads the kernel's weights differ from the model's own "
            f"by at most {max(r['difference_largest'] for r in result.rows):.1e}. The queries and "
            f"keys are stored in float16, and that rounding alone may cost more: the largest "
            f"difference is {_percent(max(r['difference_of_allowed'] for r in result.rows))} of its "
            "bound.",
            "it": f"In {len(found)} of {len(others)} heads {_word(first['tokens'][key])} is the "
            f"token that {_word(first['tokens'][query])} attends to most: "
            + _and(f"layer {x} head {y} ({w:.2f})" for w, x, y in found)
            + f". On average over all heads it gets {sum(others) / len(others):.2f}, where "
            f"{len(first['tokens'])} equal shares would be {1 / len(first['tokens']):.2f}.",
            "size": f"The weights of {_word(first['text'])} are {len(first['tokens'])} × "
            f"{len(first['tokens'])} numbers in each of {len(others)} heads: "
            f"{len(first['tokens']) ** 2 * len(others):,}.",
        },
    )


def claims(results):
    rows = results[0].rows

    def words(row, name):
        return _and(dict.fromkeys(_word(row["tokens"][i]) for i in row[name]))

    sat, it, soft, still = rows[:4]
    return Figure(
        finding=f"{_word('sat')} attends to {words(sat, 'attended')} and ignores "
        f"{words(sat, 'ignored')} in {len(sat['agree'])} of {sat['heads']} heads.",
        caption="A head agrees if each token that should be attended to gets more than an equal "
        "share and each that should be ignored gets less. Looked up in the model's own weights; "
        "layers and heads count from zero.",
        table=[
            {
                "sentence": r["text"],
                "token": r["tokens"][r["query"]],
                "attends to": _and(dict.fromkeys(r["tokens"][i] for i in r["attended"])),
                "ignores": _and(dict.fromkeys(r["tokens"][i] for i in r["ignored"])),
                f"heads that agree, of {r['heads']}": len(r["agree"]),
                "heads in which it gets most": len(r["strongest_key"]),
                "most": f"{r['most']:.2f}, {_heads([r['head_of_most']])}",
                "mean over heads": f"{r['mean_attended']:.2f}",
            }
            for r in rows
        ],
        open_table=True,
        sentences={
            "sat": f"The heads that agree are {_heads(sat['agree'])}. On average over all "
            f"{sat['heads']} heads {words(sat, 'attended')} together get "
            f"{sat['mean_attended']:.2f} of the attention of {_word('sat')}, both "
            f"{words(sat, 'ignored')} {sat['mean_ignored']:.2f}, and the start token "
            f"{_word(sat['tokens'][0])} alone gets {sat['mean_first']:.2f}.",
            "it": f"In {_heads(it['strongest_key'])} {_word('it')} attends to "
            f"{words(it, 'attended')} most, with up to {it['most']:.2f} "
            f"({_heads([it['head_of_most']])}).",
            "control": f"Change one word: in {_word(soft['text'])} it is the mat. Still "
            f"{_heads([still['head_of_most']])} gives {words(still, 'attended')} "
            f"{still['most']:.2f} (before: {it['most']:.2f}), and the heads in which "
            f"{words(still, 'attended')} gets most are {_heads(still['strongest_key'])}. The most "
            f"that {words(soft, 'attended')} gets is {soft['most']:.2f}, in "
            f"{_heads([soft['head_of_most']])}.",
        },
    )


def heads_of_the_model(results):
    rows = results[0].rows
    layers = sorted({r["layer"] for r in rows})
    heads = sorted({r["head"] for r in rows})
    at = {(r["layer"], r["head"]): r for r in rows}
    figure = go.Figure(
        go.Heatmap(
            x=heads,
            y=layers,
            z=[[at[y, x]["to_first"] for x in heads] for y in layers],
            zmin=0,
            zmax=1,
            colorscale="Viridis",
            colorbar={"title": "share"},
            text=[[f"entropy {at[y, x]['entropy_relative']:.2f}" for x in heads] for y in layers],
            hovertemplate="layer %{y} head %{x}: %{z:.2f}<br>%{text}",
        )
    )
    figure.update_xaxes(title="head", dtick=1)
    figure.update_yaxes(title="layer", dtick=1, autorange="reversed")
    figure.update_layout(margin={"t": 10, "r": 10, "l": 50, "b": 50})
    half = [r for r in rows if r["to_first"] > 0.5]
    back, ahead = (max(rows, key=lambda r, k=k: r[k]) for k in ("to_previous", "to_next"))
    sharp, flat = (f(rows, key=lambda r: r["entropy_relative"]) for f in (min, max))
    mean = sum(r["to_first"] for r in rows) / len(rows)
    return Figure(
        finding=f"{len(half)} of {len(rows)} heads give more than half of their attention to the "
        "start token.",
        caption="Share of the attention that goes to `[CLS]`, averaged over the queries of the "
        "map's sentences. Point at a head for the entropy of its rows, 1 being equal weights. "
        "Layers and heads count from zero.",
        table=[
            {
                "layer": r["layer"],
                "head": r["head"],
                "to [CLS]": f"{r['to_first']:.2f}",
                "to [SEP]": f"{r['to_last']:.2f}",
                "to itself": f"{r['to_self']:.2f}",
                "to the token before": f"{r['to_previous']:.2f}",
                "to the token after": f"{r['to_next']:.2f}",
                "distance, tokens": f"{r['distance_tokens']:.1f}",
                "entropy, nats": f"{r['entropy_nats']:.2f}",
                "of log N": f"{r['entropy_relative']:.2f}",
            }
            for r in rows
        ],
        plot=figure,
        height=300,
        sentences={
            "first": f"On average over all heads {mean:.2f} of the attention goes to `[CLS]`.",
            "previous": f"{_at(back)} looks at the token before: it gets "
            f"{back['to_previous']:.2f} of the attention. {_at(ahead)} looks at the token after "
            f"({ahead['to_next']:.2f}).",
            "spread": f"The sharpest head is {_heads([(sharp['layer'], sharp['head'])])} (entropy "
            f"{sharp['entropy_relative']:.2f} of log N), the flattest "
            f"{_heads([(flat['layer'], flat['head'])])} ({flat['entropy_relative']:.2f}).",
        },
    )


def _at(row):
    return f"Layer {row['layer']} head {row['head']}"


def scaling(results):
    rows = results[0].rows
    widths = sorted({r["d"] for r in rows})

    def over_seeds(name, d, scaled):
        values = [r[name] for r in pick(rows, d=d, scaled=scaled)]
        return median(values), min(values), max(values)

    figure = make_subplots(1, 3, subplot_titles=list(PANELS.values()), horizontal_spacing=0.08)
    for column, quantity in enumerate(PANELS, start=1):
        lines = [(quantity, True, "solid"), (quantity, False, "solid")]
        if quantity == "gradient_norm":
            lines.append(("gradient_norm_median", False, "dot"))
        for name, scaled, dash in lines:
            points = [over_seeds(name, d, scaled) for d in widths]
            shown = colour("attention_weights" if scaled else "torch:eager")
            figure.add_scatter(
                x=widths,
                y=[p[0] for p in points],
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [p[2] - p[0] for p in points],
                    "arrayminus": [p[0] - p[1] for p in points],
                    "thickness": 1,
                },
                name=(WITH if scaled else WITHOUT) + (", median row" if dash == "dot" else ""),
                legendgroup=f"{scaled}{dash}",
                showlegend=column == 1 or dash == "dot",
                mode="lines+markers",
                line={"color": shown, "dash": dash, "width": 2},
                hovertemplate="d %{x}: %{y:.3g}",
                row=1,
                col=column,
            )
    figure.update_xaxes(type="log", title="d", tickvals=[4, 16, 64, 256, 1024])
    figure.update_yaxes(type="log", tickvals=[1, 2, 4, 8, 16, 32], row=1, col=1)
    figure.update_yaxes(range=[0, 1], row=1, col=2)
    figure.update_yaxes(rangemode="tozero", row=1, col=3)
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 40, "b": 90})
    at = {
        (name, d, scaled): over_seeds(name, d, scaled)[0]
        for name in (*PANELS, "gradient_norm_median", "largest_weight", "entropy_nats")
        for d in widths
        for scaled in (False, True)
    }
    peak = max(widths, key=lambda d: at["gradient_norm", d, False])
    below = [d for d in widths if at["gradient_norm", d, False] < at["gradient_norm", d, True]]
    typical = [
        d
        for d in widths
        if at["gradient_norm_median", d, False] < at["gradient_norm_median", d, True]
    ]
    last = widths[-1]
    left = at["gradient_norm_median", last, False] / at["gradient_norm_median", last, True]
    return Figure(
        finding=f"Without 1/√d the scores of {last} columns spread by "
        f"{at['logits_deviation', last, False]:.0f} and the softmax keeps "
        f"{_percent(at['entropy_relative', last, False])} of its entropy; with it, at "
        f"least {_percent(min(at['entropy_relative', d, True] for d in widths))} at every width.",
        caption=f"{rows[0]['keys']} queries and keys drawn from N(0, 1), in float64; median of "
        f"{len({r['seed'] for r in rows})} draws, bars from the lowest to the highest. Entropy "
        "relative to equal weights; the gradient is the matrix of ∂weight/∂score of a row, its norm "
        "the root of the sum of squares, averaged over rows (dotted: the row in the middle).",
        table=[
            {
                "d": d,
                "scale": WITH if scaled else WITHOUT,
                "deviation of the scores": at["logits_deviation", d, scaled],
                "entropy, nats": at["entropy_nats", d, scaled],
                "of log N": at["entropy_relative", d, scaled],
                "largest weight": at["largest_weight", d, scaled],
                "gradient, mean row": at["gradient_norm", d, scaled],
                "gradient, median row": at["gradient_norm_median", d, scaled],
            }
            for d in widths
            for scaled in (False, True)
        ],
        plot=figure,
        height=360,
        narrow=_stacked(list(PANELS.values())),
        sentences={
            "deviation": f"At d 64 the scores deviate by {at['logits_deviation', 64, False]:.2f} "
            f"without the scale (√64 is 8) and by {at['logits_deviation', 64, True]:.2f} with it.",
            "weight": f"At d 64 the largest of {rows[0]['keys']} weights is "
            f"{at['largest_weight', 64, False]:.2f} without the scale and "
            f"{at['largest_weight', 64, True]:.3f} with it.",
            "gradient": f"Without the scale the gradient does not simply vanish: its mean norm "
            f"grows to {at['gradient_norm', peak, False]:.2f} at d {peak} and only then falls. It "
            f"is below that of the scaled softmax ({at['gradient_norm', peak, True]:.2f}) "
            + (f"from d {min(below)}" if below else "at no width measured")
            + ", in the median row "
            + (f"from d {min(typical)}" if typical else "at no width measured")
            + f". At d {last} the median row has {at['gradient_norm_median', last, False]:.4f} "
            f"left, {_percent(left)} of the scaled one's.",
        },
    )


def _stacked(titles):
    """Layout on a phone: the panels of a row below each other."""
    n = len(titles)
    tops = [1 - i / n for i in range(n)]
    layout = {"height": 290 * n, "legend": {"y": -0.09}, "annotations": []}
    for i, (title, top) in enumerate(zip(titles, tops, strict=True), start=1):
        number = "" if i == 1 else str(i)
        layout[f"xaxis{number}"] = {"domain": [0, 1], "anchor": f"y{number}"}
        if i < n:
            layout[f"xaxis{number}"]["title"] = {"text": ""}  # the lowest axis names all
        layout[f"yaxis{number}"] = {
            "domain": [top - 1 / n + 0.09, top - 0.02],
            "anchor": f"x{number}",
            "showticklabels": True,
        }
        layout["annotations"].append(
            {"text": title, "x": 0.5, "y": top - 0.02, "xref": "paper", "yref": "paper",
             "showarrow": False, "yanchor": "bottom"}
        )  # fmt: skip
    return layout


def forward(results):
    rows = results[0].rows
    dtypes = ["float32", "float16"]
    names = list(dict.fromkeys(r["implementation"] for r in rows))
    figure = make_subplots(1, 2, subplot_titles=dtypes, shared_yaxes=True)
    for device, result in enumerate(results):
        for column, dtype in enumerate(dtypes, start=1):
            for implementation in names:
                chosen = pick(result.rows, implementation=implementation, dtype=dtype)
                figure.add_scatter(
                    x=[r["N"] for r in chosen],
                    y=[r["ms_p50"] for r in chosen],
                    name=name_of(implementation, result, results),
                    legendgroup=f"{implementation}{device}",
                    showlegend=column == 1,
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device], "width": 2},
                    text=[hover(r) for r in chosen],
                    hovertemplate="N %{x}: %{text}",
                    row=1,
                    col=column,
                )
    figure.update_xaxes(type="log", title="N, queries and keys", tickvals=[16, 64, 256, 1024, 4096])
    figure.update_yaxes(
        type="log",
        tickvals=[0.01, 0.1, 1, 10, 100],
        ticktext=["10 µs", "100 µs", "1 ms", "10 ms", "100 ms"],
    )
    figure.update_layout(legend=LEGEND, margin={"t": 40, "r": 10, "l": 60, "b": 100})

    def at(implementation, N, dtype="float32"):
        return only(rows, implementation=implementation, N=N, dtype=dtype)

    ours, causal, eager = (at(n, 1024)["ms_p50"] for n in names)
    large = at("torch:eager", 4096)
    heads, D = rows[0]["heads"], rows[0]["D"]
    half = {d: at(names[0], 1024, d)["ms_p50"] / at(names[2], 1024, d)["ms_p50"] for d in dtypes}
    small = at(names[0], 16)["ms_p50"] / at(names[2], 16)["ms_p50"]
    return Figure(
        finding=f"At 1024 queries the kernel takes {ratio(half['float32'])} the time of eager "
        f"PyTorch in float32 and {ratio(half['float16'])} in float16.",
        caption=f"{heads} heads, D {D}; the weights only, no values. Both axes logarithmic: down is "
        "faster. Medians; L2 flushed before every call; the three take turns.",
        table=[
            {
                "dtype": dtype,
                "N": N,
                **{name_of(n, results[0], results[:1]): time(at(n, N, dtype)["ms_p50"])
                   for n in names},
                "the weights": f"{at(names[0], N, dtype)['bytes_of_weights'] / 1e6:.4g} MB",
                "smaller than L2": "yes" if at(names[0], N, dtype)["fits_l2"] else "no",
            }
            for dtype in dtypes
            for N in sorted({r["N"] for r in rows})
        ],
        plot=figure,
        height=420,
        narrow=_stacked(dtypes),
        sentences={
            "small": f"At 16 queries the kernel takes {ratio(small)} the time of eager PyTorch, "
            "which runs three operations where this is one.",
            "causal": f"With the causal mask the loop stops at the query's own place: at 1024 "
            f"queries {time(causal)} in the place of {time(ours)}, {_percent(causal / ours)} of it.",
            "eager": f"Eager PyTorch takes {time(eager)} there.",
            "square": f"At {large['N']} queries the weights of {heads} heads are "
            f"{large['bytes_of_weights'] / 1e9:.2f} GB in float32, "
            f"{large['bytes_of_weights'] / (large['bytes_compulsory'] - large['bytes_of_weights']):.0f} "
            "times the queries and keys that they come from.",
        },
    )  # fmt: skip


def error(results):
    rows = results[0].rows
    figure = go.Figure()
    for device, result in enumerate(results):
        for dtype, marker in (
            ("float16", "circle"),
            ("bfloat16", "square"),
            ("float32", "diamond"),
        ):
            for key, implementation in (
                ("error_largest", "attention_weights"), ("pytorch_error_largest", "torch:eager"),
            ):  # fmt: skip
                chosen = pick(result.rows, dtype=dtype)
                figure.add_scatter(
                    x=[r["N"] for r in chosen],
                    y=[r[key] for r in chosen],
                    name=f"{name_of(implementation, result, results)}, {dtype}",
                    mode="lines+markers",
                    line={"color": colour(implementation), "dash": DASHES[device]},
                    marker={"symbol": marker, "size": 8},
                    hovertemplate="N %{x}: %{y:.2e}",
                )
    figure.update_xaxes(type="log", title="N, queries and keys", tickvals=[16, 64, 256, 1024, 4096])
    figure.update_yaxes(type="log", title="largest difference from float64", exponentformat="power")
    figure.update_layout(legend=LEGEND, margin={"t": 10, "r": 10, "l": 70, "b": 130})
    closer = sum(r["error_largest"] <= r["pytorch_error_largest"] for r in rows)
    return Figure(
        finding=f"The kernel is as close to float64 as eager PyTorch or closer in {closer} of "
        f"{len(rows)} cases.",
        caption=f"Largest difference of a weight from the float64 softmax of the same rounded "
        f"inputs, D {rows[0]['D']}. The kernel keeps float32 inside and rounds once; eager PyTorch "
        "rounds the scores to the input's dtype.",
        table=[
            {
                "dtype": r["dtype"],
                "N": r["N"],
                "largest": f"{r['error_largest']:.1e}",
                "mean": f"{r['error_mean']:.1e}",
                "eager PyTorch, largest": f"{r['pytorch_error_largest']:.1e}",
                "allowed": f"{r['allowed']:.1e}",
            }
            for r in rows
        ],
        plot=figure,
        height=440,
    )
