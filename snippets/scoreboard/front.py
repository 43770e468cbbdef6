"""What the front page shows of the measurements, as HTML that needs no script.

Bars are lengths in percent, in the color that each implementation has everywhere.
"""

import html
import math

from snippets._lab.draw import units
from snippets._lab.draw.identity import BEST, identity, named
from snippets._lab.draw.rows import TIME, pick, rate
from snippets._lab.draw.tables import case
from snippets._lab.draw.units import decimals, flops, ratio
from snippets._lab.results.store import DataError

FROM_MS = 0.01  # where the logarithmic bars begin
BESIDE = ("hopper_attention", *BEST, "torch:cudnn", "torch:flash")
SHOWN = "acc not rescaled"  # the wrong kernel on the front page: one line of the running softmax


def result_of(results, post, name, device=""):
    """One result of a GPU, of this device if one is named. Raises DataError where there is none."""
    found = [r for r in results if (r.post, r.result) == (post, name) and r.place == "gpu"]
    found = [r for r in found if r.folder == device] or ([] if device else found)
    if not found:
        raise DataError(f"{post}/{name} is not measured on {device or 'a GPU'}")
    return found[0]


def numbers(told):
    """(number, what it counts) side by side."""
    return (
        '<ul class="am-numbers">'
        + "".join(
            f"<li><strong>{html.escape(value)}</strong> {html.escape(what)}</li>"
            for value, what in told
        )
        + "</ul>"
    )


def rungs(rows):
    """The kernels of the road with their times, for the menu that the site makes of it.

    Each entry names its post, its time as text, and how long its bar is in percent. One that
    does not run on this work says why.
    """
    timed = pick(rows)
    longest = max(map(TIME, timed))
    entries = []
    for row in rows:
        if row["label"] is None:
            continue
        name = row["implementation"]
        said = row.get("error") or units.milliseconds(TIME(row))
        length = 0.0 if row.get("error") else _log_share(TIME(row), longest)
        entries.append(
            f'<li data-post="{name}" data-length="{length:.1f}" data-hue="{identity(name).color}">'
            f"{html.escape(named(name))}: {html.escape(said)}</li>"
        )
    return f'<ol class="am-road">{"".join(entries)}</ol>'


def _log_share(ms, longest):
    return 100 * math.log(ms / FROM_MS) / math.log(longest / FROM_MS)


def bars(rows, N):
    """Rates at one length as bars from zero: a group for each case, in the same order in each."""
    there = pick(rows, dtype="bfloat16", N=N)
    most = max(map(rate, there))
    groups = []
    for D, causal in sorted({(r["D"], r["causal"]) for r in there}):
        lines = "".join(
            _bar(named(name), flops(rate(row)), rate(row) / most, identity(name).color)
            for name in BESIDE
            for row in pick(there, D=D, causal=causal, implementation=name)
        )
        groups.append(f"<div><p>{html.escape(case({'D': D, 'causal': causal}))}</p>{lines}</div>")
    return f'<div class="am-bars">{"".join(groups)}</div>'


def _bar(name, said, share, color):
    return (
        f'<div class="am-bar"><span>{html.escape(name)}</span>'
        f'<i style="--am-length:{100 * share:.1f}%;--am-hue:{color}"></i>'
        f"<b>{html.escape(said)}</b></div>"
    )


def proof(row, error, allowed):
    """One wrong kernel in three steps: the changed line, the red test, the named mistake."""
    old, new = (html.escape(row[part].strip()) for part in ("old", "new"))
    test = html.escape(row["killed_by"])
    return (
        '<ol class="am-proof">'
        "<li><p>1. Spoil one line</p>"
        f'<pre aria-label="The changed line"><code><del>− {old}</del>'
        f"<ins>+ {new}</ins></code></pre></li>"
        "<li><p>2. A test turns red</p>"
        f'<pre aria-label="What the test says"><code><del>FAILED {test}</del>'
        f"difference from float64 {error:.2g}\nallowed {allowed:.2g}</code></pre>"
        f'<div class="am-over"><i style="--am-length:{_least(100 * allowed / error):.2f}%"></i>'
        f"<b>{html.escape(ratio(error / allowed))} what is allowed</b></div></li>"
        "<li><p>3. The output names the mistake</p>"
        f"<p><strong>{html.escape(row['derived'] or row['mutant'])}</strong></p>"
        f"<p>{html.escape(row['diagnosis'])}</p></li></ol>"
    )


def _least(percent):
    return max(1.0, percent)  # so that it is seen


def of_cudnn(against):
    """A range of quotients: "1.00–1.16×"."""
    low, high = (decimals(f(against.values())) for f in (min, max))
    return f"{low}–{high}×"
