"""The smoke list in Firefox and in WebKit: formulas, fonts, the map, search and print."""

import time

import pytest

from tests.browser import other_browsers
from tests.browser.browser import built, scratch_source
from tests.browser.test_type import FORMS, FORMULAS, right_form

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

MAP = """() => {
  const box = document.querySelector("[data-widget=attention_map]");
  box?.scrollIntoView();
  return box ? box.querySelectorAll("button, [role=gridcell], canvas").length : 0;
}"""
FONTS = "() => [...document.fonts].filter(f => f.status === 'loaded').map(f => f.family)"
ASK = """() => {
  const box = document.querySelector(".md-search__input");
  if (document.activeElement !== box) box.focus();
  if (document.querySelector("#am-hits").dataset.question === undefined) return 0;
  box.value = "why sqrt d";
  box.dispatchEvent(new Event("input"));
  return document.querySelectorAll("#am-hits a").length;
}"""


@pytest.fixture(scope="module", params=sorted(other_browsers.STARTS))
def other(request):
    if not other_browsers.FOUND[request.param]:
        pytest.skip(f"NOT RUN: apt-get install {other_browsers.PACKAGES[request.param]}")
    with other_browsers.STARTS[request.param]() as started:
        yield started


def until(other, script, right, seconds=15):
    """What a script returns, as soon as it is right, or after some time."""
    end = time.monotonic() + seconds
    while not right(found := other.evaluate(script)) and time.monotonic() < end:
        time.sleep(0.2)
    return found


def test_formulas(other, tmp_path):
    source = scratch_source(tmp_path / "source", {"index.md": FORMULAS})
    with built(source, tmp_path / "site") as address:
        other.open(address)
        seen = until(other, FORMS, lambda seen: not right_form(seen), seconds=8)
    assert right_form(seen) == []


def test_fonts_map_search_and_print(other, site):
    other.open(site + "posts/attention_weights/")
    wanted = {"Measured Text", "Measured Code", "Measured Math"}
    names = until(other, FONTS, lambda names: wanted <= {n.strip('"') for n in names})
    assert wanted <= {name.strip('"') for name in names}
    assert until(other, MAP, lambda parts: parts > 10) > 10
    assert until(other, ASK, lambda hits: hits > 2) > 2
    if hasattr(other, "pdf"):  # WebKit's driver prints nothing
        assert other.pdf().startswith(b"%PDF")
        assert len(other.pdf()) > 50_000
