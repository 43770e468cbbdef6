"""What a page shows instead of a figure, or of a piece of one, that waits for a GPU.

A post can be written, tested and published before a GPU has measured it. Nothing is drawn then: an
include of a figure that only a GPU can measure becomes a badge and the command that measures it,
a number of it becomes a badge, and what it recorded for another place is left out.
What needs no GPU has to be measured, and a page that includes anything else that is not there stops
the build.
"""

import re
from pathlib import Path

from snippets._lab.rooms import drawn_from_all, on_a_gpu, places_of, rooms

INCLUDE = re.compile(
    r'^(?P<indent> *)--8<-- "(?P<path>docs/figures/(?P<room>\w+)/(?P<name>\w+)\.md)"$', re.MULTILINE
)
WORDS = "not measured on a GPU yet"
BADGE = f'<span class="am-badge am-unmeasured">{WORDS}</span>'


def nothing_measured(data: Path, room: str) -> bool:
    """Whether a room has results to be measured on a GPU, and none of them has been."""
    own = [name for name, places in places_of(room).items() if places == ("gpu",)]
    return bool(own) and not any(on_a_gpu(data, room, name) for name in own)


def shown(markdown: str, root: Path) -> str:
    """A page's Markdown with a badge for each figure that waits for a GPU, and no piece."""

    def replaced(match: re.Match[str]) -> str:
        room, name = match["room"], match["name"]
        path = root / match["path"]
        if room not in rooms() or path.is_file():
            return match[0]
        if name in drawn_from_all(room) and _waits(root, room):
            return "\n".join(match["indent"] + line for line in _figure(room, name, ""))
        results = places_of(room)
        of = next((r for r in results if name == r or name.startswith(f"{r}_")), "")
        piece = name.removeprefix(of)
        if not of or piece == "_interpreter":
            return match[0]
        name, places = of, results[of]
        if "gpu" not in places or on_a_gpu(root / "docs" / "data", room, name):
            return match[0]  # the build says that it is not there
        if places != ("gpu",) and not piece:
            return match[0]  # of this one at least a part needs no GPU
        lines = [] if piece else _figure(room, name, f" RESULT={name}")
        return "\n".join(match["indent"] + line for line in lines)

    return INCLUDE.sub(replaced, markdown)


def _waits(root: Path, room: str) -> bool:
    """Whether anything of a room is still to be measured on a GPU."""
    own = [name for name, places in places_of(room).items() if places == ("gpu",)]
    return not all(on_a_gpu(root / "docs" / "data", room, name) for name in own)


def _figure(room: str, name: str, result: str) -> list[str]:
    return [
        f'<div class="am-figure" id="figure-{room}-{name}" markdown>',
        "<figure markdown>",
        f"<figcaption markdown>{BADGE} On a machine with a GPU, "
        f"`make bench POST={room}{result}` measures what belongs here, and `make figures` draws "
        "it.</figcaption>",
        "</figure>",
        "</div>",
    ]
