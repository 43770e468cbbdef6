"""Type in the built site: every character has its font, and fonts that come late move nothing."""

import html
import re

import pytest
from fontTools.ttLib import TTFont

from snippets._lab.rooms import ROOT
from snippets._site.browser import PHONE
from tests.browser.browser import FONTS, measure_shift

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

# Signs that IBM Plex does not have: a font of the reader's machine shows them.
OF_THE_MACHINE = set("✚┄☰⏎▸▾↗↻⏸⏵⟲✗ᵢⱼ⁻ⁱ")
SHIFT = 0.02


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
