"""Live reload draws again what has changed, and the site is what a whole build would make."""

import socket

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.structure.pages import Page

from snippets._site import packing, reload, serve
from tests.browser.browser import scratch_source

ADDRESS = "http://127.0.0.1:1/"
HEAD = "---\ntitle: {}\ndescription: A page to try things on.\ntags: [{}]\n---\n\n# {}\n\n"


def written(title, tag, text):
    return HEAD.format(title, tag, title) + text


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The source of a small site with this site's configuration, and its first build."""
    folder = tmp_path_factory.mktemp("house")
    pages = {
        "index.md": written(
            "Start", "alpha", 'Hello, [two](two.md#two).\n\n--8<-- "docs/part.txt"\n'
        ),
        "two.md": written("Two", "beta", "Some text.\n\n```python\nx = 1\n```\n\n$x^2$\n"),
        "three.md": written("Three", "beta", "Other text.\n"),
        "topics.md": "---\ntitle: Topics\n---\n\n# Topics\n\n<!-- material/tags -->\n",
        "part.txt": "An *included* sentence.\n",
    }
    return scratch_source(folder, pages)


class Site:
    """Builds the house as a server or a whole build does; remembers which pages were drawn."""

    def __init__(self, house, folder, monkeypatch):
        self.house, self.folder, self.drawn = house, folder, []
        render = Page.render

        def noted(page, config, files):
            self.drawn.append(page.file.src_uri)
            return render(page, config, files)

        monkeypatch.setattr(Page, "render", noted)
        monkeypatch.chdir(house)  # where mkdocstrings looks for sources

    def build(self, command=""):
        """The files of a build by name; a `command` begins anew."""
        self.drawn.clear()
        config = load_config("mkdocs.yml", site_dir=str(self.folder), site_url=ADDRESS)
        if command:
            config.plugins.on_startup(command=command, dirty=False)
        build(config, serve_url=ADDRESS)
        found = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in found}

    def change(self, name, old, new):
        path = self.house / "docs" / name
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")


@pytest.fixture
def site(house, tmp_path, monkeypatch):
    yield Site(house, tmp_path / "site", monkeypatch)
    reload.begin("build")


@pytest.fixture
def unpacked(monkeypatch):
    """Builds that leave the pages as they were drawn: packing takes most of a small site's time."""
    monkeypatch.setattr(packing, "pack", lambda *_, **__: None)


def text_of(files):
    """What pages say, without the policy, which is another one where pages are served."""
    return {name: body for name, body in files.items() if not name.endswith((".gz", "sitemap.xml"))}


def test_only_what_has_changed_is_drawn_again(site):
    first = site.build("serve")
    assert sorted(site.drawn) == ["index.md", "three.md", "topics.md", "two.md"]
    again = site.build()
    assert site.drawn == ["topics.md"], "it lists what other pages say of themselves"
    assert text_of(again) == text_of(first)

    site.change("two.md", "Some text", "A new sentence")
    site.change("part.txt", "included", "other")
    after = site.build()
    assert sorted(site.drawn) == ["index.md", "topics.md", "two.md"]
    assert b"A new sentence" in after["two/index.html"]
    assert b"A new sentence" in after["search/search_index.json"]
    assert b"<em>other</em>" in after["index.html"]

    site.change("three.md", "title: Three", "title: Renamed")
    site.change("three.md", "[beta]", "[gamma]")
    after = site.build()
    assert sorted(site.drawn) == ["three.md", "topics.md"]
    assert b"Renamed" in after["two/index.html"], "navigation is put together anew"
    assert b"gamma" in after["topics/index.html"]

    whole = site.build("serve")
    assert len(site.drawn) == 4
    assert text_of(whole) == text_of(after), "the same as from nothing"


def test_a_warning_is_heard_each_time(site, unpacked, caplog):
    site.build("serve")
    site.change("three.md", "Other text.", "[Gone](gone.md).")
    for _ in range(2):
        caplog.clear()
        site.build()
        assert "three.md" in site.drawn
        assert "gone.md" in caplog.text
    site.change("three.md", "[Gone](gone.md).", "Other text.")
    site.build()
    assert site.drawn == ["topics.md"], "what it was before is remembered"


def test_a_build_on_its_own_remembers_nothing(site, unpacked):
    for command in ("build", ""):
        site.build(command)
        assert len(site.drawn) == 4


def test_a_served_page_may_run_the_script_that_reloads_it():
    page = "<script>a</script>"
    published = packing.policy_for([page])
    assert "sha256-" in published
    assert "'unsafe-inline'" not in published.partition("style-src")[0]
    served = packing.policy_for([page], served=True)
    assert "script-src 'self' 'unsafe-inline';" in served
    assert "sha256-" not in served


# The address, before anything is built.


@pytest.fixture
def taken():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_taken_port_is_one_sentence_with_an_address_that_is_free(taken, monkeypatch):
    monkeypatch.setattr(serve, "cli", lambda arguments: pytest.fail("it would build"))
    with pytest.raises(SystemExit) as ended:
        serve.main([f"127.0.0.1:{taken}"])
    said = str(ended.value)
    assert said.startswith(f"127.0.0.1:{taken} cannot be served (address already in use); ")
    assert "\n" not in said
    advised = said.rpartition("ADDRESS=")[2]
    assert serve.sentence(advised) == ""


@pytest.mark.parametrize(
    "address", ["8001", "localhost:", ":8000", "localhost:http", "h:99999", ""]
)
def test_what_is_no_address_is_said(address):
    assert "it looks like this: make serve ADDRESS=127.0.0.1:8001" in serve.sentence(address)


def test_a_host_that_is_not_here_is_said():
    said = serve.sentence("192.0.2.1:8000")
    assert said.startswith("192.0.2.1:8000 cannot be served (")
    assert "\n" not in said


def test_a_free_address_is_served(monkeypatch, taken):
    started = []
    monkeypatch.setattr(serve, "cli", started.append)
    free = serve.sentence(f"127.0.0.1:{taken}").rpartition("ADDRESS=")[2]
    serve.main([free])
    assert started == [["serve", "--dev-addr", free]]
