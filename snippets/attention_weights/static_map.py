"""The first view of the attention map as HTML, which is there before any script and without one.

It has the frame that attention_map.js builds, of the same classes, so that nothing moves when the
script takes its place; light_map.js answers until then.
"""

import html
import json
import math
from collections import Counter

VISIBLE, LISTED = 0.05, 0.005  # as in light_map.js
LEVELS = 20  # of the cells' colors, even steps of the square root: a path for each


def light_map(tokens, weights, layer, head, chosen):
    """HTML in one line: the sentence, what the chosen token attends to, and the head's heatmap."""
    weights = [[round(w, 4) or 0 for w in row] for row in weights]
    first = {"tokens": tokens, "weights": weights, "layer": layer, "head": head}
    data = html.escape(json.dumps(first, separators=(",", ":"), ensure_ascii=False), quote=True)
    line = zip(tokens, weights[chosen], strict=True)
    buttons = "".join(_button(*pair, j == chosen) for j, pair in enumerate(line))
    labels = "".join(f"<span>{html.escape(token)}</span>" for token in tokens)
    return (
        f'<div class="am-map-light" data-first="{data}"><div class="am-map-stage">'
        '<div class="am-map-text"><p class="am-map-tabs"><span>–</span></p>'
        '<div class="am-map-tokens" role="group" aria-label="Tokens of the sentence">'
        f'{buttons}</div><p class="am-map-summary" aria-live="polite">'
        f"{_summary(tokens, weights[chosen], chosen)}</p></div>"
        f'<div class="am-map-heat" role="img" aria-label="Heatmap of layer {layer}, head {head}: a '
        'row for each token, a column for each token it attends to" '
        f'style="--am-map-tokens: {len(tokens)}"><div class="am-map-columns">{labels}</div>'
        f'<div class="am-map-rows">{labels}</div><div class="am-map-cells">{_cells(weights)}</div>'
        "</div></div></div>"
    )


def _button(token, weight, pressed):
    css = ["am-map-special"] * (token.startswith("[") and token.endswith("]"))
    css += ["am-map-joined"] * token.startswith("##")
    css += ["am-map-slight"] * (weight < VISIBLE)
    named = f' class="{" ".join(css)}"' if css else ""
    return (
        f'<button type="button"{named} aria-pressed="{str(pressed).lower()}" '
        f'style="--weight: {weight:g}"><span>{html.escape(token.removeprefix("##"))}</span> '
        f"<small>{weight:.2f}</small></button>"
    )


def _summary(tokens, line, chosen):
    names = [html.escape(name) for name in _names(tokens)]
    order = sorted(range(len(line)), key=lambda j: -line[j])
    most = [j for place, j in enumerate(order[:3]) if not place or line[j] >= LISTED]
    top = ", ".join(f"{names[j]} {line[j]:.2f}" for j in most)
    rest = f"{sum(line[j] for j in order[len(most) :]):.2f}".replace("0.00", "less than 0.01")
    return f"“{names[chosen]}” attends to {top}; the other {len(order) - len(most)} share {rest}."


def _names(tokens):
    """Tokens with a number where one occurs again: the₁, the₂."""
    counts, seen, names = Counter(tokens), Counter(), []
    for token in tokens:
        seen[token] += 1
        digits = "".join("₀₁₂₃₄₅₆₇₈₉"[int(d)] for d in str(seen[token]))
        names.append(token + digits if counts[token] > 1 else token)
    return names


def _cells(weights):
    """The cells as SVG: one path for all of a level."""
    levels = {}
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            levels.setdefault(round(math.sqrt(weight) * LEVELS), []).append(f"M{j} {i}h1v1h-1z")
    paths = "".join(
        f'<path style="--weight: {(level / LEVELS) ** 2:.3g}" d="{"".join(cells)}"/>'
        for level, cells in sorted(levels.items())
    )
    size = len(weights)
    return (
        f'<svg viewBox="0 0 {size} {size}" preserveAspectRatio="none" shape-rendering="crispEdges">'
        f"{paths}</svg>"
    )
