"""Lanes over time in a drawing: who does what when."""

from collections.abc import Sequence
from typing import NamedTuple

from snippets._lab.draw.drawings import (
    INK,
    LINES,
    MUTED,
    STRONG,
    box,
    mixed,
    straight,
    wide_of,
    words,
)


class Span(NamedTuple):
    """What happens in a lane from one time to another."""

    lane: str
    start: float
    end: float
    color: str
    said: str = ""  # in its middle, if it fits
    percent: float = STRONG


class Timeline(NamedTuple):
    """Where time is drawn: lanes one below the other, from `left` to `right`."""

    lanes: Sequence[str]
    end: float  # the time at the right edge
    x: float = 0
    y: float = 0
    left: float = 84  # for the lanes' names
    wide: float = 344
    tall: float = 18
    gap: float = 6

    @property
    def scale(self) -> float:
        return (self.wide - self.left) / self.end

    @property
    def down(self) -> float:
        return len(self.lanes) * (self.tall + self.gap) - self.gap

    def at(self, time: float) -> float:
        """Where a time is."""
        return self.x + self.left + time * self.scale

    def top(self, lane: str) -> float:
        return self.y + list(self.lanes).index(lane) * (self.tall + self.gap)


def timeline(over: Timeline, spans: Sequence[Span], size: float = 10.5) -> str:
    """The lanes with their names, and what happens in them; time is cut at the end."""
    drawn = []
    for lane in over.lanes:
        top = over.top(lane)
        drawn.append(box(over.at(0), top, over.wide - over.left, over.tall, LINES, 8))
        foot = top + over.tall / 2 + 0.35 * size
        drawn.append(words(over.x + over.left - 6, foot, lane, size, color=INK, anchor="end"))
    alike: dict[tuple[str, float], list[str]] = {}
    said = []
    for span in spans:
        start, end = span.start, min(span.end, over.end)
        if end <= start:
            continue
        x, top, wide = over.at(start), over.top(span.lane), (end - start) * over.scale
        across = wide - min(1, 0.2 * wide)  # a gap, where there is room for one
        path = f"M{x:.4g} {top:g}h{across:.4g}v{over.tall:g}h-{across:.4g}z"
        alike.setdefault((span.color, span.percent), []).append(path)
        if span.said and wide_of(span.said, size) < wide - 3:
            foot = top + over.tall / 2 + 0.35 * size
            said.append(words(x + wide / 2, foot, span.said, size))
    drawn += [
        f'<path d="{"".join(paths)}" style="fill:{mixed(*look)}"/>' for look, paths in alike.items()
    ]
    return "".join(drawn + said)


def time_arrow(over: Timeline, said: str = "time", size: float = 10.5) -> str:
    """Below the lanes: where time goes. It needs 18 more below."""
    y = over.y + over.down + 12
    start = over.at(0) + wide_of(said, size) + 6
    return words(over.at(0), y + 0.35 * size, said, size, color=MUTED, anchor="start") + straight(
        (start, y), (over.x + over.wide, y)
    )
