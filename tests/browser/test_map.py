"""The attention map in a real browser: what a click, a key, a link and broken data lead to.

Usual cases run on the real pages once they include the map; broken ones on a site made up here.
"""

import json
import math
import random
from urllib.parse import parse_qs, urlsplit

import pytest

from snippets._lab.rooms import ROOT
from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import (
    built,
    measure_shift,
    plotly_is_loaded,
    scratch_source,
    slow_down,
    switch_scheme,
)
from tests.floors import perhaps, some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

INCLUDE = 'docs/figures/attention_weights/attention_map.md"'
ANSWER_MS = 100  # what a reader should wait at most; 81 to 102 measured on two quiet cores
NOISE = 1.5  # a machine that runs something else, or is slower, is no fault of the page
ROUNDS = 24  # of clicks to time, at most
SLOWER = 4  # how many times the CPU is slowed down where answers are timed
TABLET = {"width": 768, "height": 1024}
AA = 4.5  # contrast of text, WCAG 2.2
TARGET = 24  # pixels, WCAG 2.2

TEXTS = {
    "pronoun": "[CLS] the cat sat on the mat because it was tired . [SEP]",
    "code": "[CLS] for i in range ( n ) : if x [ i ] < best : best = x [ i ] [SEP]",
    "pieces": "[CLS] un ##hur ##ried ##ly <b>bold</b> & plain [SEP]",
}
DEFAULT = {"layer": 2, "head": 0, "token": 8}
LAYERS, HEADS = 6, 12


def weights(name: str) -> dict:
    """Made-up weights in the form of the real files; every row is a softmax."""
    draw = random.Random(name)
    tokens = TEXTS[name].split()

    def row() -> list[float]:
        scores = [math.exp(draw.gauss(0, 2)) for _ in tokens]
        return [round(score / sum(scores), 4) for score in scores]

    def head() -> list[list[float]]:
        return [row() for _ in tokens]

    return {
        "sentence": name,
        "text": TEXTS[name],
        "tokens": tokens,
        "layers": LAYERS,
        "heads": HEADS,
        "weights": [[head() for _ in range(HEADS)] for _ in range(LAYERS)],
        "device": "none",
        "date": "2000-01-01",
        "highlights": [{"layer": 4, "head": 3, "token": 2, "note": "A note on this head."}],
    }


def map_html(up: str) -> str:
    links = "".join(
        f'<a class="am-map-source" data-sentence="{name}" href="{up}figures/{name}.json">'
        f"{name}</a> "
        for name in TEXTS
    )
    data = " ".join(f'data-{key}="{value}"' for key, value in DEFAULT.items())
    return (
        f'<figure class="am-figure" id="figure-a-map"><p class="am-finding">A map.</p>'
        f'<div class="am-map" data-widget="attention_map" data-sentences="{" ".join(TEXTS)}" '
        f'{data} role="group" aria-label="Interactive attention map">{links}</div></figure>'
    )


@pytest.fixture(scope="session")
def scratch(tmp_path_factory):
    """A site with this site's configuration and scripts, and maps of made-up weights."""
    prose = "A paragraph to scroll past. " * 300
    pages = {
        "index.md": f"# Front\n\n{map_html('')}\n\n{prose}",
        "posts/attention_weights.md": f"# Post\n\n{prose}\n\n{map_html('../../')}\n\n{prose}",
        "posts/two.md": f'# Two\n\n<a id="go" href="?map=code.1.2.3.column">A view</a>\n\n'
        f"{map_html('../../')}\n\n{map_html('../../')}\n\n{prose}",
        **{f"figures/{name}.json": json.dumps(weights(name)) for name in TEXTS},
    }
    source = scratch_source(tmp_path_factory.mktemp("source"), pages)
    with built(source, tmp_path_factory.mktemp("scratch")) as address:
        yield address


def address_of(request, file: str) -> str:
    """Where a page with a map is: on the real site, or on the made-up one until that has it."""
    page = ROOT / "docs" / file
    real = page.exists() and INCLUDE in page.read_text("utf-8")
    site = request.getfixturevalue("site" if real else "scratch")
    return site + file.removesuffix("index.md").replace(".md", "/")


@pytest.fixture(scope="session")
def post(request):
    return address_of(request, "posts/attention_weights.md")


@pytest.fixture(scope="session")
def front(request):
    return address_of(request, "index.md")


def show(page, address: str, plot: bool = False):
    """Open a page and wait until its first map answers; with plot, until Plotly has drawn."""
    page.goto(address)
    box = page.locator(".am-map").first
    box.locator(".am-map-heads button").last.wait_for()
    assert box.locator(".am-map-heads button").count() == LAYERS * HEADS
    if plot:
        box.locator(".am-map-heat").scroll_into_view_if_needed()
        page.mouse.wheel(0, 1)
        box.locator(".am-map-cells .main-svg").first.wait_for()
        box.locator(".am-map-cells canvas").wait_for(state="hidden")
    return box


def state(page, name: str = "map"):
    """The view that the address names, or None."""
    (view,) = parse_qs(urlsplit(page.url).query).get(name, [None])
    if view is None:
        return None
    sentence, *place, direction = view.split(".")
    return sentence, *map(int, place), direction


def shown(box) -> tuple:
    """The view that the map shows, read from what the reader sees."""
    tokens = box.locator(".am-map-tokens button")
    pressed = tokens.evaluate_all("all => all.map(b => b.ariaPressed)")
    assert pressed.count("true") == 1
    current = box.locator(".am-map-heads [aria-current=true]").get_attribute("aria-label")
    layer, head = (box.locator(f"[data-part={part}]").input_value() for part in ("layer", "head"))
    assert current == f"layer {layer}, head {head}"
    sentence, direction = (box.locator(f"input:checked >> nth={k}").input_value() for k in (0, 1))
    token = pressed.index("true")
    for name in ("row", "column"):  # the marks lie on the chosen row and column of the heatmap
        mark = box.locator(f"b[data-part={name}]").bounding_box()
        label = box.locator(f"[data-part={name}s] span").nth(token).bounding_box()
        start, size = ("y", "height") if name == "row" else ("x", "width")
        middle = [side[start] + side[size] / 2 for side in (mark, label)]
        assert middle[0] == pytest.approx(middle[1], abs=2), name
    return sentence, int(layer), int(head), token, direction


def numbers(box) -> list[float]:
    return [float(n) for n in box.locator(".am-map-tokens small").all_text_contents()]


def data_of(page, box) -> dict:
    """The file behind the sentence shown, fetched as the page does."""
    name = box.locator("input:checked").first.input_value()
    urls = page.evaluate("performance.getEntriesByType('resource').map(e => e.name)")
    (url,) = {u for u in urls if u.endswith(".json") and name in u.rpartition("/")[2]}
    return page.request.get(url).json()


def default_of(post_box) -> tuple:
    first = post_box.evaluate("box => ({...box.dataset})")
    place = (int(first[key]) for key in ("layer", "head", "token"))
    return first["sentences"].split()[0], *place, "row"


def test_the_first_view_is_the_one_the_page_names(open_page, post):
    page = open_page()
    box = show(page, post)
    assert shown(box) == default_of(box)
    assert state(page) is None, "the address changes only when the reader does something"
    assert page.wrong == []


def test_clicks_and_keys_move_the_highlight_and_the_address(open_page, post):
    page = open_page()
    box = show(page, post, plot=True)
    entries = page.evaluate("history.length")
    sentence, layer, head, _, _ = shown(box)
    tokens = box.locator(".am-map-tokens button")
    last = tokens.count() - 1
    tokens.nth(3).click()
    steps = [(None, 3), ("ArrowRight", 4), ("ArrowLeft", 3), ("End", last), ("ArrowRight", last)]
    for key, expected in [*steps, ("Home", 0)]:
        if key:
            page.keyboard.press(key)
        assert shown(box) == (sentence, layer, head, expected, "row"), key
        assert state(page) == shown(box)
        assert tokens.nth(expected).evaluate("b => b === document.activeElement")
        assert tokens.evaluate_all("all => all.filter(b => b.tabIndex === 0).length") == 1
    assert page.evaluate("history.length") == entries, "the history fills up"
    assert page.wrong == []


def test_the_numbers_are_those_of_the_data_in_both_directions(open_page, post):
    page = open_page()
    box = show(page, post)
    data = data_of(page, box)
    checked = set()
    for direction in ("row", "column"):
        box.locator(f"input[value={direction}]").check()
        for token in (1, 4):
            box.locator(".am-map-tokens button").nth(token).click()
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
    assert page.wrong == []


def test_more_weight_is_a_stronger_background(open_page, post):
    page = open_page(color_scheme="light")
    box = show(page, post)
    light = (
        "all => all.map(b => getComputedStyle(b).backgroundColor.match(/[\\d.]+/g)"
        ".reduce((sum, c) => sum + Number(c), 0))"
    )
    lightness = box.locator(".am-map-tokens button").evaluate_all(light)
    by_weight = [value for _, value in sorted(zip(numbers(box), lightness, strict=True))]
    assert max(numbers(box)) > 2 * min(numbers(box))
    assert by_weight[0] > by_weight[-1] + 30
    assert page.wrong == []


@pytest.mark.parametrize("options", [{}, {"viewport": PHONE, "has_touch": True}])
def test_a_cell_chooses_its_row_or_in_the_other_direction_its_column(open_page, post, options):
    page = open_page(**options)
    box = show(page, post, plot=True)
    cells = box.locator(".am-map-cells")
    count = box.locator(".am-map-tokens button").count()
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
    assert page.wrong == []


def test_the_still_picture_answers_before_plotly_comes(open_page, scratch):
    page = open_page()
    page.route("**/plotly*", lambda route: None)  # never arrives
    box = show(page, scratch)
    area = box.locator(".am-map-cells canvas").bounding_box()
    size = area["height"] / len(TEXTS["pronoun"].split())
    page.mouse.click(area["x"] + 2.5 * size, area["y"] + 4.5 * size)
    assert shown(box)[3] == 4
    assert page.wrong == []


def test_the_panel_of_heads_chooses_and_plotly_follows(open_page, post):
    page = open_page()
    box = show(page, post, plot=True)
    heads = box.locator(".am-map-heads button")
    data = data_of(page, box)
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
    drawn = f"z => JSON.stringify({plot}) === JSON.stringify(z)"
    page.wait_for_function(drawn, arg=data["weights"][1][11])
    box.locator(".am-map-cells canvas").wait_for(state="hidden")
    assert page.wrong == []


def test_every_sentence_can_be_chosen(open_page, post):
    page = open_page()
    box = show(page, post, plot=True)
    tabs = box.locator("[data-part=sentences] input")
    sentences = tabs.evaluate_all("all => all.map(input => input.value)")
    assert len(sentences) > 1
    for name in reversed(sentences):
        box.locator(f"input[value={name}]").check()
        page.wait_for_function("name => location.search.includes(name)", arg=name)
        data = data_of(page, box)
        assert shown(box) == state(page)
        assert shown(box)[0] == data["sentence"] == name
        assert box.locator(".am-map-tokens button").count() == len(data["tokens"])
        size = "n => document.querySelector('[data-part=plot]').data[0].z.length === n"
        page.wait_for_function(size, arg=len(data["tokens"]))
    assert page.wrong == []


def test_a_shared_address_restores_the_view(open_page, post):
    page = open_page()
    box = show(page, post)
    sentence = box.locator("[data-part=sentences] input").nth(1).input_value()
    view = (sentence, 1, 5, 2, "column")
    box = show(page, f"{post}?map={'.'.join(map(str, view))}")
    assert shown(box) == state(page) == view
    assert box.locator("[data-part=notice]").inner_text() == ""
    # Away by instant navigation, and back.
    page.evaluate("window.sameDocument = true")
    title = page.title()
    other = page.locator(".md-nav--primary a.md-nav__link:not(.md-nav__link--active, [href*='#'])")
    other.first.evaluate("link => link.click()")
    page.wait_for_function("title => document.title !== title", arg=title)
    page.go_back()
    page.wait_for_function("title => document.title === title", arg=title)
    page.locator(".am-map-tokens button").nth(4).wait_for()
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"
    assert shown(page.locator(".am-map").first) == view
    page.locator(".am-map-tokens button").nth(3).click()
    assert state(page)[3] == 3
    assert page.wrong == []


def test_the_link_to_a_view_is_copied(open_page, post):
    page = open_page(permissions=["clipboard-read", "clipboard-write"])
    box = show(page, post)
    box.locator(".am-map-tokens button").nth(2).click()
    box.locator("[data-part=copy]").click()
    box.get_by_text("Copied").wait_for()
    link = urlsplit(page.evaluate("navigator.clipboard.readText()"))
    assert link.query == urlsplit(page.url).query
    assert page.locator(f"[id='{link.fragment}'] .am-map").count() == 1, "it leads to the map"
    assert page.wrong == []


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("nowhere.0.0.0.row", "“nowhere”"),
        ("{sentence}.99.0.0.row", "layer 99"),
        ("{sentence}.0.99.0.row", "head 99"),
        ("{sentence}.0.0.999.row", "token 999"),
        ("{sentence}.0.0.0.diagonal", "form"),
        ("{sentence}.-1.0.0.row", "form"),
        ("<img src=x onerror=alert(1)>", "form"),
        ("", "form"),
    ],
)
def test_an_address_that_names_nothing_says_so(open_page, post, link, says):
    page = open_page()
    box = show(page, post)
    default = default_of(box)
    box = show(page, f"{post}?map={link.format(sentence=default[0])}")
    notice = box.locator("[data-part=notice]")
    assert says in notice.inner_text()
    assert "first view" in notice.inner_text()
    assert shown(box) == default
    box.locator(".am-map-tokens button").nth(2).click()
    assert notice.inner_text() == "", "the reader has moved on"
    assert page.wrong == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"status": 404}, "404"),
        ({"body": '{"tokens": ['}, "JSON"),
        ({"body": json.dumps(weights("code") | {"heads": 11})}, "sizes"),
        ({"body": json.dumps(weights("code") | {"tokens": ["one"]})}, "sizes"),
        ({"body": "null"}, "sizes"),
    ],
)
def test_data_that_cannot_be_read_is_named(open_page, scratch, answer, says):
    page = open_page()
    page.route("**/figures/code.json", lambda route: route.fulfill(**answer))
    page.goto(f"{scratch}?map=code.1.1.1.row")
    box = page.locator(".am-map")
    notice = box.get_by_text("cannot be drawn")
    notice.wait_for()
    assert "code.json" in notice.inner_text()
    assert says in notice.inner_text()
    assert not box.locator("[data-part=stage]").is_visible()
    box.locator("input[value=pronoun]").check()
    box.locator(".am-map-tokens button").nth(3).click()
    assert shown(box) == (*state(page),) == ("pronoun", 2, 0, 3, "row")
    # The browser itself reports the missing file.
    for wrong in perhaps(page.wrong, "of other answers the browser says nothing"):
        assert "404" in wrong or "code.json" in wrong


def test_without_plotly_the_rest_works(open_page, scratch):
    page = open_page()
    page.route("**/plotly*", lambda route: route.fulfill(status=404))
    box = show(page, scratch)
    box.locator(".am-map-tokens button").nth(3).click()
    box.get_by_text("still picture").wait_for()
    assert "plotly" in box.locator("[data-part=notice]").inner_text()
    assert shown(box)[3] == 3
    assert box.locator(".am-map-cells canvas").is_visible()


def test_tokens_are_text_and_pieces_of_a_word_join(open_page, scratch):
    page = open_page()
    box = show(page, f"{scratch}?map=pieces.0.0.1.row", plot=True)
    tokens = box.locator(".am-map-tokens button span").all_text_contents()
    assert tokens == ["[CLS]", "un", "hur", "ried", "ly", "<b>bold</b>", "&", "plain", "[SEP]"]
    assert box.locator(".am-map-joined").count() == 3
    hover = page.evaluate("document.querySelector('[data-part=plot]').data[0].text[5][6]")
    assert hover == "&#60;b&#62;bold&#60;/b&#62; attends to &#38;"
    assert page.wrong == []


def test_a_view_worth_a_look_is_marked_and_explained(open_page, scratch):
    page = open_page()
    box = show(page, scratch)
    assert box.locator(".am-map-noted").get_attribute("aria-label") == "layer 4, head 3"
    box.get_by_role("button", name="A note on this head.").click()
    assert shown(box) == ("pronoun", 4, 3, 2, "row")
    assert page.wrong == []


def test_two_maps_on_a_page_and_a_link_in_the_text(open_page, scratch):
    page = open_page()
    first = show(page, f"{scratch}posts/two/")
    second = page.locator(".am-map").nth(1)
    second.scroll_into_view_if_needed()
    second.locator(".am-map-tokens button").nth(5).click()
    first.locator(".am-map-tokens button").nth(2).click()
    assert (shown(first)[3], shown(second)[3]) == (2, 5)
    assert (state(page), state(page, "map2")) == (shown(first), shown(second))
    page.evaluate("window.sameDocument = true")
    page.locator("#go").click()
    page.wait_for_function("() => document.querySelector('[value=code]').checked")
    page.wait_for_function(
        "() => document.querySelectorAll('.am-map-tokens')[0].children.length > 20"
    )
    assert shown(first) == state(page) == ("code", 1, 2, 3, "column")
    assert shown(second)[:1] == ("pronoun",)
    assert page.evaluate("window.sameDocument")
    assert page.wrong == []


CONTRAST = """all => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  return all.map((button) => {
    const { color, backgroundColor } = getComputedStyle(button);
    const [low, high] = [color, backgroundColor].map(rgb).map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  });
}"""
WHOLE = "canvas => canvas.toDataURL()"
PIXELS = """canvas => [...canvas.getContext('2d').getImageData(0, 0, 2, 2).data].join()"""


def test_the_dark_switch_recolors_and_text_stays_readable(open_page, post):
    page = open_page(color_scheme="light")
    box = show(page, post, plot=True)
    box.locator(".am-map-heads button").nth(0).click()
    seen, backgrounds = {}, set()
    for scheme in ("default", "slate", "default"):
        switch_scheme(page, scheme)
        page.wait_for_timeout(300)
        pictures = [
            box.locator(selector).evaluate(PIXELS)
            for selector in (".am-map-heads canvas >> nth=0", ".am-map-cells canvas")
        ]
        scale = page.evaluate("document.querySelector('[data-part=plot]').data[0].colorscale")
        look = (*pictures, json.dumps(scale))
        assert seen.setdefault(scheme, look) == look, "the colors do not come back"
        for head in (0, 17, 40, 71):
            box.locator(".am-map-heads button").nth(head).click()
            tokens = box.locator(".am-map-tokens button")
            assert min(tokens.evaluate_all(CONTRAST)) >= AA, (scheme, head)
            backgrounds.update(tokens.evaluate_all("all => all.map(b => b.style.background)"))
        box.locator(".am-map-heads button").nth(0).click()
    assert all(one != other for one, other in some(zip(*seen.values(), strict=True)))
    assert len(backgrounds) > 30, "too few colors were checked"
    assert page.wrong == []


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE, TABLET])
def test_it_fits_and_every_target_is_large_enough(open_page, post, viewport):
    page = open_page(viewport)
    box = show(page, post, plot=True)
    small = box.locator("button, select, label").evaluate_all(
        "(all, least) => all.map(e => [e.innerText, e.getBoundingClientRect()])"
        ".filter(([, r]) => r.width < least || r.height < least).map(([text]) => text)",
        TARGET,
    )
    assert small == []
    names = box.locator("[data-part=sentences] input").evaluate_all("all => all.map(i => i.value)")
    for name in some(names):
        box.locator(f"input[value={name}]").check()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, name
        assert box.evaluate("b => b.scrollWidth - b.clientWidth") <= 0, name
        heads = box.locator(".am-map-heads")
        assert heads.evaluate("h => h.scrollWidth - h.clientWidth") <= 0, "heads are hidden"
    assert page.wrong == []


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE, TABLET])
def test_nothing_jumps(open_page, post, viewport):
    page = open_page(viewport)
    measure_shift(page, fonts=False)
    without = open_page(viewport, java_script_enabled=False)
    without.goto(post)
    reserved = without.locator(".am-map").first.bounding_box()["height"]
    box = show(page, post, plot=True)
    page.wait_for_timeout(300)
    assert box.bounding_box()["height"] == pytest.approx(reserved, abs=1)
    assert page.evaluate("shift") < 0.01
    assert page.wrong == []


def test_without_a_script_the_sentences_are_links_to_the_data(open_page, post):
    page = open_page(java_script_enabled=False)
    page.goto(post)
    links = page.locator(".am-map").first.locator("a.am-map-source")
    assert links.count() > 1
    for link in some(links.all()):
        assert page.request.get(link.evaluate("a => a.href")).json()["tokens"]


def test_print_shows_the_picture_and_no_controls(open_page, post):
    page = open_page()
    box = show(page, post)
    page.emulate_media(media="print")
    assert box.locator(".am-map-tokens button").first.is_visible()
    assert box.locator(".am-map-cells canvas").is_visible()
    for part in ("sentences", "layer", "copy", "notes"):
        assert not box.locator(f"[data-part={part}]").is_visible(), part


def test_the_front_page_loads_no_plotly_until_the_reader_comes(open_page, front):
    page = open_page()
    page.goto(front)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(500)
    assert not plotly_is_loaded(page)
    box = page.locator(".am-map").first
    box.scroll_into_view_if_needed()
    box.locator(".am-map-tokens button").nth(2).click()
    box.locator(".am-map-heat").scroll_into_view_if_needed()
    box.locator(".am-map-cells .main-svg").first.wait_for()
    assert plotly_is_loaded(page)
    assert page.wrong == []


# From the time stamp of the input itself, so that waiting for the script counts, to the second
# animation frame after it: the first is called just before the frame that shows the change, the
# second when that frame is done. An upper bound, and never missing (the Event Timing API leaves out
# what is faster than 16 ms and rounds to 8).
STOPWATCH = """() => {
  window.answers = [];
  for (const type of ['click', 'keydown']) addEventListener(type, ({ timeStamp }) => {
    requestAnimationFrame(() => requestAnimationFrame(() => {
      answers.push(performance.now() - timeStamp);
    }));
  }, true);
}"""


@pytest.mark.alone
def test_a_click_and_a_key_are_answered_in_time_on_a_slow_machine(open_page, post):
    # The stopwatch waits for a condition that the policy would not let the page evaluate.
    page = open_page({"width": 1280, "height": 900}, bypass_csp=True)
    box = show(page, post, plot=True)
    page.evaluate(STOPWATCH)
    cdp = page.context.new_cdp_session(page)
    cdp.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})

    def answer(act) -> float:
        page.wait_for_timeout(250)  # what the last click left to do is done
        before = state(page)
        page.evaluate("answers.length = 0")
        act()
        page.wait_for_function("() => answers.length > 0")
        assert state(page) != before, "nothing was chosen: nothing was timed"
        return page.evaluate("Math.max(...answers)")

    def click(selector: str, at: int):
        area = box.locator(selector).nth(at).bounding_box()
        x, y = area["x"] + area["width"] / 2, area["y"] + area["height"] / 2
        page.mouse.move(x, y)
        return lambda: page.mouse.click(x, y)

    # Other work on this machine only ever adds time, so what counts is the fastest of some rounds,
    # at least three, and more where the machine is busy.
    times: dict[str, list[float]] = {}
    fastest = {"none yet": math.inf}
    while len(times.get("key", [])) < 3 or (
        max(fastest.values()) > ANSWER_MS and len(times["key"]) < ROUNDS
    ):
        for token in (3, 1, 5):
            act = click(".am-map-tokens button", token)
            times.setdefault(f"token {token}", []).append(answer(act))
        times.setdefault("key", []).append(answer(lambda: page.keyboard.press("ArrowRight")))
        for head in (14, 50):
            act = click(".am-map-heads button", head)
            times.setdefault(f"head {head}", []).append(answer(act))
        fastest = {name: min(each) for name, each in times.items()}
    print("\nanswers:", ", ".join(f"{name} {ms:.0f} ms" for name, ms in fastest.items()))
    assert len(fastest) == 6
    assert max(fastest.values()) <= ANSWER_MS * NOISE, times


def test_the_title_follows_the_choice_and_a_head_is_seen_before_it_is_chosen(open_page, post):
    page = open_page()
    box = show(page, post)
    title = page.locator(".am-figure", has=page.locator(".am-map")).first.locator(".am-finding")
    before = title.inner_text()
    box.locator(".am-map-tokens button").nth(2).click()
    _, layer, head, token, _ = shown(box)
    data = data_of(page, box)
    row = data["weights"][layer][head][token]
    page.wait_for_function(
        "([e, text]) => e.innerText !== text", arg=[title.element_handle(), before]
    )
    assert f"layer {layer} head {head}" in title.inner_text()
    assert f"{round(100 * max(row))}\u00a0%" in title.inner_text()
    # As many lines as other words weigh something, at most four.
    paths = box.locator(".am-map-arcs path")
    others = [w for j, w in enumerate(row) if j != token and w >= 0.05]
    paths.first.wait_for(state="attached")
    assert paths.count() == min(len(others), 4)
    look, count = box.locator(".am-map-cells canvas"), box.locator("[data-part=count]")
    own, said = look.evaluate(WHOLE), count.inner_text()
    box.locator(".am-map-heads button").nth(2).hover()
    assert look.evaluate(WHOLE) != own
    assert "layer 0, head 2" in count.inner_text()
    assert shown(box)[1:3] == (layer, head), "to point is not to choose"
    page.mouse.move(0, 0)
    assert (look.evaluate(WHOLE), count.inner_text()) == (own, said)
    assert page.wrong == []


def test_the_task_is_done_by_the_head_that_does_it(open_page, post):
    page = open_page()
    box = show(page, post)
    weights = data_of(page, box)["weights"]

    def before(square):
        return sum(square[i][i - 1] for i in range(1, len(square))) / (len(square) - 1)

    best, layer, head = max(
        (before(square), i, j) for i, heads in enumerate(weights) for j, square in enumerate(heads)
    )
    task = box.locator("[data-part=task]")
    assert "A task" in task.inner_text()
    box.locator(".am-map-heads button").nth(layer * len(weights[0]) + head).click()
    assert task.inner_text().startswith("Found")
    assert f"{round(100 * best)}\u00a0%" in task.inner_text()
    notes = box.locator("[data-part=notes] button").all_inner_texts()
    assert len(set(notes)) == len(notes), "two views worth a look have the same words"


@pytest.mark.alone
def test_a_token_answers_soon_on_a_slow_phone(open_page, post):
    """From the reader's first scroll, on 1.6 Mbit/s and a CPU slowed four times, nothing cached."""
    page = open_page(PHONE, bypass_csp=True)
    slow_down(page.context.new_cdp_session(page))
    page.goto(post, timeout=60_000)
    page.wait_for_load_state("networkidle", timeout=60_000)
    took = page.evaluate(
        """async () => {
          const began = performance.now();
          const box = document.querySelector('.am-map');
          box.scrollIntoView();
          window.dispatchEvent(new Event('scroll'));
          const until = (found) => new Promise((done) => {
            const look = () => (found() ? done() : requestAnimationFrame(look));
            look();
          });
          const buttons = () => box.querySelectorAll('.am-map-tokens button');
          const whole = () => box.querySelector('.am-map-heads button');
          await until(whole);
          buttons()[4].click();
          await until(() => box.querySelectorAll('.am-map-arcs path').length);
          return performance.now() - began;
        }"""
    )
    print(f"\nthe whole map answers {took:.0f} ms after the reader comes")
    assert took <= 2500


def test_without_javascript_the_first_view_is_there(open_page, post):
    page = open_page(LAPTOP, java_script_enabled=False)
    page.goto(post)
    light = page.locator(".am-map-light").first
    assert "attends to" in light.locator(".am-map-summary").inner_text()
    assert light.locator(".am-map-tokens small").all_inner_texts().count("0.49") == 1
    assert light.locator(".am-map-cells").bounding_box()["height"] > 100
    assert page.locator(".am-map-source").first.is_visible(), "the data are one click away"


def test_the_light_map_stands_where_the_map_will_stand(open_page, post):
    """The same words at the same place, with the same numbers, before a script and after."""
    for viewport in (LAPTOP, PHONE):
        page = open_page(viewport)
        page.route("**/attention_map*.js", lambda route: route.abort())
        page.goto(post)
        light = page.locator(".am-map-light").first
        light.locator(".am-map-tokens button").nth(3).click()
        assert light.locator("button[aria-pressed=true]").count() == 1
        before = light.locator(".am-map-summary").inner_text()
        marks = [".am-map-tokens button >> nth=3", ".am-map-cells"]
        there = [light.locator(mark).bounding_box() for mark in marks]
        page.unroute("**/attention_map*.js")
        whole = open_page(viewport)
        box = show(whole, post)
        whole.evaluate("scrollTo(0, 0)")
        page.evaluate("scrollTo(0, 0)")
        there = [light.locator(mark).bounding_box() for mark in marks]
        box.locator(".am-map-tokens button").nth(3).click()
        assert box.locator(".am-map-summary").inner_text() == before
        for mark, old in zip(marks, there, strict=True):
            new = box.locator(mark).bounding_box()
            assert (new["x"], new["y"]) == pytest.approx((old["x"], old["y"]), abs=3), mark
