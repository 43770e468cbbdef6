"""The memory calculator in a real browser: its first view, every bad input, and links to a view."""

import re

import pytest

from tests.browser.widgets import WIDGETS, is_built
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FIELDS = {"Batch": 10**6, "Heads": 10**4, "N, tokens": 10**8, "D, of a head": 10**4}  # the largest
NONE = [("–", "–", "–")] * 2


def totals(box):
    """What the boxes say of eager and fused: (amount, verdict, longest) each."""
    found = []
    for total in some(box.locator(".am-memory-total").all(), 2):
        said = total.locator("> span:not(.am-memory-bar)").all_inner_texts()
        found.append((total.locator("strong").inner_text(), *said))
    return found


def said(box):
    return box.locator(".am-memory-summary").inner_text()


def test_the_first_view_is_the_layer_of_the_page_and_a_change_is_announced(opened):
    page, box = opened("attention_memory")
    assert totals(box) == [
        ("140.7\u00a0GB", "does not fit into 80\u00a0GB", "N 3,077 is the largest that fits"),
        ("4.31\u00a0GB", "fits into 80\u00a0GB", "N 75,997 is the largest that fits"),
    ]
    rows = {row.split("\t")[0]: row for row in box.locator("tbody tr").all_inner_texts()}
    assert "68,719,476,736" in rows["scores"]
    assert "16,777,216" in rows["logsumexp"]
    assert box.locator(".am-memory-summary").get_attribute("aria-live") == "polite"
    assert "Eager attention needs 140.7\u00a0GB and does not fit" in said(box)
    box.get_by_label("Dtype").select_option("float16")
    box.get_by_label("Card").select_option("h200")
    box.get_by_label("N, tokens").fill("2048")
    page.get_by_role("radio", name="and backward").check()
    page.get_by_role("checkbox", name="causal").check()
    shown = totals(box)
    assert shown[0][:2] == ("36.2\u00a0GB", "fits into 150.1\u00a0GB")
    assert shown[0][0] in said(box)
    assert "memory=32.32.2048.64.float16.h200.training.causal" in page.url
    page.reload()
    assert totals(is_built(page, "attention_memory")) == shown


def test_a_card_of_the_reader_s_own(opened):
    page, box = opened("attention_memory")
    card, field = box.locator("[data-part=card]"), box.get_by_label("GB of memory")
    assert field.is_hidden()
    card.select_option("own")
    for memory, verdict in (("5000", "fits into 5,000"), ("12", "does not fit into 12")):
        field.fill(memory)
        assert totals(box)[0][1] == f"{verdict}\u00a0GB"
    page.wait_for_url("**own-12*")
    page.reload()
    is_built(page, "attention_memory")
    assert (card.input_value(), field.input_value()) == ("own", "12")
    field.fill("plenty")
    assert "is not a number" in box.locator("[data-part=cardError]").inner_text()
    assert "Card" in said(box)


BAD = {
    "": "is empty",
    "   ": "is empty",
    "0": "0 is too small",
    "-4": "-4 is negative",
    "−4": "−4 is negative",
    "4.5": "4.5 is not a whole number",
    "4,5": "“4,5” is not a number",
    "1e-3": "“1e-3” is not a number",
    "12e": "“12e” is not a number",
    "abc": "“abc” is not a number",
    "NaN": "“NaN” is not a number",
    "Infinity": "“Infinity” is not a number",
    "12 34": "“12 34” is not a number",
    "<b>1</b>": "“<b>1</b>” is not a number",
    "9" * 400: "… is too large",
}


def test_bad_input_is_explained_beside_its_field_and_nothing_is_nan(opened):
    page, box = opened("attention_memory")
    for label, largest in FIELDS.items():
        field = box.get_by_label(label)
        before = field.input_value()
        few = {"": "is empty", "-1": "negative", "1e99": "too large", str(largest + 1): "too large"}
        for text, message in {**few, **(BAD if label == "N, tokens" else {})}.items():
            field.fill(text)
            assert field.get_attribute("aria-invalid") == "true", text
            beside = page.locator(f"[id='{field.get_attribute('aria-describedby')}']").inner_text()
            assert message in beside, text
            assert re.search(r"a whole number from 1 to [\d,]+\.$", beside), text
            assert not re.search("undefined|(?<!“)NaN", box.inner_text())
            assert totals(box) == NONE
            assert said(box) == f"No result: see what is wrong with {label}."
        assert box.locator("[aria-invalid]").count() == 1
        field.fill(before)
        assert box.locator("[aria-invalid]").count() == 0
        assert box.locator(".am-memory-error").all_inner_texts() == [""] * 5
    for label, largest in FIELDS.items():
        box.get_by_label(label).fill(str(largest))
    assert totals(box)[0][::2] == ("800.1\u00a0YB", "not even one token fits")


@pytest.mark.parametrize(
    ("name", "label"),
    [("attention_memory", "N, tokens"), ("decode_tokens", "Keys of each sequence")],
)
def test_a_size_can_be_written_as_people_write_sizes(opened, name, label):
    _, box = opened(name)
    field = box.get_by_label(label)
    summary = box.locator("[data-part=summary]")
    sizes = {"1e6": 10**6, "128k": 128 * 1024, "4,096": 4096, "1.5K": 1536, "2 M": 2 * 1024**2}
    for text, size in sizes.items():
        field.fill(str(size))
        plain = summary.inner_text()
        field.fill("7")
        assert summary.inner_text() != plain
        field.fill(text)
        assert summary.inner_text() == plain, text
        field.blur()
        assert field.input_value() == str(size)


LINKS = {
    "32.32": "not of a form",
    "32.32.4096.64.float32.a100-80-gb.sideways.all": "not of a form",
    "-1.32.4096.64.float32.a100-80-gb.forward.all": "not of a form",
    "32.32.4096.64.float8.a100-80-gb.forward.all": "no dtype “float8”",
    "32.32.4096.64.float32.abacus.forward.all": "no card “abacus”",
    "1.32.4096.64.float32.h100.forward.all": "",
}


def test_a_link_that_does_not_work_says_so(opened, site):
    page, box = opened("attention_memory", "?memory=32.32")
    notice = box.locator(".am-memory-notice")
    assert "not of a form" in notice.inner_text()
    box.get_by_label("Batch").fill("1")
    assert notice.inner_text() == ""
    box.get_by_label("Batch").fill("32")
    link = "address => document.querySelector('.am-lead').innerHTML = `<a href='${address}'>x</a>`"
    for view, message in LINKS.items():
        page.evaluate(link, f"{site}{WIDGETS['attention_memory'].page}?memory={view}")
        page.locator(".am-lead a").evaluate("link => link.click()")  # a view on the same page
        assert message in notice.inner_text()
        assert bool(message) == bool(notice.inner_text())
        assert totals(box)[0][0] == ("140.7\u00a0GB" if message else "4.40\u00a0GB")
    _, box = opened("attention_memory", "?memory=0.32.4096.64.float16.t4.training.causal")
    assert box.get_by_label("Batch").get_attribute("aria-invalid") == "true"
    assert box.get_by_label("Card").input_value() == "t4"
    assert totals(box) == NONE
