"""Links to a view of a widget that readers have kept: they open the view that they always did.

The addresses are as they were when sizes still had other letters, and are not to be changed here.
"""

import pytest

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

INPUTS = """box => [...box.querySelectorAll('input[type=text], select')]
  .filter(e => e.checkVisibility()).map(e => e.value)
  .concat([...box.querySelectorAll('input:checked')].map(e => e.value))"""
CHOSEN = """box => [...box.querySelectorAll('select, input:checked')]
  .map(e => e.value).filter(Boolean)"""
# widget: (address, what asks the box for its view, the view)
OLD = {
    "attention_memory": (
        "posts/attention_memory/?memory=2.16.8192.128.float16.h200.training.causal",
        INPUTS,
        ["2", "16", "8192", "128", "float16", "h200", "training", "on"],
    ),
    "attention_map": (
        "posts/attention_weights/?map=pronoun.4.3.2.column",
        CHOSEN,
        ["pronoun", "4", "3", "column"],
    ),
    "scene": (
        "posts/tiled_attention/?step=5&query=2&mask=causal",
        """box => [box.querySelector('input[type=range]')?.value,
          ...[...box.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent)]""",
        ["5", "2", "causal"],
    ),
    "coverage": (
        "lab/coverage/?cell-launcher=flash_attention&cell-dtype=float16&cell-mask=causal",
        CHOSEN,
        ["flash_attention", "float16", "causal"],
    ),
    "your_gpu": (
        "lab/your_gpu/?gpu-card=t4&gpu-launcher=tiled_attention&gpu-verdict=fits",
        CHOSEN,
        ["t4", "tiled_attention", "fits"],
    ),
    "scoreboard": (
        "lab/scoreboard/?kernel=tiled_attention",
        "box => [...box.querySelectorAll('section:not([hidden])')].map(s => s.dataset.kernel)",
        ["tiled_attention"],
    ),
}


def test_every_widget_with_a_view_in_its_address_has_an_old_link(site_folder):
    found = {path.stem for path in site_folder.glob("assets/*/widgets/*.js")}
    # These keep no view, or are younger than the old links.
    later = {"coalescing", "latency_hiding", "barriers", "predict"}
    later |= {"decode_attention", "decode_tokens", "ring_attention", "checkpoint_map"}
    assert found - later == set(OLD)


@pytest.mark.parametrize("widget", OLD)
def test_an_old_link_opens_the_view_that_it_always_did(widget, open_page, site):
    address, ask, view = OLD[widget]
    page = open_page()
    assert page.goto(site + address).status == 200
    box = page.locator(f"[data-widget={widget}]").first
    box.scroll_into_view_if_needed()
    page.wait_for_function(
        f"view => JSON.stringify(({ask})(document.querySelector('[data-widget={widget}]')))"
        " === JSON.stringify(view)",
        arg=view,
    )
    assert page.wrong == []
