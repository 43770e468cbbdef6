"""The road as a menu: every post with its title, what it is about, what it found, and its minutes.

The order is the navigation's. What a post found is a line of its front matter, `found`, whose
numbers are named as in its text. A place with `data-posts` gets those posts alone; there and on the
front page what they are about is left out. `data-marked` names posts whose number stands out.
"""

import html
import re
from collections.abc import Sequence
from pathlib import Path

from mkdocs.structure.pages import Page

from snippets._site import about, export, named_numbers

PLACE = re.compile(
    r'<div class="am-road"(?: data-posts="(?P<chosen>[^"]*)")?'
    r'(?: data-marked="(?P<marked>[^"]*)")?>\s*</div>'
)
SENTENCE = re.compile(r"(?<=[.?!])\s")


def filled(content: str, posts: Sequence[Page], page: Page, docs: str) -> str:
    """A page's HTML with the menu in its place: a list for each part of the navigation."""

    def menu(place: re.Match[str]) -> str:
        chosen, marked = ((place[some] or "").split() for some in ("chosen", "marked"))
        parts: dict[str, list[str]] = {}
        for number, post in enumerate(posts, 1):
            if not chosen or post.file.name in chosen:
                part = "" if chosen else f"<h3>{html.escape(post.parent.title)}</h3>"
                short = bool(chosen) or page.is_homepage
                parts.setdefault(part, []).append(
                    _rung(number, post, page, short, post.file.name in marked)
                )
        lists = (
            f'<section>{part}<ol class="am-rungs">{"".join(rungs)}</ol></section>'
            for part, rungs in parts.items()
        )
        made = f'<div class="am-road">{"".join(lists)}</div>'
        return named_numbers.filled(made, Path(docs))

    return PLACE.sub(menu, content)


def _rung(number: int, post: Page, page: Page, short: bool, marked: bool) -> str:
    address = post.file.url_relative_to(page.file)
    title = html.escape(export.title(post), quote=False)
    text = SENTENCE.split(str(post.meta.get("description", "")))[0]
    about_it = "" if short else f"<p>{html.escape(text, quote=False)}</p>"
    found = named_numbers.NAMED.sub(r"<b>\g<0></b>", html.escape(str(post.meta.get("found", ""))))
    look = ' class="am-marked"' if marked else ""
    return (
        f"<li{look}><i>{number}</i><div>"
        f'<a href="{address}">{title}</a>{about_it}</div>'
        f"<em>{found}</em><span>{about.minutes(post.content or '')} min</span></li>"
    )
