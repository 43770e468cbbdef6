"""The built site in a real browser: what only a browser can tell.

Needs chromium. Without it these tests are skipped, and `make test` says so; with CI=true they fail.
"""

import gzip
from urllib.parse import urlsplit

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import measure_shift, plotly_is_loaded, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FIRST_VIEW_BYTES = 200_000
# What a plot looks like once it is drawn, and its text color.
DRAWN = ".am-plot.am-drawn .main-svg"
TEXT_COLOR = "box => getComputedStyle(box.querySelector('.xtick text, .x2tick text')).fill"


@pytest.fixture(scope="session")
def pages(site, browser):
    """Addresses of the pages in the navigation, in order."""
    page = browser.new_page()
    page.goto(site)
    links = page.locator(".md-nav--primary a.md-nav__link").evaluate_all(
        "links => links.map(a => a.href.split('#')[0])"
    )
    page.close()
    pages = list(dict.fromkeys(links))
    assert len(pages) >= 2, f"the navigation lists too little to check: {pages}"
    return pages


@pytest.fixture(scope="session")
def figure_page(pages, browser):
    """The first page whose first figure lies well below the first view of a laptop."""
    page = browser.new_page(viewport=LAPTOP)
    tops = {}
    for address in pages:
        page.goto(address)
        top = "boxes => boxes[0]?.getBoundingClientRect().top"
        tops[address] = page.locator(".am-plot").evaluate_all(top)
        if tops[address] and tops[address] > 2 * LAPTOP["height"]:
            page.close()
            return address
    return pytest.fail(f"no page with a figure below the first view, tops: {tops}")


def test_every_page_and_figure_loads_and_fits_a_phone(open_page, pages):
    """On a laptop: the walk of test_site."""
    page = open_page(PHONE)
    figures = 0
    for address in some(pages):
        assert page.goto(address).status == 200
        for box in page.locator(".am-plot").all():
            if box.is_visible():
                box.scroll_into_view_if_needed()
                box.locator(".main-svg").first.wait_for()
                figures += 1
        overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert overflow <= 0, f"{address} is {overflow} px too wide"
    assert figures, "no page has a figure"
    assert page.wrong == []


def test_a_figure_is_drawn_when_it_comes_near_and_nothing_jumps(open_page, figure_page):
    page = open_page()
    measure_shift(page, fonts=False)
    page.goto(figure_page, wait_until="networkidle")
    box = page.locator(".am-plot").first
    before = box.bounding_box()
    assert before["height"] >= 200, "no room is reserved"
    assert not plotly_is_loaded(page), "plotly came without a figure near"
    box.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()
    assert box.bounding_box()["height"] == before["height"]
    assert page.evaluate("shift") < 0.01
    page.set_viewport_size({**LAPTOP, "width": 1000})
    page.wait_for_function(
        "box => box.clientWidth == box.querySelector('.main-svg').getAttribute('width')",
        arg=box.element_handle(),
    )
    assert page.wrong == []


def test_the_dark_switch_recolors_a_figure(open_page, figure_page):
    page = open_page(color_scheme="light")
    page.goto(figure_page)
    box = page.locator(".am-plot").first
    box.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()
    colors = {}
    for scheme in ("default", "slate", "default"):
        switch_scheme(page, scheme)
        page.wait_for_timeout(300)
        assert colors.setdefault(scheme, box.evaluate(TEXT_COLOR)) == box.evaluate(TEXT_COLOR)
    assert colors["default"] != colors["slate"]
    assert page.wrong == []


def test_instant_navigation_away_and_back_keeps_figures(open_page, figure_page):
    page = open_page()
    page.goto(figure_page)
    page.locator(".am-plot").first.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()
    title = page.title()
    page.evaluate("window.sameDocument = true")
    others = page.locator(".md-nav--primary a.md-nav__link:not(.md-nav__link--active, [href*='#'])")
    others.first.evaluate("link => link.click()")  # also where a page hides its navigation
    page.wait_for_function("title => document.title !== title", arg=title)
    page.go_back()
    page.wait_for_function("title => document.title === title", arg=title)
    page.locator(".am-plot").first.scroll_into_view_if_needed()
    page.locator(DRAWN).first.wait_for()
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"
    switch_scheme(page, "slate")
    assert page.wrong == []


@pytest.mark.parametrize("broken", ["missing", "truncated"])
def test_figure_data_that_cannot_be_read_is_named(open_page, figure_page, broken):
    page = open_page()
    answer = {"status": 404} if broken == "missing" else {"body": '{"data": ['}
    page.route("**/figures/**/*.json", lambda route: route.fulfill(**answer))
    page.goto(figure_page)
    box = page.locator(".am-plot").first
    name = urlsplit(box.locator(".am-source").get_attribute("href")).path.rpartition("/")[2]
    box.scroll_into_view_if_needed()
    message = box.locator(".am-missing")
    message.wait_for()
    assert name in message.inner_text()
    assert ("404" if broken == "missing" else "JSON") in message.inner_text()


def test_the_first_view_is_light(open_page, figure_page, site):
    page = open_page()
    finished = []
    page.on("requestfinished", lambda request: finished.append(request))
    page.goto(figure_page, wait_until="networkidle")
    page.wait_for_timeout(500)
    # The search index grows with the site and is fetched beside the page.
    weight = {
        request.url: len(gzip.compress(request.response().body()))
        for request in finished
        if request.url.startswith(site)
        and "/search/search_index.json" not in request.url
        and not request.url.endswith(".woff2")  # after the first paint, and limited apart
    }
    assert figure_page in weight
    assert len(weight) > 3, f"too little was weighed: {weight}"
    assert sum(weight.values()) <= FIRST_VIEW_BYTES, weight
    print(f"\nfirst view: {sum(weight.values()) / 1000:.0f} kB in {len(weight)} files")
