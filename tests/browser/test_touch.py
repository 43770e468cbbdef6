"""Every page on a phone, by finger and by eye: what is touched is large enough, what is read too.

WCAG 2.2 asks 24 pixels of a target (2.5.8), and leaves out links within a sentence. One walk
measures all pages; planted faults show that it finds what is too small.
"""

import pytest

from snippets._site.browser import PHONE, addresses, see_everything
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

TARGET = 24  # pixels, each way
LETTERS = 9.5  # pixels of a letter's size in a drawing
# Targets that a finger may miss. A label is a part of its control's target, and what a target
# paints over its surroundings too: where the box is small, the page is asked what lies around it.
SMALL_TARGETS = """least => {
  const asked = "a[href], button, summary, select, input, [role=button], [role=slider]";
  const blocks = "p, li, td, th, dt, dd, figcaption, summary, h1, h2, h3, h4, pre, div";
  const inSentence = (part) => {
    const block = part.closest(blocks);
    if (!block || !part.matches("a")) return false;
    if (!getComputedStyle(part).display.startsWith("inline")) return false;
    const rest = block.cloneNode(true);
    rest.querySelectorAll("a, button, svg").forEach((link) => link.remove());
    return /[\\p{L}\\p{N}]/u.test(rest.textContent);
  };
  const boxOf = (part) => {
    const all = [part, ...(part.labels ?? [])].map((each) => each.getBoundingClientRect());
    const far = (side, most) => most(...all.map((box) => box[side]));
    const [left, top] = [far("left", Math.min), far("top", Math.min)];
    const [right, bottom] = [far("right", Math.max), far("bottom", Math.max)];
    return { left, top, right, bottom, width: right - left, height: bottom - top };
  };
  const hit = (part, x, y) => {
    const there = document.elementFromPoint(x, y);
    return there && [part, ...(part.labels ?? [])].some((each) => each.contains(there));
  };
  const seen = (part) => part.checkVisibility({ visibilityProperty: true }) && !part.disabled
    && part.getClientRects().length && !part.matches(".md-skip, .md-toggle, [type=hidden]")
    && !part.closest("[inert], [hidden], [aria-hidden=true]");
  return [...document.querySelectorAll(asked)].filter((part) => {
    if (!seen(part) || inSentence(part)) return false;
    let box = boxOf(part);
    if (Math.min(box.width, box.height) >= least - 0.01) return false;
    part.scrollIntoView({ block: "center" });
    box = boxOf(part);
    const [x, y, far] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2, least / 2 - 0.6];
    if (x < 0 || x > innerWidth) return false; // drawn aside, for the keyboard or a reader's ear
    const around = [[-far, 0], [far, 0], [0, -far], [0, far]];
    return !around.every(([dx, dy]) => hit(part, x + dx, y + dy));
  }).map((part) => {
    const { width, height } = boxOf(part);
    return `${width.toFixed(0)} × ${height.toFixed(0)}: ${part.outerHTML.slice(0, 110)}`;
  });
}"""
SMALL_LETTERS = """least => [...document.querySelectorAll(".md-content svg text")]
  .filter((text) => text.textContent.trim() && text.checkVisibility({ visibilityProperty: true })
    && !text.closest(".am-plot"))
  .map((text) => ({
    said: text.textContent,
    size: Math.hypot(text.getScreenCTM().a, text.getScreenCTM().b)
      * parseFloat(getComputedStyle(text).fontSize),
  }))
  .filter(({ size }) => size < least - 0.01)
  .map(({ said, size }) => `${size.toFixed(1)} px: ${said}`)"""


def measured(page):
    """What is too small on the page that is open: targets, and letters of drawings."""
    return page.evaluate(SMALL_TARGETS, TARGET), page.evaluate(SMALL_LETTERS, LETTERS)


@pytest.fixture(scope="module")
def walk(browser, site, site_folder):
    """Address → what is too small there."""
    context = browser.new_context(viewport=PHONE, has_touch=True, reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(15_000)
    found = {}
    for address in some(addresses(site_folder), 20):
        page.goto(site + address)
        page.add_style_tag(content="* { content-visibility: visible !important }")
        page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        see_everything(page)
        found[address] = measured(page)
    context.close()
    return found


def test_what_is_touched_is_as_large_as_a_finger_needs(walk):
    small = {address: targets for address, (targets, _) in some(walk, 20).items() if targets}
    assert not small, "\n".join(f"/{a}: {t}" for a, ts in small.items() for t in dict.fromkeys(ts))


def test_letters_in_drawings_can_be_read(walk):
    small = {address: letters for address, (_, letters) in some(walk, 20).items() if letters}
    assert not small, "\n".join(f"/{a}: {'; '.join(dict.fromkeys(t))}" for a, t in small.items())


def test_what_is_too_small_is_found(open_page, site):
    page = open_page(PHONE)
    page.goto(site + "reference/topics/")
    page.evaluate(
        """() => document.querySelector('.md-content__inner').insertAdjacentHTML('afterbegin', `
        <p>A <a href="#a">sentence</a>.</p>
        <p><a href="#b" id="alone" style="padding: 0; font-size: 12px">alone</a></p>
        <button id="tiny" style="padding: 0; width: 10px; height: 10px"></button>
        <p style="position: relative; height: 40px"><a href="#c" style="line-height: 1">large
        <i style="position: absolute; inset: 0"></i></a></p>
        <label style="display: block; height: 30px; width: 90px">
          <input type="checkbox" id="box"> choose</label>
        <svg viewBox="0 0 100 50" width="50"><text y="20" font-size="12">tiny</text></svg>
        <svg viewBox="0 0 100 50" width="100"><text y="20" font-size="12">fine</text></svg>`)"""
    )
    targets, letters = measured(page)
    assert [t for t in targets if "alone" in t], targets
    assert [t for t in targets if "tiny" in t], targets
    assert not [t for t in some(targets) if "#a" in t or "#c" in t or 'id="box"' in t], targets
    assert letters == ["6.0 px: tiny"]
