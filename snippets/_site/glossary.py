"""The first use of a glossary word on a page leads to its definition, which stands nowhere else."""

import functools
import html
import re
from dataclasses import dataclass

PAGE = "reference/glossary.md"
# Where no word is marked: links, code, titles, formulas, tables, and what a widget draws.
UNMARKED = {
    "a",
    "button",
    "code",
    "h1",
    "h2",
    "h3",
    "h4",
    "label",
    "math",
    "pre",
    "summary",
    "svg",
    "table",
}
UNMARKED_TEXT = re.compile(r'class="[^"]*\b(?:am-lead|am-finding|admonition-title)\b')
PREDICTION = re.compile(r'^<div class="am-predict"')
TEXT = {"p", "li", "dd"}
TAG = re.compile(r"(<!--.*?-->|<[^>]+>)", re.DOTALL)
NAME = re.compile(r"</?([a-z][a-z0-9]*)")
ENTRY = re.compile(
    r"^(?P<terms>\w[^\n]*(?:\n\w[^\n]*)*?) \{ #(?P<id>[\w-]+)(?P<plain> \.am-plain)? \}\n"
    r":   (?P<text>[^\n]+(?:\n    [^\n]+)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """A word of the glossary that pages lead to."""

    id: str
    terms: tuple[str, ...]  # its spellings
    text: str  # plain, without links
    pages: tuple[str, ...]  # pages that explain it themselves, by file name


@functools.cache
def definitions(glossary: str) -> tuple[Entry, ...]:
    """The entries of the glossary's Markdown that are marked on pages."""
    found = []
    for match in ENTRY.finditer(glossary):
        if match["plain"]:
            continue
        text = " ".join(match["text"].split())
        pages = tuple(re.findall(r"\]\(\.\./posts/(\w+)\.md", text))
        text = re.sub(r"\[[^\]]*\]\([^)]*\)\.?|[`*$]", "", text).strip()
        terms = tuple(re.sub(r" \{.*", "", line) for line in match["terms"].splitlines())
        found.append(Entry(match["id"], terms, text, pages))
    return tuple(found)


@functools.cache
def _spellings(entries: tuple[Entry, ...]) -> tuple[re.Pattern[str], dict[str, Entry]]:
    """One pattern for every spelling, and whose it is: plural, or at the start of a sentence."""
    owner = {}
    for entry in entries:
        for term in entry.terms:
            plural = term + ("es" if term.endswith("ch") else "s")
            for spelling in (term, plural):
                owner[spelling] = entry
                owner[spelling[0].upper() + spelling[1:]] = entry
    longest = sorted(map(re.escape, owner), key=len, reverse=True)
    return re.compile(rf"(?<![\w-])(?:{'|'.join(longest)})(?![\w-])"), owner


def mark(content: str, entries: tuple[Entry, ...], url: str, page: str = "") -> str:
    """Lead from the first use of each word in running text to its entry at `url`."""
    if not entries:
        return content
    pattern, owner = _spellings(entries)
    seen = {entry.id for entry in entries if page in entry.pages}
    depth = dict.fromkeys(("text", "unmarked"), 0)
    quiet = ""  # the tag of a paragraph that is a title
    answers = ""  # of a prediction, which become buttons: "expected", or "open"

    def link(match: re.Match[str]) -> str:
        entry = owner[match[0]]
        if entry.id in seen:
            return match[0]
        seen.add(entry.id)
        title = html.escape(entry.text, quote=True)
        return f'<a class="am-term" href="{url}#{entry.id}" title="{title}">{match[0]}</a>'

    parts = TAG.split(content)
    for number, part in enumerate(parts):
        if number % 2:  # a tag, or a comment
            if not (tag := NAME.match(part)):
                continue
            name, step = tag[1], -1 if part.startswith("</") else 1
            if PREDICTION.search(part):
                answers = "expected"
            elif name == "ul" and answers == ("expected" if step > 0 else "open"):
                depth["unmarked"] += step
                answers = "open" if step > 0 else ""
            if name in UNMARKED:
                depth["unmarked"] += step
            elif name in TEXT:
                depth["text"] += step
                quiet = part if step > 0 and UNMARKED_TEXT.search(part) else ""
        elif depth["text"] > 0 and not depth["unmarked"] and not quiet:
            parts[number] = pattern.sub(link, part)
    return "".join(parts)
