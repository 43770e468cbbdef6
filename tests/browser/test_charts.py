"""Charts in a real browser: nothing is cut, at any width.

One page holds them all: the fragments of the real pages, without the rest of a page.
"""

import pytest

from snippets._lab.rooms import FIGURES
from snippets._site.browser import PHONE
from tests.browser.browser import built, scratch_source
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

WIDE = {"width": 1366, "height": 768}
STACKED = "#figure-flash_attention-forward .am-plot"  # four panels, one below the other on a phone


@pytest.fixture(scope="module")
def fragments(tmp_path_factory):
    """A page of every chart."""
    charts = sorted(
        str(path.relative_to(FIGURES).with_suffix(""))
        for path in FIGURES.rglob("*.md")
        if 'class="am-plot"' in path.read_text("utf-8")
    )
    assert len(charts) > 30
    shown = "\n\n".join(f'--8<-- "docs/figures/{name}.md"' for name in charts)
    pages = {"index.md": f"# Page\n\n{shown}\n"}
    source = scratch_source(tmp_path_factory.mktemp("source"), pages, ["figures", "data"])
    with built(source, tmp_path_factory.mktemp("charts")) as address:
        yield address


@pytest.mark.parametrize("viewport", [WIDE, PHONE])
def test_no_words_of_a_chart_lie_on_each_other(open_page, fragments, viewport):
    """Ticks, names, titles and numbers of every chart, as Plotly draws them."""
    page = open_page(viewport, at=fragments)
    boxes = some(page.locator(".am-plot").all())
    for box in boxes:
        box.scroll_into_view_if_needed()
        box.locator(".main-svg").first.wait_for()
    found = page.evaluate(OVERLAPS)
    assert found["seen"] > 500, "there were no words to look at"
    assert found["overlapping"] == []


def test_the_legend_of_a_chart_higher_than_a_phone_stays_in_sight(open_page, fragments):
    page = open_page(PHONE, at=fragments)
    page.locator(STACKED).scroll_into_view_if_needed()
    legend = page.locator(f"{STACKED} .legend")
    legend.wait_for()

    def top(part):
        page.evaluate(f"document.querySelector('{STACKED}').scrollIntoView()")
        high = page.evaluate(f"document.querySelector('{STACKED}').clientHeight")
        page.evaluate(f"scrollBy(0, {part * high})")
        page.wait_for_timeout(200)
        return legend.bounding_box()["y"]

    header = page.locator(".md-header").bounding_box()["height"]
    assert top(0.5) == pytest.approx(header, abs=2)
    assert top(0.98) < 0, "it leaves with its chart"
    page.evaluate("scrollTo(0, 0)")
    page.locator(f"{STACKED} .legend:not(.am-kept)").wait_for()


def test_without_a_script_a_chart_leaves_its_words(open_page, fragments):
    page = open_page(at=fragments, java_script_enabled=False)
    for figure in some(page.locator(".am-chart").all()):
        assert figure.locator(".am-plot").bounding_box()["height"] < 60, "an empty box"
        assert figure.locator(".am-finding").is_visible()
        assert figure.locator("figcaption").is_visible()
        assert figure.locator(".am-source").is_visible()


# Pairs of texts of a chart that cover each other by more than a few pixels, and those cut off.
OVERLAPS = """() => {
  const overlapping = [];
  let seen = 0;
  for (const plot of document.querySelectorAll('.am-plot')) {
    const id = plot.closest('.am-figure').id;
    const box = plot.getBoundingClientRect();
    const texts = [...plot.querySelectorAll('.main-svg text')]
      .filter((t) => t.textContent.trim() && t.getClientRects().length)
      .map((t) => [t.textContent, t.getBoundingClientRect()]);
    seen += texts.length;
    for (const [text, r] of texts) {
      const cut = r.right > box.right + 3 || r.left < box.left - 3 || r.bottom > box.bottom + 3;
      if (cut) overlapping.push(`${id}: ${text} is cut`);
    }
    texts.forEach(([a, r], i) => texts.slice(i + 1).forEach(([b, s]) => {
      const wide = Math.min(r.right, s.right) - Math.max(r.left, s.left);
      const high = Math.min(r.bottom, s.bottom) - Math.max(r.top, s.top);
      if (wide > 2 && high > 4) overlapping.push(`${id}: ${a} | ${b}`);
    }));
  }
  return {seen, overlapping};
}"""
