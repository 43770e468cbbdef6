"""The road as a menu: every post with its number and title, what it is about, how long it takes to
read, and the time of its kernel.

The order is the navigation's. Times come with the figure that a page includes: its stops name a
post and its time. A place with `data-posts` gets those alone.
"""

import html
import re
from collections.abc import Sequence

from mkdocs.structure.pages import Page

from snippets._site import about, export

PLACE = re.compile(r'<div class="am-road"(?: data-posts="(?P<chosen>[^"]*)")?>\s*</div>')
STOP = re.compile(r"<li (?=[^>]*data-post=)(?P<data>[^>]*)>")
DATA = re.compile(r'data-(\w+)="([^"]*)"')  # Markdown writes attributes in an order of its own
SENTENCE = re.compile(r"(?<=[.?!])\s")


def filled(content: str, posts: Sequence[Page], page: Page) -> str:
    """A page's HTML with the menu in its place: a list for each part of the navigation."""
    stops = [dict(DATA.findall(stop["data"])) for stop in STOP.finditer(content)]
    timed = {stop["post"]: stop for stop in stops}

    def menu(place: re.Match[str]) -> str:
        chosen = (place["chosen"] or "").split()
        parts: dict[str, list[str]] = {}
        for number, post in enumerate(posts, 1):
            if not chosen or post.file.name in chosen:
                part = "" if chosen else f"<h3>{html.escape(post.parent.title)}</h3>"
                rung = _rung(number, post, timed.get(post.file.name), page)
                parts.setdefault(part, []).append(rung)
        lists = (
            f'<section>{part}<ol class="am-rungs">{"".join(rungs)}</ol></section>'
            for part, rungs in parts.items()
        )
        return f'<div class="am-road">{"".join(lists)}</div>'

    return PLACE.sub(menu, content)


def _rung(number: int, post: Page, timed: dict[str, str] | None, page: Page) -> str:
    address = post.file.url_relative_to(page.file)
    title = html.escape(export.title(post), quote=False)
    text = SENTENCE.split(str(post.meta.get("description", "")))[0]
    time = f'<b style="--am-hue:{timed["hue"]}">{timed["said"]}</b>' if timed else "<b></b>"
    return (
        f'<li><i>{number}</i><div><a href="{address}">{title}</a>'
        f"<p>{html.escape(text, quote=False)}</p></div>"
        f"{time}<span>{about.minutes(post.content or '')} min</span></li>"
    )
