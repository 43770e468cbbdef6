"""Badges for results whose code has changed since they were measured.

A figure depends on its data and on the code that draws it, and on nothing else. Whether the code
behind the data has moved is therefore asked when the site is built: a figure's fragment names its
results in an empty element (`<span class="am-stale" data-result="interpreter/coalescing/sectors">
</span>`), and a page shows a badge there if the code of one has changed, or nothing.
"""

import functools
import re
from pathlib import Path

from snippets._lab.results import staleness, store

PLACE = re.compile(r'\s*<span class="am-stale" data-result="(?P<results>[^"]+)"></span>')
BADGE = ' <span class="am-badge am-stale">code changed since</span>'


def shown(text: str, data: Path) -> str:
    """Markdown or HTML with a badge for each stale result, and nothing for the others.

    Raises DataError for a result that `data` does not hold.
    """

    def badge(place: re.Match[str]) -> str:
        return BADGE if any(_is_stale(data, name) for name in place["results"].split()) else ""

    return PLACE.sub(badge, text)


@functools.cache
def _is_stale(data: Path, name: str) -> bool:
    folder, post, result = name.rsplit("/", 2)
    return staleness.is_stale(store.read(store.path_of(folder, post, result, data), data))


def forget() -> None:
    """Ask again from here on: a build may follow a change."""
    _is_stale.cache_clear()
