"""A kernel from elsewhere, pasted into the page: right, named, or why it cannot be judged."""

import re

import pytest

from snippets._site.browser import LAPTOP, PHONE
from snippets.diagnose import cases
from tests.browser.browser import CLIPBOARD, copied, switch_scheme, violations
from tests.browser.pasted_kernels import MISTAKES, RIGHT, UNKNOWN
from tests.browser.test_playground import CODE, STATUS, run, texts, write
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

BUTTON = ".am-edit[data-kernel='pasted']"
ANSWER = re.compile(r"Right on|cannot judge|Line \d+")
FLASH_LIKE = [f"{name}_attention" for name in ("basic", "vectorized", "tiled", "flash")]


@pytest.fixture
def editor(open_page, site):
    """The page with its editor open."""

    def editor(viewport=LAPTOP, **options):
        tab = open_page(viewport, at=site + "paste/", **options)
        tab.locator(BUTTON).click()
        tab.locator(CODE).wait_for()
        return tab

    return editor


def said(tab, text):
    """What the page says of a kernel."""
    write(tab, text)
    return run(tab, ANSWER)


def field(tab, name):
    return tab.locator(".am-launch").get_by_label(name, exact=True)


def changed(kernel, old, new):
    assert old in RIGHT[kernel]
    return RIGHT[kernel].replace(old, new, 1)


def test_kernels_of_all_conventions_are_right_without_a_question(editor):
    tab = editor()
    own = {room: texts(room)["kernels"][f"kernel.py:_{room}_kernel"]["text"] for room in FLASH_LIKE}
    for name, text in {**own, "diagnosed": cases.right_kernel("flash"), **RIGHT}.items():
        answer = said(tab, text)
        assert re.match(r"Right on all (\d+) problems\.", answer), (name, answer)
        assert int(re.findall(r"\d+", answer)[0]) >= 5, name


def test_an_argument_that_is_not_known_is_asked_for(editor):
    tab = editor()
    text = texts("masks_and_packing")["kernels"]["kernel.py:_masks_and_packing_kernel"]["text"]
    assert "does not know the arguments cu_k_ptr, columns, sequences" in said(tab, text)
    for name in ("cu_k_ptr", "columns", "sequences"):
        assert field(tab, name).get_attribute("aria-invalid") == "true"
        field(tab, name).fill("None")
    field(tab, "sequences").press("Enter")
    tab.locator(STATUS).filter(has_text="Right on all").wait_for()


def test_mistakes_are_named(editor):
    tab = editor()
    for kernel, name, old, new in some(MISTAKES, 15):
        answer = said(tab, changed(kernel, old, new))
        assert re.match(r"Right on \d+ of \d+ problems\.", answer), (name, answer)
        named = tab.locator(".am-play-mistake").inner_text()
        assert name in named, (name, named)


def test_what_cannot_be_judged_says_why(editor):
    tab = editor()
    for kernel, old, new, why in some(UNKNOWN, 5):
        answer = said(tab, changed(kernel, old, new))
        assert answer.startswith("This page cannot judge it"), answer
        assert why in answer, answer
    answer = said(tab, RIGHT["rows"].replace("e = tl.exp(", "e = tl.expp("))
    assert re.match(r"Right on 0 of \d+ problems\. Line \d+: .*expp", answer), "that is a mistake"


def test_a_launch_can_be_changed_and_an_unusual_grid_is_asked_for(editor):
    tab = editor()
    assert said(tab, RIGHT["tiles"]).startswith("Right on all")
    tab.locator(".am-launch summary").click()
    field(tab, "BLOCK_N").fill("32")
    field(tab, "mask").select_option("none")
    assert "Not tried: a causal mask" in run(tab, re.compile("Not tried"))
    field(tab, "BLOCK_N").fill("nonsense(3)")
    assert "cannot be read: the function nonsense" in run(tab, re.compile("cannot judge"))
    two = texts("basic_attention")["kernels"]["exercise.py:_two_queries_kernel"]["text"]
    assert "if your launcher has another, say it below" in said(tab, two)
    field(tab, "grid").fill("cdiv(M, 2) * B * H")
    assert run(tab, re.compile("Right on all"))


def test_a_link_holds_the_code_and_its_launch_and_runs_nothing(editor, open_page):
    tab = editor(**CLIPBOARD)
    assert said(tab, changed(*MISTAKES[0][:1], *MISTAKES[0][2:])).startswith("Right on")
    tab.locator(".am-launch summary").click()
    field(tab, "BLOCK_M").fill("32")
    tab.get_by_role("button", name="Copy link").click()
    tab.get_by_role("button", name="Copied").wait_for()
    other = open_page(at=copied(tab))
    other.locator(STATUS).filter(has_text="has not run").wait_for()
    other.wait_for_load_state("networkidle")
    assert not [url for url in some(other.asked) if "worker" in url or "pasted.json" in url]
    run(other, ANSWER)
    assert field(other, "BLOCK_M").input_value() == "32"
    assert "no scale" in other.locator(".am-play-mistake").inner_text()


@pytest.mark.parametrize(
    ("viewport", "scheme"), [(LAPTOP, "default"), (PHONE, "slate")], ids=["laptop", "phone"]
)
def test_it_is_usable_by_keyboard_and_without_a_fault_of_access(open_page, site, viewport, scheme):
    tab = open_page(viewport, at=site + "paste/")
    switch_scheme(tab, scheme)
    tab.locator(BUTTON).focus()
    tab.keyboard.press("Enter")
    tab.locator(f"{CODE}:focus").wait_for()
    tab.get_by_role("button", name="Example").press("Enter")
    tab.locator(CODE).filter(has_text="def _tiled_attention_kernel").wait_for()
    tab.locator(CODE).focus()
    tab.keyboard.press("ControlOrMeta+Enter")
    tab.locator(STATUS).filter(has_text="Right on").wait_for()
    tab.locator(".am-launch summary").press("Enter")
    field(tab, "M and N").focus()
    wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    assert tab.evaluate(wide), "nothing makes the page wider than the screen"
    assert violations(tab) == []
