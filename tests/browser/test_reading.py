"""The reading aids in the built site: glossary, folding, print, and what is beside pages.

Each check of a page is also shown to fail on that page with one fault.
"""

import io
import posixpath
import re
import urllib.request
from urllib.error import HTTPError
from urllib.parse import urldefrag, urljoin, urlsplit
from xml.etree import ElementTree

import pytest
from mkdocs.exceptions import Abort
from PIL import Image

from snippets._lab.rooms import ROOT
from snippets._site import unmeasured
from snippets._site.browser import LAPTOP
from tests.browser.browser import build, scratch_source
from tests.floors import some
from tests.site.test_site import published

pytest_plugins = ["tests.browser.browser"]
in_browser = pytest.mark.browser
of_the_site = in_browser  # needs the built site only: the browser's tests build it anyway


@pytest.fixture(scope="session")
def addresses(site):
    """Every page of the site, from its sitemap."""
    found = [
        node.text for node in ElementTree.fromstring(get(site + "sitemap.xml")).iter() if node.text
    ]
    found = [text for text in found if text.startswith(site)]
    assert len(found) >= 2 + len(published())
    return found


@pytest.fixture(scope="session")
def posts(addresses):
    found = [address for address in addresses if "/posts/" in address]
    return [address for address in found if not address.endswith("/numbers/")]


def get(address):
    with urllib.request.urlopen(address) as answer:
        return answer.read()


def is_there(address):
    try:
        get(urldefrag(address)[0])
    except HTTPError:
        return False
    return True


# Beside the pages.


def dead_links(text, address):
    """Links of a Markdown file that lead to nothing on this site."""
    fences = re.sub(r"^ *(```+)[^`\n]*\n.*?^ *\1 *$", "", text, flags=re.DOTALL | re.MULTILINE)
    code_free = re.sub(r"`[^`\n]*`", "", fences)
    links = re.findall(r"\]\(([^)\s]+)", code_free)
    own = [link for link in links if not urlsplit(link).scheme and not link.startswith("#")]
    return [link for link in own if not is_there(urljoin(address, link))]


@of_the_site
def test_llms_txt_lists_every_page_as_markdown_with_includes_resolved(site, posts):
    listed = re.findall(
        r"^- \[[^\]]+\]\((\S+)\): \S", get(site + "llms.txt").decode(), re.MULTILINE
    )
    assert {posixpath.splitext(x)[0] + "/" for x in listed if "/posts/" in x} == set(posts)
    for address in listed:
        text = get(address).decode()
        assert text.startswith("# "), address
        assert not re.search(r"--8<--|^:::|<figure|<div|\{ \.", text, re.MULTILINE), address
        assert dead_links(text, address) == []
        assert not re.search(r"[■◆▲]{3}", text), f"{address}: a chart's symbols are no text"
        if "/posts/" in address:
            assert "```python" in text
            data = re.search(r"\[The data of the figures\]\((\S+)\)", text)
            assert "| ---" in get(urljoin(address, data[1])).decode()
    assert dead_links("[a](../no/such.md)", address) == ["../no/such.md"], "the check can fail"


@of_the_site
def test_the_feed_has_every_post(site, posts):
    feed = ElementTree.fromstring(get(site + "feed.xml"))
    items = feed.findall("channel/item")
    assert {item.findtext("link") for item in items} == set(posts)
    for item in items:
        assert item.findtext("title")
        assert len(item.findtext("description")) > 20
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} 00:00:00 \+0000", item.findtext("pubDate"))


@of_the_site
def test_every_page_has_a_picture_and_a_description_for_links(addresses):
    for address in some(addresses):
        text = get(address).decode()
        properties = dict(re.findall(r'<meta property="og:(\w+)" content="([^"]*)"', text))
        assert properties["url"] == address
        assert properties["title"]
        assert len(properties["description"]) > 20
        assert Image.open(io.BytesIO(get(properties["image"]))).size == (1200, 630)


def test_without_an_address_nothing_claims_one(tmp_path):
    pages = {"index.md": "# Front\n\nText.", "posts/one.md": "# One\n\nText."}
    source = scratch_source(tmp_path / "source", pages)
    build(source, tmp_path / "site")
    assert not (tmp_path / "site/feed.xml").exists()
    assert not (tmp_path / "site/assets/social").exists()
    assert "og:" not in (tmp_path / "site/index.html").read_text("utf-8")
    assert "(posts/" in (tmp_path / "site/llms.txt").read_text("utf-8"), "relative addresses"
    with pytest.raises(Abort):  # a strict build, which is what is published, has a true address
        build(source, tmp_path / "site", "https://site.example/")
    build(source, tmp_path / "site", "https://attention.dev/")
    assert (tmp_path / "site/feed.xml").exists(), "the check can fail"
    assert "og:" in (tmp_path / "site/index.html").read_text("utf-8")


@of_the_site
def test_a_post_says_how_long_it_is_and_when_it_was_measured(posts):
    for address in some(posts):
        line = re.search(r'<p class="am-kicker">.*?</p>', get(address).decode(), re.DOTALL)
        assert line, address
        times = re.search(
            r"<span>(\d+) minutes(?:, (\d+) with everything unfolded)?</span>", line[0]
        )
        assert times, line[0]
        assert int(times[2] or times[1]) >= int(times[1])
        measured = re.search(r"<span>last measured \d+ \w+ \d{4}, \w+", line[0])
        assert measured or unmeasured.WORDS in line[0]


@of_the_site
def test_a_post_leads_to_its_reference_and_back(site, posts):
    reference = get(site + "reference/launchers/").decode()
    named = {urlsplit(x).path.strip("/").rpartition("/")[2]: x for x in posts}
    launch = [post for post in named if (ROOT / f"snippets/{post}/kernel.py").exists()]
    assert launch
    for post in launch:  # a post without a kernel has no launcher
        address = named[post]
        (anchor,) = re.findall(rf'<h3 id="(snippets\.{post}\.\w+\.{post})"', reference)
        assert f"reference/launchers/#{anchor}" in get(address).decode()
        assert f"posts/{post}/#" in reference


@of_the_site
def test_the_page_for_wrong_addresses_leads_everywhere(site, addresses):
    text = get(site + "404.html").decode()
    content = text[text.index("<article") : text.index("</article")]
    links = {urljoin(site, link) for link in re.findall(r'href="([^"#]+)"', content)}
    led = ("/notebooks/", "/numbers/")  # posts lead there
    posts_lead_there = {x for x in addresses if any(part in x for part in led)}
    assert links >= set(addresses) - posts_lead_there


# In the browser.


@in_browser
def test_a_word_of_the_glossary_explains_itself_and_leads_there(open_page, site):
    page = open_page(at=site + "posts/basic_attention/", until="networkidle")
    word = page.locator("a.am-term", has_text="warps").first
    word.hover()
    page.locator(
        ".md-tooltip2--active, .md-tooltip--active", has_text="32 threads"
    ).first.wait_for()
    word.focus()
    page.wait_for_timeout(1000)  # the theme notes the place a moment after a reader has scrolled
    page.keyboard.press("Enter")
    page.wait_for_url("**/reference/glossary/#warp")
    page.locator("dt#warp").wait_for()
    page.wait_for_function(
        """() => {
          const y = document.getElementById("warp").getBoundingClientRect().top;
          return y > 0 && y < innerHeight;
        }"""
    )


@in_browser
@pytest.mark.parametrize(
    ("width", "height", "of_map"), [(1366, 768, 400), (390, 844, 150), (360, 740, 0)]
)
def test_the_front_page_says_in_one_screen_what_it_is_and_where_to_begin(
    open_page, site, width, height, of_map
):
    page = open_page({"width": width, "height": height}, at=site)
    start = page.locator(".am-hero .md-button--primary")
    assert start.get_attribute("href") == page.locator(".am-rungs a").first.get_attribute("href")
    parts = ["h1", ".am-lead", ".md-button >> nth=1", ".am-way > input", ".am-clock p"]
    for part in parts if width < 400 else [*parts, ".am-clock", ".am-stop.am-now pre"]:
        box = page.locator(part).first.bounding_box()
        assert 0 < box["y"] <= height - box["height"], part
    assert page.locator(".am-map").bounding_box()["y"] < 2 * height - of_map
    assert page.locator(".am-rungs a").count() == len(published())
    page.locator(".am-hero h1").evaluate("title => { title.style.height = '60rem'; }")
    assert page.locator(parts[-1]).bounding_box()["y"] > height, "the check can fail"


@in_browser
def test_a_print_is_the_text_and_nothing_around_it(open_page, site):
    page = open_page(LAPTOP, at=site + "posts/basic_attention/")
    page.emulate_media(media="print")
    for around in (
        ".md-header",
        ".md-sidebar--primary",
        ".am-file",
        ".md-footer__inner",
        ".headerlink",
    ):
        assert not page.locator(around).first.is_visible(), around
    assert not page.locator(".md-content details > :not(summary)").first.is_visible(), "is folded"
    code = page.locator(".md-content pre > code").first
    assert code.evaluate("code => getComputedStyle(code).whiteSpace") == "pre-wrap"
    page.emulate_media(media="screen")
    assert page.locator(".md-header").first.is_visible()
