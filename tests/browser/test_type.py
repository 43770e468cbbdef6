"""Type in the built site: every character has its font, nothing moves, formulas have their form."""

import html
import re

import pytest
from fontTools.ttLib import TTFont

from snippets._lab.rooms import ROOT
from snippets._site.browser import PHONE
from tests.browser.browser import FONTS, built, measure_shift, scratch_source

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

# Signs that IBM Plex does not have: a font of the reader's machine shows them.
OF_THE_MACHINE = set("✚┄☰⏎▸▾↗↻⏸⏵⟲✗ᵢⱼ⁻ⁱ")
SHIFT = 0.02
LINE = "Attention reads every key once for a block of queries, and its rows sum to one."
WIDTHS = """([line, families]) => families.map(([family, weight, size]) => {
  const span = document.createElement("span");
  span.style.cssText = `position:absolute;white-space:nowrap;`
    + `font:${weight} 100px "${family}", monospace`;
  span.textContent = line;
  document.body.append(span);
  const width = span.getBoundingClientRect().width;
  span.remove();
  return width;
})"""
FORMULAS = r"""# Formulas

$$\operatorname{softmax}\left(\frac{QK^\top}{\sqrt{D}}\right)V$$

$$m = \max_k s_k + \sum_{j=1}^N m'$$

A line with $m + \log M$ and $\sqrt{d}$.
"""
# What the formulas of that page look like, in units of the size of their type.
FORMS = """() => {
  const [first, second] = document.querySelectorAll("math[display=block]");
  const size = parseFloat(getComputedStyle(first).fontSize);
  const box = (node) => node.getBoundingClientRect();
  const named = (within, text) =>
    [...within.querySelectorAll("mo, mi")].find(x => x.textContent === text);
  const fonts = [...document.fonts].filter(f => f.status === "loaded");
  const max = named(second, "max");
  const sum = named(second, "∑");
  const [log, root] = document.querySelectorAll("p math");
  const name = named(log, "log");
  return {
    parenthesis: box(named(first, "(")).height / box(first.querySelector("mfrac")).height,
    below: (box(max.parentElement.lastElementChild).top - box(max).bottom) / size,
    beside: (box(max.parentElement.lastElementChild).left - box(max).right) / size,
    bound: (box(sum).top - box(sum.parentElement.lastElementChild).bottom) / size,
    prime: parseFloat(getComputedStyle(named(second, "′")).fontSize) / size,
    gap: (box(name.parentElement.lastElementChild).left - box(name).right) / size,
    after: (box(root).right - box(root.querySelector("mi")).right) / size,
    loaded: fonts.map(f => f.family.replaceAll('"', "")),
  };
}"""


def right_form(seen):
    """What is wrong with the formulas of the page above."""
    wrong = []
    if seen["parenthesis"] < 0.9:
        wrong.append("a parenthesis does not reach around its fraction")
    if seen["below"] < -0.35 or seen["beside"] > -0.2:
        wrong.append("the subscript of max does not stand below it")
    if seen["bound"] < -0.35:
        wrong.append("the upper bound of a sum does not stand above it")
    if seen["prime"] < 0.9:
        wrong.append("a prime is set as small as a superscript")
    if not 0.1 < seen["gap"] < 0.35:
        wrong.append("log and its argument have no thin space between them")
    if seen["after"] > 0.15:
        wrong.append("a gap follows a root")
    if "Measured Math" not in seen["loaded"]:
        wrong.append("the font of formulas is not used")
    return wrong


@pytest.fixture(scope="module")
def formulas_page(tmp_path_factory):
    source = scratch_source(tmp_path_factory.mktemp("source"), {"index.md": FORMULAS})
    with built(source, tmp_path_factory.mktemp("site")) as address:
        yield address


def test_formulas_have_their_form(open_page, formulas_page):
    page = open_page()
    page.goto(formulas_page, wait_until="networkidle")
    assert right_form(page.evaluate(FORMS)) == []
    assert page.wrong == []


def test_a_formula_that_lost_its_form_is_seen(open_page, formulas_page):
    page = open_page()
    page.goto(formulas_page, wait_until="networkidle")
    page.evaluate("""() => {
      document.querySelectorAll("mspace").forEach(x => x.remove());
      document.querySelectorAll("mo").forEach(x => x.setAttribute("stretchy", "false"));
      document.querySelectorAll("munder, munderover").forEach(old => {
        const beside = document.createElementNS(old.namespaceURI, "mrow");
        beside.append(...old.childNodes);
        old.replaceWith(beside);
      });
    }""")
    assert len(right_form(page.evaluate(FORMS))) >= 4


def test_every_character_of_the_site_is_in_its_fonts(site_folder):
    fonts = list((ROOT / "docs/assets/fonts").glob("*.woff2"))
    there = set().union(*(map(chr, TTFont(path, lazy=True).getBestCmap()) for path in fonts))
    there |= OF_THE_MACHINE | set("\n\t\r\u200b\u2009\u202f\u00ad")
    shown, lacking = set(), {}
    for path in sorted(site_folder.rglob("*.html")):
        text = re.sub(r"<(script|style)\b.*?</\1>", "", path.read_text("utf-8"), flags=re.DOTALL)
        text = html.unescape(re.sub(r"<[^>]*>", "", text))
        shown |= {*text}
        if left := sorted({*text} - there):
            lacking[str(path.relative_to(site_folder))] = left
    assert {"√", "ᵀ", "−", "…", "a"} <= shown
    assert lacking == {}, "say it in characters that docs/assets/fonts has"


def test_fonts_come_after_the_text_and_move_nothing(open_page, site):
    page = open_page(viewport=PHONE)
    measure_shift(page)
    late = []
    page.route(FONTS, lambda route: late.append(route))
    page.goto(site + "posts/attention_weights/", wait_until="domcontentloaded")
    page.wait_for_timeout(800)
    assert page.evaluate("performance.getEntriesByName('first-contentful-paint').length") == 1
    assert late, "text is there before its font"
    before = page.evaluate("shift")
    for route in late:
        route.continue_()
    page.evaluate("document.fonts.ready")
    page.wait_for_timeout(300)
    assert page.evaluate("document.fonts.check('16px \"Measured Text\"')")
    assert page.evaluate("shift") - before <= SHIFT
    assert page.locator("link[rel=preload][as=font]").count() == 0


def test_a_stand_in_is_as_wide_as_its_font(open_page, site):
    page = open_page()
    page.goto(site + "reference/topics/", wait_until="networkidle")
    families = [
        ["Measured Text", 400],
        ["Text Before", 400],
        ["Measured Text", 650],
        ["Text Before", 650],
    ]
    regular, before, bold, bold_before = page.evaluate(WIDTHS, [LINE, families])
    assert abs(before / regular - 1) < 0.02
    assert abs(bold_before / bold - 1) < 0.02
    narrow, wide = page.evaluate(
        WIDTHS, ["iiii mmmm", [["Measured Code", 400], ["Code Before", 400]]]
    )
    assert abs(narrow / wide - 1) < 0.01


def test_fonts_stay_when_a_reader_goes_to_a_page_of_another_level(open_page, site):
    page = open_page()
    page.goto(site + "posts/attention_weights/", wait_until="networkidle")
    page.locator("a.md-logo:visible").first.click()
    page.wait_for_url(site)
    page.wait_for_function("() => document.fonts.check('16px \"Measured Text\"')")
    assert page.wrong == [], "a file that is not there"
