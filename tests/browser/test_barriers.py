"""The barriers to be played by hand: every way that the simulation found can be taken."""

import gzip
import json
from pathlib import Path

import pytest

from snippets._site.browser import PHONE
from tests.browser.browser import built, scratch_source
from tests.floors import perhaps, some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

ROOT = Path(__file__).resolve().parents[2]
FIGURE = "docs/figures/hopper_attention/barriers.md"
WALKS = json.loads((ROOT / FIGURE).with_name("barriers_walks.json").read_text("utf-8"))["walks"]
BOX = ".am-barriers"
WORDS = f"{BOX} [role=status]"
STUCK = "one mistake stops everybody before the first event"


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    pages = {"index.md": f'# Barriers\n\n--8<-- "{FIGURE}"'}
    source = scratch_source(tmp_path_factory.mktemp("source"), pages, ["data", "figures"])
    with built(source, tmp_path_factory.mktemp("scratch")) as address:
        yield address


@pytest.fixture
def board(open_page, scratch):
    """Opens the page with the board built."""

    def board(clock=False, **options):
        page = open_page(**options)
        if clock:
            page.clock.install()
        assert page.goto(scratch).status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(WORDS).wait_for()
        return page

    return board


READY = f"""() => [...document.querySelectorAll('{BOX} [data-event]')]
    .filter((b) => b.ariaDisabled === "false").map((b) => b.dataset.event).sort()"""
# Press these one after the other; who could have acted before each.
PRESS = f"""(events) => events.map((event) => {{
    const ready = ({READY})();
    document.querySelector(`{BOX} [data-event="${{event}}"]`).click();
    return ready;
}})"""


def taken_out(page, walk):
    page.locator(f"{BOX} select").select_option(label=walk["removed"])
    return [walk["events"][event] for event in shortest(walk)[0]]


def shortest(walk):
    """Which events lead into trouble, or to the end, and the states on the way."""
    at, events, states = 0, [], [0]
    steps = walk["trouble"] if walk["trouble"] is not None else [0] * 10**6
    for way in steps:
        if not walk["ways"][at]:
            break
        event, at = walk["ways"][at][way]
        events.append(event)
        states.append(at)
    return events, states


def test_each_way_into_trouble_can_be_played_and_says_what_went_wrong(board):
    page = board()
    for walk in some(WALKS):
        events, (_, states) = taken_out(page, walk), shortest(walk)
        ready = page.evaluate(PRESS, events)
        for before, there in perhaps(list(zip(ready, states, strict=False)), STUCK):
            ways = [walk["events"][event] for event, _ in walk["ways"][there]]
            assert before == sorted(ways), (walk["removed"], there)
        assert page.evaluate(READY) == [], "nobody can act once all is over"
        said = page.locator(WORDS).inner_text()
        if walk["trouble"] is None:
            assert "everybody is done" in said
        else:
            assert walk["diagnosis"] in said
            last = states[-1]
            assert (walk["faults"][~last] in said.lower()) if last < 0 else "Deadlock" in said
        code = page.locator(f"{BOX} del")
        assert code.is_visible() == bool(walk["change"])
    assert page.wrong == []


def test_it_goes_back_starts_over_and_shows_how_it_fails(board):
    page = board(clock=True)
    walk = WALKS[-1]
    events = taken_out(page, walk)
    page.get_by_role("button", name="Show how it fails").click()
    page.clock.run_for(1000 * (len(events) + 2))
    assert page.locator(f"{WORDS}[data-end]").get_attribute("data-end") == "fault"
    page.get_by_role("button", name="Back", exact=True).click()
    assert events[-1] in page.evaluate(READY)
    page.get_by_role("button", name="Start over").click()
    assert page.evaluate(READY) == ["producer"]
    page.get_by_role("button", name="Play at random").click()
    page.clock.run_for(2000)
    page.get_by_role("button", name="Pause").click()
    held = page.locator(WORDS).inner_text()
    page.clock.run_for(5000)
    assert page.locator(WORDS).inner_text() == held
    assert page.wrong == []


def test_the_kernel_as_it_is_always_comes_to_its_end(board):
    page = board(clock=True)
    page.get_by_role("button", name="Play at random").click()
    page.clock.run_for(1000 * 60)
    assert "everybody is done" in page.locator(WORDS).inner_text()
    assert page.wrong == []


def test_it_fits_a_phone_and_answers_a_finger(board):
    page = board(viewport=PHONE, has_touch=True, is_mobile=True)
    page.locator(f"{BOX} [data-event=producer]").tap()
    assert "copy of tile 0" in page.locator(WORDS).inner_text()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    heights = page.locator(f"{BOX} :is(button, select)").evaluate_all(
        "all => all.filter((e) => e.checkVisibility()).map((e) => e.offsetHeight)"
    )
    assert min(heights) >= 44
    assert page.wrong == []


def test_the_script_is_small():
    script = ROOT / "docs/assets/javascripts/widgets/barriers.js"
    assert len(gzip.compress(script.read_bytes())) <= 8_000
