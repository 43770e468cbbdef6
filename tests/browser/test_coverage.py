"""The coverage grid in a real browser: filters, address, keys, phone, without a script or data."""

import re

import pytest

from snippets._site.browser import PHONE
from tests.browser.browser import switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BOX = ".am-coverage"
ROWS = f"{BOX} tbody tr"
PAGE = 16  # rows at a time


@pytest.fixture
def cells(open_page, site):
    """Opens the page with the cells shown."""

    def cells(query="", **options):
        page = open_page(**options)
        assert page.goto(f"{site}lab/coverage/{query}").status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(ROWS).first.wait_for()
        return page

    return cells


def choose(page, name, value):
    page.get_by_label(name, exact=True).select_option(value)


def counts(page):
    """(chosen, all) as the summary says; the first page of rows is there."""
    text = page.locator(f"{BOX} .am-rows-summary").inner_text()
    chosen, every = map(int, re.match(r"(\d+) of (\d+) cells", text).groups())
    assert page.locator(ROWS).count() == min(chosen, PAGE)
    return chosen, every


def column(page, name):
    return set(page.locator(f"{BOX} td[data-name='{name}']").all_inner_texts())


def test_filters_choose_cells_and_the_address_keeps_them(cells):
    page = cells()
    chosen, every = counts(page)
    assert chosen == every > 60
    choose(page, "launcher", "attention_weights")
    assert column(page, "launcher") == {"attention_weights"}
    few, _ = counts(page)
    choose(page, "dtype", "float32")
    choose(page, "mask", "causal, top-left")
    fewer, _ = counts(page)
    assert 0 < fewer < few < every
    assert column(page, "mask") == {"causal, top-left"}
    assert "cell-dtype=float32" in page.url
    page.reload()
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(ROWS).first.wait_for()
    assert counts(page)[0] == fewer
    page.get_by_role("button", name="Clear filters").click()
    assert counts(page) == (every, every)
    assert "cell-" not in page.url
    assert page.wrong == []


def test_a_refusal_gives_its_reason(cells):
    page = cells("?cell-outcome=refused")
    assert counts(page)[0] > 0
    texts = column(page, "outcome")
    assert all(text.startswith("refused ") and len(text) > 30 for text in some(texts))
    assert column(page, "error") == {"–"}


def test_what_never_met_is_said(cells):
    page = cells("?cell-launcher=basic_attention")
    choose(page, "mask", "causal")
    assert page.locator(ROWS).count() == 0
    assert "never met" in page.locator(f"{BOX} .am-rows-summary").inner_text()


def test_an_address_with_nonsense_shows_all(cells):
    page = cells("?cell-launcher=%3Cimg%20src%3Dx%3E&cell-nothing=1")
    chosen, every = counts(page)
    assert chosen == every
    assert page.wrong == []


def test_keys_choose_and_pages_hold_all_cells(cells):
    page = cells()
    page.get_by_label("launcher", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert counts(page)[0] < counts(page)[1]
    page.get_by_role("button", name="Clear filters").press("Enter")
    _, every = counts(page)
    later = page.get_by_role("button", name="Later rows")
    seen = page.locator(ROWS).count()
    while later.is_enabled():
        later.press("Enter")
        seen += page.locator(ROWS).count()
        assert seen <= every
    assert seen == every
    assert page.get_by_text(f"–{every} of {every}").is_visible()
    # No page is longer than a few screens, and nothing scrolls inside.
    heights = page.locator(".am-rows-scroll").evaluate("e => [e.scrollHeight, e.clientHeight]")
    assert heights[0] <= heights[1] + 1 < 2000


def test_it_fits_a_phone(cells):
    page = cells(viewport=PHONE, has_touch=True, is_mobile=True)
    choose(page, "launcher", "composed_attention")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    heights = page.locator(f"{BOX} select").evaluate_all("all => all.map(s => s.offsetHeight)")
    assert min(heights) >= 44
    first = page.locator(ROWS).first
    assert first.evaluate("row => row.scrollWidth <= row.parentElement.clientWidth + 1")


def test_the_dark_switch_recolors_it(cells):
    page = cells(color_scheme="light")
    colors = set()
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        passed = page.locator(f"{BOX} .am-rows-good strong").first
        colors.add(passed.evaluate("e => getComputedStyle(e).color"))
    assert len(colors) == 2


def test_without_a_script_the_summary_is_there(open_page, site):
    page = open_page(java_script_enabled=False)
    page.goto(f"{site}lab/coverage/")
    assert page.locator("#figure-coverage-grid table").first.locator("tbody tr").count() >= 5


@pytest.mark.parametrize(
    "body", [None, '{"rows": [', '{"columns": ["a"], "filters": [], "rows": 1}']
)
def test_cells_that_cannot_be_read_are_named(open_page, site, body):
    page = open_page()
    answer = {"status": 404} if body is None else {"body": body}
    page.route("**/grid_cells.json", lambda route: route.fulfill(**answer))
    page.goto(f"{site}lab/coverage/")
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "grid_cells.json" in message.inner_text()
