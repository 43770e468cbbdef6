"""The simulator of rings in a real browser: the same model as Python."""

import json
from pathlib import Path

import pytest
from floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["browser"]

ROOT = Path(__file__).resolve().parents[1]
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
