"""The step-through of the running softmax in a real browser, on a page made of its figure alone.

The figure is the one that the posts include, so it is tested before a post is published and after.
"""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import built, scratch_source, switch_scheme
from floors import some

from snippets._lab.rooms import ROOT
from snippets._site.checks.browser import LAPTOP, PHONE

pytestmark = pytest.mark.browser
pytest_plugins = ["browser"]

FIGURE = "docs/figures/tiled_attention/steps.md"
DATA = ROOT / "docs/figures/tiled_attention/steps_frames.json"
FULL, CAUSAL = json.loads(DATA.read_text("utf-8"))["examples"]
STEPS = 3 * len(FULL["tiles"]) + 1
BOX = ".am-steps"
BOARD = f"{BOX} [data-part=board]"
RANGE = f"{BOX} input[type=range]"
WORDS = f"{BOX} [role=status]"
AA = 4.5  # contrast of text, WCAG 2.2
TURN_MS = 1700  # a step of the player, and a little more


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A site with this site's configuration and the figure; the rest of its pages are left out."""
    prose = "A paragraph to scroll past. " * 300
    pages = {
        "index.md": f'# Steps\n\n{prose}\n\n--8<-- "{FIGURE}"\n\n{prose}',
        "other.md": "# Another page\n\nNothing to play here.",
    }
    source = scratch_source(tmp_path_factory.mktemp("source"), pages, ["data", "figures"])
    with built(source, tmp_path_factory.mktemp("scratch")) as address:
        yield address


@pytest.fixture
def player(open_page, scratch):
    """Opens the page with the player built; `link` is what follows the address."""

    def player(viewport=LAPTOP, link="", clock=False, **options):
        page = open_page(viewport, **options)
        if clock:
            page.clock.install()
        assert page.goto(scratch + link).status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(BOARD).wait_for()
        return page

    return player


SNAPSHOT = """box => {
  const [range] = box.querySelectorAll('input[type=range]');
  const part = (name) => box.querySelector(`[data-part=${name}]`);
  return {
    at: Number(range.value), last: Number(range.max), valuetext: range.ariaValueText,
    count: part('count').textContent, words: part('words').textContent,
    disabled: [...box.querySelectorAll('[data-step]')].map((b) => b.disabled),
    tables: [...box.querySelectorAll('table')].map((t) =>
      [...t.tBodies[0].rows].map((r) => [...r.cells].slice(1).map((c) => c.textContent))),
  };
}"""
# Every step from where it stands, in one call: the browser is asked once and not a hundred times.
WALK = f"""box => {{
  const snapshot = {SNAPSHOT};
  const found = [snapshot(box)];
  for (const forward = box.querySelector('[data-step="1"]'); !forward.disabled;) {{
    forward.click();
    found.push(snapshot(box));
  }}
  return found;
}}"""


def consistent(view):
    """A snapshot whose counter, slider and buttons say the same."""
    at, last = view["at"], view["last"]
    assert view["count"] == f"{at} / {last}"
    assert view["valuetext"].startswith(f"step {at} of {last}: ")
    assert view["disabled"] == [at == 0, at == last]
    return view


def snapshot(page):
    return consistent(page.locator(BOX).evaluate(SNAPSHOT))


def walk(page):
    return [consistent(view) for view in page.locator(BOX).evaluate(WALK)]


def step(page):
    return snapshot(page)["at"]


def shown(numbers):
    """Numbers as the player writes them."""
    return [
        "−∞" if x is None else f"{x:.2f}".replace("-0.00", "0.00").replace("-", "−")
        for x in numbers
    ]


def follows(view, example):
    """The tables of a snapshot are those of the recording."""
    at = view["at"]
    tile, phase = example["tiles"][(at - 1) // 3], (at - 1) % 3
    scores, kept, accumulator = view["tables"]
    keys = min(example["tile"], example["keys"] - tile["start"])
    for query in some(range(example["queries"])):
        numbers = shown(tile["p" if phase == 2 else "scores"][query][:keys])
        hidden = [score is None for score in tile["scores"][query][:keys]]
        numbers = ["–" if h else x for h, x in zip(hidden, numbers, strict=True)]
        assert scores[query] == numbers + [""] * (example["tile"] - keys), (at, query)
        m, alpha, total = kept[query]
        assert m == shown([tile["m"][query]])[0], (at, query)
        assert alpha == ("" if phase == 0 else shown([tile["alpha"][query]])[0]), (at, query)
        if phase != 1:  # in between the player multiplies by the recorded alpha
            assert total == shown([tile["l" if phase == 2 else "l_before"][query]])[0], (at, query)
            wanted = shown(tile["acc" if phase == 2 else "acc_before"][query])
            assert accumulator[query] == wanted, (at, query)


def test_every_step_shows_what_was_recorded(player):
    page = player()
    views = walk(page)
    assert [view["at"] for view in views] == [*range(STEPS + 1)]
    first, *between, last = views
    assert first["tables"][1] == [["−∞", "", "0.00"]] * FULL["queries"]
    for view in between:
        follows(view, FULL)
    assert last["tables"][2] == [shown(row) for row in FULL["result"]]
    assert "the kernel stored" in last["words"]
    assert len({view["words"] for view in views}) == len(views), "words of its own for each step"
    page.get_by_role("button", name="Step back").click()
    follows(snapshot(page), FULL)
    assert page.locator(WORDS).get_attribute("role") == "status"
    assert page.wrong == []


def test_the_words_and_the_bars_are_those_of_the_chosen_query(player):
    page = player()
    page.locator(RANGE).fill("3")
    for query in (2, 0):
        page.get_by_role("button", name=f"Query {query}").click()
        assert f"query {query}." in page.locator(WORDS).inner_text()
        levels = page.locator(f"{BOX} [data-part=strip] li").evaluate_all(
            "all => all.map(li => Number(li.style.getPropertyValue('--am-level')))"
        )
        assert levels == FULL["tiles"][0]["share"][query]
        assert sum(levels) == pytest.approx(1, abs=1e-4)
        pressed = page.locator(f"{BOX} [data-part=queries] [aria-pressed=true]")
        assert pressed.all_inner_texts() == [str(query)]
        assert page.locator(f"{BOX} .am-steps-chosen th").first.inner_text() == str(query)


def test_the_causal_mask_hides_keys_and_skips_a_tile(player):
    page = player()
    page.get_by_role("button", name="causal", exact=True).click()
    _, *between, last = walk(page)
    assert len(between) == 3 * len(CAUSAL["tiles"]) < 3 * len(FULL["tiles"])
    for view in between:
        follows(view, CAUSAL)
    hidden = page.locator(f"{BOX} [data-part=strip] .am-steps-hidden")
    skipped = CAUSAL["keys"] - CAUSAL["tile"] * len(CAUSAL["tiles"])
    unseen = [s for tile in CAUSAL["tiles"] for s in tile["scores"][0] if s is None]
    assert hidden.count() == skipped + len(unseen)
    assert "skipped" in last["words"]
    assert page.wrong == []


def test_keys_step_and_play(player):
    page = player(clock=True)
    page.locator(BOARD).focus()
    top = page.evaluate("scrollY")
    for key, at in [
        ("ArrowRight", 1),
        ("ArrowRight", 2),
        ("ArrowLeft", 1),
        ("End", STEPS),
        ("Home", 0),
    ]:
        page.keyboard.press(key)
        assert step(page) == at, key
    page.keyboard.press("Space")
    assert page.get_by_role("button", name="Pause").is_visible()
    page.clock.run_for(TURN_MS)
    assert step(page) == 1
    page.keyboard.press("Space")
    page.clock.run_for(2 * TURN_MS)
    assert step(page) == 1
    assert page.evaluate("scrollY") == top, "these keys do not scroll the page"
    page.locator(RANGE).focus()
    page.keyboard.press("ArrowRight")
    assert step(page) == 2
    assert page.wrong == []


def test_it_plays_to_the_end_stops_and_begins_again(player):
    page = player(clock=True)
    page.clock.run_for(3 * TURN_MS)
    assert step(page) == 0, "nothing plays by itself"
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(TURN_MS * (STEPS + 2))
    assert step(page) == STEPS
    play = page.get_by_role("button", name="Play")
    assert play.is_visible()
    play.click()
    assert step(page) == 0
    page.get_by_role("button", name="Step forward").click()  # takes over from the player
    page.clock.run_for(2 * TURN_MS)
    assert step(page) == 1


def address(page):
    query = parse_qs(urlsplit(page.url).query)
    return {name: values[0] for name, values in query.items()}


def test_the_address_names_the_step_and_a_link_leads_to_it(player):
    page = player()
    assert address(page) == {}
    entries = page.evaluate("history.length")
    page.locator(RANGE).fill("5")
    page.get_by_role("button", name="Query 2").click()
    page.wait_for_function("() => location.search.includes('query=2')")
    assert address(page) == {"step": "5", "query": "2", "mask": "every key"}
    assert page.evaluate("history.length") == entries, "the history fills up"
    page = player(link="?step=4&query=1&mask=causal")
    assert step(page) == 4
    follows(snapshot(page), CAUSAL)
    assert "query 1." in page.locator(WORDS).inner_text()
    page = player(link="?step=9999&query=70&mask=none")
    assert step(page) == STEPS
    page = player(link="?step=-1&query=x")
    assert step(page) == 0
    assert page.wrong == []


def test_it_fits_a_phone_and_answers_a_finger(player):
    page = player(PHONE, has_touch=True, is_mobile=True)
    page.get_by_role("button", name="Step forward").tap()
    assert step(page) == 1
    page.locator(RANGE).fill("9")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    overflow = page.locator(f"{BOX} :is(table, ol, button)").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().right > innerWidth).length"
    )
    assert overflow == 0
    sizes = page.locator(f"{BOX} button").evaluate_all(
        "all => all.map(b => Math.min(b.offsetWidth, b.offsetHeight))"
    )
    assert min(sizes) >= 44
    assert page.wrong == []


CONTRAST = """cell => {
  const channels = (colour) => {
    const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
  };
  const light = (colour) => channels(colour)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const style = getComputedStyle(cell);
  const [high, low] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""


def test_numbers_can_be_read_in_both_schemes(player):
    page = player(color_scheme="light")
    page.locator(RANGE).fill("6")
    colours = {}
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        cell = page.locator(f"{BOX} td.am-steps-score[style*='--am-level: 1;']").first
        colours[scheme] = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
        numbers = page.locator(f"{BOX} td:is(.am-steps-score, .am-steps-acc)").evaluate_all(
            f"all => all.map({CONTRAST})"
        )
        assert len(numbers) == FULL["queries"] * (FULL["tile"] + FULL["columns"])
        assert min(numbers) >= AA, scheme
    assert colours["default"] != colours["slate"]
    assert page.wrong == []


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_bars_move_only_where_motion_is_welcome(player, motion):
    page = player(reduced_motion=motion, clock=True)
    duration = page.locator(f"{BOX} [data-part=strip] li").first.evaluate(
        "li => parseFloat(getComputedStyle(li, '::before').transitionDuration)"
    )
    assert (duration > 0.001) == (motion == "no-preference")
    page.clock.run_for(3 * TURN_MS)
    assert step(page) == 0, "nothing plays by itself"


def test_it_survives_instant_navigation(player):
    page = player()
    page.evaluate("window.sameDocument = true")
    page.get_by_role("button", name="Play").click()
    page.locator(".md-nav--primary a[href$='other/']").first.evaluate("link => link.click()")
    page.get_by_role("heading", name="Another page").wait_for()
    page.go_back()
    page.get_by_role("heading", name="Steps").wait_for()
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(BOARD).wait_for()
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"
    page.get_by_role("button", name="Step forward").click()
    follows(snapshot(page), FULL)
    assert page.wrong == []


def test_without_a_script_there_is_a_table(open_page, scratch):
    page = open_page(java_script_enabled=False)
    page.goto(scratch)
    table = page.locator(f"{BOX} table")
    assert table.is_visible()
    assert table.locator("tbody tr").count() == len(FULL["tiles"])


@pytest.mark.parametrize("broken", ["missing", "truncated", "nonsense"])
def test_a_recording_that_cannot_be_read_is_named_and_the_table_stays(open_page, scratch, broken):
    page = open_page()
    nonsense = json.dumps({"examples": [{**FULL, "tiles": [{"start": 0}]}]})
    answer = {
        "missing": {"status": 404},
        "truncated": {"body": '{"examples": ['},
        "nonsense": {"body": nonsense},
    }[broken]
    page.route("**/steps_frames.json", lambda route: route.fulfill(**answer))
    page.goto(scratch)
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "steps_frames.json" in message.inner_text()
    assert page.locator(f"{BOX} table").first.is_visible()
    assert page.locator(BOARD).count() == 0


def test_the_recording_is_small_and_asked_for_only_when_it_is_near(open_page, scratch):
    assert DATA.stat().st_size <= 60_000
    page = open_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(scratch, wait_until="networkidle")
    assert not [url for url in asked if "steps_frames" in url]
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(BOARD).wait_for()
    assert len([url for url in asked if "steps_frames" in url]) == 1
