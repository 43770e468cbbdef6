"""The road as the front page's menu: every post with its title, what it is about, how long it takes
to read, and the time of its kernel.

The order is the navigation's. Times come with the figure that the page includes: its stops name a
post and its time.
"""

import html
import re
from collections.abc import Sequence

from mkdocs.structure.pages import Page

from snippets._site import about

PLACE = re.compile(r'<div class="am-road">\s*</div>')
STOP = re.compile(r"<li (?=[^>]*data-post=)(?P<data>[^>]*)>")
DATA = re.compile(r'data-(\w+)="([^"]*)"')  # Markdown writes attributes in an order of its own
SENTENCE = re.compile(r"(?<=[.?!])\s")


def filled(content: str, posts: Sequence[Page], front: Page) -> str:
    """The front page's HTML with the menu in its place: a list for each part of the navigation."""
    stops = [dict(DATA.findall(stop["data"])) for stop in STOP.finditer(content)]
    timed = {stop["post"]: stop for stop in stops}
    parts: dict[str, list[str]] = {}
    for number, post in enumerate(posts, 1):
        part = post.parent.title if post.parent else ""
        parts.setdefault(part, []).append(_rung(number, post, timed.get(post.file.name), front))
    lists = "".join(
        f'<section><h3>{html.escape(part)}</h3><ol class="am-rungs">{"".join(rungs)}</ol></section>'
        for part, rungs in parts.items()
    )
    return PLACE.sub(lambda _: f'<div class="am-road">{lists}</div>', content, count=1)


def _rung(number: int, post: Page, timed: dict[str, str] | None, front: Page) -> str:
    address = post.file.url_relative_to(front.file)
    title = html.escape(post.title or "", quote=False)
    text = SENTENCE.split(str(post.meta.get("description", "")))[0]
    time = f'<b style="--am-hue:{timed["hue"]}">{timed["said"]}</b>' if timed else "<b></b>"
    return (
        f'<li><i>{number}</i><div><a href="{address}">{title}</a>'
        f"<p>{html.escape(text, quote=False)}</p></div>"
        f"{time}<span>{about.minutes(post.content or '')} min</span></li>"
    )
