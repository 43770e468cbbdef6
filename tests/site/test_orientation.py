"""What orients a reader, as text: figure numbers, citations, the source's addresses, both times."""

import re
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from mkdocs.config import load_config
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from snippets._lab.rooms import ROOT
from snippets._site import numbering, offline, published, repository
from tests.floors import some


@pytest.fixture
def made_site(tmp_path, monkeypatch):
    """Makes a site whose room has the data of some figures; `shown`: page → the one it has."""

    def made_site(names, shown):
        monkeypatch.setattr(numbering, "FIGURES", tmp_path)
        for folder in ("room", "docs"):
            (tmp_path / folder).mkdir()
        for name in names:
            (tmp_path / "room" / f"{name}_data.md").write_text("The table.")
        (tmp_path / "mkdocs.yml").write_text("site_name: a site\nplugins: []\n")
        config = load_config(str(tmp_path / "mkdocs.yml"))
        config.plugins._current_plugin = "the hook"
        files = Files(
            File.generated(config, path, content=f'--8<-- "docs/figures/room/{name}.md"')
            for path, name in shown.items()
        )
        numbering.add(files, config)
        return config, files

    return made_site


def test_figures_are_numbered_in_order_and_lead_to_their_data(made_site):
    """The number is the permalink; a folded figure counts as a part of the one before it."""
    config, files = made_site(["one"], {"posts/a.md": "one"})
    page = Page("A post", files.get_file_from_path("posts/a.md"), config)

    def figure(name, caption="<figcaption>\n<p>Seen.</p>\n</figcaption>"):
        box = f'<div class="am-figure am-chart" style="x" id="figure-room-{name}">'
        return f"{box}<figure>{caption}</figure></div>"

    text = (
        figure("one")
        + figure("bare", "")
        + f"<details><details></details>{figure('hidden')}</details>"
        + figure("two", "<figcaption>x</figcaption>")
    )
    made = numbering.numbered(text, page, files)
    assert re.findall(r'<a class="am-number" href="#figure-room-(\w+)">Figure (\w+)</a>', made) == [
        ("one", "1"),
        ("hidden", "1a"),
        ("two", "2"),
    ]
    assert "<p><a class=" in made
    link = '<a class="am-data" href="numbers/#room-one" aria-label="data of figure 1">data</a>'
    assert f"Seen. {link}</p>" in made
    assert made.count("am-data") == 1, "the others have none"
    numbers = Page(None, files.get_file_from_path("posts/a/numbers.md"), config)
    numbers.read_source(config)
    assert numbers.meta == {"title": "Numbers: A post", "moved": {}, "search": {"exclude": True}}
    assert "## Figure 1: one { #room-one }" in numbers.markdown
    assert '--8<-- "docs/figures/room/one_data.md"' in numbers.markdown
    assert numbering.numbered("<p>no figure</p>", page, files) == "<p>no figure</p>"


def test_a_figure_that_a_post_shows_no_more_is_found(made_site):
    """On the page that shows it now, or where its numbers are; the page of numbers leads on too."""
    shown = {"posts/room.md": "kept", "how_to/a.md": "there", "posts/b.md": "bare"}
    config, files = made_site(["kept", "gone", "there", "report"], shown)
    page = Page("A post", files.get_file_from_path("posts/room.md"), config)
    page.meta = {"moved": {"section": ["figure-room-drawn"]}}
    page.meta["moved"] = numbering.moved(page)
    assert page.meta["moved"] == {
        "section": ["figure-room-drawn"],
        "/posts/room/numbers.md#room-gone": ["figure-room-gone"],
        "/how_to/a.md#figure-room-there": ["figure-room-there"],
    }
    numbering.numbered("<p>no figure</p>", page, files)
    numbers = Page(None, files.get_file_from_path("posts/room/numbers.md"), config)
    numbers.read_source(config)
    assert "## gone { #room-gone }" in numbers.markdown
    assert "room-report" not in numbers.markdown
    assert numbers.meta["moved"] == {
        "/posts/room.md#section": ["room-drawn"],
        "/how_to/a.md#figure-room-there": ["room-there"],
    }
    other = Page("Another", files.get_file_from_path("posts/b.md"), config)
    assert numbering.moved(other) == {}


@pytest.mark.parametrize(
    ("address", "source", "edit", "report"),
    [
        (
            "https://github.com/a/b.git",
            "https://github.com/a/b/blob/main/docs/x.md",
            "https://github.com/a/b/edit/main/docs/x.md",
            "https://github.com/a/b/issues/new?title=Mistake+on+the+page%3A+T",
        ),
        ("https://code.example.org/b", "https://code.example.org/b", "", ""),
    ],
)
def test_a_page_leads_to_its_source(address, source, edit, report):
    assert repository.links(address, "docs/x.md", "T") == repository.Links(source, edit, report)


def test_the_branch_that_links_name_is_the_one_that_is_published():
    workflow = (ROOT / ".github/workflows/site.yml").read_text("utf-8")
    assert f"branches: [{repository.BRANCH}]" in workflow
    assert "run: make site\n" in workflow
    assert "SITE_URL: " in workflow
    assert "REPO_URL: " in workflow


def test_all_kernels_are_in_one_archive_that_is_the_same_each_time():
    made = published.archive(ROOT)
    assert made == published.archive(ROOT)
    names = zipfile.ZipFile(BytesIO(made)).namelist()
    rooms = {p.parent.name for p in ROOT.glob("snippets/[!_]*/kernel.py")}
    assert {Path(n).parent.name for n in names if n.endswith("kernel.py")} == {*some(rooms)}
    assert "attention_kernels/LICENSE" in names


PAGE = (
    '<head></head><body><main class="md-main"><a class="x" href="../b/#c">b</a>'
    '<a href="../..">top</a><a href="https://example.org/">away</a>'
    '<a href="kernel.py">file</a><a href="?q=1">view</a></main>'
    '<script src="../../assets/javascripts/bundle.1.min.js"></script>'
    '<script src="../../assets/1/site/index.js" type="module"></script></body>'
)


def test_a_page_that_is_read_from_a_file_links_to_files():
    files = {name: Path() for name in ("index.html", "posts/a/index.html", "posts/b/index.html")}
    made = offline.page_from_file(PAGE, "posts/a/index.html", files)
    assert re.findall(r'href="([^"]*)"', made) == [
        "../b/index.html#c",
        "../../index.html",
        "https://example.org/",
        "kernel.py",
        "?q=1",
    ]
    assert 'type="module"' not in made, "a browser refuses a module of a file"
    start = made.index(
        f'<script src="../../{offline.START}" data-module="../../assets/1/site/index.js">'
    )
    assert start < made.index("bundle.1.min.js"), "it runs before the theme's script"
    assert offline.COMMAND in made
    with pytest.raises(offline.OfflineError, match=r"posts/a/index\.html"):
        offline.page_from_file("<p>no script</p>", "posts/a/index.html", files)
