"""Drawings as inline SVG, in one language: boxes, words, arrows, in the colors of identity.

Paper, ink and lines are the page's own colors, so that a drawing follows its theme. A length is a
CSS pixel: what is at most PHONE wide has the same size on a phone and on a laptop. Time is shown by
`motion`, which stands still for readers who want that, and for all others when they say so.

Beside this: `grids` (matrices, tiles, cells), `timelines` (lanes over time), `machine` (bands
for its parts). `pictures` brings a drawing to its page.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

INK, MUTED, LINES = "var(--am-ink)", "var(--am-muted)", "var(--am-axis)"
PALE = 22  # percent of a color in a box that words are read on
STRONG = 70  # of what is meant, between boxes that are pale
TIP = 3, 5  # half the width of an arrow's point, and its length
PHONE = 344  # what a phone of 390 px shows of a figure, without scrolling
LARGER = 1.5  # how much a narrow picture may grow on a wide page
LETTER = 0.58  # about how wide a letter is, in sizes of its font
Point = tuple[float, float]
_PLACES = re.compile(r' (?:d|points|[xy][12]?|width|height|c[xy]|r)="[^"]*"')
_LONG = re.compile(r"-?\d+\.\d{2,}")


def box(
    x: float, y: float, wide: float, tall: float, color: str, percent: float = PALE, line: float = 0
) -> str:
    """Filled with so much of a color and paper for the rest, so that no arrow crosses a word."""
    stroke = f' stroke="{color}" stroke-width="{line:g}"' if line else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="3" '
        f'style="fill:{mixed(color, percent)}"{stroke}/>'
    )


def mixed(color: str, percent: float) -> str:
    """So much of a color on the page's paper."""
    return f"color-mix(in srgb,{color} {percent:g}%,var(--am-paper))"


def frame(x: float, y: float, wide: float, tall: float, color: str = INK, line: float = 1.6) -> str:
    """A line around something that is drawn already."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="3" fill="none" '
        f'stroke="{color}" stroke-width="{line:g}"/>'
    )


def line(path: str, color: str = LINES, wide: float = 1, dash: str = "") -> str:
    """A path without a point."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<path d="{path}" fill="none" stroke="{color}" stroke-width="{wide:g}"{dashed}/>'


def words(
    x: float,
    y: float,
    said: str,
    size: float = 11,
    weight: int = 400,
    *,
    color: str = INK,
    anchor: str = "middle",
) -> str:
    """A line of words whose foot is at y."""
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{bold} '
        f'text-anchor="{anchor}" fill="{color}">{html.escape(said, quote=False)}</text>'
    )


def wide_of(said: str, size: float = 11) -> float:
    """About how wide words are."""
    return LETTER * size * len(said)


def labeled(
    x: float,
    y: float,
    wide: float,
    tall: float,
    color: str,
    said: str,
    size: float = 10,
    percent: float = PALE,
) -> str:
    """A box with a line around it and words in its middle; a group, for they must fit."""
    middle = words(x + wide / 2, y + tall / 2 + 0.35 * size, said, size)
    return f"<g>{box(x, y, wide, tall, color, percent, 1)}{middle}</g>"


def arrow(path: str, tip: Point, towards: str, color: str, **look: object) -> str:
    """A path with a point at its end: `towards` is left, right, up or down.

    `look` is of SVG, with lines below for dashes: stroke_dasharray="3 3", opacity=0.5.
    """
    x, y = tip
    half, long = TIP
    back = {"right": (-long, 0), "left": (long, 0), "down": (0, -long), "up": (0, long)}[towards]
    side = (0, half) if back[0] else (half, 0)
    ends = [(x + back[0] + sign * side[0], y + back[1] + sign * side[1]) for sign in (-1, 1)]
    dash = look.pop("stroke_dasharray", None)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    more = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
    (a, b), (c, d) = ends
    return (
        f'<g fill="none" stroke="{color}" stroke-width="1.4"{more}><path d="{path}"{dashed}/>'
        f'<path d="M{a:g} {b:g}L{x:g} {y:g}L{c:g} {d:g}"/></g>'
    )


def straight(start: Point, end: Point, color: str = MUTED, **look: object) -> str:
    """An arrow along one axis."""
    (x, y), (to, to_y) = start, end
    across = abs(to - x) >= abs(to_y - y)
    towards = ("right" if to > x else "left") if across else ("down" if to_y > y else "up")
    return arrow(f"M{x:g} {y:g}L{to:g} {to_y:g}", end, towards, color, **look)


def flow(start: Point, end: Point, thick: float, color: str, percent: float = 60) -> str:
    """A straight arrow as thick as what it carries: its point has the same length at any width."""
    (x, y), (to, to_y) = start, end
    across = abs(to - x) >= abs(to_y - y)
    sign = 1 if (to > x if across else to_y > y) else -1
    half, point = thick / 2, thick / 2 + 4
    neck = (to if across else to_y) - sign * 7
    corners = [(x, -half), (neck, -half), (neck, -point), (to, 0), (neck, point), (neck, half)]
    if not across:
        corners = [(y, -half), *((to_y if a == to else a, b) for a, b in corners[1:])]
    corners.append((corners[0][0], half))
    at = [(a, y + b) if across else (x + b, a) for a, b in corners]
    path = "L".join(f"{a:g} {b:g}" for a, b in at)
    return f'<path d="M{path}Z" style="fill:{mixed(color, percent)}"/>'


def bracket(
    x: float, y: float, long: float, said: str, side: str = "below", size: float = 10.5
) -> str:
    """A dimension: a line with two ticks from (x, y) on, and words beside it.

    Its side of what it measures, "above", "below", "left" or "right", is where the words stand.
    """
    if side in ("above", "below"):
        tick = 4 if side == "above" else -4
        path = f"M{x:g} {y + tick:g}V{y:g}H{x + long:g}V{y + tick:g}"
        foot = y - 5 if side == "above" else y + size + 3
        return line(path, MUTED) + words(x + long / 2, foot, said, size, color=MUTED)
    tick = 4 if side == "left" else -4
    path = f"M{x + tick:g} {y:g}H{x:g}V{y + long:g}H{x + tick:g}"
    anchor = "end" if side == "left" else "start"
    at = x - 5 if side == "left" else x + 5
    middle = y + long / 2 + 0.35 * size
    return line(path, MUTED) + words(at, middle, said, size, color=MUTED, anchor=anchor)


class Key(NamedTuple):
    """What a color means."""

    color: str
    percent: float
    said: str


def keys(x: float, y: float, wide: float, shown: Sequence[Key], size: float = 10.5) -> str:
    """What the colors mean, from left to right in as many lines as it needs."""
    drawn = []
    for key, (across, down) in zip(shown, _places(wide, shown, size), strict=True):
        top = y + down * (size + 7)
        drawn.append(box(x + across, top, 11, 11, key.color, key.percent, 1))
        drawn.append(words(x + across + 16, top + 9.5, key.said, size, anchor="start"))
    return "".join(drawn)


def _places(wide: float, shown: Sequence[Key], size: float) -> list[tuple[float, int]]:
    """(distance from the left, line) of each key."""
    places: list[tuple[float, int]] = []
    across, down = 0.0, 0
    for key in shown:
        needs = 16 + wide_of(key.said, size)
        if across and across + needs > wide:
            across, down = 0.0, down + 1
        places.append((across, down))
        across += needs + 12
    return places


def group(drawn: Iterable[str], across: float = 0, down: float = 0) -> str:
    """Some parts, moved together."""
    return f'<g transform="translate({across:g} {down:g})">{"".join(drawn)}</g>'


def motion(
    name: str, frames: Mapping[float, str], seconds: float, drawn: Iterable[str], ease: str = ""
) -> str:
    """Parts that move or fade over and over: frames are percent of a turn → CSS.

    `name` is this motion's alone on its page. `ease` is CSS ("linear", "steps(1)"). A reader who
    wants no motion sees `drawn` as it is; so do print and a page that is paused.
    """
    turn = "".join(f"{percent:g}%{{{css}}}" for percent, css in frames.items())
    return (
        f"<style>@keyframes {name}{{{turn}}}</style>"
        f'<g class="am-motion" style="--am-motion:{name} {seconds:g}s {ease or "ease-in-out"} '
        f'infinite">{"".join(drawn)}</g>'
    )


def svg(width: float, height: float, about: str, drawn: Iterable[str], font: str = "sans") -> str:
    """A picture. What is wider than a phone keeps its size there and scrolls in its box.

    What is narrower is drawn larger where there is room.
    """
    about, parts = html.escape(about, quote=True), _rounded("".join(drawn))
    scrolls = width > PHONE
    most = f"max-width:{width if scrolls else width * LARGER:g}px"
    least = f"min-width:{width * 0.9:.0f}px;" if scrolls else ""
    box_ = f' tabindex="0" role="group" aria-label="{about}"' if scrolls else ""
    moves = "am-motion" in parts
    pause = '<label class="am-pause"><input type="checkbox"> pause</label>' if moves else ""
    face = "" if font == "sans" else f";font-family:var(--am-{font})"
    return (
        f'<div class="am-drawing"{box_}><svg viewBox="0 0 {width:g} {height:g}" role="img" '
        f'aria-label="{about}" style="{least}{most}{face}">{parts}</svg>{pause}</div>'
    )


def beside(*pictures: str) -> str:
    """Pictures of the same width in a row, on a phone below each other."""
    return f'<div class="am-drawings">{"".join(pictures)}</div>'


def _rounded(drawn: str) -> str:
    """Places and lengths to a tenth of a pixel: nobody sees more, and a page weighs less."""

    def tenth(number: re.Match[str]) -> str:
        return f"{round(float(number[0]), 1):g}"

    return _PLACES.sub(lambda place: _LONG.sub(tenth, place[0]), drawn)
