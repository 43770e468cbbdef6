"""The road as a menu: every post with its number and title, what it is about, its time and how long
it takes to read.

The order is the navigation's. Times come with the figure that the front page includes: a list whose
entries name a post, its time and the length of its bar. What in that list is no post, other
implementations on the same work, stands at the end. A list with `data-posts` has these posts alone.
"""

import html
import re
from collections.abc import Sequence

from mkdocs.structure.pages import Page

from snippets._site import about, export

LIST = re.compile(r'<ol class="am-road"(?: data-posts="(?P<posts>[^"]*)")?>.*?</ol>', re.DOTALL)
ENTRY = re.compile(r"<li (?P<data>data-[^>]*)>(?P<name>[^<:]*): (?P<said>[^<]*)</li>")
DATA = re.compile(r'data-(\w+)="([^"]*)"')  # Markdown writes attributes in an order of its own
SENTENCE = re.compile(r"(?<=[.?!])\s")


def filled(content: str, posts: Sequence[Page], page: Page) -> str:
    """A page's HTML with a menu where a list is."""
    return LIST.sub(lambda match: menu(match[0], posts, page, match["posts"]), content)


def menu(times: str, posts: Sequence[Page], page: Page, chosen: str | None = None) -> str:
    """The posts, a list for each part of the navigation, then what they are compared with.

    Those that are `chosen` by name stand in one list.
    """
    bars = dict(map(_bar, ENTRY.finditer(times)))
    none = "<span></span>" if bars else ""
    parts: dict[str, list[str]] = {}
    for number, post in enumerate(posts, 1):
        if not chosen or post.file.name in chosen.split():
            heading = f"<h3>{html.escape(post.parent.title)}</h3>" if not chosen else ""
            _, bar = bars.pop(post.file.name, ("", none))
            parts.setdefault(heading, []).append(_rung(number, post, bar, page))
    lists = [
        f'<section>{heading}<ol class="am-rungs">{"".join(rungs)}</ol></section>'
        for heading, rungs in parts.items()
    ]
    if bars:
        others = "".join(f"<li><span>{name}</span>{bar}</li>" for name, bar in bars.values())
        others = f'<ul class="am-others">{others}</ul>'
        lists.append(f"<section><h3>For comparison</h3>{others}</section>")
    return f'<div class="am-road">{"".join(lists)}</div>'


def _bar(entry: re.Match[str]) -> tuple[str, tuple[str, str]]:
    """A post, its name, its time behind a bar; without a length only the words, which say why."""
    data = dict(DATA.findall(entry["data"]))
    time = f"<span>{entry['said']}</span>"
    if length := float(data["length"]):
        style = f"--am-length:{length:g}%;--am-hue:{data['hue']}"
        time = f'<i style="{style}"></i><b>{entry["said"]}</b>'
    return data["post"], (entry["name"], f'<span class="am-rung-time">{time}</span>')


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
