"""How a page can be cited: a line of text and an entry for BibTeX, dated as the page is."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class Citation:
    """The two forms of one citation."""

    plain: str
    bibtex: str


def citation(site: str, title: str, slug: str, day: date, address: str = "") -> Citation:
    """How to cite the page `slug`; with its address where that is known."""
    end = "" if title[-1] in ".?!" else "."
    plain = f"“{title}{end}” {site}, {day.day} {day:%B %Y}."
    fields = {
        "title": f"{{{_escaped(title)}}}",
        "author": f"{{{_escaped(site)}}}",  # a body, not a person: braces keep it whole
        "year": str(day.year),
        "month": f"{day:%b}".lower(),
    }
    if address:
        plain += f" {address}"
        fields["url"] = address
    lines = [
        f"  {name} = {value},"
        if name == "month"  # a name that BibTeX knows
        else f"  {name} = {{{value}}},"
        for name, value in fields.items()
    ]
    key = f"{_key(site)}:{slug}"
    return Citation(plain, "\n".join([f"@misc{{{key},", *lines, "}"]))


def _key(site: str) -> str:
    return "".join(c.lower() if c.isalnum() else "_" for c in site).replace("__", "_")


def _escaped(text: str) -> str:
    for mark in "&%#_":
        text = text.replace(mark, f"\\{mark}")
    return text
