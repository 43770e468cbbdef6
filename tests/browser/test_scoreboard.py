"""The slider from the first kernel to the last, in a real browser: keys, address, phone, no script.

While its page waits for a GPU the slider's HTML is put into another page of the same site.
"""

import pytest

from snippets._lab import rooms
from snippets._site.browser import PHONE
from tests.browser.browser import switch_scheme
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

FRAGMENT = rooms.FIGURES / "scoreboard" / "ladder.md"
WAITS = "scoreboard" in rooms.waiting()
PAGE = "lab/coverage/" if WAITS else "lab/scoreboard/"
BOX = ".am-ladder"
KERNELS = [
    "basic_attention",
    "vectorized_attention",
    "composed_attention",
    "tiled_attention",
    "flash_attention",
    "hopper_attention",
]


def html():
    (line,) = (
        x for x in FRAGMENT.read_text("utf-8").splitlines() if x.startswith('<div class="am-l')
    )
    return line


@pytest.fixture
def ladder(open_page, site):
    """Opens a page with the slider."""

    def ladder(query="", **options):
        page = open_page(**options)
        assert page.goto(f"{site}{PAGE}{query}").status == 200
        if WAITS:
            page.evaluate(
                "html => { document.querySelector('article').insertAdjacentHTML('beforeend', html);"
                " document$.next(document); }",
                html(),
            )
        page.locator(BOX).scroll_into_view_if_needed()
        page.locator(".am-ladder-bar").wait_for()
        return page

    return ladder


def shown(page):
    visible = page.locator(f"{BOX} section:visible")
    assert visible.count() == 1
    return visible.get_attribute("data-kernel")


def test_keys_and_buttons_go_from_the_first_to_the_last(ladder):
    page = ladder()
    slider = page.get_by_role("slider", name="Kernel")
    assert shown(page) == KERNELS[0]
    assert page.get_by_label("The kernel before").is_disabled()
    assert page.locator(f"{BOX} section:visible .am-ladder-added").count() == 0
    slider.focus()
    for name in some(KERNELS[1:]):
        page.keyboard.press("ArrowRight")
        assert shown(page) == name
        assert page.locator(f"{BOX} section:visible .am-ladder-added").count() > 5
        assert page.locator(f"{BOX} section:visible .am-ladder-removed").count() > 5
    assert slider.get_attribute("aria-valuetext") == f"{KERNELS[-2]} → {KERNELS[-1]}"
    assert page.get_by_label("The next kernel").is_disabled()
    page.get_by_label("The kernel before").press("Enter")
    assert shown(page) == KERNELS[-2]
    page.wait_for_url(f"**kernel={KERNELS[-2]}*")
    assert page.wrong == []


def test_an_address_opens_its_kernel_and_nonsense_the_first(ladder):
    assert shown(ladder(f"?kernel={KERNELS[2]}")) == KERNELS[2]
    assert shown(ladder("?kernel=%3Cimg%20src%3Dx%3E")) == KERNELS[0]


def test_it_fits_a_phone_in_both_schemes(ladder):
    page = ladder(f"?kernel={KERNELS[1]}", viewport=PHONE, has_touch=True, is_mobile=True)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for name in ("The kernel before", "The next kernel"):
        box = page.get_by_label(name).bounding_box()
        assert min(box["width"], box["height"]) >= 44
    page.get_by_label("The next kernel").tap()
    assert shown(page) == KERNELS[2]
    colors = set()
    for scheme in ("default", "slate"):
        switch_scheme(page, scheme)
        line = page.locator(f"{BOX} section:visible .am-ladder-added").first
        colors.add(line.evaluate("e => getComputedStyle(e).color"))
    assert len(colors) == 2


def test_without_the_script_every_step_is_there():
    text = html()
    assert [name for name in KERNELS if f'<section data-kernel="{name}">' in text] == KERNELS
    assert "hidden" not in text.split("<pre")[0]


def test_code_keeps_its_colors_and_the_slider_stays_in_sight(ladder):
    page = ladder()
    page.get_by_label("The next kernel").click()
    colors = page.locator(f"{BOX} section:visible pre :is(b, span)").evaluate_all(
        "all => [...new Set(all.map(e => getComputedStyle(e).color))]"
    )
    assert len(colors) > 3, colors
    page.locator(f"{BOX} section:visible pre").evaluate(
        "pre => scrollTo(0, scrollY + pre.getBoundingClientRect().bottom - 300)"
    )
    page.wait_for_timeout(100)
    top = page.locator(".am-ladder-bar").bounding_box()["y"]
    header = page.locator(".md-header").bounding_box()
    assert header["height"] - 1 <= top < 300
    assert page.wrong == []
