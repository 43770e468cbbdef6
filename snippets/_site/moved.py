"""Old addresses of sections keep working: a page's front matter says what a section was called.

    moved:
      kernel: [how-is-it-launched, which-query-am-i]

A heading whose id is `kernel` then answers to the two old ids as well.
"""

import re
from collections.abc import Mapping, Sequence

HEADING = re.compile(r'<h[2-6] id="(?P<id>[^"]+)"[^>]*>')


class MovedError(ValueError):
    """A page's list of old addresses does not fit the page."""


def anchored(content: str, moved: Mapping[str, Sequence[str]]) -> str:
    """A page's HTML with an anchor for each old id, at the start of the section that it became.

    Raises:
        MovedError: for a section that the page lacks, and for an old id that the page still has.
    """
    missing = set(moved) - {match["id"] for match in HEADING.finditer(content)}
    if missing:
        raise MovedError(f"moved: the page has no section {', '.join(sorted(missing))}")
    old = [name for names in moved.values() for name in names]
    taken = sorted({name for name in old if f'id="{name}"' in content or old.count(name) > 1})
    if taken:
        raise MovedError(f"moved: more than one place would be {', '.join(taken)}")

    def with_anchors(match: re.Match[str]) -> str:
        names = moved.get(match["id"], ())
        return match[0] + "".join(f'<a id="{name}"></a>' for name in names)

    return HEADING.sub(with_anchors, content)
