"""Wrong kernels as a picture: what was changed, what goes wrong, how far off, and who noticed."""

import difflib
import html
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from snippets._lab.draw import units
from snippets._lab.draw.tables import CODE

WITH_BOUND = re.compile(r"difference (?P<error>\S+) .*?allowed (?P<allowed>[\d.e+-]+)")
AS_MULTIPLE = re.compile(r"difference (?P<error>\S+) from float64, (?P<times>\S+) times")
TOKEN = re.compile(r"\w+|\s+|.")
LITTLE = 0.3  # of a line in common: with less the two are easier to read one below the other
SHORTEST = 2  # per cent of a bar that is still seen


@dataclass(frozen=True)
class Kill:
    """One wrong kernel and its end. `old` and `new` are whole lines of code."""

    mistake: str
    diagnosis: str
    message: str  # of the assertion, or of the simulation
    old: str = ""
    new: str = ""
    test: str = ""


@dataclass(frozen=True)
class Distance:
    """How far a result is off: a multiple of what is allowed (None: it has none), and in words."""

    times: float | None
    short: str
    words: str = ""


# What Markdown would take for emphasis or code where the table stands in an indented box.
MARKS = {ord(mark): f"&#{ord(mark)};" for mark in "*_`[]"}


def picture(kills: Sequence[Kill], measure: str) -> str:
    """HTML of a table with a row for each; `measure` is the head of its last column."""
    far = [distance(kill.message) for kill in kills]
    longest = max((d.times for d in far if d.times and math.isfinite(d.times)), default=10.0)
    rows = (_row(kill, d, longest) for kill, d in zip(kills, far, strict=True))
    heads = "".join(
        f'<th scope="col">{text}</th>' for text in ("mistake", "what goes wrong", measure)
    )
    return (
        f'<div class="am-kills"><table class="am-kills-table"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def distance(message: str) -> Distance:
    """How far off the numbers were, from what the assertion says; else its own words."""
    if found := AS_MULTIPLE.search(message):
        error, times = float(found["error"]), float(found["times"])
        return _multiple(times, f"{units.significant(error)} off" if math.isfinite(error) else "")
    found = WITH_BOUND.search(message)
    if found is None or not float(found["allowed"]):
        return Distance(None, message)
    error, allowed = float(found["error"]), float(found["allowed"])
    off = f"{units.significant(error)} off, " if math.isfinite(error) else ""
    return _multiple(error / allowed, f"{off}{units.significant(allowed)} allowed")


def _multiple(times: float, words: str) -> Distance:
    if math.isnan(times):
        return Distance(times, "NaN", words)
    if math.isinf(times):
        return Distance(times, "∞", words)
    return Distance(times, units.ratio(times) if times < 1e5 else f"{units.error(times)}×", words)


def _row(kill: Kill, far: Distance, longest: float) -> str:
    lines = change(kill.old, kill.new).replace("\n", "<br>").translate(MARKS)
    code = f"<code>{lines}</code>" if lines else ""
    said = CODE.sub(r"<code>\1</code>", html.escape(kill.diagnosis, quote=False))
    return (
        f'<tr><th scope="row">{html.escape(kill.mistake)}</th><td>{said}{code}</td>'
        f"<td>{_bar(far, longest)}{_test(kill.test)}</td></tr>"
    )


def _bar(far: Distance, longest: float) -> str:
    """A bar of the multiple, on a logarithmic scale that all rows share."""
    short = html.escape(far.short, quote=False)
    if far.times is None:
        return f"<p>{short}</p>"
    aside = f" <small>{html.escape(far.words)}</small>" if far.words else ""
    if not math.isfinite(far.times):
        return f'<i class="am-off-any"></i><p><b>{short}</b>{aside}</p>'
    part = math.log(max(far.times, 1)) / math.log(max(longest, 10))
    return f'<i style="--off:{max(100 * part, SHORTEST):.0f}%"></i><p><b>{short}</b>{aside}</p>'


def _test(name: str) -> str:
    """The name of a test, which may break between its words and nowhere else."""
    if not name:
        return ""
    broken = html.escape(name).replace("_", "_<wbr>").replace("-", "-<wbr>")
    return f'<code class="am-test">{broken}</code>'


def change(old: str, new: str) -> str:
    """What differs between some lines of code, as HTML: <del> and <ins>, line by line."""
    before, after = _bare(old), _bare(new)
    shown: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            continue
        inline = list(map(_inline, before[a:b], after[c:d])) if b - a == d - c else [""]
        if all(inline):
            shown += inline
        else:
            shown += [f"<del>{html.escape(line)}</del>" for line in before[a:b]]
            shown += [f"<ins>{html.escape(line)}</ins>" for line in after[c:d]]
    return "\n".join(shown)


def _bare(code: str) -> list[str]:
    """Lines without the indentation that all have, and without comments at their ends."""
    lines = textwrap.dedent(code).splitlines()
    return [line.partition("  # ")[0].rstrip() for line in lines if line.strip()]


def _inline(before: str, after: str) -> str:
    """One line with what went and what came in place; "" where too little stays."""
    a, b = TOKEN.findall(before), TOKEN.findall(after)
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    if sum(map(len, [*a[:head], *a[len(a) - tail :]])) < LITTLE * len(before):
        return ""
    gone, come = "".join(a[head : len(a) - tail]), "".join(b[head : len(b) - tail])
    marked = f"<del>{html.escape(gone)}</del>" * bool(gone)
    marked += f"<ins>{html.escape(come)}</ins>" * bool(come)
    return html.escape("".join(a[:head])) + marked + html.escape("".join(a[len(a) - tail :]))


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """How many tokens two lines begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
