"""Pages and their figures in a real browser: policy, keys, schemes, weight, moving about.

What is asked of all pages is asked in test_walk.py.
"""

from urllib.parse import urlsplit

import pytest

from snippets._site.browser import LAPTOP, PHONE, Server
from snippets._site.browser import addresses as addresses_of
from tests.browser.browser import (
    away_and_back,
    measure_shift,
    only_missing,
    plotly_is_loaded,
    switch_scheme,
)
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BYTES, REQUESTS, INDEX_BYTES = 160_000, 11, 125_000  # of a page before a figure; of the search
KEPT_AND_TAKEN = """() => [...document.querySelectorAll('.md-content__inner > *')]
  .filter(box => getComputedStyle(box).contentVisibility === 'auto')
  .map(box => {
    const kept = box.offsetHeight;
    box.style.contentVisibility = 'visible';
    return [box.className + ' ' + box.textContent.trim().slice(0, 40), kept, box.offsetHeight];
  })"""
FOCUS_RING = """() => {
  const part = document.activeElement;
  if (!part || part === document.body) return null;
  const seen = [part, part.nextElementSibling, part.parentElement].filter(Boolean);
  const visible = seen.some(x => {
    const style = getComputedStyle(x);
    return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0)
      || style.boxShadow !== 'none';
  });
  const changed = part.matches('.md-skip, .md-search__input'); // shown, or a caret in it
  const words = part.id + part.className + part.outerHTML.slice(0, 120);
  return {part: words, visible: visible || changed};
}"""


@pytest.fixture(scope="session")
def addresses(site, site_folder):
    found = [site + page for page in addresses_of(site_folder)]
    assert len(found) >= 5, found
    return found


PLANTED = {
    "an inline script": "document.body.append(Object.assign("
    "document.createElement('script'), {textContent: 'window.planted = 1'}))",
    "eval": "setTimeout(() => { try { window.eval('1'); } catch {} })",
    "a foreign picture": "document.body.append(Object.assign("
    "new Image(), {src: 'https://example.org/x.png'}))",
    "a foreign request": "fetch('https://example.org/').catch(() => {})",
    "a foreign base": "document.head.append(Object.assign("
    "document.createElement('base'), {href: 'https://example.org/'}))",
}


@pytest.mark.parametrize("fault", PLANTED)
def test_the_policy_stops_a_planted_fault(browser, addresses, fault):
    page = browser.new_page()
    page.goto(addresses[-1])
    page.evaluate(
        """() => { window.stopped = new Promise(resolve =>
        addEventListener('securitypolicyviolation', e => resolve(e.effectiveDirective))); }"""
    )
    page.evaluate(f"() => {{ {PLANTED[fault]} }}")
    assert page.evaluate("stopped")
    assert page.evaluate("window.planted") is None
    page.close()


def test_the_keyboard_reaches_the_page_and_its_focus_is_seen(open_page, addresses):
    page = open_page(at=next(a for a in addresses if "/posts/" in a))
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(FOCUS_RING))
    unseen = [entry["part"] for entry in some(seen) if entry and not entry["visible"]]
    assert not unseen
    parts = [entry["part"] for entry in seen if entry]
    assert "md-skip" in parts[0], "the first stop leads past the header"
    assert any("__palette" in part for part in parts), "the color scheme has no key"
    assert len(set(parts)) > 20, "focus goes round in a circle"


def test_the_scheme_answers_to_keys_is_kept_and_follows_the_system(open_page, addresses):
    page = open_page(at=addresses[0], color_scheme="dark")
    body = page.locator("body")
    assert body.get_attribute("data-md-color-scheme") == "slate"
    page.emulate_media(color_scheme="light")
    page.wait_for_function("() => document.body.dataset.mdColorScheme === 'default'")
    page.locator("input[name=__palette]:checked").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert body.get_attribute("data-md-color-scheme") == "slate"
    page.goto(addresses[1])
    assert body.get_attribute("data-md-color-scheme") == "slate"


def test_a_page_is_light_before_a_figure_is_seen(browser, site, site_folder):
    with Server(site_folder) as server:
        for address in some(addresses_of(site_folder)):
            page = browser.new_page(viewport=PHONE)
            server.sent.clear()
            page.goto(server.address + address, wait_until="load")
            page.wait_for_timeout(300)
            index = sum(n for path, n in server.sent if path.endswith("/search_index.json"))
            figure = [p for p, _ in server.sent if "/figures/" in p or "/vendor/" in p]
            rest = [(p, n) for p, n in server.sent if p not in figure and "search_index" not in p]
            text = [(p, n) for p, n in rest if not p.endswith(".woff2")]
            page.close()
            assert index == 0, f"/{address}: nobody has asked for the search"
            assert sum(n for _, n in text) <= BYTES, f"/{address}: {text}"
            assert 3 < len(rest) <= REQUESTS, f"/{address}: {rest}"


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("post", ["tiled_attention", "basic_attention"])
def test_code_and_charts_take_the_room_that_was_kept_for_them(open_page, site, post, viewport):
    """Else what a reader reaches for moves away under the pointer."""
    page = open_page(viewport, at=f"{site}posts/{post}/")
    found = page.evaluate(KEPT_AND_TAKEN)
    least = 2 if viewport is PHONE else 4  # a phone wraps code and keeps it no room
    for name, kept, taken in some(found, least):
        assert abs(kept - taken) < 24, f"{name}: {kept} px are kept, {taken} needed"


def test_the_index_of_the_search_is_small_and_comes_when_a_reader_turns_to_it(browser, site_folder):
    with Server(site_folder) as server:
        page = browser.new_page(viewport=PHONE)
        page.goto(server.address, wait_until="load")
        page.locator("label.md-header__button[for=__search]").click()
        page.wait_for_function("() => document.querySelector('#am-hits').dataset.question === ''")
        index = sum(n for path, n in server.sent if path.endswith("/search_index.json"))
        page.close()
    assert 10_000 < index <= INDEX_BYTES


# Figures.

DRAWN = ".am-plot.am-drawn .main-svg"
TEXT_COLOR = "box => getComputedStyle(box.querySelector('.xtick text, .x2tick text')).fill"


def figure_drawn(page, site):
    """The first figure of a page, once it is drawn; it lies below the first view."""
    page.goto(f"{site}posts/coalescing/", wait_until="networkidle")
    box = page.locator(".am-plot").first
    before = box.bounding_box()
    assert before["y"] > 2 * LAPTOP["height"]
    assert before["height"] >= 200, "no room is reserved"
    assert not plotly_is_loaded(page), "plotly came without a figure near"
    box.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()
    assert box.bounding_box()["height"] == before["height"]
    return box


def test_a_figure_is_drawn_when_it_comes_near_and_nothing_jumps(open_page, site):
    page = open_page()
    measure_shift(page, fonts=False)
    box = figure_drawn(page, site)
    assert page.evaluate("shift") < 0.01
    page.set_viewport_size({**LAPTOP, "width": 1000})
    page.wait_for_function(
        "box => box.clientWidth == box.querySelector('.main-svg').getAttribute('width')",
        arg=box.element_handle(),
    )


def test_a_figure_follows_the_scheme_and_instant_navigation(open_page, site):
    page = open_page(color_scheme="light")
    box = figure_drawn(page, site)
    colors = {}
    for scheme in ("default", "slate", "default"):
        switch_scheme(page, scheme)
        page.wait_for_timeout(300)
        assert colors.setdefault(scheme, box.evaluate(TEXT_COLOR)) == box.evaluate(TEXT_COLOR)
    assert colors["default"] != colors["slate"]
    away_and_back(page)
    page.locator(".am-plot").first.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()


@pytest.mark.parametrize("broken", ["missing", "truncated"])
def test_figure_data_that_cannot_be_read_is_named(open_page, site, broken):
    page = open_page()
    answer = {"status": 404} if broken == "missing" else {"body": '{"data": ['}
    page.route("**/figures/**/*.json", lambda route: route.fulfill(**answer))
    page.goto(f"{site}posts/coalescing/")
    box = page.locator(".am-plot").first
    name = urlsplit(box.locator(".am-source").get_attribute("href")).path.rpartition("/")[2]
    box.scroll_into_view_if_needed()
    message = box.locator(".am-missing")
    message.wait_for()
    assert name in message.inner_text()
    assert ("404" if broken == "missing" else "JSON") in message.inner_text()
    only_missing(page)
