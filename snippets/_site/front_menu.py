"""The road as a menu: every post with its number and title, what it is about, its time and how long
it takes to read.

The order is the navigation's. Times come with the figure that the front page includes: a list whose
entries name a post, its time and the length of its bar. What in that list is no post, other
implementations on the same work, stands at the end. A list with `data-posts` has these posts alone.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mkdocs.structure.pages import Page

from snippets._site import about, export

LIST = re.compile(r'<ol class="am-road"(?: data-posts="(?P<posts>[^"]*)")?>.*?</ol>', re.DOTALL)
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


def filled(content: str, posts: Sequence[Page], page: Page) -> str:
    """A page's HTML with a menu where a list is."""
    return LIST.sub(lambda match: menu(match[0], posts, page, match["posts"]), content)


def menu(times: str, posts: Sequence[Page], page: Page, chosen: str | None = None) -> str:
    """The posts, a list for each part of the navigation, then what they are compared with.

    Those that are `chosen` by name stand in one list.
    """
    timed = {entry.post: entry for entry in map(_timed, ENTRY.finditer(times))}
    parts: dict[str, list[str]] = {}
    for number, post in enumerate(posts, 1):
        if not chosen or post.file.name in chosen.split():
            heading = f"<h3>{html.escape(post.parent.title)}</h3>" if not chosen else ""
            bar = timed[post.file.name].bar() if post.file.name in timed else "<span></span>"
            parts.setdefault(heading, []).append(_rung(number, post, bar * bool(timed), page))
    lists = [
        f'<section>{heading}<ol class="am-rungs">{"".join(rungs)}</ol></section>'
        for heading, rungs in parts.items()
    ]
    ours = {post.file.name for post in posts}
    entries = [entry for entry in timed.values() if entry.post not in ours]
    others = "".join(f"<li><span>{entry.name}</span>{entry.bar()}</li>" for entry in entries)
    if others:
        lists.append(
            f'<section><h3>For comparison</h3><ul class="am-others">{others}</ul></section>'
        )
    return f'<div class="am-road">{"".join(lists)}</div>'


def _timed(entry: re.Match[str]) -> Timed:
    data = dict(DATA.findall(entry["data"]))
    length = float(data["length"])
    return Timed(data["post"], entry["name"], entry["said"], length, data["hue"])


def _rung(number: int, post: Page, bar: str, page: Page) -> str:
    address = post.file.url_relative_to(page.file)
    title = html.escape(export.title(post), quote=False)
    text = post.meta.get("subtitle") or SENTENCE.split(post.meta.get("description", ""))[0]
    minutes = about.minutes(post.content or "")
    return (
        f'<li><div><a href="{address}">{number}. {title}</a>'
        f"<p>{html.escape(str(text), quote=False)}</p></div>"
        f'{bar}<span class="am-rung-minutes">{minutes} min</span></li>'
    )
