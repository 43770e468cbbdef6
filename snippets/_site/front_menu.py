"""The road as the front page's menu: every post with its title, what it is about, its time and how
long it takes to read.

The order is the navigation's. Times come with the figure that the page includes: a list whose
entries name a post, its time and the length of its bar. What in that list is no post, other
implementations on the same work, stands at the end.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mkdocs.structure.pages import Page

from snippets._site import about

LIST = re.compile(r'<ol class="am-road">.*?</ol>', re.DOTALL)
ENTRY = re.compile(r"<li (?P<data>data-[^>]*)>(?P<name>[^<:]*): (?P<said>[^<]*)</li>")
DATA = re.compile(r'data-(\w+)="([^"]*)"')  # Markdown writes attributes in an order of its own
SENTENCE = re.compile(r"(?<=[.?!])\s")


@dataclass(frozen=True)
class Timed:
    """What the figure says of one implementation."""

    post: str
    name: str
    said: str
    length: float
    hue: str

    def bar(self) -> str:
        """Its time behind a bar; without a length only the words, which say why."""
        if not self.length:
            return f'<span class="am-rung-time"><span>{self.said}</span></span>'
        style = f"--am-length:{self.length:g}%;--am-hue:{self.hue}"
        return f'<span class="am-rung-time"><i style="{style}"></i><b>{self.said}</b></span>'


def filled(content: str, posts: Sequence[Page], front: Page) -> str:
    """The front page's HTML with the menu where the figure's list is."""
    return LIST.sub(lambda match: menu(match[0], posts, front), content, count=1)


def menu(times: str, posts: Sequence[Page], front: Page) -> str:
    """The posts, a list for each part of the navigation, then what they are compared with."""
    timed = {entry.post: entry for entry in map(_timed, ENTRY.finditer(times))}
    parts: dict[str, list[str]] = {}
    for post in posts:
        part = post.parent.title if post.parent else ""
        parts.setdefault(part, []).append(_rung(post, timed.pop(post.file.name, None), front))
    lists = [
        f'<section><h3>{html.escape(part)}</h3><ol class="am-rungs">{"".join(rungs)}</ol></section>'
        for part, rungs in parts.items()
    ]
    others = "".join(f"<li><span>{entry.name}</span>{entry.bar()}</li>" for entry in timed.values())
    if others:
        lists.append(
            f'<section><h3>For comparison</h3><ul class="am-others">{others}</ul></section>'
        )
    return f'<div class="am-road">{"".join(lists)}</div>'


def _timed(entry: re.Match[str]) -> Timed:
    data = dict(DATA.findall(entry["data"]))
    length = float(data["length"])
    return Timed(data["post"], entry["name"], entry["said"], length, data["hue"])


def _rung(post: Page, timed: Timed | None, front: Page) -> str:
    address = post.file.url_relative_to(front.file)
    title = html.escape(post.title or "", quote=False)
    text = post.meta.get("subtitle") or SENTENCE.split(post.meta.get("description", ""))[0]
    minutes = about.minutes(post.content or "")
    return (
        f'<li><div><a href="{address}">{title}</a>'
        f"<p>{html.escape(str(text), quote=False)}</p></div>"
        f"{timed.bar() if timed else '<span></span>'}"
        f'<span class="am-rung-minutes">{minutes} min</span></li>'
    )
