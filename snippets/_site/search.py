"""The index of the search: every section of the site, with what is worth finding in it.

The theme's plugin lists the sections with their HTML. Of that is kept: the first sentences, which a
result can show; of what follows the words alone, each once; and of code the names that it uses.
Each word of the glossary is an entry of its own. Those of its last section say that the site does
not cover something, and their first link names what comes nearest.
"""

import html
import json
import posixpath
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from snippets._site import glossary

INDEX = "search/search_index.json"
GLOSSARY = glossary.PAGE.replace(".md", "/")
SHOWN = 1200  # characters of a section that are kept as they are
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
INLINE = re.compile(r"</?(?:a|abbr|b|code|em|i|kbd|mark|span|strong|sub|sup|m\w+)\b[^>]*>")
TAG = re.compile(r"<[^>]+>")
NAME = re.compile(r"[A-Za-z_][\w.]{2,}")
WORD = re.compile(r"[\w.√ᵀ'-]+")
# Drawings, formulas between sentences, names of files and tests, what is pressed to unfold: words
# that belong to no sentence.
ASIDE = re.compile(
    r'<(?=(?:svg|summary)\b|math[^>]*display="block"|(?:div class="am-file|span class="filename)"'
    r"|p><strong>Checked by)(\w+)"
)
LAST = {"exercise", "next", "read-on"}  # sections that count a tenth: exercises, sources, links
# Of the theme's own search, which this one replaces.
UNUSED = ("assets/javascripts/workers", "assets/javascripts/lunr")


def without_asides(content: str) -> str:
    """A page's HTML for the theme's plugin, which takes these marks out once it has read them."""
    return ASIDE.sub(r'<\1 data-search-exclude="true"', content)


def pack(site: Path, words: Path, posts: Sequence[str]) -> None:
    """Write the index of a built site, with the words of its glossary, as its script reads it.

    The posts come first, in their order: the script prefers what comes early.
    """
    index = site / INDEX
    places = {f"posts/{post}/": place for place, post in enumerate(posts)}
    listed = sorted(
        json.loads(index.read_text("utf-8"))["docs"],
        key=lambda entry: places.get(entry["location"].partition("#")[0], len(places)),
    )
    entries = terms(words.read_text("utf-8")) if words.is_file() else []
    text = json.dumps([*sections(listed), *entries], ensure_ascii=False, separators=(",", ":"))
    index.write_text(text, "utf-8")
    for folder in UNUSED:
        shutil.rmtree(site / folder, ignore_errors=True)


def sections(listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sections, in the order of the site, as the index holds them."""
    titles: dict[str, str] = {}
    found = []
    for entry in listed:
        page, _, anchor = entry["location"].partition("#")
        title = _plain(entry["title"])
        first = page not in titles
        titles.setdefault(page, title)
        nameless = not entry["text"] and title == titles[page]
        if anchor and (nameless or page == GLOSSARY):
            continue
        prose = _plain(CODE.sub(" ", entry["text"]))
        shown, rest = _cut(prose)
        code = _plain(" ".join(CODE.findall(entry["text"])))
        section = {
            "location": entry["location"],
            "title": title,
            "page": titles[page],
            "text": shown,
            "rest": _once(WORD.findall(rest), shown),
            "code": _once(NAME.findall(code), prose),
            "tags": " ".join(entry.get("tags", [])) if first else "",
        }
        if (boost := entry.get("boost", 1) * (0.1 if anchor in LAST else 1)) != 1:
            section["boost"] = round(boost, 2)
        found.append(
            {key: value for key, value in section.items() if value or key in ("location", "text")}
        )
    return found


def terms(markdown: str) -> list[dict[str, Any]]:
    """The glossary's words, each with its sentence."""
    found: list[dict[str, Any]] = []
    for entry in glossary.definitions(markdown):
        place, title = f"{GLOSSARY}#{entry.id}", ", ".join(entry.terms)
        found.append({"location": place, "title": title, "page": "Glossary", "text": entry.text})
        if not entry.covered:
            nearest = posixpath.normpath(posixpath.join(GLOSSARY, "..", entry.links[0]))
            found[-1] |= {"page": "Not covered here", "nearest": nearest.replace(".md", "/")}
    return found


def _plain(text: str) -> str:
    return " ".join(html.unescape(TAG.sub(" ", INLINE.sub("", text))).split())


def _cut(prose: str) -> tuple[str, str]:
    """The sentences that are kept, and what follows."""
    if len(prose) <= SHOWN:
        return prose, ""
    end = prose.rfind(". ", 0, SHOWN)
    end = end + 1 if end > SHOWN // 2 else prose.rfind(" ", 0, SHOWN)
    return prose[:end], prose[end:].strip()


def _once(words: Iterable[str], said: str) -> str:
    """Words, each once, without those that were said before."""
    before = {*said.split()}
    return " ".join(dict.fromkeys(word for word in words if word not in before))
