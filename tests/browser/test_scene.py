"""The kernel at work in a real browser: what each step shows, how it plays, how it looks."""

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from snippets._lab.draw.identity import MEMORIES, TENSORS, WARPS
from snippets._lab.rooms import FIGURES, ROOT
from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import CONTRAST, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

PAGES = {
    "tiled": "posts/tiled_attention/",
    "basic": "posts/basic_attention/",
    "flash": "posts/flash_attention/",
    "hopper": "posts/hopper_attention/",
}
BOX = ".am-scene"
BOARD = f"{BOX} [data-part=board]"
RANGE = f"{BOX} input[type=range]"
WORDS = f"{BOX} [role=status]"
CANVAS = f"{BOX} canvas[role=img]"
AA = 4.5  # contrast of text, WCAG 2.2
LONG_MS = 3400  # a step of the player with its rest, and a little more
TURN_MS = 1700  # the same where nothing moves
UNFOLD = "document.querySelectorAll('details:has(.am-scene)').forEach(d => { d.open = true; })"
CALM = {"reduced_motion": "reduce"}  # steps are shown at once


def recorded(room):
    file = FIGURES / f"{room}_attention" / "scene_steps.json"
    return json.loads(file.read_text("utf-8"))["examples"]


FULL, CAUSAL = recorded("tiled")
STEPS = 3 * len(FULL["tiles"]) + 1


@pytest.fixture
def player(open_page, site):
    """Opens a page with its scene built."""

    def player(viewport=LAPTOP, on="tiled", query="", clock=False, **options):
        page = open_page(viewport, **(CALM | options))
        if clock:
            page.clock.install()
        assert page.goto(f"{site}{PAGES[on]}{query}").status == 200
        page.evaluate(UNFOLD)
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(BOARD).wait_for()
        page.evaluate("document.fonts.ready")  # its words are drawn anew then
        return page

    return player


SNAPSHOT = """box => {
  const [range] = box.querySelectorAll('input[type=range]');
  const part = (name) => box.querySelector(`[data-part=${name}]`);
  return {
    at: Number(range.value), last: Number(range.max), valuetext: range.ariaValueText,
    count: box.querySelector('.am-player > span').textContent, words: part('words').textContent,
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


def test_the_causal_mask_hides_keys_and_skips_a_tile(player):
    page = player()
    page.get_by_role("button", name="causal", exact=True).click()
    _, *between, last = walk(page)
    assert len(between) == 3 * len(CAUSAL["tiles"]) < 3 * len(FULL["tiles"])
    for view in between:
        follows(view, CAUSAL)
    assert "skipped" in last["words"]


def test_on_a_phone_the_buttons_stay_in_sight_above_the_numbers(player):
    page = player(PHONE, on="flash")
    page.locator(f"{BOX} table").last.scroll_into_view_if_needed()
    page.locator(f'{BOX} [data-step="1"]').click(timeout=1000)
    assert step(page) == 1
    assert page.locator(BOARD).evaluate("board => board.getBoundingClientRect().bottom < 0")


def test_keys_step_and_it_plays_to_the_end(player):
    page = player(clock=True, reduced_motion="no-preference")
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
    page.clock.run_for(LONG_MS)
    assert step(page) >= 1
    page.keyboard.press("Space")
    at = step(page)
    page.clock.run_for(2 * LONG_MS)
    assert step(page) == at
    assert page.evaluate("scrollY") == top, "these keys do not scroll the page"
    page.locator(RANGE).press("ArrowRight")
    assert step(page) == at + 1
    page.get_by_role("button", name="Play").click()
    page.clock.run_for(LONG_MS * (STEPS + 2))
    assert step(page) == STEPS
    page.get_by_role("button", name="Play").click()
    assert step(page) == 0, "it begins again"
    page.get_by_role("button", name="Step forward").click()  # takes over from the player
    page.clock.run_for(2 * LONG_MS)
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
    page = player(query="?step=4&query=1&mask=causal")
    assert step(page) == 4
    follows(snapshot(page), CAUSAL)
    assert "query 1." in page.locator(WORDS).inner_text()
    page = player(query="?step=9999&query=70&mask=none")
    assert step(page) == STEPS
    page = player(query="?step=-1&query=x")
    assert step(page) == 0


def test_numbers_can_be_read_in_both_schemes(player):
    page = player(color_scheme="light")
    page.locator(RANGE).fill("6")
    colors = {}
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        cell = page.locator(f"{BOX} td.am-scene-score[style*='--am-level: 1;']").first
        colors[scheme] = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
        cells = page.locator(f"{BOX} td:is(.am-scene-score, .am-scene-acc)")
        numbers = cells.evaluate_all(CONTRAST)
        assert len(numbers) == FULL["queries"] * (FULL["tile"] + FULL["columns"])
        assert min(numbers) >= AA, scheme
    assert colors["default"] != colors["slate"]


PIXELS = """canvas => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let sum = 0;
  for (let i = 0; i < data.length; i += 1) sum = (sum * 31 + data[i]) | 0;
  return sum;
}"""


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_a_step_moves_only_where_motion_is_welcome(player, motion):
    page = player(reduced_motion=motion, clock=True)
    page.clock.run_for(3 * TURN_MS)
    assert step(page) == 0, "nothing plays by itself"
    canvas = page.locator(CANVAS)
    before = canvas.evaluate(PIXELS)
    page.get_by_role("button", name="Step forward").click()
    at_once = canvas.evaluate(PIXELS)
    page.clock.run_for(300)
    later = canvas.evaluate(PIXELS)
    page.clock.run_for(LONG_MS)
    end = canvas.evaluate(PIXELS)
    assert before != end
    if motion == "reduce":
        assert at_once == later == end
    else:
        assert len({at_once, later, end}) == 3
    page.get_by_role("button", name="Step back").click()
    assert canvas.evaluate(PIXELS) == before, "a step back is shown at once"


def test_the_lines_that_ran_are_lit(player):
    page = player()
    lines = f"{BOX} .am-scene-ran"
    for at, says in [(0, "m_i = tl.full"), (1, "k = tl.load"), (2, "alpha ="), (3, "v = tl.load")]:
        page.locator(RANGE).fill(str(at))
        shown = page.locator(lines).all_inner_texts()
        assert any(says in line for line in some(shown)), at
        assert not any("seen = " in line for line in some(shown)), "a branch that did not run"
        assert page.locator(f"{BOX} .am-scene-lit").count() >= 1
    page.locator(RANGE).fill(str(STEPS))
    box, line = (
        page.locator(f"{BOX} {css}").first.bounding_box()
        for css in (".am-scene-code", ".am-scene-lit")
    )
    assert box["y"] <= line["y"] + 1
    assert line["y"] + line["height"] <= box["y"] + box["height"] + 1, "out of sight"


def test_the_words_are_those_of_the_chosen_query(player):
    page = player(query="?step=6")
    words, pressed = (
        page.locator(WORDS),
        page.locator(f"{BOX} [data-part=queries] [aria-pressed=true]"),
    )
    for query in (2, 0):
        page.get_by_role("button", name=f"Query {query}").click()
        assert f"query {query}." in words.inner_text()
        assert pressed.all_inner_texts() == [str(query)]
        assert page.locator(f"{BOX} .am-scene-chosen th").first.inner_text() == str(query)
    box = page.locator(CANVAS).bounding_box()
    for at in (0.325, 0.95, 0.325):  # the second row of the lane, and outside of it
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * at)
        assert "query 1." in words.inner_text()


def test_a_kernel_of_one_query_goes_key_by_key(player):
    page = player(on="basic")
    (example,) = recorded("basic")
    keys = example["keys"]
    views = walk(page)
    assert len(views) == 2 * len(keys) + 3
    for n, key in some(enumerate(keys)):
        score, value = views[1 + n], views[2 + len(keys) + n]
        assert score["tables"][0] == [[str(n), *shown([key["score"]]), ""]]
        assert value["tables"][0] == [[str(n), *shown([key["score"], key["weight"]])]]
        assert value["tables"][1] == [shown(key["acc"])]
    assert views[-1]["tables"][1] == [shown(example["result"])]
    assert len({view["words"] for view in views}) == len(views)


def test_parts_that_work_side_by_side_stand_at_their_lines(player):
    page = player(on="hopper")
    example, *broken = recorded("hopper")
    times = sorted({t for s in example["spans"] for t in (s["start"], s["end"])})
    views = walk(page)
    assert len(views) == len(times)
    assert len({view["words"] for view in views}) == len(views)
    pixels, line = set(), []  # of the picture over time
    for at in (0, len(times) // 3, len(times) // 2, len(times) - 1):
        page.locator(RANGE).fill(str(at))
        time = times[at]
        stays = [s for s in example["stays"] if s["since"] <= time < s["until"]]
        lit = page.locator(f"{BOX} .am-scene-ran").count()
        waits = page.locator(f"{BOX} .am-scene-waits").count()
        lines = {n for s in stays for n in range(s["lines"][0], s["lines"][1] + 1)}
        assert lit == len(lines), time
        assert (waits > 0) == any(time < s["works_from"] for s in stays), time
        products = [s for s in example["spans"] if s["kind"] in ("scores", "values")]
        busy = {s["part"] for s in products if s["start"] <= time < s["end"]}
        rows = page.locator(f"{BOX} tbody tr").all()
        shown_ = {
            row.locator("th").inner_text(): row.locator("td").first.inner_text() for row in rows
        }
        assert {part for part, said in shown_.items() if said != "–"} == busy, time
        pixels.add(page.locator(CANVAS).evaluate(PIXELS))
        line.append((page.locator(".am-now path").bounding_box()["x"], time / times[-1]))
    assert len(pixels) == 4
    (first, early), *_, (last, _) = line
    wide = page.locator(".am-now rect").bounding_box()["width"]
    assert last - first == pytest.approx(wide * (1 - early), abs=1)
    for one in some(broken):
        page.get_by_role("button", name=one["name"], exact=True).click()
        page.locator(RANGE).press("End")
        assert page.locator(WORDS).inner_text().endswith(one["ends"])


def test_colors_are_those_of_the_charts():
    css = (ROOT / "docs/assets/javascripts/widgets/scene.css").read_text("utf-8")
    found = dict(re.findall(r"--am-((?:tensor|memory|warp)-[\w-]+): (#\w{6});", css))
    names = {"memory-shared": "shared memory", "memory-hbm": "HBM"}
    wanted = TENSORS | MEMORIES | WARPS
    for name, color in some(found.items()):
        known = names.get(name, name.partition("-")[2])
        assert color == wanted[known if known in wanted else known.replace("-", " ")], name


def test_the_recording_is_asked_for_only_when_it_is_near(open_page, site):
    page = open_page(at=site + PAGES["tiled"], until="networkidle")
    assert not [url for url in some(page.asked) if "scene_steps" in url]
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(BOARD).wait_for()
    assert len([url for url in page.asked if "scene_steps" in url]) == 1
