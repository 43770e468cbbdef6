"""The explorer of splits and the calculator of tokens in a real browser: as in Python."""

import json
import re
from pathlib import Path

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures" / "decode_attention"
EXPLORER, TOKENS = ".am-splits", ".am-tokens"
SUMMARY = f"{EXPLORER} .am-splits-summary"
TOLD = f"{TOKENS} .am-tokens-summary"


@pytest.fixture
def opened(open_page, site):
    """Opens the page with both widgets built."""

    def opened(viewport=LAPTOP, **options):
        page = open_page(viewport, **options)
        assert page.goto(f"{site}posts/decode_attention/").status == 200
        for box, summary in ((TOKENS, TOLD), (EXPLORER, SUMMARY)):
            page.locator(box).scroll_into_view_if_needed()
            page.locator(summary).wait_for()
        return page

    return opened


def in_the_page(page, widget, data, body):
    """What a function of the widget's module gives for each of the cases."""
    return page.evaluate(
        """async ([widget, data, body]) => {
            const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
            const script = loaded.find((name) => name.endsWith(`/widgets/${widget}.js`));
            const module = await import(script);
            return data.cases.map((one) => Cases[body](module, data, one));
        }""".replace("Cases", CASES),
        [widget, data, body],
    )


CASES = """({
    splits: ({ chosen, filled, cost, workOf }, { facts }, [batch, heads, keys, processors]) => {
        const work = workOf({ batch, heads, keys, processors }, facts);
        const splits = chosen(work, facts);
        const busy = splits.map((n) => filled(work, n));
        return [splits, busy, splits.map((n) => cost(work, n, facts))];
    },
    tokens: ({ step }, { models }, [name, keys, size, batch]) => {
        const [, layers, heads, D, parameters] = models.find(([model]) => model === name);
        const told = step({ layers, heads, D, parameters, size, keys, batch, perSecond: 4e12 });
        return [told.ofASequence, told.seconds];
    },
})"""


def test_both_languages_give_the_same_splits_and_seconds(opened):
    page = opened()
    data = json.loads((FIGURES / "explorer_cases.json").read_text("utf-8"))
    found = in_the_page(page, "decode_attention", data, "splits")
    for case, (splits, filled, cost) in zip(some(data["cases"], 80), found, strict=True):
        *_, want, busy, expected = case
        assert (splits, cost) == (want, expected), case
        assert filled == pytest.approx(busy, rel=1e-5), "figures store six digits"
    assert len({tuple(case[4]) for case in data["cases"]}) > 20, "the cases differ"
    data = json.loads((FIGURES / "tokens_cases.json").read_text("utf-8"))
    found = in_the_page(page, "decode_tokens", data, "tokens")
    for case, (cache, seconds) in zip(some(data["cases"], 40), found, strict=True):
        assert cache == case[4]
        assert seconds == pytest.approx(case[5], rel=1e-5)
    assert page.wrong == []


def test_the_sliders_change_rules_and_bars(opened):
    page = opened()
    data = json.loads((FIGURES / "explorer_cases.json").read_text("utf-8"))
    rows = page.locator(f"{EXPLORER} .am-splits-rules li")
    assert rows.locator("b").all_inner_texts() == data["rules"]
    assert "8 programs without splits" in page.locator(SUMMARY).inner_text()
    page.locator(EXPLORER).get_by_label("Sequences").focus()
    page.keyboard.press("End")
    assert "2,048 programs without splits" in page.locator(SUMMARY).inner_text()
    (vllm,) = (row for row in rows.all() if row.locator("b").inner_text() == "vLLM")
    assert vllm.inner_text().split("\n")[1].startswith("1 split, ")
    turns = int(re.search(r"(\d+) turns?", vllm.inner_text())[1])
    assert vllm.locator(".am-splits-bar i").count() == turns
    (fixed,) = (row for row in rows.all() if "256 keys" in row.locator("b").inner_text())
    assert fixed.locator(".am-splits-many").count() == 1, "too many turns to draw each"
    assert page.wrong == []


def test_the_calculator_explains_what_is_wrong_and_takes_any_model(opened):
    page = opened()
    box = page.locator(TOKENS)
    box.get_by_label("Bandwidth, TB/s").fill("4")
    box.get_by_label("Weights, billions").fill("8")
    field = box.get_by_label("Sequences", exact=True)
    field.fill("1")
    box.get_by_label("Keys of each sequence").fill("8192")
    # 16 GB of weights and 1.07 GB of keys and values at 4 TB/s
    assert (
        page.locator(TOLD).inner_text().startswith("At most 234 tokens per second in all, 234 of")
    )
    assert box.get_by_label("Model").input_value() == "own"
    field.fill("-1")
    assert page.locator(TOLD).inner_text() == (
        "Sequences is -1; give a whole number from 1 to 1,000,000."
    )
    assert field.get_attribute("aria-invalid") == "true"
    shown = page.locator(f"{TOKENS} dd").all_inner_texts()
    assert not [text for text in some(shown, 4) if "NaN" in text]
    box.get_by_label("Model").select_option("Llama 3.1 70B")
    assert box.get_by_label("Weights, billions").input_value() == "70.6"
    assert page.wrong == []


def test_they_fit_a_phone(opened):
    page = opened(viewport=PHONE, has_touch=True, is_mobile=True)
    for box in (TOKENS, EXPLORER):
        wide = page.locator(box).evaluate("box => [box.scrollWidth, box.clientWidth]")
        assert wide[0] <= wide[1]
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
