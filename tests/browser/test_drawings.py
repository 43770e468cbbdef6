"""Every drawing of the site on one page, in a real browser: no word over another, none cut off.

The page holds the drawings of all fragments with the site's own style sheets. It stands still, as
for a reader who wants no motion.
"""

import re

import pytest

from snippets._lab.draw.drawings import LINES, box, motion, svg
from snippets._lab.rooms import FIGURES, ROOT
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

DRAWING = re.compile(r'^<div class="am-(?:drawing|laptop).*$', re.MULTILINE)
SHEETS = ("colors", "type", "figures", "drawings")
MOVES = {0: "transform:translate(0,0)", 100: "transform:translate(50px,0)"}
LEAST = 11  # pixels of a letter's size
WIDTHS = {"a phone": (390, 338), "a laptop": (1366, 700)}  # of the window, and of the column in it

MEASURE = """() => [...document.querySelectorAll("[data-drawing]")].map(drawing => ({
    name: drawing.dataset.drawing,
    pictures: [...drawing.querySelectorAll(".am-drawing")].filter(d => d.getClientRects().length)
        .map(d => {
            const svg = d.querySelector("svg"), scale = svg.getScreenCTM().a
            const inside = e => { const r = e.getBoundingClientRect()
                                  return [r.left, r.top, r.right, r.bottom] }
            const own = e => [...e.children].map(c => c.tagName).join() === "rect,text"
            return {
                scrolls: d.scrollWidth - d.clientWidth,
                about: svg.getAttribute("aria-label"),
                bounds: inside(svg),
                words: [...svg.querySelectorAll("text")].map(t => ({
                    said: t.textContent,
                    size: scale * parseFloat(getComputedStyle(t).fontSize),
                    box: inside(t),
                })),
                labels: [...svg.querySelectorAll("g")].filter(own).map(g => ({
                    said: g.textContent, box: inside(g.firstChild), text: inside(g.lastChild),
                })),
            }
        }),
}))"""


def page_of(drawings, column):
    """One page of all drawings; name → HTML."""
    style = "".join(
        (ROOT / f"docs/assets/stylesheets/{name}.css").read_text("utf-8") for name in SHEETS
    )
    body = "".join(f'<div data-drawing="{name}">{svg}</div>' for name, svg in drawings.items())
    return (
        f'<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">'
        f"<style>{style} main {{width: {column}px; margin: auto}}</style>"
        f'<body data-md-color-scheme="default"><main class="md-typeset">{body}</main></body></html>'
    )


def all_drawings():
    found = {}
    for path in sorted(FIGURES.glob("*/*.md")):
        if drawn := DRAWING.findall(path.read_text("utf-8")):
            found[f"{path.parent.name}/{path.stem}"] = "".join(drawn)
    return found


def core(box):
    """The part of a line of words where its letters are, without the room above and below."""
    left, top, right, bottom = box
    tall = bottom - top
    return left + 0.5, top + 0.22 * tall, right - 0.5, bottom - 0.22 * tall


def overlap(a, b):
    return min(a[2], b[2]) > max(a[0], b[0]) and min(a[3], b[3]) > max(a[1], b[1])


def within(inner, outer, slack=0.5):
    return (
        inner[0] >= outer[0] - slack
        and inner[1] >= outer[1] - slack
        and inner[2] <= outer[2] + slack
        and inner[3] <= outer[3] + slack
    )


def faults(picture):
    """What is wrong with the words of one picture."""
    yield from (["has no text alternative"] if not picture["about"] else [])
    if picture["scrolls"] > 0:
        yield f"scrolls by {picture['scrolls']} px"
    all_words = [w for w in picture["words"] if w["said"].strip()]
    for index, word in enumerate(all_words):
        if word["size"] < LEAST:
            yield f"{word['said']!r} is {word['size']:.1f} px small"
        if not within(core(word["box"]), picture["bounds"]):
            yield f"{word['said']!r} is cut off"
        for other in all_words[index + 1 :]:
            if overlap(core(word["box"]), core(other["box"])):
                yield f"{word['said']!r} lies on {other['said']!r}"
    for label in picture["labels"]:
        if not within(core(label["text"]), label["box"]):
            yield f"{label['said']!r} leaves its box"


def wrong_on(page, drawings, column):
    page.set_content(page_of(drawings, column))
    measured = some(page.evaluate(MEASURE))
    return {
        each["name"]: found
        for each in measured
        if (found := [f for picture in some(each["pictures"]) for f in faults(picture)])
    }


@pytest.mark.parametrize("device", WIDTHS)
def test_words_of_drawings_can_be_read(open_page, device):
    window, column = WIDTHS[device]
    page = open_page(viewport={"width": window, "height": 800}, reduced_motion="reduce")
    drawings = some(all_drawings())
    wrong = wrong_on(page, drawings, column)
    assert not wrong, "\n".join(f"{name}: {'; '.join(found)}" for name, found in wrong.items())


def test_motion_stops_for_a_reader_who_wants_none_and_on_demand(open_page):
    drawn = {"moves": svg(344, 60, "about", [motion("am-m", MOVES, 2, [box(0, 0, 9, 9, LINES)])])}
    running = "getComputedStyle(document.querySelector('.am-motion')).animationPlayState"
    name = "getComputedStyle(document.querySelector('.am-motion')).animationName"
    still = open_page(reduced_motion="reduce")
    still.set_content(page_of(drawn, 358))
    assert still.evaluate(name) == "none"
    assert not still.get_by_label("pause").is_visible()
    page = open_page(reduced_motion="no-preference")
    page.set_content(page_of(drawn, 358))
    assert page.evaluate(name) == "am-m"
    assert page.evaluate(running) == "running"
    page.get_by_label("pause").check()
    assert page.evaluate(running) == "paused"
