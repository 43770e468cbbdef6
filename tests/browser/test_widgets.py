"""Every widget in a real browser: keys, links, schemes, phone, no script, no data, and its numbers.

A row of WIDGETS for each; what only one widget does stands below, or in a module of its own.
"""

import base64
import json
import re
from itertools import product
from typing import NamedTuple

import pytest

from snippets._lab.rooms import FIGURES
from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import apart, away_and_back, only_missing, switch_scheme
from tests.browser.widgets import SLIDER, WIDGETS, is_built
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]


CHOSEN = """box => [...box.querySelectorAll('select, input:checked')]
  .map(e => e.value).filter(Boolean)"""
OLD_VIEWS = dict.fromkeys(WIDGETS, CHOSEN) | {
    "coalescing": """box => [...box.querySelectorAll('[aria-pressed=true]')]
      .map(b => b.textContent).concat(box.querySelector('input:checked').value)""",
    "attention_memory": """box => [...box.querySelectorAll('input[type=text], select')]
      .filter(e => e.checkVisibility()).map(e => e.value)
      .concat([...box.querySelectorAll('input:checked')].map(e => e.value))""",
    "scene": """box => [box.querySelector('input[type=range]').value,
      ...[...box.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent)]""",
    "road": "box => [...box.querySelectorAll('.am-stop.am-now')].map(s => s.dataset.kernel)",
}
CONTROLS = f"button, select, input[type=text], {SLIDER}, summary"
WITH_DATA = [name for name, widget in WIDGETS.items() if widget.data]
every = pytest.mark.parametrize("name", WIDGETS)


def press(box, name):
    """Press the widget's key; the words before and after."""
    words = box.locator(WIDGETS[name].says).first
    before = words.inner_text()
    box.locator(WIDGETS[name].control).first.press(WIDGETS[name].key)
    box.page.wait_for_function(
        "([words, before]) => words.innerText !== before", arg=[words.element_handle(), before]
    )
    return before, words.inner_text()


def test_every_widget_has_a_row(site_folder):
    found = {path.stem for path in site_folder.glob("assets/*/widgets/*.js")}
    assert found == {*WIDGETS, "predict"}, "the prediction has a test of its own"


@every
def test_a_key_changes_the_view_and_the_scheme_the_colors(opened, name):
    page, box = opened(name, color_scheme="light", reduced_motion="reduce")
    press(box, name)
    colors = []
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        page.wait_for_timeout(150)
        colored = box.locator(WIDGETS[name].colored).first
        colors.append(colored.evaluate(f"e => getComputedStyle(e).{WIDGETS[name].property}"))
    assert colors[0] != colors[1]
    away_and_back(page)
    press(is_built(page, name), name)


@every
def test_it_fits_a_phone_and_a_finger(opened, name):
    page, box = opened(name, viewport=PHONE, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert box.evaluate("box => box.scrollWidth - box.clientWidth") <= 2
    small = box.locator(CONTROLS).evaluate_all(
        """(all, least) => all.filter(e => e.checkVisibility({visibilityProperty: true}))
          .map(e => [e.offsetHeight, e.type === "range" ? 24 : least, e.outerHTML.slice(0, 90)])
          .filter(([height, least]) => height < least)""",
        WIDGETS[name].target,
    )
    assert small == []


@every
def test_without_a_script_something_stays(open_page, site, name):
    page = open_page(at=site + WIDGETS[name].page, java_script_enabled=False)
    box = page.locator(WIDGETS[name].box).first
    stays = box.locator(WIDGETS[name].stays).first
    assert stays.is_visible()
    assert len(stays.inner_text()) > 40
    assert box.locator("input").count() == 0


@pytest.mark.parametrize("name", WITH_DATA)
def test_data_that_cannot_be_read_are_named_and_something_stays(open_page, site, name):
    widget = WIDGETS[name]
    answers = [{"status": 404}, {"body": '{"cases": ['}, {"body": widget.nonsense}]
    page = open_page()
    page.route(f"**/{widget.data}.json", lambda route: route.fulfill(**answers[-1]))
    while answers:
        page.goto(site + widget.page)
        box = page.locator(widget.box).first
        box.scroll_into_view_if_needed()
        message = box.locator(".am-missing")
        message.wait_for()
        assert f"{widget.data}.json" in message.inner_text()
        assert box.locator(widget.stays).first.is_visible()
        assert box.locator(SLIDER).count() == 0
        answers.pop()
    only_missing(page)


@pytest.mark.parametrize("name", [name for name in WIDGETS if WIDGETS[name].old_link])
def test_an_old_link_opens_its_view_and_nonsense_the_first(opened, name):
    widget, ask = WIDGETS[name], OLD_VIEWS[name]
    page, box = opened(name, widget.old_link)
    view = "([box, view]) => JSON.stringify((ASK)(box)) === JSON.stringify(view)"
    page.wait_for_function(view.replace("ASK", ask), arg=[box.element_handle(), [*widget.old_view]])
    nonsense = re.sub(r"=[^&]+", "=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", widget.old_link)
    first = opened(name)[1].evaluate(ask)
    _, box = opened(name, nonsense)
    assert box.evaluate(ask) == first != [*widget.old_view]


# The same rule in Python, whose results are in the data, and in the widget's script.
BOTH = {
    "latency_hiding": """({ programsAtOnce }, { limits }, [target, registers, warps, shared]) => {
        const of = limits.find((one) => one.target === target);
        const found = programsAtOnce(of, { registers, warps, shared });
        return [found.fits, found.limit];
    }""",
    "decode_tokens": """({ step }, { models }, [name, keys, size, batch]) => {
        const [, layers, heads, D, parameters] = models.find(([model]) => model === name);
        const told = step({ layers, heads, D, parameters, size, keys, batch, perSecond: 4e12 });
        return [told.ofASequence, told.seconds];
    }""",
    "ring_attention": """({ predicted }, _, { ring }) => {
        const { share, bytes } = predicted(ring);
        return [share, bytes];
    }""",
    "attention_memory": """({ attentionMemory, largestLength }, { cards, dtypes }, given) => {
        const { causal, backward, dtype } = given;
        const size = BigInt(dtypes.find((one) => one.name === dtype).size);
        const sizes = { causal, backward, size };
        for (const key of ["B", "H", "N", "D"]) sizes[key] = BigInt(given[key]);
        const largest = Object.keys(given.largest).map((key) => {
          const { bytes } = cards.find(({ name }) => key.startsWith(`${name}, `));
          return [key, largestLength(BigInt(bytes), key.split(", ").at(-1), sizes)];
        });
        const found = [...Object.entries(attentionMemory(sizes)), ...largest];
        return Object.fromEntries(found.map(([key, value]) => [key, String(value)]));
    }""",
}
BYTES = (*"qkv", "output", "scores", "weights", "mask", "logsumexp", "eager", "fused")
WANTED = {
    "latency_hiding": lambda case: case[-2:],
    "decode_tokens": lambda case: case[-2:],
    "ring_attention": lambda case: [case["share"], case["bytes"]],
    "attention_memory": lambda case: case["largest"] | {k: case[k] for k in BYTES},
}


def data_of(name):
    room = WIDGETS[name].page.split("/")[1] if name in BOTH else "*"
    (path,) = FIGURES.glob(f"{room}/{WIDGETS[name].data}.json")
    return json.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("name", BOTH)
def test_both_languages_give_the_same(opened, name):
    page, _ = opened(name)
    data = data_of(name)
    found = page.evaluate(
        f"""async (data) => {{
            const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
            const widget = await import(loaded.find((one) => one.endsWith("/widgets/{name}.js")));
            return data.cases.map((one) => ({BOTH[name]})(widget, data, one));
        }}""",
        data,
    )
    wanted = [WANTED[name](case) for case in some(data["cases"], 10)]
    assert apart(found, wanted, 1e-5) == "", "figures store six digits"
    assert len({json.dumps(case) for case in wanted}) > 3, "the cases differ"
    off = json.loads(json.dumps(wanted).replace("1", "2"))
    assert apart(found, off, 1e-5) != "", "the comparison can fail"


# What only one of them does.


def test_lanes_and_sectors_are_those_of_the_words(opened):
    page, box = opened("coalescing")

    def state():
        text = box.locator(".am-lanes-summary").inner_text()
        found = re.match(r"(\w+), stride (\d+): .* touch (\d+) sectors", text).groups()
        assert box.locator(".am-lanes-touched").count() == int(found[2]), text
        assert text in box.locator("svg[role=img]").get_attribute("aria-label")
        assert box.locator(SLIDER).input_value() == found[1]
        return found[0], int(found[1]), int(found[2])

    assert state() == ("float32", 1, 4)
    after = {"plus one": (2, 8), "32": (32, 32), "less one": (31, 32), "4": (4, 16)}
    for name, (stride, sectors) in after.items():
        box.get_by_role("button", name=f"Stride {name}", exact=True).click()
        assert state() == ("float32", stride, sectors)
    box.get_by_role("radio", name="float16").check()
    assert state() == ("float16", 4, 8)
    page.wait_for_url("**?lanes=float16.4*")
    page.set_viewport_size({**LAPTOP, "width": 700})
    page.wait_for_timeout(200)
    edges = box.locator("svg rect").evaluate_all("all => all.map(r => r.getBBox().x)")
    assert max(edges) < box.locator("svg[role=img]").evaluate("svg => svg.clientWidth")
    assert state() == ("float16", 4, 8)


def counts(box):
    """(shown, all) as the summary of a table says, checked against its first page."""
    text = box.locator(".am-rows-summary").inner_text()
    shown, every = map(int, re.search(r"(\d+) of (\d+) (?:cells|kernels)", text).groups())
    assert box.locator("tbody tr").count() == min(shown, 16)
    return shown, every


def column(box, name):
    return box.locator(f"td[data-name='{name}']").all_inner_texts()


class Filtered(NamedTuple):
    filters: dict[str, str]  # one after the other leave fewer rows
    told: str  # the column that tells a refusal's reason
    refused: str  # an address that shows refusals
    nothing: str  # and one that shows no row


FILTERS = {
    "coverage": Filtered(
        {"launcher": "attention_weights", "dtype": "float32", "mask": "causal, top-left"},
        told="outcome",
        refused="?cell-outcome=refused",
        nothing="?cell-launcher=basic_attention&cell-mask=causal",
    ),
    "your_gpu": Filtered(
        {"launcher": "flash_attention", "dtype": "float16"},
        told="verdict",
        refused="?gpu-card=t4&gpu-verdict=refused",
        nothing="?gpu-card=h200&gpu-launcher=coalescing&gpu-verdict=refused",
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_choose_rows_and_the_address_keeps_them(opened, name):
    filters, told, refused, nothing = FILTERS[name]
    page, box = opened(name)
    before, every = counts(box)
    assert before == every > 15
    for label, value in filters.items():
        box.get_by_label(label, exact=True).select_option(value)
        shown, _ = counts(box)
        assert 0 < shown < before
        assert {*column(box, label)} <= {value}
        before = shown
    page.reload()
    assert counts(is_built(page, name)) == (before, every)
    box.get_by_role("button", name="Clear filters").press("Enter")
    assert counts(box) == (every, every)
    assert not re.search("launcher|dtype|mask", page.url)
    later, seen = box.get_by_role("button", name="Later rows"), box.locator("tbody tr").count()
    while later.is_enabled():
        later.press("Enter")
        seen += box.locator("tbody tr").count()
        assert seen <= every
    assert seen == every
    scroll = box.locator(".am-rows-scroll")
    assert scroll.evaluate("e => e.scrollHeight - e.clientHeight") <= 1, "nothing scrolls inside"
    _, box = opened(name, refused)
    assert all(len(text) > 30 for text in some(column(box, told))), "a refusal with its reason"
    page, _ = opened(name)
    page.goto(page.url.partition("?")[0] + nothing)
    page.locator(WIDGETS[name].box).scroll_into_view_if_needed()
    summary = page.locator(WIDGETS[name].box).locator(".am-rows-summary")
    summary.wait_for()
    assert re.search("never met|nothing has all", summary.inner_text())


def test_a_card_shows_its_own_kernels(opened):
    page, box = opened("your_gpu", "?gpu-card=t4")
    data = data_of("your_gpu")
    (card,) = (card for card in data["cards"] if card["name"] == "T4")
    rows = [dict(zip(data["columns"], r, strict=True)) for r in data["kernels"][card["target"]]]
    want = ["–" if row["registers"] is None else str(row["registers"]) for row in rows[:16]]
    assert column(box, "registers") == want
    assert page.locator(".am-figure .am-finding").first.inner_text().startswith("T4: ")
    assert re.search(r"GB of memory\s+16\b", box.locator(".am-cards-facts").inner_text())
    fits = sum(row["verdict"] == "fits" for row in rows)
    assert f"; {fits} fit, " in box.locator(".am-rows-summary").inner_text()


def test_programs_at_once_are_said_and_drawn(opened):
    _, box = opened("latency_hiding")
    summary = box.locator(".am-occupancy-summary")
    for registers, programs in ((64, 8), (255, 2), (16, 13)):
        box.get_by_label("Registers per thread").fill(str(registers))
        assert summary.inner_text().startswith(f"{programs} programs fit")
        full = box.locator(".am-occupancy-even, .am-occupancy-odd").count()
        assert f"{full} of 64 warps" in summary.inner_text()
    box.get_by_label("Warps per program").select_option("32")
    box.get_by_label("Registers per thread").fill("255")
    assert summary.inner_text() == "Not even one program fits."


def test_tokens_per_second_of_any_model(opened):
    _, box = opened("decode_tokens")
    summary = box.locator(".am-tokens-summary")
    given = {"Bandwidth, TB/s": "4", "Weights, billions": "8", "Keys of each sequence": "8192"}
    for label, value in (given | {"Sequences": "1"}).items():
        box.get_by_label(label, exact=True).fill(value)
    # 16 GB of weights and 1.07 GB of keys and values at 4 TB/s
    assert summary.inner_text().startswith("At most 234 tokens per second in all, 234 of")
    assert box.get_by_label("Model").input_value() == "own"
    field = box.get_by_label("Sequences", exact=True)
    field.fill("-1")
    assert summary.inner_text() == "Sequences is -1; give a whole number from 1 to 1,000,000."
    assert field.get_attribute("aria-invalid") == "true"
    assert "NaN" not in " ".join(some(box.locator("dd").all_inner_texts(), 4))
    box.get_by_label("Model").select_option("Llama 3.1 70B")
    assert box.get_by_label("Weights, billions").input_value() == "70.6"


def test_sums_are_those_of_the_drawing(opened):
    from snippets.same_bits import drawings

    _, box = opened("sum_orders")
    wanted = [f"{x:.7f} {drawings._bits(x)}" for x in map(drawings.total, drawings.ORDERS.values())]
    assert box.locator("dd").all_inner_texts() == wanted
    box.get_by_label("Numbers to add").fill("1, 2, 3")
    assert set(box.locator("dd").all_inner_texts()) == {"6.0000000 40c00000"}
    assert box.get_by_role("status").inner_text() == "3 numbers, 1 sum."
    box.get_by_label("Numbers to add").fill("1, two")
    assert box.get_by_role("status").inner_text() == "Write numbers with commas between them."


def test_measured_rings_stand_beside_the_line(opened):
    _, box = opened("ring_attention", viewport=PHONE)
    measured = some(data_of("ring_attention")["measured"])
    most = max(one["N"] for one in measured)
    line = box.locator(".am-ring-line")
    same, other = box.locator(".am-ring-same"), box.locator(".am-ring-other")
    for causal, option in ((True, "1"), (False, "")):
        box.locator("[data-part=causal]").select_option(option)
        shown = [one for one in measured if one["causal"] is causal]
        at = [one for one in shown if one["N"] == most]
        assert (same.count(), other.count()) == (len(at), len(shown) - len(at))
        told = line.get_attribute("aria-label").split("measured: ")[1]
        assert told == f"{at[0]['ranks']} GPUs {at[0]['rate'] / 1e12:.0f}."
    box.locator("[data-part=rows]").press("End")
    assert same.count() == 0 < other.count()
    assert line.get_attribute("aria-label").endswith("nothing with as many rows.")
    svg = line.bounding_box()
    for spot in (circle.bounding_box() for circle in some(box.locator("circle").all())):
        for start, extent in (("x", "width"), ("y", "height")):
            assert svg[start] <= spot[start]
            assert spot[start] + spot[extent] <= svg[start] + svg[extent]


def test_weights_of_a_training_are_those_of_its_data(opened):
    page, box = opened("checkpoint_map")
    data = data_of("checkpoint_map")
    text = data["text"]
    sliders = [page.get_by_role("slider", name=label) for label in ("Step", "Byte")]
    chosen = list(
        product(range(len(data["heads"])), (0, len(data["steps"]) - 1), (5, len(text) - 1))
    )
    for head, step, byte in some(chosen):
        box.locator("select").select_option(index=head)
        for slider, value in zip(sliders, (step, byte), strict=True):
            slider.fill(str(value))
        weights = base64.b64decode(data["heads"][head]["weights"][step])
        row = weights[byte * (byte + 1) // 2 :][: byte + 1]
        largest = row.index(max(row))
        said = box.locator(".am-history-summary").inner_text()
        share = f"{round(100 * max(row) / 255)}\u00a0%"
        where = f"{byte - largest} back" if largest < byte else "at itself"
        assert said.startswith(f"Step {data['steps'][step]}: the largest weight, {share}, is on ")
        assert said.endswith(f", {where}.")
        assert box.locator("[data-later]").count() == len(text) - 1 - byte
    box.locator("pre span").nth(5).click()
    assert sliders[1].input_value() == "5"


MOVING = "box => box.querySelector('[data-part=moving]').getAnimations().length"
PLACES = """box => [...box.querySelectorAll('rect[data-at]')]
  .map(r => r.getBBox()).map(({ y, width }) => [y, width]).join()"""


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_every_stop_of_the_road_has_its_own_time_code_drawing_and_post(opened, motion):
    page, box = opened("road", reduced_motion=motion)
    table = [row.split("\t") for row in box.locator("tbody tr").all_text_contents()]
    names = box.locator(".am-stops li").evaluate_all("all => all.map(li => li.dataset.post)")
    slider, shown = box.locator(SLIDER), box.locator(".am-stop:visible")
    opens = slider.get_attribute("aria-valuetext")
    assert opens.startswith(box.locator(".am-stops .am-now").get_attribute("data-post"))
    assert not opens.startswith((names[0], names[-1])), "a way to both sides"
    slider.press("Home")
    seen = set()
    for name in some(names, 5):
        page.wait_for_timeout(500)  # until all is in its place
        assert slider.get_attribute("aria-valuetext").startswith(f"{name}, ")
        assert shown.get_attribute("data-kernel") == name
        assert shown.locator("a:not(.am-term)").get_attribute("href").endswith(f"posts/{name}/")
        time = box.locator("[data-part=time]").inner_text()
        assert time == box.locator(".am-stops .am-now").get_attribute("data-said")
        assert time.removesuffix(" ms") in " ".join(next(r for r in table if name in r[0]))
        assert box.evaluate(MOVING) == (motion != "reduce")
        seen.add((time, shown.locator("pre").inner_text(), box.evaluate(PLACES)))
        slider.press("ArrowRight")
    assert all(len({*one}) == len(names) for one in zip(*seen, strict=True))
    page.wait_for_url(f"**kernel={names[-1]}*")
    shown.locator("a:not(.am-term)").click()
    page.wait_for_url(f"**/posts/{names[-1]}/")


def test_the_ring_follows_the_pointer_and_settles_at_the_nearest_stop(opened):
    page, box = opened("road", reduced_motion="reduce")
    rail, slider = box.locator(".am-stops"), box.locator(SLIDER)
    area = slider.bounding_box()
    at = "rail => Number(getComputedStyle(rail).getPropertyValue('--am-at'))"
    places = [(0.75, "flash"), (0.68, "flash"), (0.6, "tiled"), (0.33, "composed")]
    for part, post in places:
        page.mouse.move(area["x"] + part * area["width"], area["y"] + 12)
        page.mouse.down()
        assert rail.evaluate(at) == pytest.approx(part, abs=0.02)
        assert box.locator(".am-stop:visible").get_attribute("data-kernel") == f"{post}_attention"
    page.mouse.up()
    assert rail.evaluate(at) == 0.25
    assert slider.input_value() == "1"


def test_on_a_phone_the_rail_stays_beside_what_it_moves(opened):
    page, box = opened("road", viewport=PHONE, has_touch=True, is_mobile=True)
    page.evaluate("scrollTo(0, 0)")
    drawing = box.locator(".am-program").bounding_box()
    assert drawing["y"] + 0.7 * drawing["height"] < PHONE["height"], "most of it is in sight"
    box.locator(".am-stop:visible summary").tap()
    box.locator(".am-stop:visible pre").evaluate("code => code.scrollIntoView({ block: 'end' })")
    rail = box.locator(".am-stops").bounding_box()
    assert 0 < rail["y"] < 60
    page.touchscreen.tap(rail["x"] + rail["width"] / 2, rail["y"] + 13)
    page.wait_for_url("**kernel=tiled_attention*")
    assert box.locator(".am-stop:visible").get_attribute("data-kernel") == "tiled_attention"


def test_a_finger_that_scrolls_over_the_road_chooses_nothing(opened):
    page, box = opened("road", viewport=PHONE, has_touch=True, is_mobile=True)
    slider, touches = box.locator(SLIDER), page.context.new_cdp_session(page)

    def swipe(across, down):
        area = slider.bounding_box()
        x, y = area["x"] + 12, area["y"] + 25
        for kind, steps in (("touchStart", [0]), ("touchMove", range(1, 11)), ("touchEnd", [])):
            for i in steps or [None]:
                at = [] if i is None else [{"x": x + across * i / 10, "y": y + down * i / 10}]
                touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
                page.wait_for_timeout(20)

    before, stood = slider.input_value(), page.evaluate("scrollY")
    swipe(0, -200)
    page.wait_for_function(f"scrollY > {stood} + 50")
    assert slider.input_value() == before
    page.wait_for_timeout(500)  # until it rests
    page.evaluate("scrollTo(0, 0)")
    swipe(60, 0)
    assert slider.input_value() < before


def test_a_prediction_is_kept_and_opens_its_answer(open_page, site):
    page = open_page(at=f"{site}posts/coalescing/")
    box = page.locator(".am-predict").first
    box.scroll_into_view_if_needed()
    first, second = (box.locator("li button").nth(i) for i in range(2))  # the second is right
    marks = "buttons => buttons.map((b) => getComputedStyle(b, '::after').content[1])"
    for chosen, marked in ((first, ["✗", "✓", "o"]), (second, ["o", "✓", "o"])):
        chosen.press("Enter")
        assert box.locator("li button").evaluate_all(marks) == marked  # "o": of "none"
    assert box.locator("details").get_attribute("open") is not None
    page.reload()
    page.mouse.wheel(0, 100)
    box.locator("[aria-pressed=true]").wait_for()
    assert second.get_attribute("aria-pressed") == "true"
