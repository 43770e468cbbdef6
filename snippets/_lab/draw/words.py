"""Words that sentences of several rooms share, and the sentences of a room's words.md.

What is in words.md reads as prose and holds fields; what decides between sentences is Python.
"""

import html
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snippets._lab.draw.rows import Gain
from snippets._lab.draw.units import MINUS, change, count, decimals, ratio
from snippets._lab.results.store import DataError

# Markdown's own characters as HTML entities: { } would give a table's cell attributes, [ ] a link.
MARKDOWN = {ord(c): f"&#{ord(c)};" for c in "|*_[]{}`\\$~\n"}
CODE = re.compile(r"`([^`]+)`")
FIELD = re.compile(r"\{(\w+)\}")
HEAD = re.compile(r"^## (\S+)$", re.MULTILINE)


class Prose(str):
    """A sentence of our own, in which `…` is code; in other text a backtick is a backtick."""

    __slots__ = ()


def cell(value: Any) -> str:
    """A value in a table or a sentence, with markup escaped."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}".replace("-", MINUS)
    if isinstance(value, int) and not isinstance(value, bool):
        return count(value)
    parts = CODE.split(value) if isinstance(value, Prose) else [str(value)]  # text, code, text …
    shown = [html.escape(part).translate(MARKDOWN) for part in parts]
    shown[1::2] = [f"<code>{code}</code>" for code in shown[1::2]]
    return "".join(shown)


def listed(words: Iterable[Any]) -> str:
    """Words as a sentence lists them: "a", "a and b", "a, b and c"; "a; b, or c; and d"."""
    words = [word if isinstance(word, str) else cell(word) for word in words]
    if len(words) > 2 and any(", " in word for word in words):
        return "; ".join([*words[:-1], f"and {words[-1]}"])
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def many(number: int, thing: str, things: str = "") -> str:
    """A number of things: "1 head", "16 heads", "16,384 keys"."""
    return f"{count(number)} {thing if number == 1 else things or thing + 's'}"


def how_often(number: int) -> str:
    """ "never", "once", "twice", "3 times"."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{count(number)} times")


def yes(value: Any) -> str:
    """ "yes" or "no"."""
    return "yes" if value else "no"


def case(row: Any, *axes: str) -> str:
    """A case in words: "D 64, causal, N 16,384". Without axes, all of a case of a Comparison.

    What is true is named, what is false left out; a word stands for itself.
    """
    of = row if isinstance(row, Mapping) else row._asdict()
    told = []
    for axis in axes or of:
        value = of[axis]
        if isinstance(value, bool):
            told += [axis] * value
        else:
            told.append(value if isinstance(value, str) else f"{axis} {cell(value)}")
    return ", ".join(told)


def between(values: Iterable[float], text: Callable[[float], str] = decimals) -> str:
    """The range of some numbers: "0.77 to 0.92", "38 to 44 %"; one number where they agree."""
    found = list(values)
    low, high = text(min(found)), text(max(found))
    if low == high:
        return low
    number, gap, unit = low.rpartition(" ")
    return f"{number if gap and high.endswith(gap + unit) else low} to {high}"


def faster(value: float) -> str:
    """A quotient of times in words: "3.1× faster", "2.5× slower"."""
    return f"{ratio(value)} faster" if value >= 1 else f"{ratio(1 / value)} slower"


def span(values: Iterable[float]) -> str:
    """The range of some quotients of times in words: "1.2× to 3.4× faster"."""
    found = list(values)
    low, high = min(found), max(found)
    if ratio(low) == ratio(high):
        return faster(low)
    if low >= 1:
        return f"{ratio(low)} to {ratio(high)} faster"
    if high < 1:
        return f"{ratio(1 / high)} to {ratio(1 / low)} slower"
    return f"from {faster(low)} to {faster(high)}"


def changes(gains: Iterable[float]) -> str:
    """The range of some quotients as changes: "+2 % to +12 %"."""
    found = list(gains)
    low, high = change(min(found)), change(max(found))
    return low if low == high else f"{low} to {high}"


def standing(gains: Iterable[Gain]) -> str:
    """How often ahead, level and behind: "ahead in 9 of 12 cases, level in 2 and behind in 1"."""
    found = list(gains)
    ahead, behind = sum(x.ahead for x in found), sum(x.behind for x in found)
    counts = {"ahead": ahead, "level": len(found) - ahead - behind, "behind": behind}
    told = [f"{word} in {number}" for word, number in counts.items() if number]
    told[0] += f" of {many(len(found), 'case')}"
    return listed(told)


def verdict(gains: Iterable[Gain]) -> str:
    """Whether a step pays, from its gains; a tie is none."""
    found = list(gains)
    total = len(found)
    paid, lost = sum(x.ahead for x in found), sum(x.behind for x in found)
    if paid == total:
        return "it pays everywhere" if total > 2 else "it pays"
    if lost == total:
        return "it does not pay: it costs time everywhere"
    if not paid and not lost:
        return "it changes nothing beyond the spread"
    if not lost:
        rest = "other" if total - paid == 1 else "others"
        return f"it pays in {paid} of {total} cases and does no harm in the {rest}"
    if not paid:
        return f"it does not pay: it costs time in {lost} of {total} cases and gains in none"
    return f"it pays in {paid} of {total} cases and costs time in {lost}"


def useless(gains: Mapping[str, Iterable[Gain]]) -> str:
    """Which of some steps never pay, and which pay here and cost there."""
    of = {step: list(found) for step, found in gains.items()}
    paying = {step for step, found in of.items() if any(x.ahead for x in found)}
    never = [step for step in of if step not in paying]
    mixed = [step for step in of if step in paying and any(x.behind for x in of[step])]
    told = f"Of no use in any case: {listed(never)}." if never else "Every step pays somewhere."
    return told + (f" A gain in one case and a loss in another: {listed(mixed)}." if mixed else "")


def in_cells(gains: Mapping[str, Sequence[Gain]]) -> str:
    """Gains as small bars, a cell for each case: Markdown that figures.css draws.

    A cost is hatched, what lies within the spread gray.
    """
    return " ".join(
        f"_{' '.join(map(_bar, found))} *{name}*_{{ .am-gain }}" for name, found in gains.items()
    )


def _bar(gain: Gain) -> str:
    kind = "ahead" if gain.ahead else "behind" if gain.behind else "tie"
    return f'**{change(gain)}**{{ .am-{kind} style="--gain: {round(100 * abs(gain - 1))}" }}'


class Words:
    """The sentences of a room: `words = Words(__file__)` reads words.md beside its figures.py.

    A section is `## name` and the text below it, with {fields}. `words("name", field="…")` is the
    text with its fields filled in; a section or a field that is missing, or unused, is an error.
    """

    def __init__(self, beside: str) -> None:
        self.path = Path(beside).with_name("words.md")
        self.sections = sections(self.path.read_text("utf-8"))

    def __call__(self, section: str, **fields: Any) -> str:
        """The text of a section. Text is taken as it is; numbers are written as in a table."""
        if section not in self.sections:
            raise DataError(f"{self.path} has no section {section!r}")
        text = self.sections[section]
        wanted = set(FIELD.findall(text))
        if wanted != fields.keys():
            missing, unused = sorted(wanted - fields.keys()), sorted(fields.keys() - wanted)
            raise DataError(
                f"section {section!r} of {self.path}: no value for {missing}, no place for {unused}"
            )
        shown = {name: v if isinstance(v, str) else cell(v) for name, v in fields.items()}
        return FIELD.sub(lambda found: shown[found[1]], text)


def sections(text: str) -> dict[str, str]:
    """Section → text of a words.md. Raises DataError for one that occurs twice or is empty."""
    parts: Sequence[str] = HEAD.split(text)
    found: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in found or not body.strip():
            raise DataError(f"words.md: section {name!r} occurs twice or is empty")
        paragraphs = re.split(r"\n\s*\n", body.strip())
        found[name] = "\n\n".join(" ".join(p.split()) for p in paragraphs)
    return found
