"""The memory calculator in a real browser: the same formula as Python, bad input, links, phone."""

import json
import re
import shutil

import pytest

from snippets._lab.rooms import ROOT
from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import built, switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

POST = "attention_memory"
BOX = ".am-memory"
SUMMARY = f"{BOX} .am-memory-summary"
CASES = ROOT / "docs" / "figures" / POST / "calculator_cases.json"
WAITING = f"  /posts/{POST}.md\n"
INCLUDE = re.compile(r'^ *--8<-- "(docs/figures/[^":]+)(?::(\w+))?"$', re.MULTILINE)


@pytest.fixture(scope="module")
def page_site(request, tmp_path_factory):
    """The site; while the post waits for its measurements, a copy that shows it without them."""
    configuration = (ROOT / "mkdocs.yml").read_text("utf-8")
    if WAITING not in configuration:
        yield request.getfixturevalue("site")
        return
    folder = tmp_path_factory.mktemp("memory")
    ignored = shutil.ignore_patterns(".*", "__pycache__", "site")
    copy = shutil.copytree(ROOT, folder / "house", ignore=ignored)
    first = "      - posts/attention_weights.md\n"
    assert first in configuration
    configuration = configuration.replace(WAITING, "").replace(
        first, f"{first}      - posts/{POST}.md\n"
    )
    (copy / "mkdocs.yml").write_text(configuration, encoding="utf-8")
    page = copy / "docs" / "posts" / f"{POST}.md"

    def present(match):
        path, section = copy / match[1], match[2]
        there = path.exists() and (not section or f"[start:{section}]" in path.read_text("utf-8"))
        return match[0] if there else ""

    page.write_text(INCLUDE.sub(present, page.read_text("utf-8")), encoding="utf-8")
    with built(copy, folder / "site") as address:
        yield address


@pytest.fixture
def calculator(open_page, page_site):
    """Opens the page with the calculator built."""

    def calculator(view="", viewport=LAPTOP, **options):
        page = open_page(viewport, **options)
        query = f"?memory={view}" if view else ""
        assert page.goto(f"{page_site}posts/{POST}/{query}").status == 200
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(f"{BOX} .am-memory-frame").wait_for()
        return page

    return calculator


def totals(page):
    """What the boxes say of eager and fused: (amount, verdict, longest) each."""
    boxes = page.locator(f"{BOX} .am-memory-total")
    found = []
    for at in range(2):
        verdict, longest = boxes.nth(at).locator("> span:not(.am-memory-bar)").all_inner_texts()
        found.append((boxes.nth(at).locator("strong").inner_text(), verdict, longest))
    return found


# Cases of the file through the page's own formula; what differs is listed.
COMPARE = """async (cases) => {
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const script = loaded.find((name) => name.endsWith("/widgets/attention_memory.js"));
  const { attentionMemory, largestLength } = await import(script);
  const wrong = [];
  const compare = (given, what, found, wanted) => {
    if (String(found) !== wanted) wrong.push(`${JSON.stringify(given)}: ${what} ${found}`);
  };
  for (const given of cases) {
    const { size, causal, backward, largest, memory } = given;
    const sizes = { size: BigInt(size), causal, backward };
    for (const key of ["B", "H", "N", "D"]) sizes[key] = BigInt(given[key]);
    const bytes = Object.entries(attentionMemory(sizes));
    for (const [key, value] of bytes) compare(given, key, value, given[key]);
    for (const [key, value] of Object.entries(largest)) {
      const name = key.split(", ").at(-1);
      compare(given, key, largestLength(BigInt(memory[key]), name, sizes), value);
    }
  }
  return wrong;
}"""


def cases():
    data = json.loads(CASES.read_text("utf-8"))
    sizes = {dtype["name"]: dtype["size"] for dtype in data["dtypes"]}
    memory = {
        f"{card['name']}, {name}": card["bytes"]
        for card in data["cards"]
        for name in ("eager", "fused")
    }
    return [case | {"size": sizes[case["dtype"]], "memory": memory} for case in data["cases"]]


def test_both_languages_give_the_same_bytes(calculator):
    page = calculator()
    assert len(cases()) >= 100
    assert page.evaluate(COMPARE, cases()) == []
    assert page.wrong == []
    first = cases()[0]  # a byte more or a token less would be seen
    off = first | {"eager": str(int(first["eager"]) + 1)}
    assert len(page.evaluate(COMPARE, [off])) == 1
    card = "H100, eager"
    off = first | {"largest": first["largest"] | {card: str(int(first["largest"][card]) - 1)}}
    assert len(page.evaluate(COMPARE, [off])) == 1


def test_the_first_view_is_the_layer_of_the_page(calculator):
    page = calculator()
    assert totals(page) == [
        ("140.7\u00a0GB", "does not fit into 80\u00a0GB", "N 3,077 is the largest that fits"),
        ("4.31\u00a0GB", "fits into 80\u00a0GB", "N 75,997 is the largest that fits"),
    ]
    rows = page.locator(f"{BOX} tbody tr")
    text = {row.split("\t")[0]: row for row in rows.all_inner_texts()}
    assert "68,719,476,736" in text["scores"]
    assert "16,777,216" in text["logsumexp"]
    assert page.locator(SUMMARY).get_attribute("aria-live") == "polite"
    assert (
        "Eager attention needs 140.7\u00a0GB and does not fit" in page.locator(SUMMARY).inner_text()
    )
    assert page.wrong == []


def test_a_change_is_announced_and_the_address_shows_it_again(calculator):
    page = calculator()
    page.locator(BOX).get_by_label("Dtype").select_option("float16")
    page.locator(BOX).get_by_label("Card").select_option("h200")
    page.locator(BOX).get_by_label("N, tokens").fill("2048")
    page.get_by_role("radio", name="and backward").check()
    page.get_by_role("checkbox", name="causal").check()
    case = next(c for c in cases() if c["B"] == "32")  # the card's names are the file's
    assert "H200, eager" in case["largest"]
    shown, said = totals(page), page.locator(SUMMARY).inner_text()
    assert shown[0][:2] == ("36.2\u00a0GB", "fits into 150.1\u00a0GB")
    assert shown[0][0] in said
    assert "memory=32.32.2048.64.float16.h200.training.causal" in page.url
    page.reload()
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(f"{BOX} .am-memory-frame").wait_for()
    assert totals(page) == shown
    assert page.locator(BOX).get_by_label("N, tokens").input_value() == "2048"
    assert page.get_by_role("checkbox", name="causal").is_checked()
    assert page.wrong == []


BAD = {
    "": "is empty",
    "   ": "is empty",
    "0": "0 is too small",
    "-4": "-4 is negative",
    "−4": "−4 is negative",
    "4.5": "4.5 is not a whole number",
    "1e3": "1e3 is not a whole number in digits",
    "abc": "“abc” is not a number",
    "NaN": "“NaN” is not a number",
    "Infinity": "is not a whole number",
    "12 34": "“12 34” is not a number",
    "<b>1</b>": "“<b>1</b>” is not a number",
    "9" * 400: "… is too large",
}


def test_bad_input_is_explained_beside_its_field_and_nothing_is_nan(calculator):
    page = calculator()
    for label in ("Batch", "Heads", "N, tokens", "D, of a head"):
        field = page.locator(BOX).get_by_label(label)
        before = field.input_value()
        few = {"": "is empty", "-1": "negative", "1e99": "digits"}
        for text, message in {**few, **(BAD if label == "N, tokens" else {})}.items():
            field.fill(text)
            assert field.get_attribute("aria-invalid") == "true", text
            beside = page.locator(f"[id='{field.get_attribute('aria-describedby')}']")
            assert message in beside.inner_text(), text
            assert re.search(r"a whole number from 1 to [\d,]+\.$", beside.inner_text()), text
            box = page.locator(BOX).inner_text()
            assert "undefined" not in box
            if text != "NaN":
                assert "NaN" not in box
            assert totals(page) == [("–", "–", "–")] * 2
            assert page.locator(SUMMARY).inner_text() == (
                f"No result: see what is wrong with {label}."
            )
        assert page.locator(f"{BOX} [aria-invalid]").count() == 1
        field.fill(before)
        assert page.locator(f"{BOX} [aria-invalid]").count() == 0
        assert page.locator(f"{BOX} .am-memory-error").all_inner_texts() == [""] * 5
    assert totals(page)[0][0] == "140.7\u00a0GB"
    assert "memory=" not in page.url or "memory=32.32.4096.64" in page.url
    assert page.wrong == []


def test_the_largest_that_is_taken_and_one_more(calculator):
    page = calculator()
    for label, largest in (
        ("Batch", 10**6),
        ("Heads", 10**4),
        ("N, tokens", 10**8),
        ("D, of a head", 10**4),
    ):
        page.locator(BOX).get_by_label(label).fill(str(largest + 1))
        assert page.locator(BOX).get_by_label(label).get_attribute("aria-invalid") == "true"
        page.locator(BOX).get_by_label(label).fill(str(largest))
        assert page.locator(BOX).get_by_label(label).get_attribute("aria-invalid") is None
    assert totals(page)[0] == (
        "800.1\u00a0YB",
        "does not fit into 80\u00a0GB",
        "not even one token fits",
    )
    assert "N" not in re.findall("NaN|Infinity", page.locator(BOX).inner_text())


def test_a_link_that_does_not_work_says_so(calculator, page_site):
    page = calculator("32.32")
    for view, message in {
        "32.32": "not of a form",
        "32.32.4096.64.float32.a100-80-gb.sideways.all": "not of a form",
        "-1.32.4096.64.float32.a100-80-gb.forward.all": "not of a form",
        "32.32.4096.64.float8.a100-80-gb.forward.all": "no dtype “float8”",
        "32.32.4096.64.float32.abacus.forward.all": "no card “abacus”",
        "1.32.4096.64.float32.h100.forward.all": "",
    }.items():
        link = (
            "address => document.querySelector('.am-lead').innerHTML = `<a href='${address}'>x</a>`"
        )
        page.evaluate(link, f"{page_site}posts/{POST}/?memory={view}")
        page.locator(".am-lead a").evaluate("link => link.click()")  # a view on the same page
        notice = page.locator(f"{BOX} .am-memory-notice").inner_text()
        assert message in notice
        assert bool(message) == bool(notice)
        assert totals(page)[0][0] == ("140.7\u00a0GB" if message else "4.40\u00a0GB")
    page.goto(f"{page_site}posts/{POST}/?memory=32.32")
    page.locator(BOX).scroll_into_view_if_needed()
    notice = page.locator(f"{BOX} .am-memory-notice")
    notice.wait_for()
    assert "not of a form" in notice.inner_text()
    page.locator(BOX).get_by_label("Batch").fill("1")
    assert notice.inner_text() == ""
    assert page.wrong == []


def test_a_link_with_a_number_out_of_range_marks_its_field(calculator):
    page = calculator("0.32.4096.64.float16.t4.training.causal")
    assert page.locator(BOX).get_by_label("Batch").get_attribute("aria-invalid") == "true"
    assert page.locator(BOX).get_by_label("Card").input_value() == "t4"
    assert totals(page) == [("–", "–", "–")] * 2


def test_it_works_by_keyboard(calculator):
    page = calculator()
    page.locator(BOX).get_by_label("Batch").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(BOX).get_by_label("Batch").input_value() == "31"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    page.keyboard.type("1")  # a field reached by Tab is selected as a whole
    assert page.locator(BOX).get_by_label("Heads").input_value() == "1"
    page.keyboard.press("ArrowDown")  # 1 is the least
    assert page.locator(BOX).get_by_label("Heads").input_value() == "1"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # dtype
    assert page.locator(BOX).get_by_label("Dtype").input_value() == "float16"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")  # run
    assert page.get_by_role("radio", name="and backward").is_checked()
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_role("checkbox", name="causal").is_checked()
    assert "memory=32.1.4096.64.float16.a100-80-gb.training.causal" in page.url
    assert page.wrong == []


def test_it_fits_a_phone_and_a_finger(calculator):
    page = calculator(viewport=PHONE, has_touch=True, is_mobile=True)
    page.get_by_role("radio", name="and backward").tap()
    assert totals(page)[0][0] == "282.4\u00a0GB"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    touched = f"{BOX} :is(button, select, input[type=text], .am-memory-choice label)"
    page.locator(f"{BOX} [data-part=card]").select_option("own")  # its field comes with it
    heights = page.locator(touched).evaluate_all("all => all.map(b => b.offsetHeight)")
    assert min(heights) >= 44
    page.locator(BOX).get_by_label("N, tokens").fill("x" * 200)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.wrong == []


def test_the_dark_switch_recolors_it(calculator):
    page = calculator(color_scheme="light")
    page.locator(BOX).get_by_label("Batch").fill("")
    seen = {}
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        color = "node => getComputedStyle(node).color"
        error = page.locator(f"{BOX} .am-memory-error").first.evaluate(color)
        field = (
            page.locator(BOX)
            .get_by_label("Heads")
            .evaluate(
                "node => [getComputedStyle(node).color, getComputedStyle(node).backgroundColor]"
            )
        )
        assert field[0] != field[1]
        seen[scheme] = (error, *field)
    assert all(a != b for a, b in some(zip(seen["default"], seen["slate"], strict=True)))


def test_it_survives_instant_navigation(calculator):
    page = calculator("1.32.8192.128.float16.h100.forward.all")
    before, title = totals(page), page.title()
    page.evaluate("window.sameDocument = true")
    page.locator(".md-nav--primary a[href*='coalescing']").first.evaluate("link => link.click()")
    page.wait_for_function("title => document.title !== title", arg=title)
    page.go_back()
    page.wait_for_function("title => document.title === title", arg=title)
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(f"{BOX} .am-memory-frame").wait_for()
    assert page.evaluate("window.sameDocument"), "the page was loaded anew: no instant navigation"
    assert totals(page) == before
    page.locator(BOX).get_by_label("N, tokens").fill("1024")
    assert totals(page) != before
    assert page.wrong == []


def test_without_a_script_there_is_a_table(open_page, page_site):
    page = open_page(java_script_enabled=False)
    page.goto(f"{page_site}posts/{POST}/")
    table = page.locator(f"{BOX} table")
    assert table.is_visible()
    assert "H200" in table.inner_text()
    assert "does not fit" in table.inner_text()


@pytest.mark.parametrize("broken", ["missing", "truncated", "nonsense"])
def test_cards_that_cannot_be_read_are_named_and_the_table_stays(open_page, page_site, broken):
    page = open_page()
    answer = {"missing": {"status": 404}, "truncated": {"body": '{"cards": ['}}
    answer = answer.get(broken, {"body": '{"cards": [{"name": "H100", "bytes": "many"}]}'})
    page.route("**/calculator_cases.json", lambda route: route.fulfill(**answer))
    page.goto(f"{page_site}posts/{POST}/")
    page.locator(BOX).scroll_into_view_if_needed()
    message = page.locator(f"{BOX} .am-missing")
    message.wait_for()
    assert "calculator_cases.json" in message.inner_text()
    assert page.locator(f"{BOX} table").is_visible()


def test_a_card_of_the_reader_s_own(calculator):
    page = calculator()
    card = page.locator(f"{BOX} [data-part=card]")
    assert page.locator(BOX).get_by_label("GB of memory").is_hidden()
    card.select_option("own")
    field = page.locator(BOX).get_by_label("GB of memory")
    field.fill("5000")
    assert "fits into 5,000\u00a0GB" in page.locator(f"{BOX} .am-memory-total").first.inner_text()
    field.fill("12")
    first = page.locator(f"{BOX} .am-memory-total").first
    assert "does not fit into 12\u00a0GB" in first.inner_text()
    assert "own-12" in page.url
    page.reload()
    page.locator(BOX).scroll_into_view_if_needed()
    page.locator(f"{BOX} .am-memory-frame").wait_for()
    assert (card.input_value(), field.input_value()) == ("own", "12")
    field.fill("plenty")
    assert "is not a number" in page.locator(f"{BOX} [data-part=cardError]").inner_text()
    assert "Card" in page.locator(SUMMARY).inner_text()
    assert page.wrong == []
