"""Drawings as inline SVG, in one language: boxes, words, arrows, in the colours of identity.

Paper, ink and lines are the page's own colours, so that a drawing follows its theme.
"""

import html
from collections.abc import Iterable

INK, MUTED, LINES = "var(--am-ink)", "var(--am-muted)", "var(--am-axis)"
PALE = 22  # percent of a colour in a box that words are read on
TIP = 3, 5  # half the width of an arrow's point, and its length


def box(
    x: float,
    y: float,
    wide: float,
    tall: float,
    colour: str,
    percent: float = PALE,
    line: float = 0,
) -> str:
    """Filled with so much of a colour and paper for the rest, so that no arrow crosses a word."""
    stroke = f' stroke="{colour}" stroke-width="{line:g}"' if line else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="3" style="fill:'
        f'color-mix(in srgb,{colour} {percent:g}%,var(--am-paper))"{stroke}/>'
    )


def words(
    x: float,
    y: float,
    said: str,
    size: float = 11,
    weight: int = 400,
    *,
    colour: str = INK,
    anchor: str = "middle",
) -> str:
    """A line of words whose foot is at y."""
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{colour}">{html.escape(said, quote=False)}</text>'
    )


def labelled(
    x: float, y: float, wide: float, tall: float, colour: str, said: str, size: float = 10
) -> str:
    """A pale box with a line around it and words in its middle."""
    middle = words(x + wide / 2, y + tall / 2 + 0.35 * size, said, size)
    return box(x, y, wide, tall, colour, PALE, 1) + middle


def arrow(path: str, tip: tuple[float, float], towards: str, colour: str, **look: object) -> str:
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
        f'<g fill="none" stroke="{colour}" stroke-width="1.4"{more}><path d="{path}"{dashed}/>'
        f'<path d="M{a:g} {b:g}L{x:g} {y:g}L{c:g} {d:g}"/></g>'
    )


def svg(width: float, height: float, about: str, drawn: Iterable[str], font: str = "sans") -> str:
    """A picture that keeps its size on a phone and scrolls in its box there."""
    about = html.escape(about, quote=True)
    return (
        f'<div style="overflow-x:auto" tabindex="0" role="group" aria-label="{about}">'
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{about}" '
        f'style="display:block;width:100%;min-width:{width * 0.9:.0f}px;max-width:{width:g}px;'
        f'margin:0 auto;font-family:var(--am-{font})">' + "".join(drawn) + "</svg></div>"
    )
