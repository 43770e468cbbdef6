"""The road as a menu: every post with its number and title, what it is about, how long it takes to
read, and the time of its kernel.

The order is the navigation's. Times are those of the front page's figure: its stops name a post,
its time and how long its bar is. Posts in between keep the bar's end, as a line that goes down to
the next time. A place with `data-posts` gets those posts alone.
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from mkdocs.structure.pages import Page

from snippets._site import about, export

PLACE = re.compile(r'<div class="am-road"(?: data-posts="(?P<chosen>[^"]*)")?>\s*</div>')
FIGURE = "figures/scoreboard/road.md"
STOP = re.compile(r"<li [^>]*data-post=[^>]*>")
DATA = re.compile(r'(\w+)="([^"]*)"')
SENTENCE = re.compile(r"(?<=[.?!])\s")


def filled(content: str, posts: Sequence[Page], page: Page, docs: str) -> str:
    """A page's HTML with the menu in its place: a list for each part of the navigation."""

    def menu(place: re.Match[str]) -> str:
        chosen = (place["chosen"] or "").split()
        stops = STOP.findall(Path(docs, FIGURE).read_text("utf-8"))
        timed = {stop["post"]: stop for stop in (dict(DATA.findall(stop)) for stop in stops)}
        parts: dict[str, list[str]] = {}
        style = ""
        for number, post in enumerate(posts, 1):
            if not chosen or post.file.name in chosen:
                part = "" if chosen else f"<h3>{html.escape(post.parent.title)}</h3>"
                stop = timed.pop(post.file.name, None)
                style = f' style="{stop["style"]}"' if stop else style
                time = f"<b{style}>{stop['said'] if stop else ''}</b>"
                parts.setdefault(part, []).append(_rung(number, post, time, page))
                style = style if timed else ""  # no time is left to lead to
        lists = (
            f'<section>{part}<ol class="am-rungs">{"".join(rungs)}</ol></section>'
            for part, rungs in parts.items()
        )
        return f'<div class="am-road">{"".join(lists)}</div>'

    return PLACE.sub(menu, content)


def _rung(number: int, post: Page, time: str, page: Page) -> str:
    address = post.file.url_relative_to(page.file)
    title = html.escape(export.title(post), quote=False)
    text = SENTENCE.split(str(post.meta.get("description", "")))[0]
    return (
        f'<li><i>{number}</i><div><a href="{address}">{title}</a>'
        f"<p>{html.escape(text, quote=False)}</p></div>"
        f"{time}<span>{about.minutes(post.content or '')} min</span></li>"
    )
