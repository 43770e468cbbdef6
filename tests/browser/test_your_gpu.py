"""The card chooser in a real browser: cards, filters, address, keys, phone, no script, no data."""

import json
import re

import pytest

from snippets._lab.rooms import ROOT
from snippets._site.browser import PHONE
from tests.browser.browser import switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BOX = ".am-cards"
ROWS = f"{BOX} tbody tr"
PAGE = 16  # rows at a time
DATA = json.loads((ROOT / "docs/figures/your_gpu/kernels_cards.json").read_text("utf-8"))


@pytest.fixture
def chooser(open_page, site):
    """Opens the page with the chooser built."""

    def chooser(query="", **options):
        page = open_page(**options)
        assert page.goto(f"{site}lab/your_gpu/{query}", wait_until="domcontentloaded").status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(f"{BOX} .am-cards-choice").wait_for()
        return page

    return chooser


def summary(page):
    """(card, shown, all) as the summary says."""
    text = page.locator(f"{BOX} .am-rows-summary").inner_text()
    card, shown, every = re.match(r"(.*): (\d+) of (\d+) kernels", text).groups()
    assert page.locator(ROWS).count() == min(int(shown), PAGE)
    return card, int(shown), int(every)


def rows_of(name):
    (card,) = [c for c in DATA["cards"] if c["name"] == name]
    return [dict(zip(DATA["columns"], r, strict=True)) for r in DATA["kernels"][card["target"]]]


def column(page, name):
    return page.locator(f"{BOX} td[data-name='{name}']").all_inner_texts()


def test_a_card_is_chosen_and_the_address_keeps_it(chooser):
    page = chooser()
    assert summary(page) == ("H200", len(rows_of("H200")), len(rows_of("H200")))
    page.locator(f"{BOX} label", has_text="T4").click()
    card, shown, every = summary(page)
    assert (card, shown) == ("T4", every)
    assert column(page, "registers") == [
        "–" if r["registers"] is None else str(r["registers"]) for r in rows_of("T4")[:PAGE]
    ]
    assert page.locator(".am-figure .am-finding").first.inner_text().startswith("T4: ")
    scroll = page.locator(".am-rows-scroll")
    assert scroll.evaluate("e => e.scrollWidth - e.clientWidth") <= 0, "columns are hidden"
    assert scroll.evaluate("e => e.scrollHeight - e.clientHeight") <= 1, "rows are hidden"
    facts = page.locator(f"{BOX} .am-cards-facts").inner_text()
    assert "7.5" in facts
    assert re.search(r"GB of memory\s+16\b", facts)
    counts = [r["verdict"] for r in rows_of("T4")]
    text = page.locator(f"{BOX} .am-rows-summary").inner_text()
    assert f"; {counts.count('fits')} fits, " in text
    page.get_by_label("launcher", exact=True).select_option("flash_attention")
    page.get_by_label("verdict", exact=True).select_option("refused")
    _, few, _ = summary(page)
    assert 0 < few < shown
    assert all(len(text) > 30 for text in some(column(page, "verdict"))), "with the reason"
    assert "gpu-card=t4" in page.url
    page.reload(wait_until="domcontentloaded")
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(ROWS).first.wait_for()
    assert summary(page) == ("T4", few, every)
    assert page.get_by_label("T4", exact=True).is_checked()
    page.get_by_role("button", name="Clear filters").click()
    assert summary(page) == ("T4", every, every)
    page.locator(f"{BOX} label", has_text="H200").click()
    assert "gpu-" not in page.url
    assert page.wrong == []


def test_keys_choose_a_card_and_a_filter(chooser):
    page = chooser()
    names = [c["name"] for c in DATA["cards"]]
    page.get_by_label("H200", exact=True).focus()
    page.keyboard.press("ArrowRight")
    assert summary(page)[0] == names[names.index("H200") + 1]
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert summary(page)[0] == names[names.index("H200") - 1]
    page.get_by_label("dtype", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert summary(page)[1] < summary(page)[2]
    page.get_by_role("button", name="Clear filters").press("Enter")
    assert summary(page)[1] == summary(page)[2]


def test_an_address_with_nonsense_shows_the_first_card(chooser):
    page = chooser("?gpu-card=%3Cimg%20src%3Dx%3E&gpu-launcher=nothing&gpu-dtype=&gpu-x=1")
    assert summary(page)[0] == "H200"
    assert summary(page)[1] == summary(page)[2]
    assert page.wrong == []


def test_what_no_kernel_has_is_said(chooser):
    page = chooser("?gpu-card=h200&gpu-launcher=coalescing&gpu-verdict=refused")
    assert page.locator(ROWS).count() == 0
    assert "nothing has all of these" in page.locator(f"{BOX} .am-rows-summary").inner_text()


def test_it_fits_a_phone(chooser):
    page = chooser("?gpu-card=mi300x", viewport=PHONE, has_touch=True, is_mobile=True)
    assert summary(page)[0] == "MI300X"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for part in ("select", ".am-cards-choice span"):
        heights = page.locator(f"{BOX} {part}").evaluate_all("all => all.map(s => s.offsetHeight)")
        assert min(heights) >= 44
    first = page.locator(ROWS).first
    assert first.evaluate("row => row.scrollWidth <= row.parentElement.clientWidth + 1")


def test_the_dark_switch_recolors_it(chooser):
    page = chooser(color_scheme="light")
    colors = set()
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        verdict = page.locator(f"{BOX} .am-rows-good strong").first
        colors.add(verdict.evaluate("e => getComputedStyle(e).color"))
    assert len(colors) == 2


def test_without_a_script_one_card_is_there(open_page, site):
    page = open_page(java_script_enabled=False)
    page.goto(f"{site}lab/your_gpu/")
    assert page.locator(f"{BOX} tbody tr").count() == len(rows_of("H200"))
    assert page.locator(f"{BOX} .am-cards-choice").count() == 0


@pytest.mark.parametrize("body", [None, '{"cards": [', '{"cards": [], "columns": ["launcher"]}'])
def test_cards_that_cannot_be_read_are_named_and_the_table_stays(open_page, site, body):
    page = open_page()
    answer = {"status": 404} if body is None else {"body": body}
    page.route("**/kernels_cards.json", lambda route: route.fulfill(**answer))
    page.goto(f"{site}lab/your_gpu/", wait_until="domcontentloaded")
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "kernels_cards.json" in message.inner_text()
    assert page.locator(f"{BOX} tbody tr").count() > 20
