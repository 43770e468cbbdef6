"""The barriers to be played by hand: every way that the simulation found can be taken."""

import json

import pytest

from snippets._lab.rooms import FIGURES
from tests.floors import perhaps, some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FILE = FIGURES / "hopper_attention" / "barriers_walks.json"
WALKS = json.loads(FILE.read_text("utf-8"))["walks"]
BOX = ".am-barriers"
STUCK = "one mistake stops everybody before the first event"

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


def test_each_way_into_trouble_can_be_played_and_says_what_went_wrong(opened):
    page, box = opened("barriers")
    words = box.locator("[role=status]")
    for walk in some(WALKS):
        events, (_, states) = taken_out(page, walk), shortest(walk)
        ready = page.evaluate(PRESS, events)
        for before, there in perhaps(list(zip(ready, states, strict=False)), STUCK):
            ways = [walk["events"][event] for event, _ in walk["ways"][there]]
            assert before == sorted(ways), (walk["removed"], there)
        assert page.evaluate(READY) == [], "nobody can act once all is over"
        if walk["trouble"] is None:
            assert "everybody is done" in words.inner_text()
        else:
            assert walk["diagnosis"] in words.inner_text()
            last = states[-1]
            fault = walk["faults"][~last] if last < 0 else "deadlock"
            assert fault in words.inner_text().lower()
        assert box.locator("del").is_visible() == bool(walk["change"])


def test_it_plays_goes_back_starts_over_and_shows_how_it_fails(opened):
    page, box = opened("barriers", clock=True)
    words = box.locator("[role=status]")

    def push(name, milliseconds=0):
        box.get_by_role("button", name=name, exact=True).click()
        page.clock.run_for(milliseconds)

    push("Play", 60_000)
    assert "everybody is done" in words.inner_text(), "the kernel as it is comes to its end"
    walk = WALKS[-1]
    events = taken_out(page, walk)
    push("Show how it fails", 1000 * (len(events) + 2))
    assert words.get_attribute("data-end") == "fault"
    push("Step back")
    assert events[-1] in page.evaluate(READY)
    push("Start over")
    assert page.evaluate(READY) == ["producer"]
    push("Play", 2000)
    push("Pause")
    held = words.inner_text()
    page.clock.run_for(5000)
    assert words.inner_text() == held
