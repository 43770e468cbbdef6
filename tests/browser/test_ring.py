"""The simulator of rings in a real browser: the same model as Python."""

import json
from pathlib import Path

import pytest

from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

ROOT = Path(__file__).resolve().parents[2]
LOADED = """performance.getEntriesByType("resource")
    .find((entry) => entry.name.endsWith("/widgets/coalescing.js"))"""
CASES = ROOT / "docs" / "figures" / "ring_attention" / "simulator_cases.json"


def test_both_languages_predict_the_same(open_page, site):
    page = open_page()
    assert page.goto(f"{site}posts/coalescing/").status == 200
    page.locator("[data-widget=coalescing]").first.scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({LOADED})")
    cases = some(json.loads(CASES.read_text("utf-8"))["cases"])
    found = page.evaluate(
        f"""async (cases) => {{
            const script = ({LOADED}).name.replace("coalescing.js", "ring_attention.js");
            const {{ predicted }} = await import(script);
            return cases.map((one) => predicted(one.ring)).map((all) => [all.share, all.bytes]);
        }}""",
        cases,
    )
    wanted = [value for case in cases for value in (case["share"], case["bytes"])]
    assert [value for pair in found for value in pair] == pytest.approx(wanted, rel=1e-5)
    assert page.wrong == []


def test_measured_calls_stand_beside_the_line(open_page, site):
    measured = some(json.loads(CASES.read_text("utf-8"))["measured"])
    page = open_page(viewport={"width": 390, "height": 800})
    assert page.goto(f"{site}posts/ring_attention/").status == 200
    box = page.locator("[data-widget=ring_attention]")
    box.scroll_into_view_if_needed()
    line = box.locator(".am-ring-line")
    line.wait_for()
    same, other = box.locator(".am-ring-same"), box.locator(".am-ring-other")
    most = max(one["N"] for one in measured)
    for causal, option in ((True, "1"), (False, "")):
        box.locator("[data-part=causal]").select_option(option)
        shown = [one for one in measured if one["causal"] is causal]
        at = [one for one in shown if one["N"] == most]
        assert (same.count(), other.count()) == (len(at), len(shown) - len(at))
        told = line.get_attribute("aria-label").split("measured: ")[1]
        assert told == f"{at[0]['ranks']} GPUs {at[0]['rate'] / 1e12:.0f}."
    rows = box.locator("[data-part=rows]")
    rows.focus()
    page.keyboard.press("End")
    assert same.count() == 0 < other.count()
    assert line.get_attribute("aria-label").endswith("nothing with as many rows.")
    svg = line.bounding_box()
    for circle in some(box.locator("circle").all()):
        spot = circle.bounding_box()
        for start, extent in (("x", "width"), ("y", "height")):
            assert svg[start] <= spot[start]
            assert spot[start] + spot[extent] <= svg[start] + svg[extent]
    assert page.wrong == []
