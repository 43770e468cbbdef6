"""What a page says about itself: how long it takes, when its numbers were measured, its date,
where on the road it stands, where its source is and how to cite it.
"""

import functools
import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

from snippets._lab.results import store
from snippets._lab.rooms import rooms
from snippets._site import citing, export, repository, unmeasured

FOLDED = re.compile(r"<details\b(?:(?!<details\b).)*?</details>", re.DOTALL)  # the innermost
CODE = re.compile(r"<pre\b.*?</pre>", re.DOTALL)
LOOKED_AT = re.compile(
    r'<(table|math|text|button|label|span(?= class="filename))\b.*?</\1>'
    r'|<a class="am-source".*?</a>',
    re.DOTALL,
)
TAG = re.compile(r"<[^>]+>")
WORDS_A_MINUTE = 220
CODE_LINES_A_MINUTE = 20


@dataclass(frozen=True)
class Stop:
    """A post on the road, as its neighbors show it."""

    number: int
    page: Page
    here: bool


def context(page: Page, config: MkDocsConfig, nav: Navigation) -> dict[str, Any]:
    """What the theme's templates show beside a page's own text."""
    text = is_read(page)
    how_to = page.file.src_uri.startswith("how_to/")  # its room has more than it shows
    data = Path(config.docs_dir) / "data"
    return {
        "minutes": minutes(page.content or "") if text else None,
        "all_minutes": minutes(page.content or "", folded=True) if text else None,
        "pace": (WORDS_A_MINUTE, CODE_LINES_A_MINUTE),
        "road": road(page, nav),
        "measured": last_measured(data, room_of(page)) if text and not how_to else None,
        "unmeasured": unmeasured.WORDS if text and _waits(data, room_of(page)) else None,
        "markdown": page.file.src_uri if export.is_text(page) else None,
        "card": export.card_path(page),
        "repository": _in_the_repository(page, config),
        "citation": _citation(page, config) if text or "cite" in page.meta else None,
    }


def is_read(page: Page) -> bool:
    """Whether a page is a post, a how-to or one of the lab's, to be read from its top."""
    folders = ("posts/", "how_to/", "lab/")
    return page.file.src_uri.startswith(folders) and export.is_text(page)


def road(page: Page, nav: Navigation) -> list[Stop]:
    """The posts in the order of the navigation, for a post; nothing for another page."""
    on_it = posts(nav)
    if page not in on_it:
        return []
    return [Stop(number, post, post is page) for number, post in enumerate(on_it, 1)]


def posts(nav: Navigation) -> list[Page]:
    """The posts in the order of the navigation."""
    return [p for p in nav.pages if p.file.src_uri.startswith("posts/")]


def place_beside(page: Page, nav: Navigation) -> None:
    """Show a page of numbers or a notebook, which are in no navigation, as a part of its page: that
    page's entry is the active one, it is the page before, and the one after is what follows it.
    """
    source = page.file.src_uri.replace("/numbers.md", ".md")
    source = re.sub(r"^notebooks/(\w+)\.ipynb$", r"posts/\1.md", source)
    owner = next((p for p in nav.pages if p.file.src_uri == source and p is not page), None)
    if owner is not None:
        owner.active = True
        page.previous_page, page.next_page = owner, owner.next_page


def leave(page: Page) -> None:
    """The page beside another is written: the other's entry is active no more."""
    if page.file.inclusion.is_not_in_nav() and page.previous_page is not None:
        page.previous_page.active = False


def room_of(page: Page) -> str:
    """The room that a page explains: its own name, or what its front matter says as `room`."""
    return str(page.meta.get("room", page.file.name))


def _in_the_repository(page: Page, config: MkDocsConfig) -> repository.Links | None:
    if page.file.name == "numbers":
        return None  # it is made by the build
    path = f"{Path(config.docs_dir).name}/{page.file.src_uri}"
    return repository.links(config.repo_url or "", path, export.title(page))


def _citation(page: Page, config: MkDocsConfig) -> citing.Citation | None:
    day = page.meta.get("date")
    if not isinstance(day, date):
        return None
    if page.meta.get("cite") == "site":
        return citing.citation(config.site_name, config.site_name, "site", day, config.site_url)
    address = page.canonical_url or "" if config.site_url else ""
    return citing.citation(config.site_name, export.title(page), page.file.name, day, address)


def _waits(data: Path, name: str) -> bool:
    return name in rooms() and unmeasured.nothing_measured(data, name)


def date_at_the_foot(page: Page) -> None:
    """Give the page's date in the one form in which the theme shows it."""
    day = page.meta.get("date")
    if isinstance(day, date):
        page.meta["git_creation_date_localized"] = f"{day.day} {day:%B %Y}"


def minutes(content: str, *, folded: bool = False) -> int:
    """Minutes to read a page's HTML: its words and its lines of code, with or without what is
    folded. Tables, formulas and the words of drawings and charts are looked at and not counted.
    """
    while not folded and (left := FOLDED.sub("", content)) != content:
        content = left
    code = "".join(match[0] for match in CODE.finditer(content))
    words = TAG.sub(" ", LOOKED_AT.sub(" ", CODE.sub(" ", content))).split()
    return math.ceil(len(words) / WORDS_A_MINUTE + code.count("\n") / CODE_LINES_A_MINUTE)


def last_measured(data: Path, post: str) -> dict[str, str] | None:
    """Day and device of a post's newest result from a GPU; None while no GPU has measured it.

    Raises DataError that names a damaged result.
    """
    stats = {path: path.stat() for path in sorted(data.glob(f"*/{post}/*.json"))}
    return _newest(data, tuple((p, s.st_mtime_ns, s.st_size) for p, s in stats.items()))


@functools.cache  # while pages are served, results are read again when they have changed
def _newest(data: Path, files: tuple[tuple[Path, int, int], ...]) -> dict[str, str] | None:
    results = [store.read(path, data) for path, *_ in files]
    measured = [r for r in results if r.place == "gpu"]
    if not measured:
        return None
    newest = max(measured, key=lambda r: r.measured_at)
    day = datetime.fromisoformat(newest.measured_at).date()
    return {"day": f"{day.day} {day:%B %Y}", "device": newest.label}
