"""What the front page shows of a wrong kernel, as HTML that needs no script."""

import html

from snippets._lab.draw.units import ratio

SHOWN = "acc not rescaled"  # the wrong kernel on the front page: one line of the running softmax


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
