"""The smoke list in Firefox and in WebKit: formulas, fonts, the map, search and print."""

from pathlib import Path

import pytest

from tests.browser.widgets import is_built

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FONTS = (
    "[...document.fonts].filter(f => f.status === 'loaded').map(f => f.family.replace(/\"/g, ''))"
)


@pytest.fixture(params=["firefox", "webkit"])
def other(request, playwright):
    """A page of another browser, with what it calls an error."""
    kind = getattr(playwright, request.param)
    if not Path(kind.executable_path).exists():
        pytest.skip(f"NOT RUN: playwright install --with-deps {request.param}")
    launched = kind.launch()
    page = launched.new_page()
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    yield page
    launched.close()


def test_formulas_fonts_map_search_and_print(other, site):
    other.goto(site + "posts/attention_weights/")
    is_built(other, "attention_map")
    other.wait_for_function(f"() => {FONTS}.length >= 3")
    assert {*other.evaluate(FONTS)} >= {"Measured Text", "Measured Code", "Measured Math"}
    fraction = other.locator("math[display=block] mfrac").first
    above, below = (fraction.locator(f"> :nth-child({k})").bounding_box() for k in (1, 2))
    assert above["y"] + above["height"] <= below["y"] + 1
    other.keyboard.press("/")
    other.locator(".md-search__input").fill("why sqrt d")
    other.locator("#am-hits a").nth(2).wait_for()
    other.keyboard.press("Escape")
    other.emulate_media(media="print")
    assert not other.locator(".md-header").is_visible()
    assert other.wrong == []
