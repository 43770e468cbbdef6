"""Where a reader is, in a real browser: the side column, the bar, the road, and other readers' ways
through a page: by touch, by keyboard, without a script, on paper, from a file.
"""

import io
import re
import zipfile
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from snippets._site import offline
from snippets._site.browser import LAPTOP, PHONE, Server, addresses
from tests.browser.browser import NOWHERE, built, scratch_source
from tests.floors import some
from tests.site.test_site import published

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

POST = "posts/flash_attention/"
# Sections below the fold of the column: each must be in sight in the column when it is on screen.
COLUMN = """() => {
  const column = document.querySelector('.md-sidebar--primary .md-sidebar__scrollwrap');
  const links = [...column.querySelectorAll('.md-nav--secondary .md-nav__link--active')];
  const link = links.at(-1)?.getBoundingClientRect(), box = column.getBoundingClientRect();
  return link && {above: link.top - box.top, below: box.bottom - link.bottom};
}"""
# Lines that the part's name, which stays at the top of the column, cuts through.
CUT = """() => {
  const name = document.querySelector('.md-nav--lifted .md-nav__item--active > .md-nav__link');
  const edge = name.getBoundingClientRect().bottom;
  return [...document.querySelectorAll('.md-sidebar--primary .md-nav__link')]
    .filter(line => line !== name && line.checkVisibility({visibilityProperty: true}))
    .map(line => [line, line.getBoundingClientRect()])
    .filter(([, at]) => at.top < edge - 1 && at.bottom > edge + 1)
    .map(([line]) => line.textContent.trim());
}"""
WIDE = "document.documentElement.scrollWidth - innerWidth"


def test_the_side_column_and_the_bar_follow_what_is_read(open_page, site):
    page = open_page({"width": 1366, "height": 768}, at=site + "posts/hopper_attention/")
    headings = page.locator("article h2[id]")
    bar = "new DOMMatrix(getComputedStyle(document.querySelector('.am-progress')).transform).a"
    read = [page.evaluate(bar)]
    for number in (2, headings.count() // 2, headings.count() - 2):
        headings.nth(number).evaluate("heading => heading.scrollIntoView()")
        page.wait_for_timeout(500)
        in_column = f"() => Math.min(...Object.values(({COLUMN})() ?? {{above: -1}})) >= 0"
        page.wait_for_function(in_column)  # a busy machine takes its time
        assert page.evaluate(CUT) == []
        read.append(page.evaluate(bar))
    assert read[0] == 0
    assert read == sorted(set(read)), read
    page.add_style_tag(content=".md-sidebar--primary .md-sidebar__inner { padding-bottom: 200rem }")
    column = page.locator(".md-sidebar--primary .md-sidebar__scrollwrap")
    column.evaluate("column => { column.scrollTop = 12; }")
    assert page.evaluate(CUT), "the check can fail"
    column.evaluate("column => { column.scrollTop = 3000; }")
    assert min(page.evaluate(COLUMN).values()) < 0, "the check can fail"


def test_a_link_within_a_page_leaves_the_page_as_it_is(open_page, site):
    # When all is quiet the sitemap is there, which instant navigation needs.
    page = open_page(at=f"{site}{POST}?seen=1", until="networkidle")
    page.asked.clear()
    page.evaluate("window.sameDocument = document.querySelector('article h1')")
    links = page.locator(".md-sidebar--primary .md-nav--secondary a[href*='#']")
    top = "hash => Math.abs(document.querySelector(hash).getBoundingClientRect().top) < 200"
    for number in (3, 4, 3):
        hash_of = urlsplit(links.nth(number).get_attribute("href")).fragment
        links.nth(number).click()
        page.wait_for_function(top, arg=f"#{hash_of}")
        assert page.url == f"{site}{POST}?seen=1#{hash_of}"
    page.go_back()
    page.go_back()
    page.wait_for_function(top, arg=f"#{hash_of}")
    page.wait_for_load_state("networkidle")
    assert [url for url in page.asked if urlsplit(url).path.endswith("/")] == []
    assert page.evaluate("window.sameDocument.isConnected")
    page.locator(".md-footer__link--next").click()
    page.wait_for_function("() => !window.sameDocument.isConnected")
    page.go_back()
    page.wait_for_url(f"**/{POST}?seen=1#{hash_of}")
    page.locator(f"[id='{hash_of}']").wait_for()
    assert page.evaluate("Boolean(window.sameDocument)"), "the document was never loaded again"


def test_a_post_says_where_it_stands_and_leads_to_its_neighbors(open_page, site):
    page = open_page(PHONE, at=site + POST)
    road = page.locator(".am-here a")
    assert road.nth(1).inner_text() == f"10 / {len(published())}"
    names = road.evaluate_all("links => links.map(link => link.ariaLabel)")
    assert [names[0], names[2]] == ["Previous: 9 Tiled attention", "Next: 11 Warp specialization"]
    seen = [link.bounding_box() for link in road.all() if link.is_visible()]
    assert len(seen) == 3, "the post before, this one and the next"
    title = page.locator("h1").bounding_box()
    assert title["y"] - seen[0]["y"] < 70, "the title comes nearly first"
    for box in seen:
        assert min(box["width"], box["height"]) >= 40
        assert 0 <= box["x"] <= PHONE["width"] - box["width"]
    road.first.click()
    page.wait_for_url("**/posts/tiled_attention/")


def test_every_page_leads_to_the_tabs_and_back_to_where_a_reader_stopped(open_page, site):
    page = open_page(PHONE, at=site)
    assert page.locator(".am-continue").is_hidden()
    tabs = page.locator(".md-tabs__link:visible")
    names = ["Learn", "Your kernel", "Playground", "Results", "Tools", "Reference"]
    assert tabs.all_inner_texts() == names
    # An instant navigation shows the page before until the next has come: wait for what is new.
    tabs.first.click()
    page.locator("article h2#posts").wait_for()
    page.locator(f"main a[href$='{POST}']").last.click()
    heading = page.locator("article:has(.am-here) h2[id]").nth(2)
    heading.evaluate("heading => heading.scrollIntoView()")
    address = f"{site}{POST}#{heading.get_attribute('id')}"
    kept = "address => address.endsWith(localStorage['attention-measured.stopped'] ?? '?')"
    page.wait_for_function(kept, arg=address)
    page.goto(site)
    page.get_by_text("10 FlashAttention", exact=True).locator("visible=true").click()
    page.wait_for_url(address)
    page.goto(site)
    page.evaluate("localStorage['attention-measured.stopped'] = '/gone/'")
    page.reload()
    assert page.locator(".am-continue").is_hidden()


def test_the_foot_of_a_page_cites_it_and_leads_to_its_source(open_page, site):
    page = open_page(at=site + POST)
    foot = page.locator(".am-foot")
    links = dict(foot.locator("a").evaluate_all("x => x.map(a => [a.textContent, a.href])"))
    assert links["Source"].endswith("/blob/main/docs/posts/flash_attention.md")
    assert "/edit/main/docs/" in links["Edit this page"]
    assert "/issues/new?" in links["Report a mistake"]
    foot.locator("summary").click()
    assert re.search(r"@misc\{\w+:flash_attention,", foot.locator("pre").inner_text())
    number = page.locator(".am-number").nth(1)
    assert number.text_content() == "Figure 2"
    number.click()
    page.wait_for_function("() => location.hash.startsWith('#figure-')")


def test_the_tab_of_the_front_page_names_the_site_once(open_page, site):
    page = open_page(at=site)
    assert page.title().count("Attention, Measured") == 1


def test_topics_are_sorted_as_a_reader_sorts(open_page, site):
    page = open_page(at=site + "reference/topics/")
    names = page.locator("article h2 > .md-tag").all_inner_texts()
    assert len(names) > 5
    assert names == sorted(names, key=str.casefold)
    assert names != sorted(names), "there is a capital among them: the check can fail"


def test_a_notebook_has_its_post_beside_it(open_page, site):
    page = open_page(at=site + "notebooks/latency_hiding/")
    active = page.locator(".md-nav__item--active:not(.md-nav__item--section) > a.md-nav__link")
    assert active.evaluate_all("links => links.map(a => a.pathname.split('/').at(-2))") == [
        "latency_hiding"
    ]
    assert page.locator(".md-footer__link--prev").get_attribute("href").endswith("latency_hiding/")
    assert page.locator(".md-footer__link--next").count() == 1


def test_a_touch_shows_a_word_of_the_glossary_and_a_second_one_leads_there(open_page, site):
    page = open_page(
        PHONE,
        at=site + "posts/basic_attention/",
        until="networkidle",
        has_touch=True,
        is_mobile=True,
    )
    word = page.locator("a.am-term").first
    word.tap()
    note = page.locator(".am-definition")
    note.wait_for()
    assert len(note.inner_text()) > 30
    assert page.url.endswith("/posts/basic_attention/")
    assert page.evaluate(WIDE) <= 0
    word.tap()
    page.wait_for_url("**/reference/glossary/#*")


def test_a_print_keeps_what_charts_show_and_is_on_white(browser, site):
    """A chart that has been drawn, and of every other its finding, caption and link."""
    page = browser.new_page(viewport=LAPTOP, color_scheme="dark")
    page.goto(site + "posts/coalescing/")
    page.locator(".am-plot").first.scroll_into_view_if_needed()
    drawn = page.locator(".am-drawn .main-svg").first
    drawn.wait_for()
    page.emulate_media(media="print", color_scheme="dark")
    assert drawn.bounding_box()["height"] > 100
    charts = page.locator(".am-chart")
    assert charts.count() > 1
    for chart in some(charts.all()):
        assert chart.locator(".am-finding").is_visible()
        assert chart.locator("figcaption a").last.is_visible()
    assert page.locator(".am-here, .am-foot, .am-progress").first.is_hidden()
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


@pytest.fixture(scope="module")
def from_file(site_folder, tmp_path_factory):
    """The offline copy, unpacked."""
    folder = tmp_path_factory.mktemp("offline")
    zipfile.ZipFile(io.BytesIO(offline.archive(site_folder))).extractall(folder)
    return folder / offline.FOLDER


def test_every_page_opens_from_a_file_without_an_error(open_page, from_file):
    page = open_page(own=from_file.as_uri())
    for address in some(addresses(from_file)):
        page.goto((from_file / address / "index.html").as_uri())
        page.evaluate("scrollTo(0, 2000)")
        assert page.wrong == [], address
        assert page.locator(".am-offline").is_visible(), "the line that says how to have the rest"
    links = page.locator("a[href]").evaluate_all("x => x.map(a => a.getAttribute('href'))")
    assert not [link for link in some(links) if link.endswith("/") and "//" not in link]


def test_a_copy_that_is_served_is_whole(open_page, from_file):
    with Server(from_file, built_for=NOWHERE) as server:
        page = open_page(at=server.address + "posts/coalescing/index.html")
        assert page.locator(".am-offline").is_hidden()
        chart = page.locator(".am-plot").first
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for()


def arrives(page, address):
    """The page ends there. (`wait_for_url` fails if one navigation replaces another on the way.)"""
    expect(page).to_have_url(address)
    page.wait_for_load_state()


def test_an_old_address_leads_to_another_page(open_page, tmp_path):
    """By script, on any way to the page, and without one by a link that only it shows."""
    pages = {
        "index.md": "# Front\n\n[The old address](one.md#gone)\n",
        "one.md": "---\nmoved:\n  /two.md#there: [gone]\n---\n# One\n\nText.\n",
        "two.md": "---\nreplaces: [gone]\n---\n# Two\n\nText.\n\n## There {#there}\n\nText.\n",
    }
    with built(scratch_source(tmp_path / "source", pages), tmp_path / "site") as site:
        page = open_page(at=site + "one/#gone")
        arrives(page, site + "two/#there")
        page.goto(site)
        page.get_by_text("The old address").click()  # by instant navigation
        arrives(page, site + "two/#there")
        page.go_back()
        arrives(page, site)
        page.goto(site + "gone/?view=1#there")
        arrives(page, site + "two/?view=1#there")
        page.goto(site + "one/")
        page.evaluate("location.hash = 'gone'")
        arrives(page, site + "two/#there")
        plain = open_page(at=site + "gone/", java_script_enabled=False)
        plain.get_by_text("two").last.click()
        arrives(plain, site + "two/")
        plain.goto(site + "one/")
        assert plain.locator(".am-moved").is_hidden()
        plain.goto(site + "one/#gone")
        plain.locator(".am-moved").get_by_text("two").click()
        arrives(plain, site + "two/#there")
