"""The index of the search: every section of the site, with what is worth finding in it.

The theme's plugin lists the sections with their HTML. Of that is kept: the first sentences, which a
result can show; of what follows the words alone, each once; and of code the names that it uses.
"""

import html
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

INDEX = "search/search_index.json"
SHOWN = 700  # characters of a section that are kept as they are
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
INLINE = re.compile(r"</?(?:a|abbr|b|code|em|i|kbd|mark|span|strong|sub|sup|m\w+)\b[^>]*>")
TAG = re.compile(r"<[^>]+>")
NAME = re.compile(r"[A-Za-z_][\w.]{2,}")
WORD = re.compile(r"[\w.√ᵀ'-]+")
# Of the theme's own search, which this one replaces.
UNUSED = ("assets/javascripts/workers", "assets/javascripts/lunr")


def pack(site: Path) -> None:
    """Write the index of a built site in the form that its script reads."""
    index = site / INDEX
    listed = json.loads(index.read_text("utf-8"))["docs"]
    text = json.dumps(sections(listed), ensure_ascii=False, separators=(",", ":"))
    index.write_text(text, "utf-8")
    for folder in UNUSED:
        shutil.rmtree(site / folder, ignore_errors=True)


def sections(listed: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sections, in the order of the site, as the index holds them."""
    titles: dict[str, str] = {}
    found = []
    for entry in listed:
        page = entry["location"].partition("#")[0]
        title = _plain(entry["title"])
        titles.setdefault(page, title)
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
        }
        if (boost := entry.get("boost", 1)) != 1:
            section["boost"] = boost
        found.append(
            {key: value for key, value in section.items() if value or key in ("location", "text")}
        )
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
