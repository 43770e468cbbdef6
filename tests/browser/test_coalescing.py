"""The picture of lanes and sectors in a real browser: stepping, keys, phone, dark, without data."""

import re

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BOX = ".am-lanes"
PICTURE = f"{BOX} svg[role=img]"
TOUCHED = f"{BOX} .am-lanes-touched"
SUMMARY = f"{BOX} .am-lanes-summary"


@pytest.fixture
def lanes(open_page, site):
    """Opens the page with the picture drawn."""

    def lanes(viewport=LAPTOP, **options):
        page = open_page(viewport, **options)
        assert page.goto(f"{site}posts/coalescing/").status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(PICTURE).wait_for()
        return page

    return lanes


def state(page):
    """(dtype, stride, sectors) as the text says, checked against the picture and its label."""
    text = page.locator(SUMMARY).inner_text()
    dtype, stride, count = re.match(r"(\w+), stride (\d+): .* touch (\d+) sectors", text).groups()
    assert page.locator(TOUCHED).count() == int(count), text
    assert text in page.locator(PICTURE).get_attribute("aria-label")
    assert page.locator(f"{BOX} input[type=range]").input_value() == stride
    return dtype, int(stride), int(count)


def test_clicks_step_the_picture_and_its_text(lanes):
    page = lanes()
    assert state(page) == ("float32", 1, 4)
    page.get_by_role("button", name="Stride plus one").click()
    assert state(page) == ("float32", 2, 8)
    page.get_by_role("button", name="Stride 32", exact=True).click()
    assert state(page) == ("float32", 32, 32)
    assert page.get_by_role("button", name="Stride plus one").is_disabled()
    page.get_by_role("button", name="Stride less one").click()
    assert state(page) == ("float32", 31, 32)
    page.get_by_role("button", name="Stride 4", exact=True).click()
    page.get_by_role("radio", name="float16").check()
    assert state(page) == ("float16", 4, 8)
    pressed = page.locator(f"{BOX} button[aria-pressed=true]")
    assert pressed.all_inner_texts() == ["4"]
    page.wait_for_url("**?lanes=float16.4*")
    page.reload()
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(PICTURE).wait_for()
    assert state(page) == ("float16", 4, 8), "a shared link opens another view"
    assert page.wrong == []


def test_arrow_keys_step_the_picture(lanes):
    page = lanes()
    page.locator(f"{BOX} input[type=range]").focus()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    assert state(page) == ("float32", 4, 16)
    page.keyboard.press("ArrowLeft")
    assert state(page) == ("float32", 3, 12)
    page.keyboard.press("End")
    assert state(page) == ("float32", 32, 32)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")  # over "plus one", which is disabled at the last stride
    page.keyboard.press("Enter")
    assert state(page) == ("float32", 2, 8)
    assert page.wrong == []


def test_it_fits_a_phone_and_answers_a_finger(lanes):
    page = lanes(PHONE, has_touch=True, is_mobile=True)
    page.get_by_role("button", name="Stride 8", exact=True).tap()
    assert state(page) == ("float32", 8, 32)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    edges = page.locator(f"{BOX} svg rect").evaluate_all(
        "all => all.map(r => r.getBBox()).map(b => [b.x, b.x + b.width])"
    )
    width = page.locator(PICTURE).evaluate("svg => svg.clientWidth")
    assert all(left >= -0.5 and right <= width + 0.5 for left, right in some(edges))
    heights = page.locator(f"{BOX} button").evaluate_all("all => all.map(b => b.offsetHeight)")
    assert min(heights) >= 44
    assert page.wrong == []


def test_the_dark_switch_recolors_it(lanes):
    page = lanes(color_scheme="light")
    colors = {}
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        fill = page.locator(TOUCHED).first.evaluate("rect => getComputedStyle(rect).fill")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert fill != paper
        colors[scheme] = fill
    assert colors["default"] != colors["slate"]
    assert page.wrong == []


def test_it_follows_the_width(lanes):
    page = lanes()
    wide = page.locator(PICTURE).get_attribute("viewBox")
    page.set_viewport_size({**LAPTOP, "width": 700})
    page.wait_for_function(
        "([box, wide]) => document.querySelector(box).getAttribute('viewBox') !== wide",
        arg=[PICTURE, wide],
    )
    assert state(page) == ("float32", 1, 4)


def test_it_survives_instant_navigation(lanes):
    page = lanes()
    title = page.title()
    page.evaluate("window.sameDocument = true")
    others = page.locator(".md-nav--primary a.md-nav__link:not(.md-nav__link--active, [href*='#'])")
    others.first.evaluate("link => link.click()")
    page.wait_for_function("title => document.title !== title", arg=title)
    page.go_back()
    page.wait_for_function("title => document.title === title", arg=title)
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(PICTURE).wait_for()
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"
    assert page.locator(BOX).evaluate("box => getComputedStyle(box).minHeight") != "0px"
    own = "document.head.querySelectorAll('style:not([id])').length"  # Plotly's have one
    # The page's style, its two widgets' (the lanes, a prediction), and none of a page before.
    assert page.evaluate(own) == 3
    page.get_by_role("button", name="Stride 2", exact=True).click()
    assert state(page) == ("float32", 2, 8)
    assert page.wrong == []


def test_without_a_script_there_is_a_table(open_page, site):
    page = open_page(java_script_enabled=False)
    page.goto(f"{site}posts/coalescing/")
    table = page.locator(f"{BOX} table")
    assert table.is_visible()
    assert table.locator("tbody tr").count() >= 6
    assert "sectors" in table.inner_text()


@pytest.mark.parametrize("broken", ["missing", "truncated", "nonsense"])
def test_addresses_that_cannot_be_read_are_named_and_the_table_stays(open_page, site, broken):
    page = open_page()
    answer = {"missing": {"status": 404}, "truncated": {"body": '{"requests": ['}}
    answer = answer.get(broken, {"body": '{"requests": [{"stride": "one"}]}'})
    page.route("**/lanes_addresses.json", lambda route: route.fulfill(**answer))
    page.goto(f"{site}posts/coalescing/")
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "lanes_addresses.json" in message.inner_text()
    assert page.locator(f"{BOX} table").is_visible()
    assert page.locator(PICTURE).count() == 0
