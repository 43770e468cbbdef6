"""Edit and run, in a real browser: every kernel and exercise, mistakes, links and bad input."""

import base64
import gzip
import json
import re
import zlib
from urllib.parse import quote

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import exercises, playground
from snippets._site.browser import LAPTOP, PHONE
from tests.browser.browser import CLIPBOARD, away_and_back, copied, switch_scheme, violations
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

POST = "posts/basic_attention/"
KERNEL = "basic_attention/kernel.py:_basic_attention_kernel"
BUTTON = f".am-edit[data-kernel='{KERNEL}']"
CODE = ".am-play .cm-content"
STATUS = ".am-play .am-play-status"
RIGHT = re.compile(r"Right on all \d+ problems\.")
WRONG = re.compile(r"Right on \d+ of \d+ problems\.|Line \d+: ")
BYTES = 180_000  # of scripts and style that come after the click, compressed
ENGINE_BYTES = 42_000


@pytest.fixture
def panel(open_page, site):
    """Opens the panel of a button of a page; a rung of the ladder as its link does."""

    def panel(button=BUTTON, page=POST, viewport=LAPTOP, **options):
        tab = open_page(viewport, **options)
        rung = re.search(r"data-exercise='(\w+):(\w+)'", button)
        assert tab.goto(site + page + (f"#rung-{rung[1]}-{rung[2]}" if rung else "")).status == 200
        tab.locator(button).first.click()
        tab.locator(CODE).wait_for()
        return tab

    return panel


def texts(room):
    return playground.opened(ROOT / "snippets" / room)


def write(tab, text):
    """Replace what the editor holds by a text, as a paste does."""
    tab.locator(CODE).focus()
    tab.keyboard.press("ControlOrMeta+A")
    tab.keyboard.insert_text(text)


def run(tab, expected):
    """Run, wait for the verdict and return it."""
    tab.locator(".am-play-run:visible").click()
    found = tab.locator(STATUS).filter(has_text=expected)
    found.wait_for()
    return found.inner_text()


def mistaken(name, room="basic_attention"):
    """The page's kernel with one of the room's mistakes, and the line that has it."""
    old, new = exercises._mutant(ROOT / "snippets" / room, name)
    (text,) = (k["text"] for p, k in texts(room)["kernels"].items() if p.startswith("kernel.py"))
    assert text.count(old) == 1
    return text.replace(old, new), text[: text.index(old)].count("\n") + 1


def test_nothing_is_fetched_before_the_click_and_the_page_kernel_is_right(open_page, site):
    tab = open_page(at=site + POST)
    tab.mouse.wheel(0, 4000)
    tab.locator(BUTTON).scroll_into_view_if_needed()
    tab.wait_for_load_state("networkidle")
    late = re.compile(r"/playground/|codemirror|data/interpreter")
    assert not [url for url in some(tab.asked) if late.search(url)]
    tab.locator(BUTTON).click()
    tab.locator(CODE).wait_for()
    room = "basic_attention/problems.json"
    for part in ("playground/panel.js", "playground/panel.css", "codemirror", room):
        assert [url for url in tab.asked if part in url], part
    run(tab, RIGHT)
    verdicts = tab.locator(".am-play-verdicts button")
    assert verdicts.count() >= 5
    assert tab.locator(".am-play-verdicts .am-wrong").count() == 0
    tab.locator(".am-play").get_by_text("bytes loaded").wait_for()
    rows = tab.locator(".am-play-table tbody tr td:last-child").all_inner_texts()
    assert some(rows) == ["the same"] * len(rows)


def test_the_editor_opens_at_the_section_of_its_button(panel):
    button = ".am-edit[data-kernel*='/kernel.py:'][data-section]"
    tab = panel(button, "posts/flash_attention/")
    of, section = tab.locator(button).first.evaluate("b => [b.dataset.kernel, b.dataset.section]")
    kernel = texts("flash_attention")["kernels"][of.split("/")[1]]
    first = kernel["text"].splitlines()[kernel["sections"][section][0] - 1]
    assert tab.locator(".am-play .cm-activeLine").inner_text() == first


@pytest.mark.parametrize("extra", [False, True], ids=["the page's", "with more arithmetic"])
def test_a_right_kernel_is_raced_against_measured_times_and_its_bound_is_counted(panel, extra):
    room = "flash_attention"
    kernel = f"{room}/kernel.py:_{room}_kernel"
    tab = panel(f".am-edit[data-kernel='{kernel}']", f"posts/{room}/")
    text = texts(room)["kernels"][f"kernel.py:_{room}_kernel"]["text"]
    (line,) = (line for line in text.splitlines() if "tl.dot(q" in line)
    more = f"{line}\n{line}"  # the same product twice
    write(tab, text.replace(line, more) if extra else text)
    run(tab, RIGHT)
    tab.get_by_text("Race it").click()
    tab.locator(".am-race").wait_for()
    rows = {
        row.locator("span").inner_text(): row.locator("div").inner_text().strip()
        for row in some(tab.locator(".am-race > li").all(), 8)
    }
    races = json.loads((ROOT / playground.RACE).read_text("utf-8"))
    (card,) = races["cards"]
    H, N, D = (races["case"][key] for key in ("heads", "N", "D"))
    products = 3 if extra else 2
    least = products * 2 * H * N * N * D / card["ceilings"]["matmul_float16"] * 1e6
    bound = rows.pop("yours, at best")
    assert float(re.fullmatch(r"≥ ([\d.]+)\xa0µs", bound)[1]) == pytest.approx(least, rel=0.05)
    assert ("the page’s, at best" in rows) is extra
    measured = dict(card["times"])
    assert set(measured) <= set(rows)
    assert tab.locator(".am-roof circle").count() == len(measured) + 1
    own, roof = (tab.locator(f".am-roof {x}").first for x in ("[class]", "polyline"))
    assert roof.get_attribute("points").endswith(f",{own.get_attribute('cy')}"), "not on its roof"
    assert rows[room] == f"{measured[room] * 1e3:.3g}\xa0µs"
    assert measured[room] * 1e3 > least, "no measured time is below its bound"
    at_work = tab.locator(".am-play-at-work")
    assert "A lower bound and not a time" in at_work.inner_text()
    at_work.evaluate("part => part.scrollIntoView({ block: 'center', behavior: 'instant' })")
    top, editor = (x.bounding_box() for x in (at_work, tab.locator(".am-play-editor")))
    assert editor["y"] + editor["height"] <= top["y"], "the editor lies over it"


def test_a_mistake_is_named_with_its_line_and_the_wrong_cells(panel):
    tab = panel()
    text, line = mistaken("no scale")
    write(tab, text)
    run(tab, WRONG)
    named = tab.locator(".am-play-mistake")
    assert "no scale" in named.inner_text()
    assert named.get_by_role("button", name=f"line {line}").count() == 1
    assert tab.locator(".am-play-table").first.locator("tbody tr").count() >= 3
    tab.locator(".am-line-mistake, .am-line-fault").first.wait_for()
    tab.get_by_role("button", name="As on the page").click()
    assert tab.locator(".am-play-verdicts button").count() == 0
    run(tab, RIGHT)


def test_a_step_shows_the_variables_and_the_addresses_differ_from_the_page(panel):
    tab = panel()
    text, _ = mistaken("last key dropped")
    write(tab, text)
    run(tab, WRONG)
    tab.get_by_text("Step through one program").click()
    steps = tab.locator(".am-play-stepping")
    steps.get_by_role("button", name="Step forward").click()
    assert steps.get_by_role("status").inner_text().startswith("Step 1 of ")
    tab.locator(".am-line-step").wait_for()
    steps.get_by_role("slider").fill("40")
    assert steps.locator("canvas").count() >= 1
    tab.get_by_text("Addresses, instruction by instruction").click()
    words = tab.locator(".am-play-addresses").get_by_role("status")
    assert "Instruction 1 of" in words.inner_text()
    assert "touches the same" in words.inner_text(), "the query's row is read as on the page"
    last = tab.locator(".am-play-addresses input[type=range]")
    last.fill(last.get_attribute("max"))
    assert "that only it touches" in words.inner_text()


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_it_is_usable_by_keyboard_alone(open_page, site, viewport):
    tab = open_page(viewport, at=site + POST)
    tab.locator(BUTTON).focus()
    tab.keyboard.press("Enter")
    tab.locator(CODE).wait_for()
    in_editor = f"document.activeElement === document.querySelector('{CODE}')"
    tab.locator(f"{CODE}:focus").wait_for()
    tab.keyboard.press("End")
    tab.keyboard.press("Enter")
    tab.keyboard.press("Tab")
    assert tab.evaluate(in_editor), "Tab indents"
    tab.keyboard.press("ControlOrMeta+Z")
    tab.keyboard.press("ControlOrMeta+Z")
    tab.keyboard.press("ControlOrMeta+Enter")
    tab.locator(STATUS).filter(has_text=RIGHT).wait_for()
    tab.keyboard.press("Escape")
    tab.keyboard.press("Tab")
    assert not tab.evaluate(in_editor), "Escape, then Tab, leaves"
    tab.locator(".am-play-verdicts button").last.focus()
    tab.keyboard.press("Enter")
    assert tab.locator(".am-play-verdicts [aria-pressed=true]").count() == 1
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert tab.evaluate(wide), "nothing makes the page wider than the screen"
    tab.get_by_role("button", name="Close").press("Enter")
    assert tab.locator(".am-play").count() == 0
    assert tab.evaluate(f'document.activeElement === document.querySelector("{BUTTON}")')


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    weights = tl.exp(", "    weights = tl.exp((", r"Line \d+: "),
        ("tl.exp(", "tl.expo(", r"Line 38: .*expo"),
        ("weights = tl.exp(", "weights = tl.exp(nothing + ", r"Line 38: .*nothing"),
        ("for n in range(N):", "n = N * 0\n    while n < N:", "endless loop"),
        ("tl.zeros([BLOCK_D]", "tl.zeros([1073741824]", r"Line 41: "),
        ("def _basic_attention_kernel", "def _mine", r"must be named _basic_attention_kernel"),
        ("    pid = ", "#" * 1_000_000 + "\n    pid = ", r"characters are more than a kernel"),
    ],
    ids=["syntax", "no function", "no name", "endless", "huge tile", "renamed", "a megabyte"],
)
def test_bad_input_gives_a_message_and_the_page_stays_alive(panel, old, new, message):
    tab = panel()
    text = texts("basic_attention")["kernels"][KERNEL.split("/")[1]]["text"]
    assert old in text
    write(tab, text.replace(old, new, 1))
    run(tab, re.compile(message))
    assert tab.evaluate("1 + 1") == 2
    tab.get_by_role("button", name="As on the page").click()
    run(tab, RIGHT)


def packed(text):
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    raw = squeezer.compress(text.encode()) + squeezer.flush()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def test_a_link_holds_an_edit_and_runs_nothing(panel, open_page):
    tab = panel(**CLIPBOARD)
    text, _ = mistaken("mean of V")
    write(tab, text)
    tab.get_by_role("button", name="Copy link").click()
    tab.get_by_role("button", name="Copied").wait_for()
    link = copied(tab)
    assert link == tab.url
    assert len(link) < 3000
    other = open_page(at=link)
    other.locator(STATUS).filter(has_text="came with the link").wait_for()
    assert other.locator(".am-play-verdicts button").count() == 0
    run(other, WRONG)
    assert "mean of V" in other.locator(".am-play-mistake").inner_text()


def test_a_link_of_a_listing_that_the_page_shows_no_more_opens(open_page, site):
    tab = open_page()
    kernel = "vectorized_attention/exercise.py:_blocks_of_keys_kernel"
    tab.goto(f"{site}{POST}#edit={quote(kernel, safe='')}~{packed('edited = 1')}")
    tab.locator(STATUS).filter(has_text="came with the link").wait_for()
    assert "edited = 1" in tab.locator(CODE).inner_text()
    tab.get_by_role("button", name="Close").click()
    tab.locator(f".am-edit[data-kernel='{kernel}']").click()
    tab.locator(".am-play").wait_for()


@pytest.mark.parametrize(
    ("name", "letters", "message"),
    [
        (KERNEL, "not+base64!", "damaged"),
        (KERNEL, packed("x" * 50_000)[:20], "damaged"),
        (KERNEL, packed("x" * 10_000_000), "more than 64 kB"),
        ("tiled_attention/kernel.py:_no_kernel", packed("x"), "no kernel"),
        ("%", packed("x"), "damaged"),
        ("../../x/kernel.py:__proto__", packed("x"), "no room"),
        ("basic_attention/kernel.py:__proto__", packed("x"), "no kernel"),
    ],
    ids=["letters", "cut off", "a bomb", "no kernel", "no name", "a path", "a built-in"],
)
def test_a_hostile_link_gives_a_message(open_page, site, name, letters, message):
    tab = open_page(
        at=f"{site}{POST}#edit={name if name == '%' else quote(name, safe='')}~{letters}"
    )
    tab.locator(".am-missing", has_text=message).wait_for()
    assert tab.locator(".am-play").count() == 0


DECLARED = [
    (path.parent.name, name)
    for path in sorted((ROOT / "snippets").glob("*/tasks.toml"))
    for name in exercises.declared(path.parent)
]


def usual(task):
    """(answer, what is said of it) of a question's usual wrong answers; `code` loses its marks."""
    wrong = task.get("wrong", ())
    return [(answer, one["says"].split("`")[0]) for one in wrong for answer in one["answers"]]


def test_a_wrong_answer_of_an_exercise_is_named_and_a_bug_only_when_asked(panel):
    opened = texts("vectorized_attention")
    tab = panel(".am-edit[data-exercise='vectorized_attention:blocks']", "playground/")
    hints = tab.locator(".am-exercise[data-exercise='vectorized_attention:blocks'] details")
    for n in range(3):
        assert [hints.nth(i).is_visible() for i in range(3)] == [i <= n for i in range(3)]
        hints.nth(n).locator("summary").click()
    assert "replace this" in tab.locator(".am-play .cm-activeLine").inner_text()
    answer = opened["kernels"]["exercise.py:_blocks_of_keys_kernel"]["text"]
    write(tab, answer.replace("acc = acc * correction +", "acc = acc +"))
    run(tab, WRONG)
    mistake = tab.locator(".am-play-mistake")
    assert mistake.locator("strong").inner_text() == "The mistake: values not corrected"
    tab.get_by_text("Show a tested answer").wait_for()
    tab.locator(".am-rung[data-rung='tiled_attention:rescale']").click()
    tab.locator(".am-edit[data-exercise='tiled_attention:rescale']").click()
    tab.get_by_role("button", name="Check").click()
    tab.locator(STATUS).filter(has_text=WRONG).wait_for()
    assert "not rescaled" not in mistake.inner_text()
    mistake.get_by_text("Name the mistake").click()
    mistake.get_by_text("values collected so far").wait_for()


def test_the_front_page_leads_to_an_open_editor(open_page, site):
    tab = open_page(at=site)
    tab.get_by_role("link", name="Write a first kernel here").click()
    tab.locator(
        ".am-exercise[data-exercise='coalescing:line_sums'] + .am-play .cm-line"
    ).first.wait_for()


def test_what_was_seen_stands_beside_the_editor_and_on_a_phone_below(panel):
    for viewport, beside in ((LAPTOP, True), (PHONE, False)):
        tab = panel(viewport=viewport)
        run(tab, RIGHT)
        editor, seen = (tab.locator(f".am-play-{x}").bounding_box() for x in ("editor", "seen"))
        assert (seen["x"] >= editor["x"] + editor["width"]) is beside
        assert (seen["y"] >= editor["y"] + editor["height"]) is not beside


def test_the_panel_has_its_style_after_instant_navigation_too(panel):
    tab = panel()
    edge = "box => getComputedStyle(box).borderTopWidth"
    before = tab.locator(".am-play").evaluate(edge)
    tab.wait_for_load_state("networkidle")  # the sitemap is there
    away_and_back(tab)
    tab.locator(BUTTON).first.click()
    tab.locator(CODE).wait_for()
    assert tab.locator(".am-play").evaluate(edge) == before != "0px"


def test_every_stub_fails_every_answer_passes_and_progress_stays(panel, site):
    identity = "coalescing:line_sums"
    tab = panel(f".am-edit[data-exercise='{identity}']", "playground/")
    for room, name in some(DECLARED, 15):
        here = f".am-exercise[data-exercise='{room}:{name}']"
        box = tab.locator(here)
        cell = tab.locator(f".am-rung[data-rung='{room}:{name}']")
        cell.click()
        assert tab.locator(".am-group[open]").count() == 1
        opened = texts(room)
        task = opened["exercises"][name]
        if "answers" in task:
            box.get_by_role("button", name="Type your answer").click()
            field = box.get_by_role("textbox")
            for entered, said in [("none of these", "Not yet."), *usual(task)]:
                field.fill(entered)
                field.press("Enter")
                box.get_by_role("status").filter(has_text=said).wait_for()
            field.fill(task["answers"][0])
            field.press("Enter")
        else:
            if not tab.locator(f"{here} + .am-play").count():
                box.get_by_role("button", name="Start", exact=True).click()
                tab.locator(f"{here} + .am-play").wait_for()
                tab.locator(CODE).wait_for()
            run(tab, WRONG)
            assert "am-solved" not in box.get_attribute("class"), name
            write(tab, opened["kernels"][task["kernel"]]["text"])
            run(tab, RIGHT)
        tab.locator(f".am-solved{here}").wait_for()
        assert cell.get_attribute("aria-label").endswith(": solved")
    done = f"{len(DECLARED)} of {len(DECLARED)} solved"
    assert done in tab.locator(".am-tally").inner_text()
    assert tab.locator(".am-rung[aria-current]").count() == 0
    tab.goto(site + "playground/")
    tab.locator(".am-tally", has_text=done).wait_for()


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_the_first_rung_shows_a_loop_and_its_task_stays_in_sight(panel, viewport):
    first = ".am-exercise[data-exercise='coalescing:line_sums']"
    tab = panel(f"{first} .am-edit", "playground/", viewport)
    assert tab.locator(".am-rung").first.get_attribute("aria-current") == "step"
    assert tab.locator(".am-rung[aria-current]").get_attribute("aria-label").endswith("next")
    lines = tab.locator(".am-play .cm-line")
    assert re.match(r" *for start in", lines.first.inner_text())
    assert lines.count() < 5
    assert tab.locator(".am-play-bar strong").inner_text() == "1. Add up a line"
    assert not tab.locator(f"{first} .am-edit").is_visible(), "it is open"
    tab.mouse.wheel(0, 150)
    task = tab.locator(".am-play-top .am-task")
    assert task.is_visible() is (viewport is PHONE)
    if viewport is PHONE:
        assert task.bounding_box()["y"] > 0
        scroller = tab.locator(".am-play .cm-scroller")
        assert scroller.evaluate("s => s.scrollWidth <= s.clientWidth"), "long lines are broken"
    hint = tab.get_by_role("button", name="Hint")
    said = tab.locator(".am-play-task")
    for n in (1, 2, 3):
        hint.click()
        heading = said.locator("strong").last
        assert heading.inner_text() == f"Hint {n} of 3"
        assert heading.is_visible()
        assert said.evaluate("box => box === document.activeElement")
    assert not hint.is_visible(), "there are no more"
    tab.get_by_role("button", name="Show the whole kernel").click()
    assert lines.first.inner_text().startswith("@triton.jit")
    tab.get_by_role("button", name="Start over").click()
    text = texts("coalescing")["kernels"]["kernel.py:_line_sums_kernel"]["text"]
    write(tab, "\n".join(text.splitlines()[19:23]))
    assert lines.count() == 4, "what is folded stays where a few lines are pasted"
    run(tab, RIGHT)
    tab.get_by_role("button", name="Start over").click()
    write(tab, f"{text}  # {'long ' * 60}")
    assert lines.count() > 5, "what is folded unfolds when it is replaced"
    run(tab, RIGHT)
    assert tab.locator(".am-play .cm-scroller").evaluate("s => s.scrollLeft") == 0
    tab.locator(".am-play").get_by_role("link", name="Next: 2.").click()
    box = "document.querySelector('#rung-coalescing-column_sums').getBoundingClientRect()"
    tab.wait_for_function(f"{box}.top > 0 && {box}.top < innerHeight")


def test_without_scripts_the_tasks_can_be_read_and_the_files_are_linked(open_page, site):
    tab = open_page(at=site + "playground/", java_script_enabled=False)
    assert "Without JavaScript nothing runs" in tab.locator("article").inner_text()
    assert not tab.locator(".am-edit:visible").count()
    tab.locator(".am-rung").last.click()
    assert tab.locator(".am-group[open] .am-exercise").last.is_visible()
    for link in some(tab.locator(".am-kernel a[href$='.py']").all(), 10):
        assert tab.request.get(link.evaluate("a => a.href")).status == 200


def test_every_kernel_of_the_site_is_listed_and_opens_a_panel_of_its_own(panel):
    listed = [
        f"{room.name}/{path}"
        for room in sorted((ROOT / "snippets").glob("[!_]*/"))
        for path, kernel in texts(room.name).get("kernels", {}).items()
        if kernel["problems"] and not path.startswith("exercise.py")
    ]
    tab = panel(f".am-kernels .am-edit[data-kernel='{some(listed, 10)[-1]}']", "playground/")
    buttons = tab.locator(".am-kernels .am-edit")
    shown = buttons.evaluate_all("all => all.map(b => b.dataset.kernel)")
    assert sorted(shown) == sorted(listed)
    name = listed[-1].split(":")[1]
    assert tab.locator(f".am-play[aria-label='Edit and run: {name}']").is_visible()
    run(tab, RIGHT)


def test_what_comes_after_the_click_is_light_and_the_worker_asks_nobody(site_folder):
    (folder,) = (path.parent for path in site_folder.glob("assets/*/playground/panel.js"))
    vendored = next(site_folder.glob("assets/vendor/codemirror-*.min.js"))
    worker = folder / "engine/worker.js"
    sizes = {p.name: len(gzip.compress(p.read_bytes())) for p in (worker, vendored)}
    sizes |= {p.name: len(gzip.compress(p.read_bytes())) for p in folder.glob("panel.*")}
    assert len(sizes) == 4
    assert sizes["worker.js"] <= ENGINE_BYTES, sizes
    assert sum(sizes.values()) <= BYTES, sizes
    found = re.findall(
        r"\beval\b|\bFunction\s*\(|\bimport\s*\(|importScripts|\bfetch\b|WebSocket|XMLHttpRequest",
        worker.read_text("utf-8"),
    )
    assert found == []
    assert not (site_folder / "assets/vendor/codemirror").exists()


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_the_panel_has_no_serious_fault_of_access(panel, scheme):
    tab = panel()
    switch_scheme(tab, scheme)
    text, _ = mistaken("padding gets weight")
    write(tab, text)
    run(tab, WRONG)
    tab.get_by_text("Step through one program").click()
    tab.locator(".am-play-stepping canvas, .am-play-stepping code").first.wait_for()
    assert violations(tab, grave=True, context=".am-play") == []
