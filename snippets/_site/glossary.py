"""The first use of a glossary word on a page leads to its definition, which stands nowhere else."""

import functools
import html
import re
from dataclasses import dataclass

PAGE = "reference/glossary.md"
NOT_COVERED = "## Not covered here"
# Where no word is marked: links, code, titles, formulas, tables, what a widget draws, and answers
# of a prediction, which become buttons. Of other elements the tags.
LEFT_ALONE = re.compile(
    r"<(?P<whole>a|button|code|h[1-6]|label|math|pre|summary|svg|table)\b.*?</(?P=whole)>|<!--.*?-->"
    r'|<p\b[^>]*class="[^"]*\b(?:am-lead|am-finding|admonition-title)\b.*?</p>'
    r'|<div class="am-predict".*?</ul>|<(?P<tag>/?[a-z][a-z0-9]*)[^>]*>',
    re.DOTALL,
)
TEXT = {"p", "li", "dd"}
INLINE = {"span", "em", "strong", "b", "i", "small", "sub", "sup", "br", "wbr", "abbr", "kbd"}
ENTRY = re.compile(
    r"^(?P<terms>\w[^\n]*(?:\n\w[^\n]*)*?) \{ #(?P<id>[\w-]+)(?P<plain> \.am-plain)? \}\n"
    r":   (?P<text>[^\n]+(?:\n    [^\n]+)*)",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Entry:
    """A word of the glossary."""

    id: str
    terms: tuple[str, ...]  # its spellings
    text: str  # plain, without links
    links: tuple[str, ...]  # what it leads to, from the glossary
    marked: bool  # pages lead to it
    covered: bool  # or the entry says that this site does not explain it

    def is_explained_on(self, page: str) -> bool:
        """Whether a page, by file name, explains the word itself."""
        return any(link.startswith(f"../posts/{page}.md") for link in self.links)


@functools.cache
def definitions(glossary: str) -> tuple[Entry, ...]:
    """The entries of the glossary's Markdown."""
    found = []
    for match in ENTRY.finditer(glossary):
        text = " ".join(match["text"].split())
        links = tuple(re.findall(r"\]\(([^)]*)\)", text))
        text = re.sub(r"\[[^\]]*\]\([^)]*\)\.?|[`*$]", "", text).replace("\\sqrt{d}", "√d").strip()
        terms = tuple(match["terms"].splitlines())
        covered = NOT_COVERED not in glossary[: match.start()]
        found.append(Entry(match["id"], terms, text, links, not match["plain"], covered))
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
    entries = tuple(entry for entry in entries if entry.marked)
    if not entries:
        return content
    pattern, owner = _spellings(entries)
    seen = {entry.id for entry in entries if entry.is_explained_on(page)}

    def link(match: re.Match[str]) -> str:
        entry = owner[match[0]]
        if entry.id in seen:
            return match[0]
        seen.add(entry.id)
        title = html.escape(entry.text, quote=True)
        return f'<a class="am-term" href="{url}#{entry.id}" title="{title}">{match[0]}</a>'

    made, end, in_text = [], 0, False
    for part in LEFT_ALONE.finditer(content):
        if part[0].startswith('<div class="am-stop'):  # one of several, of which one is shown
            seen.clear()
        between = content[end : part.start()]
        made += [pattern.sub(link, between) if in_text else between, part[0]]
        end = part.end()
        if part["tag"] and part["tag"].lstrip("/") not in INLINE:
            in_text = part["tag"] in TEXT
    return "".join([*made, content[end:]])
