"""The kernel at work in a real browser, on pages made of the figures alone.

The figures are those that the posts include, tested before a post is published and after.
"""

import gzip
import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from snippets._lab.draw.identity import MEMORIES, TENSORS, WARPS
from snippets._lab.rooms import ROOT
from snippets._site.browser import LAPTOP, PHONE
from snippets._site.scripts import bundle, needed
from tests.browser.browser import built, measure_shift, scratch_source, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FIGURES = "docs/figures/{}_attention/scene.md"
HERO = "docs/figures/tiled_attention/scene_hero.md"
FIGURE = FIGURES.format("tiled")
DATA = ROOT / "docs/figures/tiled_attention/scene_steps.json"
FULL, CAUSAL = json.loads(DATA.read_text("utf-8"))["examples"]
ROOMS = ["basic", "flash", "hopper"]
STEPS = 3 * len(FULL["tiles"]) + 1
BOX = ".am-scene"
BOARD = f"{BOX} [data-part=board]"
RANGE = f"{BOX} input[type=range]"
WORDS = f"{BOX} [role=status]"
CANVAS = f"{BOX} canvas[role=img]"
AA = 4.5  # contrast of text, WCAG 2.2
LONG_MS = 3400  # a step of the player with its rest, and a little more
TURN_MS = 1700  # the same where nothing moves
CALM = {"reduced_motion": "reduce"}  # steps are shown at once


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A site with this site's configuration and the figures; the rest of its pages are left out."""
    prose = "A paragraph to scroll past. " * 300
    pages = {
        "index.md": f'# Steps\n\n{prose}\n\n--8<-- "{FIGURE}"\n\n{prose}',
        "other.md": "# Another page\n\nNothing to play here.",
        "hero.md": f'# Front\n\n--8<-- "{HERO}"\n\n{prose}',
    }
    for room in ROOMS:
        pages[f"{room}.md"] = f'# Room\n\n--8<-- "{FIGURES.format(room)}"'
    source = scratch_source(tmp_path_factory.mktemp("source"), pages, ["data", "figures"])
    with built(source, tmp_path_factory.mktemp("scratch")) as address:
        yield address


@pytest.fixture
def player(open_page, scratch):
    """Opens the page with the scene built; `link` is what follows the address."""

    def player(viewport=LAPTOP, link="", clock=False, **options):
        page = open_page(viewport, **(CALM | options))
        if clock:
            page.clock.install()
        assert page.goto(scratch + link).status == 200
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


def test_the_words_are_those_of_the_chosen_query(player):
    page = player()
    page.locator(RANGE).fill("3")
    for query in (2, 0):
        page.get_by_role("button", name=f"Query {query}").click()
        assert f"query {query}." in page.locator(WORDS).inner_text()
        pressed = page.locator(f"{BOX} [data-part=queries] [aria-pressed=true]")
        assert pressed.all_inner_texts() == [str(query)]
        assert page.locator(f"{BOX} .am-scene-chosen th").first.inner_text() == str(query)


def test_the_causal_mask_hides_keys_and_skips_a_tile(player):
    page = player()
    page.get_by_role("button", name="causal", exact=True).click()
    _, *between, last = walk(page)
    assert len(between) == 3 * len(CAUSAL["tiles"]) < 3 * len(FULL["tiles"])
    for view in between:
        follows(view, CAUSAL)
    assert "skipped" in last["words"]
    assert page.wrong == []


def test_keys_step_and_play(player):
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
    page.locator(RANGE).focus()
    page.keyboard.press("ArrowRight")
    assert step(page) == at + 1
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
  const channels = (color) => {
    const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((c) => c / 255);
  };
  const light = (color) => channels(color)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const style = getComputedStyle(cell);
  const [high, low] = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}"""


def test_numbers_can_be_read_in_both_schemes(player):
    page = player(color_scheme="light")
    page.locator(RANGE).fill("6")
    colors = {}
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        cell = page.locator(f"{BOX} td.am-scene-score[style*='--am-level: 1;']").first
        colors[scheme] = cell.evaluate("cell => getComputedStyle(cell).backgroundColor")
        numbers = page.locator(f"{BOX} td:is(.am-scene-score, .am-scene-acc)").evaluate_all(
            f"all => all.map({CONTRAST})"
        )
        assert len(numbers) == FULL["queries"] * (FULL["tile"] + FULL["columns"])
        assert min(numbers) >= AA, scheme
    assert colors["default"] != colors["slate"]
    assert page.wrong == []


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


# Where the picture without a script has a filled square the stage has that color too.
SAME = """box => {
  const [canvas, poster] = ['canvas', '.am-scene-poster'].map((s) => box.querySelector(s));
  const [,, wide, tall] = poster.getAttribute('viewBox').split(' ').map(Number);
  const both = document.createElement('canvas');
  [both.width, both.height] = [canvas.width, canvas.height];
  const context = both.getContext('2d');
  for (const one of [...box.querySelectorAll('canvas')].reverse()) context.drawImage(one, 0, 0);
  const size = canvas.width / wide;
  const different = [];
  let count = 0;
  for (const path of poster.querySelectorAll('path[fill^="#"]')) {
    const color = path.getAttribute('fill').match(/\\w\\w/g).map((x) => parseInt(x, 16));
    const squares = path.getAttribute('d');
    for (const [, x, y, side] of squares.matchAll(/M([\\d.]+) ([\\d.]+)h([\\d.]+)/g)) {
      if (side < 4) continue;
      const at = [x, y].map((z) => Math.round((Number(z) + side / 2) * size));
      const pixel = context.getImageData(...at, 1, 1).data;
      const off = Math.max(...color.map((c, i) => Math.abs(c - pixel[i])));
      if (off > 90) different.push([path.getAttribute('fill'), x, y, [...pixel]]);
      count += 1;
    }
  }
  return { count, different, ratio: (canvas.width / canvas.height) / (wide / tall) };
}"""


@pytest.mark.parametrize(("page_of", "at"), [("", 6), ("basic/", 23), ("flash/", 6)])
def test_the_picture_without_a_script_is_the_stage(player, page_of, at):
    page = player(link=f"{page_of}?step={at}")
    same = page.locator(BOX).evaluate(SAME)
    assert same["count"] > 60
    assert same["different"] == []
    assert same["ratio"] == pytest.approx(1, abs=0.01)
    assert page.wrong == []


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


def test_a_click_on_a_row_chooses_its_query(player):
    page = player(link="?step=6")
    box = page.locator(CANVAS).bounding_box()
    for _ in range(2):  # the second row of the lane, and outside of it
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.325)
        assert "query 1." in page.locator(WORDS).inner_text()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.95)
    assert "query 1." in page.locator(WORDS).inner_text()


def test_a_kernel_of_one_query_goes_key_by_key(player):
    page = player(link="basic/")
    data = json.loads((ROOT / "docs/figures/basic_attention/scene_steps.json").read_text("utf-8"))
    (example,) = data["examples"]
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
    assert page.wrong == []


def test_parts_that_work_side_by_side_stand_at_their_lines(player):
    page = player(link="hopper/")
    data = json.loads((ROOT / "docs/figures/hopper_attention/scene_steps.json").read_text("utf-8"))
    (example,) = data["examples"]
    times = sorted({t for s in example["spans"] for t in (s["start"], s["end"])})
    views = walk(page)
    assert len(views) == len(times)
    assert len({view["words"] for view in views}) == len(views)
    pixels = set()
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
    assert len(pixels) == 4
    assert page.wrong == []


def test_the_front_page_plays_by_itself_and_can_be_stopped(player):
    page = player(link="hero/", clock=True, reduced_motion="no-preference")
    words = page.locator(WORDS)
    assert words.get_attribute("aria-live") == "off", "nobody is told of what moves by itself"
    page.clock.run_for(LONG_MS)
    assert step(page) >= 1
    page.get_by_role("button", name="Pause").click()
    at = step(page)
    page.clock.run_for(LONG_MS)
    assert step(page) == at
    assert words.get_attribute("aria-live") == "polite"
    assert address(page) == {}, "the front page's address stays its own"
    page = player(link="hero/", clock=True)
    at = step(page)
    page.clock.run_for(TURN_MS)
    assert step(page) == at > 0, "where motion is not welcome it stands still"
    assert page.wrong == []


# What of a line of the listing is cut off by the upper edge of its box, at each step, in pixels.
CUT = """box => {
  const listing = box.querySelector(".am-scene-code"), cut = [];
  const lines = [...listing.querySelectorAll(".am-scene-line")];
  for (const forward = box.querySelector('[data-step="1"]'); !forward.disabled;) {
    forward.click();
    const edge = listing.getBoundingClientRect().top;
    const above = lines.map((line) => line.getBoundingClientRect())
      .filter(({ top, bottom }) => top < edge - 1.5 && bottom > edge + 1.5);
    cut.push(...above.map(({ top }) => edge - top));
  }
  return cut;
}"""


@pytest.mark.parametrize("link", ["", "hero/", *(f"{room}/" for room in ROOMS)])
@pytest.mark.parametrize("viewport", [PHONE, LAPTOP], ids=["phone", "laptop"])
def test_no_line_of_the_listing_is_cut_at_its_top(player, link, viewport):
    page = player(viewport, link)
    steps = page.locator(BOX).evaluate("box => Number(box.querySelector('input[type=range]').max)")
    assert steps > 3
    assert page.locator(BOX).evaluate(CUT) == []
    assert page.wrong == []


MOUNT = """async (recording) => {
  const [script] = performance.getEntriesByType('resource').map((e) => e.name)
    .filter((name) => name.endsWith('/widgets/scene.js'));
  const { mount } = await import(script);
  const page = document.querySelector(".md-content__inner");
  const box = page.appendChild(document.createElement("div"));
  box.className = 'am-scene mounted';
  try {
    mount(box, recording);
    return 'mounted';
  } catch (error) {
    return error.message;
  }
}"""


def test_a_recording_from_elsewhere_can_be_mounted(player):
    page = player(link="?step=3")
    recording = json.loads(DATA.read_text("utf-8"))
    recording["examples"] = recording["examples"][1:]
    assert page.evaluate(MOUNT, recording) == "mounted"
    box = page.locator(".mounted")
    assert box.locator("input").input_value() == "0", "the address is the other scene's"
    box.get_by_role("button", name="Step forward").click()
    view = consistent(box.evaluate(SNAPSHOT))
    follows(view, CAUSAL)
    page.wait_for_timeout(400)
    assert address(page) == {"step": "3"}
    recording["examples"][0]["tiles"][0]["p"] = []
    assert "is not a recording" in page.evaluate(MOUNT, recording)
    assert page.wrong == []


def test_nothing_jumps_when_the_stage_comes(open_page, scratch):
    page = open_page()
    measure_shift(page)
    page.goto(scratch + "hero/")
    page.locator(BOARD).wait_for()
    page.get_by_role("button", name="Step forward").click()
    assert page.evaluate("shift") <= 0.02


# The words that each task draws, and whether the stage is in sight by then.
# A task ends before a timer that it set.
WORDS_OF_TASKS = """
  window.tasks = [];
  let task;
  const { fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.fillText = function (...all) {
    if (!task) {
      tasks.push(task = { words: 0, inSight: document.querySelector('.am-scene-live') !== null });
      setTimeout(() => { task = undefined; });
    }
    task.words += 1;
    fillText.apply(this, all);
  };
"""


@pytest.mark.parametrize("link", ["hero/", "flash/", "hopper/"])
def test_the_first_picture_is_painted_in_several_tasks_while_the_poster_stands(
    open_page, scratch, link
):
    page = open_page(**CALM)
    page.add_init_script(WORDS_OF_TASKS)
    page.goto(scratch + link)
    page.locator(BOARD).wait_for()
    words = [task["words"] for task in page.evaluate("tasks") if not task["inSight"]]
    assert sum(some(words)) > 15
    assert max(words) < 0.6 * sum(words), words
    assert page.wrong == []


def test_colors_are_those_of_the_charts():
    css = (ROOT / "docs/assets/javascripts/widgets/scene.css").read_text("utf-8")
    found = dict(re.findall(r"--am-((?:tensor|memory|warp)-[\w-]+): (#\w{6});", css))
    names = {"memory-shared": "shared memory", "memory-hbm": "HBM"}
    wanted = TENSORS | MEMORIES | WARPS
    for name, color in some(found.items()):
        known = names.get(name, name.partition("-")[2])
        assert color == wanted[known if known in wanted else known.replace("-", " ")], name


@pytest.mark.parametrize("room", ["tiled", *ROOMS])
def test_a_recording_is_small(room):
    assert (ROOT / f"docs/figures/{room}_attention/scene_steps.json").stat().st_size <= 60_000


def test_the_script_is_small(tmp_path):
    source = ROOT / "docs/assets/javascripts"
    modules = needed(source / "widgets/scene.js")
    script = bundle(modules).encode()
    assert len(gzip.compress(script, 9)) <= 25_000


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
    page.route("**/scene_steps.json", lambda route: route.fulfill(**answer))
    page.goto(scratch)
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "scene_steps.json" in message.inner_text()
    assert page.locator(f"{BOX} table").first.is_visible()
    assert page.locator(BOARD).count() == 0


def test_the_recording_is_small_and_asked_for_only_when_it_is_near(open_page, scratch):
    page = open_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(scratch, wait_until="networkidle")
    assert not [url for url in asked if "scene_steps" in url]
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(BOARD).wait_for()
    assert len([url for url in asked if "scene_steps" in url]) == 1


SLOWER = 4  # how many times the CPU is slowed down
FRAMES = """() => new Promise((done) => {
  const frames = [];
  const note = (now) => {
    frames.push(now);
    if (now - frames[0] < 3000) requestAnimationFrame(note);
    else done(frames.slice(1).map((frame, at) => frame - frames[at]));
  };
  requestAnimationFrame(note);
})"""
FRAME_MS = 1000 / 60
LATE = 0.1  # of all frames, at most, in the best of some rounds


@pytest.mark.alone
@pytest.mark.parametrize("room", ["", "basic", "tiled", "flash", "hopper"])
def test_it_plays_at_sixty_frames_a_second_on_a_slow_machine(open_page, site, room):
    page = open_page(bypass_csp=True)
    page.goto(f"{site}posts/{room}_attention/" if room else site)
    page.evaluate(
        "() => document.querySelectorAll('details').forEach((fold) => (fold.open = true))"
    )
    box = page.locator("[data-widget=scene]").first
    box.scroll_into_view_if_needed()
    pause, play = (box.get_by_role("button", name=name) for name in ("Pause", "Play"))
    pause.or_(play).first.wait_for()
    page.wait_for_timeout(1000)
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    shares = []
    while len(shares) < 5 and min(shares, default=1) > LATE:
        if play.count():
            play.click()
        page.wait_for_timeout(300)
        before = box.inner_text()
        frames = some(page.evaluate(FRAMES), 30)
        assert box.inner_text() != before, "it stood still: no frame was drawn anew"
        shares.append(sum(ms > 1.5 * FRAME_MS for ms in frames) / len(frames))
    print(f"\n{room or 'front page'}: late frames {min(shares):.1%}, of all frames")
    assert min(shares) <= LATE


@pytest.mark.parametrize("touch", [False, True], ids=["mouse", "touch"])
@pytest.mark.parametrize("width", [360, 390, 560, 1366])
def test_the_front_page_keeps_room_for_the_scene(open_page, site, width, touch):
    """What follows the poster stands where it will stand when the script has come."""
    places = []
    for comes in (False, True):
        page = open_page(viewport={"width": width, "height": 850}, has_touch=touch)
        if not comes:
            page.route("**/widgets/scene*.js", lambda route: route.abort())
        page.goto(site)
        box = page.locator("[data-widget=scene]").first
        if comes:
            box.locator(".am-scene-frame").wait_for()
        page.evaluate("document.fonts.ready")
        place = box.bounding_box()
        places.append((place["y"], place["height"]))
    assert places[0] == pytest.approx(places[1], abs=0.5)
