"""A reader's kernel in the scene "the kernel at work".

The page's interpreter runs the page's own text on the launch with which its scene was recorded:
the result must be that recording, which Triton's interpreter made. Then other texts.
"""

import json

import pytest

from snippets._lab.draw.scene import FILE, LAUNCHES
from snippets._lab.rooms import FIGURES, ROOT
from snippets._site import exercises, playground
from snippets._site.browser import LAPTOP, PHONE, Server
from snippets._site.scripts import bundle, needed
from tests.browser.browser import apart, switch_scheme
from tests.browser.test_playground import CODE, write
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

PLAYGROUND = (ROOT / "docs/assets/javascripts/playground").resolve()
FILES = (("page", FILE), ("launches", LAUNCHES))
# How close the interpreters are: two ways to sum in float32; flash_attention rounds its weights to
# float16, where a last bit in float32 decides which way.
ROOMS = {"basic_attention": 1e-5, "tiled_attention": 1e-5, "flash_attention": 5e-4}

RECORD = """async ({ source, whole, kernel, page, launches }) => {
  const worker = new Worker("engine/worker.js", { type: "module" });
  const { recordingOf } = await import(new URL("at_work.js", location.href).href);
  const run = (problem, options) => new Promise((resolve, reject) => {
    worker.onmessage = ({ data: { failure, result } }) => {
      if (failure) reject(new Error(failure));
      else resolve(result);
    };
    worker.postMessage({ id: 1, task: "problem", source: whole, problem, options });
  });
  try {
    return { recording: await recordingOf({ source, kernel, page, launches, run }) };
  } catch (error) {
    return { error: error.message };
  } finally {
    worker.terminate();
  }
}"""


@pytest.fixture(scope="module")
def record(browser, tmp_path_factory):
    """What a text of a room's kernel gives the scene: {recording} or {error}."""
    folder = tmp_path_factory.mktemp("at_work")
    (folder / "engine").mkdir()
    for name in ("at_work.js", "engine/worker.js"):
        (folder / name).write_text(bundle(needed(PLAYGROUND / name)), "utf-8")
    (folder / "index.html").write_text("<!doctype html><title>at work</title>", "utf-8")
    with Server(folder) as server:
        context = browser.new_context()
        page = context.new_page()
        page.goto(server.address)

        def record(room, change=lambda text: text):
            path, kernel = kernel_of(room)
            source = change(kernel["text"])
            given = {name: read(room, file) for name, file in FILES}
            whole = f"{source}\n\n\n{kernel['rest']}" if kernel["rest"] else source
            names = {"source": source, "whole": whole, "kernel": path.partition(":")[2]}
            return page.evaluate(RECORD, names | given)

        yield record
        context.close()


def kernel_of(room):
    """The kernel that a room's scene plays: its path in the room, and what the editor opens."""
    kernels = playground.opened(ROOT / "snippets" / room)["kernels"]
    ((path, kernel),) = ((path, k) for path, k in kernels.items() if k["scene"])
    return path, kernel


def read(room, file):
    return json.loads((FIGURES / room / file).read_text("utf-8"))


@pytest.mark.parametrize(("room", "close"), ROOMS.items())
def test_the_page_kernel_gives_the_recording_of_the_page(record, room, close):
    page = read(room, FILE)
    del page["made_by"]  # of the file; the rest was recorded
    found = record(room)
    assert "error" not in found, found["error"]
    assert apart(found["recording"], page, close) == ""
    assert len(some(found["recording"]["examples"])) == len(page["examples"])
    spoilt = json.loads(json.dumps(page))
    spoilt["examples"][0]["result"][0] = 7  # the comparison can fail
    assert apart(found["recording"], spoilt, close) != ""


def test_a_kernel_without_correction_shows_its_own_numbers(record):
    page = read("tiled_attention", FILE)["examples"][0]
    old, new = exercises._mutant(ROOT / "snippets/tiled_attention", "acc not rescaled")

    def without(text):
        assert text.count(old) == 1
        return text.replace(old, new)

    found = record("tiled_attention", without)["recording"]["examples"][0]
    for tile in (*found["tiles"], *page["tiles"]):
        del tile["lines"]  # the mistake is a line that is missing
    at = some([n for n, tile in enumerate(page["tiles"]) if n and tile["alpha"][0] != 1])[0]
    assert apart(found["tiles"][:at], page["tiles"][:at], 1e-5) == "", "before the maximum moves"
    assert apart(found["tiles"][at]["m"], page["tiles"][at]["m"], 1e-5) == ""
    assert apart(found["tiles"][at]["acc"], page["tiles"][at]["acc"], 1e-2) != ""
    assert apart(found["result"], page["result"], 1e-2) != ""


def edit(old, new):
    """A change of the text: all of what is found, and something is."""

    def change(text):
        assert old in text
        return text.replace(old, new)

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    {
        "name": (edit("l_i", "total"), "follows the variable l_i, which"),
        "shape": (edit("m_i = m_new", "m_i, scores = m_new, m_new"), "as a tile of"),
        "trips": (edit("range(0, stop, BLOCK_N)", "range(0, 0, BLOCK_N)"), "makes no trip"),
        "error": (edit("stop = N ", "stop = nowhere "), "Line "),
    }.values(),
)
def test_what_the_scene_cannot_follow_it_says(record, change, says):
    assert says in record("tiled_attention", change).get("error", "nothing")


BUTTON = ".am-edit[data-kernel='{}/{}']"
FOLD = ".am-play-at-work summary:has-text('See it at work')"
STAGE = ".am-play-at-work .am-scene-frame"


def opened(tab, site, room, address):
    """The panel with a room's kernel on a page."""
    assert tab.goto(site + address).status == 200
    tab.locator(BUTTON.format(room, kernel_of(room)[0])).first.click()
    tab.locator(CODE).wait_for()


def run(tab):
    tab.locator(".am-play-run:visible").click()
    tab.locator(FOLD).wait_for()


@pytest.mark.parametrize("viewport", [LAPTOP, PHONE], ids=["laptop", "phone"])
@pytest.mark.parametrize("room", ROOMS)
def test_a_reader_sees_their_text_at_work(open_page, site, room, viewport):
    tab = open_page(viewport)
    opened(tab, site, room, f"posts/{room}/")
    run(tab)
    assert not [url for url in some(tab.asked) if LAUNCHES in url], "nothing before the click"
    tab.locator(FOLD).click()
    tab.locator(STAGE).wait_for()
    steps = int(tab.locator(f"{STAGE} input[type=range]").get_attribute("max"))
    assert steps > 5
    tab.locator(f"{STAGE} [data-step='1']").click()
    words = tab.locator(f"{STAGE} .am-scene-words")
    assert words.inner_text()
    tab.locator(f"{STAGE} input[type=range]").press("End")
    assert tab.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    for scheme in ("slate", "default"):
        switch_scheme(tab, scheme)
        assert tab.locator(f"{STAGE} canvas").first.is_visible()


def test_a_new_run_begins_anew_and_the_playground_has_the_style(open_page, site):
    tab = open_page()
    opened(tab, site, "tiled_attention", "playground/")
    run(tab)
    tab.locator(FOLD).click()
    tab.locator(STAGE).wait_for()
    assert (
        tab.locator(STAGE).locator(".am-scene-view").evaluate("x => getComputedStyle(x).display")
        == "grid"
    )
    _, kernel = kernel_of("tiled_attention")
    write(tab, edit("l_i", "total")(kernel["text"]))
    run(tab)
    assert tab.locator(STAGE).count() == 0
    tab.locator(FOLD).click()
    says = tab.locator(".am-play-at-work p").filter(has_text="follows the variable l_i")
    says.wait_for()
