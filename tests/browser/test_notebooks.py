"""The notebooks' pages in a real browser: quiet, in the site's colors, one click from a post."""

import json

import nbformat
import pytest

from snippets._site import notebooks
from snippets._site.browser import PHONE
from tests.floors import some

pytestmark = pytest.mark.browser
pytest_plugins = ["tests.browser.browser"]

PUBLISHED = notebooks.posts()


def code_cells(post):
    notebook = nbformat.read(notebooks.NOTEBOOKS / f"{post}.ipynb", as_version=4)
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


@pytest.mark.parametrize("post", PUBLISHED)
def test_a_page_shows_every_cell_and_brings_nothing_of_its_own(post, site, open_page):
    page = open_page(PHONE, at=f"{site}notebooks/{post}/")
    shown = page.locator("article pre > code")
    for text, source in some(zip(shown.all_text_contents(), code_cells(post), strict=True)):
        assert text.strip().splitlines()[-1] == source.splitlines()[-1]
    assert page.locator("article :is(script, style, iframe, img)").count() == 0
    assert page.locator("head style").count() == 2, "the site's, and the fonts'"
    assert page.locator("link[rel=stylesheet]").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_reader_comes_from_the_post_and_takes_the_notebook_along(site, open_page):
    page = open_page(at=f"{site}posts/basic_attention/")
    page.locator("article a", has_text="The notebook").click()
    page.wait_for_url("**/notebooks/basic_attention/")
    page.get_by_role("heading", level=1, name="A first attention kernel: the notebook").wait_for()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "basic_attention.ipynb"
    text = download.value.path().read_text("utf-8")
    nbformat.validate(nbformat.reads(text, as_version=4))
    assert not [cell for cell in some(json.loads(text)["cells"]) if cell.get("outputs")]
    assert "git+https://github.com/example/example" in text
    page.get_by_role("link", name="The post", exact=True).click()
    page.wait_for_url("**/posts/basic_attention/")


def test_search_and_navigation_lead_to_the_post_and_not_to_its_notebook(site, site_folder):
    index = json.loads((site_folder / "search" / "search_index.json").read_text("utf-8"))
    locations = [entry["location"] for entry in index]
    assert any(location.startswith("posts/basic_attention/") for location in locations)
    assert not [location for location in some(locations) if location.startswith("notebooks/")]
