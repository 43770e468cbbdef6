"""The calculator of programs at once in a real browser: the same rules as Python, keys, phone."""

import json
import re
from pathlib import Path

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "docs" / "figures" / "latency_hiding" / "calculator_cases.json"
BOX = ".am-occupancy"
SUMMARY = f"{BOX} .am-occupancy-summary"


@pytest.fixture
def calculator(open_page, site):
    """Opens the page with the calculator built."""

    def calculator(viewport=LAPTOP, **options):
        page = open_page(viewport, **options)
        assert page.goto(f"{site}posts/latency_hiding/").status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(SUMMARY).wait_for()
        return page

    return calculator


def test_both_languages_give_the_same_programs(calculator):
    page = calculator()
    data = json.loads(CASES.read_text("utf-8"))
    found = page.evaluate(
        """async (data) => {
            const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
            const script = loaded.find((name) => name.endsWith("/widgets/latency_hiding.js"));
            const { programsAtOnce } = await import(script);
            const of = new Map(data.limits.map((limits) => [limits.target, limits]));
            return data.cases.map(([target, registers, warps, shared]) => {
                const needs = { registers, warps, shared };
                const { fits, limit } = programsAtOnce(of.get(target), needs);
                return [fits, limit];
            });
        }""",
        data,
    )
    wanted = [[fits, limit] for *_, fits, limit in some(data["cases"])]
    assert found == wanted
    assert {limit for _, limit in wanted} == {"registers", "shared memory", "warps", "programs"}
    assert 0 in {fits for fits, _ in wanted}


def test_a_change_is_announced_and_drawn(calculator):
    page = calculator()
    for registers, programs in ((64, 8), (255, 2), (16, 13)):
        page.get_by_label("Registers per thread").fill(str(registers))
        text = page.locator(SUMMARY).inner_text()
        assert re.match(rf"{programs} programs fit", text), text
        full = page.locator(f"{BOX} .am-occupancy-even, {BOX} .am-occupancy-odd").count()
        assert f"{full} of 64 warps" in text
    page.get_by_label("Warps a program").select_option("32")
    page.get_by_label("Registers per thread").fill("255")
    assert page.locator(SUMMARY).inner_text() == "Not even one program fits."
    assert page.wrong == []


def test_it_works_by_keyboard_and_fits_a_phone(calculator):
    page = calculator(viewport=PHONE, has_touch=True, is_mobile=True)
    page.get_by_label("Registers per thread").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(f"{BOX} label span").first.inner_text() == "65"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator(f"{BOX} input[type=range]").first.bounding_box()["height"] >= 24
