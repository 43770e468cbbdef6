"""The attention map in a real browser: what a click, a key, a link and broken data lead to."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import (
    CLIPBOARD,
    CONTRAST,
    copied,
    measure_shift,
    only_missing,
    plotly_is_loaded,
    switch_scheme,
)
from tests.browser.widgets import is_built
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

MAP = "attention_map"
POST = "posts/attention_weights/"
CODE = "**/attention_map_code.json"
TABLET = {"width": 768, "height": 1024}
AA = 4.5  # contrast of text, WCAG 2.2
HEADS = 12


@pytest.fixture
def drawn(opened):
    """Opens the map's page, and waits until Plotly has drawn it."""

    def drawn(query="", **options):
        page, box = opened(MAP, query, **options)
        box.locator(".am-map-heat").scroll_into_view_if_needed()
        page.mouse.wheel(0, 1)
        box.locator(".am-map-cells .main-svg").first.wait_for()
        box.locator(".am-map-cells canvas").wait_for(state="hidden")
        return page, box

    return drawn


def tokens_of(box):
    return box.locator(".am-map-tokens button")


def state(page):
    """The view that the address names, or None."""
    (view,) = parse_qs(urlsplit(page.url).query).get("map", [None])
    if view is None:
        return None
    sentence, *place, direction = view.split(".")
    return sentence, *map(int, place), direction


# The marks lie on the chosen row and column of the heatmap, as soon as the page lies still.
MARKS_LIE_ON = """([box, token]) => [["row", "y", "height"], ["column", "x", "width"]].every(
  ([name, start, size]) => {
    const label = box.querySelectorAll(`[data-part=${name}s] span`)[token];
    const [a, b] = [box.querySelector(`b[data-part=${name}]`), label]
      .map((e) => e.getBoundingClientRect())
      .map((side) => side[start] + side[size] / 2);
    return Math.abs(a - b) <= 2;
  })"""


def shown(box):
    """The view that the map shows, read from what the reader sees."""
    pressed = tokens_of(box).evaluate_all("all => all.map(b => b.ariaPressed)")
    assert pressed.count("true") == 1
    current = box.locator(".am-map-heads [aria-current=true]").get_attribute("aria-label")
    layer, head = (box.locator(f"[data-part={part}]").input_value() for part in ("layer", "head"))
    assert current == f"layer {layer}, head {head}"
    sentence, direction = (box.locator(f"input:checked >> nth={k}").input_value() for k in (0, 1))
    token = pressed.index("true")
    box.page.wait_for_function(MARKS_LIE_ON, arg=[box.element_handle(), token])
    return sentence, int(layer), int(head), token, direction


def numbers(box):
    return [float(n) for n in box.locator(".am-map-tokens small").all_text_contents()]


def data_of(page, box):
    """The file behind the sentence shown, fetched as the page does."""
    name = box.locator("input:checked").first.input_value()
    urls = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    (url,) = {url for url in urls if url.endswith(f"_{name}.json")}
    return page.request.get(url).json()


def first_view(box):
    first = box.evaluate("box => ({...box.dataset})")
    place = (int(first[key]) for key in ("layer", "head", "token"))
    return first["sentences"].split()[0], *place, "row"


def test_clicks_and_keys_move_the_highlight_and_the_address(drawn):
    page, box = drawn()
    entries = page.evaluate("history.length")
    assert shown(box) == first_view(box)
    assert state(page) is None, "the address changes only when the reader does something"
    sentence, layer, head, _, _ = shown(box)
    tokens = tokens_of(box)
    last = tokens.count() - 1
    tokens.nth(3).click()
    steps = [(None, 3), ("ArrowRight", 4), ("ArrowLeft", 3), ("End", last), ("ArrowRight", last)]
    for key, expected in [*steps, ("Home", 0)]:
        if key:
            page.keyboard.press(key)
        assert shown(box) == state(page) == (sentence, layer, head, expected, "row"), key
        assert tokens.nth(expected).evaluate("b => b === document.activeElement")
        assert tokens.evaluate_all("all => all.filter(b => b.tabIndex === 0).length") == 1
    assert page.evaluate("history.length") == entries, "the history fills up"


LIGHTNESS = """all => all.map(b => getComputedStyle(b).backgroundColor.match(/[\\d.]+/g)
  .reduce((sum, c) => sum + Number(c), 0))"""


def test_the_numbers_are_those_of_the_data_in_both_directions(opened):
    page, box = opened(MAP, color_scheme="light")
    data = data_of(page, box)
    checked = set()
    for direction in ("row", "column"):
        box.locator(f"input[value={direction}]").check()
        for token in (1, 4):
            tokens_of(box).nth(token).click()
            _, layer, head, *_ = shown(box)
            square = data["weights"][layer][head]
            line = square[token] if direction == "row" else [row[token] for row in square]
            assert numbers(box) == pytest.approx(line, abs=0.0051)
            assert state(page) == (data["sentence"], layer, head, token, direction)
            summary = box.locator("[data-part=summary]").inner_text()
            assert f"{max(line):.2f}" in summary
            assert ("attends to" if direction == "row" else "attended to by") in summary
            checked.add(tuple(numbers(box)))
    assert len(checked) == 4, "all views look alike: nothing was checked"
    lightness = zip(numbers(box), tokens_of(box).evaluate_all(LIGHTNESS), strict=True)
    by_weight = [light for _, light in sorted(lightness)]
    assert by_weight[0] > by_weight[-1] + 30, "more weight is a stronger background"


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True}])
def test_a_cell_chooses_its_row_or_in_the_other_direction_its_column(drawn, options):
    page, box = drawn(**options)
    cells, count = box.locator(".am-map-cells"), tokens_of(box).count()
    for direction, row, column in (("row", 5, 2), ("column", 5, 2), ("row", 1, 4)):
        box.locator(f"input[value={direction}]").check()
        cells.scroll_into_view_if_needed()
        area = cells.bounding_box()
        x = area["x"] + area["width"] * (column + 0.5) / count
        y = area["y"] + area["height"] * (row + 0.5) / count
        (page.touchscreen.tap if options else page.mouse.click)(x, y)
        expected = row if direction == "row" else column
        page.wait_for_function("k => location.search.includes(`.${k}.`)", arg=expected)
        assert shown(box)[3:] == (expected, direction)


def test_the_panel_of_heads_chooses_and_plotly_follows(drawn):
    page, box = drawn()
    heads = box.locator(".am-map-heads button")
    heads.nth(3 * HEADS + 7).click()
    assert shown(box)[1:3] == (3, 7)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert heads.nth(4 * HEADS + 8).evaluate("b => b === document.activeElement")
    assert shown(box)[1:3] == (3, 7), "an arrow key moves, it does not choose"
    page.keyboard.press("Enter")
    assert shown(box)[1:3] == state(page)[1:3] == (4, 8)
    box.locator("[data-part=layer]").select_option("1")
    box.locator("[data-part=head]").select_option("11")
    assert shown(box)[1:3] == state(page)[1:3] == (1, 11)
    plot = "document.querySelector('[data-part=plot]').data[0].z"
    drawn_is = f"z => JSON.stringify({plot}) === JSON.stringify(z)"
    page.wait_for_function(drawn_is, arg=data_of(page, box)["weights"][1][11])
    box.locator(".am-map-cells canvas").wait_for(state="hidden")


def test_every_sentence_can_be_chosen_and_fits_a_phone(drawn):
    page, box = drawn(viewport=PHONE)
    names = box.locator("[data-part=sentences] input").evaluate_all("all => all.map(i => i.value)")
    for name in some(names[::-1], 2):
        box.locator(f"input[value={name}]").check()
        page.wait_for_function("name => location.search.includes(name)", arg=name)
        data = data_of(page, box)
        assert shown(box) == state(page)
        assert shown(box)[0] == data["sentence"] == name
        assert tokens_of(box).count() == len(data["tokens"])
        size = "n => document.querySelector('[data-part=plot]').data[0].z.length === n"
        page.wait_for_function(size, arg=len(data["tokens"]))
        for part in (box, box.locator(".am-map-heads")):
            assert part.evaluate("e => e.scrollWidth - e.clientWidth") <= 0, name
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name


def test_the_link_to_a_view_is_copied_and_leads_there_from_the_text(opened):
    page, box = opened(MAP, **CLIPBOARD)
    tokens_of(box).nth(2).click()
    box.locator("[data-part=copy]").click()
    box.get_by_text("Copied").wait_for()
    link = urlsplit(copied(page))
    assert link.query == urlsplit(page.url).query
    assert page.locator(f"[id='{link.fragment}'] .am-map").count() == 1, "it leads to the map"
    page.evaluate("window.sameDocument = true")
    page.locator("article > p").first.evaluate(
        "p => { p.innerHTML = '<a href=\"?map=code.1.2.3.column\">A view</a>'; }"
    )
    page.get_by_role("link", name="A view").click()
    there = "[aria-label='layer 1, head 2'][aria-current=true]"  # when its data have come
    box.locator(there).wait_for()
    assert shown(box) == state(page) == ("code", 1, 2, 3, "column")
    assert page.evaluate("window.sameDocument")


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("nowhere.0.0.0.row", "“nowhere”"),
        ("code.99.0.0.row", "layer 99"),
        ("code.0.99.0.row", "head 99"),
        ("code.0.0.999.row", "token 999"),
        ("code.0.0.0.diagonal", "form"),
        ("code.-1.0.0.row", "form"),
        ("<img src=x onerror=alert(1)>", "form"),
        ("", "form"),
    ],
)
def test_an_address_that_names_nothing_says_so(opened, link, says):
    _, box = opened(MAP, f"?map={link}")
    notice = box.locator("[data-part=notice]")
    assert says in notice.inner_text()
    assert "first view" in notice.inner_text()
    assert shown(box) == first_view(box)
    tokens_of(box).nth(2).click()
    assert notice.inner_text() == "", "the reader has moved on"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (None, "404"),
        ("truncated", "JSON"),
        ({"heads": 11}, "sizes"),
        ({"tokens": ["one"]}, "sizes"),
        ("null", "sizes"),
    ],
)
def test_data_that_cannot_be_read_is_named(open_page, site, change, says):
    page = open_page()

    def answer(route):
        if isinstance(change, dict):
            return route.fulfill(body=json.dumps(route.fetch().json() | change))
        body = {"truncated": '{"tokens": [', "null": "null"}
        return route.fulfill(body=body[change]) if change else route.fulfill(status=404)

    page.route(CODE, answer)
    page.goto(f"{site}{POST}?map=code.1.1.1.row")
    box = page.locator(".am-map").first
    box.scroll_into_view_if_needed()
    notice = box.get_by_text("cannot be drawn")
    notice.wait_for()
    assert "attention_map_code.json" in notice.inner_text()
    assert says in notice.inner_text()
    assert not box.locator("[data-part=stage]").is_visible()
    box.locator("input[value=pronoun]").check()
    tokens_of(box).nth(3).click()
    assert shown(box)[::3] == ("pronoun", 3)
    assert shown(box) == state(page)
    only_missing(page)


@pytest.mark.parametrize("comes", ["never", "broken"])
def test_without_plotly_the_still_picture_answers(open_page, site, comes):
    page = open_page()
    page.route("**/plotly*", lambda route: comes == "broken" and route.fulfill(status=404))
    page.goto(site + POST)
    box = is_built(page, MAP)
    box.locator(".am-map-heat").scroll_into_view_if_needed()
    page.mouse.wheel(0, 1)
    if comes == "broken":
        box.get_by_text("still picture").wait_for()
        assert "plotly" in box.locator("[data-part=notice]").inner_text()
        only_missing(page)
    area = box.locator(".am-map-cells canvas").bounding_box()
    size = area["height"] / tokens_of(box).count()
    page.mouse.click(area["x"] + 2.5 * size, area["y"] + 4.5 * size)
    assert shown(box)[3] == 4
    assert box.locator(".am-map-cells canvas").is_visible()


def test_tokens_are_text_and_pieces_of_a_word_join(open_page, site):
    page = open_page()
    hostile = ["[CLS]", "un", "##hur", "##ried", "<b>bold</b>", "&"]

    def answer(route):
        data = route.fetch().json()
        data["tokens"][: len(hostile)] = hostile
        route.fulfill(body=json.dumps(data))

    page.route(CODE, answer)
    page.goto(f"{site}{POST}?map=code.0.0.1.row")
    box = is_built(page, MAP)
    found = box.locator(".am-map-tokens button span").all_text_contents()
    assert found[:6] == ["[CLS]", "un", "hur", "ried", "<b>bold</b>", "&"]
    assert box.locator(".am-map-joined").count() == 2
    page.mouse.wheel(0, 200)
    box.locator(".am-map-cells .main-svg").first.wait_for()
    hover = page.evaluate("document.querySelector('[data-part=plot]').data[0].text[4][5]")
    assert hover == "&#60;b&#62;bold&#60;/b&#62; attends to &#38;"


WHOLE = "canvas => canvas.toDataURL()"


def test_the_dark_switch_recolors_and_text_stays_readable(drawn):
    page, box = drawn(color_scheme="light")
    heads = box.locator(".am-map-heads button")
    seen, backgrounds = {}, set()
    for scheme in ("default", "slate", "default"):
        heads.nth(0).click()
        switch_scheme(page, scheme)
        page.wait_for_timeout(300)
        pictures = (".am-map-heads canvas >> nth=0", ".am-map-cells canvas")
        scale = page.evaluate("document.querySelector('[data-part=plot]').data[0].colorscale")
        look = (*(box.locator(one).evaluate(WHOLE) for one in pictures), json.dumps(scale))
        assert seen.setdefault(scheme, look) == look, "the colors do not come back"
        for head in (0, 17, 40, 71):
            heads.nth(head).click()
            assert min(tokens_of(box).evaluate_all(CONTRAST)) >= AA, (scheme, head)
            backgrounds.update(
                tokens_of(box).evaluate_all("all => all.map(b => b.style.background)")
            )
    assert all(one != other for one, other in some(zip(*seen.values(), strict=True)))
    assert len(backgrounds) > 30, "too few colors were checked"


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE, TABLET])
def test_nothing_jumps_and_the_light_map_stands_where_the_map_will(open_page, site, viewport):
    """The same words at the same place, with the same numbers, before a script and after."""
    page = open_page(viewport)
    page.route("**/attention_map*.js", lambda route: route.abort())
    measure_shift(page, fonts=False)  # which come while places are asked for
    page.goto(site + POST)
    light = page.locator(".am-map-light").first
    tokens_of(light).nth(3).click()
    assert light.locator("button[aria-pressed=true]").count() == 1
    before = light.locator(".am-map-summary").inner_text()
    assert "attends to" in before
    marks = [".am-map-tokens button >> nth=3", ".am-map-cells"]
    page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
    there = [light.locator(mark).bounding_box() for mark in marks]
    beside = page.locator(".am-map").first.bounding_box()
    whole = open_page(viewport)
    measure_shift(whole, fonts=False)
    whole.goto(site + POST)
    box = is_built(whole, MAP)
    box.locator(".am-map-heat").scroll_into_view_if_needed()
    box.locator(".am-map-cells .main-svg").first.wait_for()
    assert box.bounding_box()["height"] == pytest.approx(beside["height"], abs=1)
    assert whole.evaluate("shift") < 0.01
    whole.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
    tokens_of(box).nth(3).click()
    assert box.locator(".am-map-summary").inner_text() == before
    for mark, old in zip(marks, there, strict=True):
        new, top = box.locator(mark).bounding_box(), box.bounding_box()["y"]
        expected = old["x"], old["y"] - beside["y"]
        assert (new["x"], new["y"] - top) == pytest.approx(expected, abs=3), mark
    assert all("attention_map" in wrong or "ERR_FAILED" in wrong for wrong in page.wrong)
    page.wrong.clear()


def test_the_front_page_loads_no_plotly_until_the_reader_comes(open_page, site):
    page = open_page(at=site, until="networkidle")
    page.wait_for_timeout(500)
    assert not plotly_is_loaded(page)
    box = is_built(page, MAP)
    tokens_of(box).nth(2).click()
    box.locator(".am-map-heat").scroll_into_view_if_needed()
    box.locator(".am-map-cells .main-svg").first.wait_for()
    assert plotly_is_loaded(page)


def test_the_title_follows_the_choice_and_a_head_is_seen_before_it_is_chosen(opened):
    page, box = opened(MAP)
    title = page.locator(".am-figure", has=page.locator(".am-map")).first.locator(".am-finding")
    tokens_of(box).nth(2).click()
    _, layer, head, token, _ = shown(box)
    row = data_of(page, box)["weights"][layer][head][token]
    most = data_of(page, box)["tokens"][row.index(max(row))]
    title.filter(has_text=f"layer {layer} head {head}").filter(has_text=f"at {most}").wait_for()
    # As many lines as other words weigh something, at most four.
    paths = box.locator(".am-map-arcs path")
    paths.first.wait_for(state="attached")
    assert paths.count() == min(sum(w >= 0.05 for j, w in enumerate(row) if j != token), 4)
    look, count = box.locator(".am-map-cells canvas"), box.locator("[data-part=count]")
    own, said = look.evaluate(WHOLE), count.inner_text()
    box.locator(".am-map-heads button").nth(2).hover()
    assert look.evaluate(WHOLE) != own
    assert "layer 0, head 2" in count.inner_text()
    assert shown(box)[1:3] == (layer, head), "to point is not to choose"
    page.mouse.move(0, 0)
    assert (look.evaluate(WHOLE), count.inner_text()) == (own, said)


def test_views_worth_a_look_are_marked_and_the_task_is_done_by_the_head_that_does_it(opened):
    page, box = opened(MAP)
    data = data_of(page, box)

    def before(square):
        return sum(square[i][i - 1] for i in range(1, len(square))) / (len(square) - 1)

    each = enumerate(data["weights"])
    best, layer, head = max((before(s), i, j) for i, heads in each for j, s in enumerate(heads))
    views = [v for v in data["highlights"] if before(data["weights"][v["layer"]][v["head"]]) < best]
    assert len(views) == len(data["highlights"]) - 1, "that which is asked for is not told"
    notes = box.locator("[data-part=notes] button")
    for note, view in some(zip(notes.all(), views, strict=True)):
        note.click()
        assert shown(box)[1:4] == (view["layer"], view["head"], view["token"])
        marked = f"layer {view['layer']}, head {view['head']}"
        assert box.locator(f".am-map-noted[aria-label='{marked}']").count() == 1
    assert box.locator(f".am-map-noted[aria-label='layer {layer}, head {head}']").count() == 0
    assert len({*notes.all_inner_texts()}) == notes.count(), "two views have the same words"
    task = box.locator(".am-map-task")
    assert task.inner_text().startswith("A task: find")
    box.locator(".am-map-heads button").nth(layer * HEADS + head).click()
    assert task.inner_text().startswith("A task: solved")
    assert f"{round(100 * best)}\u00a0%" in task.inner_text()
