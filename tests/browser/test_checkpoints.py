"""The slider over steps of a training in a real browser, on a site made up here."""

import base64
import json

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import built, scratch_source

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BOX, SUMMARY = ".am-history", ".am-history-summary"
TEXT = "f(a)\nb"


def even(length):
    """Rows up to the diagonal whose weights are all alike."""
    return [round(255 / (row + 1)) for row in range(length) for _ in range(row + 1)]


def one_back(length):
    """Rows with all weight on the byte before."""
    return [255 * (at == max(row - 1, 0)) for row in range(length) for at in range(row + 1)]


def packed(weights):
    return base64.b64encode(bytes(weights)).decode()


def box(file):
    return (
        f'<div class="am-history" data-widget="checkpoint_map"><a class="am-source" '
        f'href="../../figures/{file}.json">The weights</a> A table.</div>'
    )


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    maps = [packed(weights(len(TEXT))) for weights in (even, one_back)]
    heads = [{"name": "back", "weights": maps}, {"name": "forth", "weights": maps[::-1]}]
    right = {"text": TEXT, "steps": [0, 2000], "heads": heads}
    pages = {
        "index.md": "# Front",
        "posts/right.md": f"# Right\n\n{box('right')}",
        "posts/short.md": f"# Short\n\n{box('short')}",
        "figures/right.json": json.dumps(right),
        "figures/short.json": json.dumps(right | {"text": "another text"}),
    }
    source = scratch_source(tmp_path_factory.mktemp("source"), pages)
    with built(source, tmp_path_factory.mktemp("scratch")) as address:
        yield address


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE])
def test_step_byte_and_head_choose_what_is_shown(viewport, open_page, scratch):
    page = open_page(viewport)
    page.goto(f"{scratch}posts/right/")
    summary = page.locator(SUMMARY)
    summary.wait_for()
    assert summary.inner_text() == "Step 2000: the largest weight, 100\u00a0%, is on “a”, 1 back."
    page.get_by_label("Step").press("Home")
    assert summary.inner_text() == "Step 0: the largest weight, 25\u00a0%, is on “f”, 3 back."
    page.locator(f"{BOX} select").select_option("forth")
    assert "100\u00a0%" in summary.inner_text()
    page.locator(f"{BOX} pre span").nth(5).click()
    assert summary.inner_text().endswith("is on “line break”, 1 back.")
    assert page.get_by_label("Byte").get_attribute("aria-valuetext") == "byte 6, b"
    page.get_by_label("Byte").press("Home")
    assert summary.inner_text().endswith("is on “f”, at itself.")
    assert page.locator(f"{BOX} [data-later]").count() == len(TEXT) - 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_maps_of_another_size_leave_the_table_and_a_sentence(open_page, scratch):
    page = open_page(LAPTOP)
    page.goto(f"{scratch}posts/short/")
    missing = page.locator(f"{BOX} .am-missing")
    missing.wait_for()
    assert "holds maps of another size than its text" in missing.inner_text()
    assert "A table." in page.locator(BOX).inner_text()
