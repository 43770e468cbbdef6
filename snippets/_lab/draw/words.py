"""Words that sentences of several rooms share, and the sentences of a room's words.md.

What is in words.md reads as prose and holds fields; what decides between sentences is Python.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from snippets._lab.draw.rows import Gain
from snippets._lab.draw.tables import CODE, Prose, case, cell, in_cells, listed, yes
from snippets._lab.draw.units import between, change, count, many, ratio
from snippets._lab.results.store import DataError

__all__ = ["CODE", "Prose", "between", "case", "cell", "in_cells", "listed", "many", "yes"]
FIELD = re.compile(r"\{(\w+)\}")
HEAD = re.compile(r"^## (\S+)$", re.MULTILINE)


def how_often(number: int) -> str:
    """ "never", "once", "twice", "3 times"."""
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{count(number)} times")


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


WORDS = ("ahead", "behind", "level", "undecided")


def standing(gains: Iterable[Gain], lead: str = ": ", end: str = "", **says: str) -> str:
    """How often each verdict holds: ": ahead in 9 of 12 cases, behind in 1 and level in 2".

    Nothing where there is no verdict. `says` has other words for some.
    """
    found = [gain.word for gain in gains]
    if not all(found):
        return ""
    if len(found) == 1:
        return f"{lead}{says.get(found[0], found[0])}{end}"
    told = [f"{says.get(word, word)} in {found.count(word)}" for word in WORDS if word in found]
    told[0] += f" of {count(len(found))} cases"
    return f"{lead}{listed(told)}{end}"


def pays(gains: Iterable[Gain], lead: str = ": ") -> str:
    """Whether a step pays, from its gains: ": it pays in 9 of 12 cases and costs time in 3"."""
    is_ = {"level": "is level", "undecided": "is undecided"}
    return standing(gains, f"{lead}it ", ahead="pays", behind="costs time", **is_)


def idle(gains: Mapping[str, Iterable[Gain]]) -> list[str]:
    """The steps that are level or behind in every case."""
    return [step for step, found in gains.items() if {x.word for x in found} <= {"level", "behind"}]


def useless(gains: Mapping[str, Iterable[Gain]]) -> str:
    """Which of some steps never pay, and which pay here and cost there."""
    of = {step: {x.word for x in found} for step, found in gains.items()}
    if any("" in found for found in of.values()):
        return "The steps were timed in one run; a verdict on them takes three."
    open_ = [step for step, found in of.items() if "ahead" not in found and "undecided" in found]
    mixed = [step for step, found in of.items() if {"ahead", "behind"} <= found]
    told = {
        "Of no use in any case": idle(gains),
        "A gain in no case, and undecided in some": open_,
        "A gain in one case and a loss in another": mixed,
    }
    said = " ".join(f"{what}: {listed(steps)}." for what, steps in told.items() if steps)
    return said if idle(gains) or open_ else f"Every step pays somewhere. {said}".strip()


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
