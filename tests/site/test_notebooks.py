"""The notebooks run as a reader runs them, and their pages hold what they hold and nothing more."""

import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from mkdocs.structure.files import File, Files
from mkdocs_jupyter import convert
from mkdocs_jupyter.plugin import get_nb_toc
from nbformat import v4

from snippets._lab.rooms import ROOT
from snippets._site import notebooks
from tests.floors import some

POSTS = notebooks.posts()
FIRST = 2  # cells of code that all notebooks begin with


def stored(post):
    return nbformat.read(notebooks.NOTEBOOKS / f"{post}.ipynb", as_version=4)


def cells(notebook, kind="code"):
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


# What they hold.


def composed(room):
    """A room, and those that it composes, and theirs."""
    uses = getattr(importlib.import_module(f"snippets.{room}"), "USES", ())
    return {room}.union(*map(composed, uses))


@pytest.mark.parametrize("post", POSTS)
def test_a_notebook_is_thin_and_imports_its_room(post):
    notebook = stored(post)
    used = set(
        re.findall(r"^ *from snippets\.([a-z]\w*)", "\n".join(cells(notebook)), re.MULTILINE)
    )
    assert post in used <= composed(post), "it uses its own room only"
    assert len(cells(notebook)) <= 8
    assert all(len(source.splitlines()) <= 24 for source in some(cells(notebook)))
    text = (ROOT / f"docs/posts/{post}.md").read_text("utf-8")
    assert re.search(rf"\[[Tt]he notebook\]\(\.\./notebooks/{post}\.ipynb\)", text)


def test_all_begin_with_the_same_cells():
    assert len({tuple(cells(stored(post))[:FIRST]) for post in POSTS}) == 1
    nbformat.validate(stored(POSTS[0]))


def test_in_a_checkout_the_first_cell_needs_no_address(tmp_path):
    """As Jupyter runs it: in the notebook's folder, with nothing of ours on the path."""
    here = tmp_path / "docs" / "notebooks"
    here.mkdir(parents=True)
    (tmp_path / "snippets" / "_lab").mkdir(parents=True)
    (tmp_path / "snippets" / "__init__.py").write_text("HERE = True\n")
    program = f"{cells(stored(POSTS[0]))[0]}\nimport snippets\nassert snippets.HERE\n"
    found = notebooks.environment(tmp_path)
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=here, env=found, check=True)
    elsewhere = subprocess.run(
        command, cwd=tmp_path.parent, env=found, capture_output=True, text=True
    )
    assert "RuntimeError: Open this notebook in a checkout" in elsewhere.stderr


# From an empty folder, with what the first cell installs.


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "snippets", source / "snippets", ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", ".", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*command, "--no-build-isolation", "--wheel-dir", "wheels"], cwd=source, check=True
    )
    (built,) = (source / "wheels").iterdir()
    return built


def test_a_notebook_runs_from_an_empty_folder(wheel, tmp_path):
    post = "attention_weights"
    empty, private, target = (tmp_path / name for name in ("empty", "private", "target"))
    empty.mkdir()
    target.mkdir()
    settings = {
        "ATTENTION_MEASURED_SOURCE": str(wheel),
        "PYTHONPATH": str(target),
        "PIP_TARGET": str(target),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    notebook = stored(post)
    notebooks.run(notebook, empty, notebooks.environment(private, **settings))
    with zipfile.ZipFile(wheel) as packed:
        tops = {name.split("/")[0] for name in packed.namelist() if ".dist-info" not in name}
    assert tops == {"attention_measured"}, "nobody's own snippets are shadowed"
    assert (target / "attention_measured" / "snippets" / post).is_dir()
    assert list(empty.iterdir()) == []
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert {(output.output_type, output.name) for output in outputs} == {("stream", "stdout")}
    quiet = [cell for cell in notebook.cells if cell.cell_type == "code" and not cell.outputs]
    assert [cell.id for cell in quiet] == ["install"], "every other cell shows something"


def test_a_cell_that_raises_is_an_error_and_nothing_is_kept(tmp_path):
    broken = v4.new_notebook(cells=[v4.new_code_cell("print(1)"), v4.new_code_cell("1 / 0")])
    path = tmp_path / "broken.ipynb"
    nbformat.write(broken, path)
    with pytest.raises(notebooks.NotebookError, match="ZeroDivisionError"):
        notebooks.renew(path, tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_notebook_is_run_once_until_something_that_it_may_use_changes(tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(notebooks, "run", lambda *arguments: runs.append(arguments))
    room = tmp_path / "snippets" / "room"
    room.mkdir(parents=True)
    (room / "kernel.py").write_text("x = 1")
    path, cache = tmp_path / "room.ipynb", tmp_path / "cache"
    nbformat.write(v4.new_notebook(cells=[v4.new_code_cell("import snippets.room.kernel")]), path)

    def renewed():
        return [notebooks.renew(path, cache, tmp_path) for _ in range(2)]

    assert renewed() == [True, False]
    (room / "figures.py").write_text("unused = 1")
    assert renewed() == [False, False]
    (room / "kernel.py").write_text("x = 2")
    assert renewed() == [True, False]
    path.write_text(path.read_text().replace("kernel", "kernel as k"))
    assert renewed() == [True, False]
    monkeypatch.setattr(notebooks, "versions", lambda: {"python": "3", "torch": "0"})
    assert renewed() == [True, False]
    monkeypatch.setattr(notebooks, "versions", lambda: {"python": "4"})  # builds sites only
    assert renewed() == [False, False]
    assert len(runs) == 4


# As pages.


def with_outputs(*outputs):
    notebook = stored("basic_attention")
    next(cell for cell in notebook.cells if cell.id == "launch").outputs = list(outputs)
    return notebook


def page(notebook, folder):
    path = folder / "page.ipynb"
    nbformat.write(notebook, path)
    return convert.nb2html(str(path))


def test_a_page_holds_the_cells_and_nothing_else(tmp_path):
    notebook = with_outputs(v4.new_output("stream", text="10 programs <wrote>\n"))
    content = page(notebook, tmp_path)
    assert len(content) > 200_000, "mkdocs-jupyter has become lighter: look what is still needed"
    shown = notebooks.rebuilt(content)
    assert len(shown) < 30_000
    for mark in ("<style", "<script", "style=", "onclick", "jp-", "clipboard", "src=", "http:"):
        assert mark not in shown, mark
    assert shown.count("<pre><code>") == len(cells(notebook))
    assert shown.count("<h2 id=") == sum(s.startswith("## ") for s in cells(notebook, "markdown"))
    assert shown.count("<h1") == 1
    output = (
        '</code></pre></div>\n<pre class="am-output" tabindex="0">10 programs &lt;wrote&gt;</pre>'
    )
    assert shown.count(output) == 1
    tokens, _ = get_nb_toc(str(tmp_path / "page.ipynb"), 6)
    named = [tokens.items[0].id, *(head.id for head in tokens.items[0].children)]
    assert re.findall(r'<h\d id="([^"]*)"', shown) == named, "as the table of contents names them"


def test_an_output_that_is_no_text_is_refused(tmp_path):
    picture = v4.new_output("display_data", data={"text/html": "<script src=x></script><b>1</b>"})
    with pytest.raises(notebooks.NotebookError, match="not text"):
        notebooks.rebuilt(page(with_outputs(picture), tmp_path))


@pytest.fixture
def config(tmp_path):
    return SimpleNamespace(
        site_dir=str(tmp_path), use_directory_urls=True, repo_url="https://example.org/a/b"
    )


def test_notebooks_install_from_the_address(config, tmp_path):
    docs = str(notebooks.NOTEBOOKS.parent)
    names = [f"notebooks/{post}.ipynb" for post in POSTS]
    files = Files([File(name, docs, config.site_dir, True) for name in names])
    notebooks.give(files, config)
    notebooks.publish(config)
    assert sorted(file.src_uri for file in files) == names
    assert sorted(f"notebooks/{p.name}" for p in (tmp_path / "notebooks").iterdir()) == names
    for path in [*(Path(f.abs_src_path) for f in files), *(tmp_path / "notebooks").iterdir()]:
        assert "git+https://example.org/a/b" in path.read_text("utf-8")
