"""What the front page shows of a wrong kernel, as HTML that needs no script."""

import html

from .road import changed

SHOWN = "acc not rescaled"  # the wrong kernel on the front page: one line of the running softmax
AROUND = "+alpha =\n+l_i = l_i\n+acc += tl.sum(weights"  # how the lines beside it begin


def proof(post, row, error, allowed):
    """One wrong kernel in three steps: the changed line, the test that fails, the named mistake."""
    old, new = (html.escape(row[part].strip()) for part in ("old", "new"))
    put = f"<ins>+ {new}</ins>" if new else ""
    *before, after = (f"  {html.escape(code)}\n" for _, code in changed(post, AROUND, ""))
    test = html.escape(row["killed_by"])
    return (
        '<ol class="am-proof">'
        "<li><p>1. Spoil one line</p>"
        f'<pre aria-label="The changed line"><code>{"".join(before)}<del>− {old}\n</del>'
        f"{put}{after}</code></pre></li>"
        "<li><p>2. A test fails</p>"
        f'<pre aria-label="What the test says"><code><del>FAILED {test}\n</del>'
        f"difference from float64 {error:.2g}\nallowed {allowed:.2g}</code></pre></li>"
        "<li><p>3. The output names the mistake</p>"
        f'<pre aria-label="The mistake"><code><b>{html.escape(row["derived"] or row["mutant"])}</b>'
        f"\n{html.escape(row['diagnosis'])}</code></pre></li></ol>"
    )
