"""The notebooks: run into a cache, and shown as pages like any other.

mkdocs-jupyter turns a notebook into a page, but cannot do these:

- run it when, and only when, code that it may use has changed: `make notebooks` does that, outside
  docs/, and the page shows the executed copy if it belongs to the code as it is now;
- leave out half a megabyte of style and scripts, some of them from elsewhere: the page is put
  together again from its text, code and outputs, in the elements that other pages have;
- hold a notebook back together with its post, and offer it for download with the address in it
  from which its first cell installs.
"""

import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from bs4 import BeautifulSoup
from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from snippets._lab.results import store
from snippets._lab.rooms import ROOT, UnknownName

NOTEBOOKS = ROOT / "docs" / "notebooks"
CACHE = ROOT / ".cache" / "notebooks"
RECORD = "attention_measured"  # in an executed copy's metadata: what it was made from
PACKAGES = ("torch", "triton", "numpy")  # whose versions an output may depend on
# Modules of rooms that no notebook uses.
UNUSED = {"bench.py", "figures.py", "drawings.py"}
CELL_SECONDS = 120
REPOSITORY = 'REPOSITORY = ""'  # a line of the first cell
OURS = ("TRITON_INTERPRET", "ATTENTION_MEASURED_SOURCE", "PYTHONPATH")

# The folder of this process with what mkdocs-jupyter reads; it goes when the process does.
_made: list[tempfile.TemporaryDirectory[str]] = []


class NotebookError(Exception):
    """A notebook that cannot be run or shown; the message names it and what is wrong."""


# Running.


def posts(folder: Path = NOTEBOOKS) -> list[str]:
    """The posts that have a notebook. Raises UnknownName if there is none at all."""
    found = sorted(path.stem for path in folder.glob("*.ipynb"))
    if not found:
        raise UnknownName(f"there is no notebook in {folder}")
    return found


def source_of(path: Path, root: Path = ROOT) -> str:
    """A hash of a notebook and of the code of rooms and of the lab."""
    files = [f for f in sorted((root / "snippets").rglob("*.py")) if f.name not in UNUSED]
    digest = hashlib.sha256(path.read_bytes())
    for file in (f for f in files if "_site" not in f.parts):
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are there; a site can be built without them."""
    installed = {d.metadata["Name"].lower(): d.version for d in importlib.metadata.distributions()}
    known = {name: installed[name] for name in PACKAGES if name in installed}
    return {"python": platform.python_version(), **known}


def executed(path: Path, cache: Path = CACHE, root: Path = ROOT) -> Any | None:
    """The cached copy of a notebook with its outputs; None if there is none that is up to date."""
    if not (cache / path.name).exists():
        return None
    notebook = nbformat.read(cache / path.name, as_version=4)
    record = notebook.metadata.get(RECORD, {})
    now = versions()
    if "torch" not in now:  # nothing here could have run it, so only its source can be compared
        now = record.get("versions", {})
    return notebook if record == {"source": source_of(path, root), "versions": now} else None


def run(notebook: Any, folder: Path, environment: Mapping[str, str]) -> None:
    """Run a notebook's cells in `folder`; its outputs are added to it.

    Raises NotebookError for a cell that raises (nbclient's default, unlike mkdocs-jupyter's) or
    takes longer than two minutes.
    """
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,  # what a cell prints is one output
    )
    try:
        client.execute(env=dict(environment), cleanup_kc=True)
    except (CellExecutionError, TimeoutError) as error:
        raise NotebookError(str(error)) from error


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """An environment without a GPU and without what this process has set for itself.

    The interpreter is not switched on here: a notebook does that.
    """
    kept = {name: value for name, value in os.environ.items() if name not in OURS}
    own = {"CUDA_VISIBLE_DEVICES": "", "IPYTHONDIR": str(folder)}
    return {**kept, **own, "PYDEVD_DISABLE_FILE_VALIDATION": "1", **settings}


def renew(path: Path, cache: Path = CACHE, root: Path = ROOT) -> bool:
    """Run a notebook, unless its copy is up to date: then False. Raises NotebookError."""
    if executed(path, cache, root) is not None:
        return False
    notebook = nbformat.read(path, as_version=4)
    record = {"source": source_of(path, root), "versions": versions()}
    with tempfile.TemporaryDirectory() as folder:
        run(notebook, Path(folder), environment(Path(folder), PYTHONPATH=str(root)))
    notebook.metadata[RECORD] = record
    cache.mkdir(parents=True, exist_ok=True)
    store.write_whole(cache / path.name, nbformat.writes(notebook))
    return True


def run_all() -> int:
    """Run every notebook that is not up to date; the exit code is 1 if one fails."""
    wrong = 0
    for post in posts():
        began = time.perf_counter()
        try:
            ran = renew(NOTEBOOKS / f"{post}.ipynb")
        except NotebookError as error:
            print(f"{post}: {error}", file=sys.stderr)
            wrong += 1
            continue
        print(f"{post}: {f'run, {time.perf_counter() - began:.1f} s' if ran else 'up to date'}")
    return 1 if wrong else 0


# Showing.


def give(files: Files, config: MkDocsConfig) -> None:
    """Give mkdocs-jupyter the executed copies."""
    _made[:] = _made or [tempfile.TemporaryDirectory(prefix="notebooks-")]
    folder = Path(_made[0].name)
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for post in posts():
        file = files.get_file_from_path(f"notebooks/{post}.ipynb")
        if file is None:
            continue
        files.remove(file)
        path = NOTEBOOKS / f"{post}.ipynb"
        notebook = executed(path) or nbformat.read(path, as_version=4)
        copy = nbformat.writes(addressed(notebook, config.repo_url))
        (folder / file.src_uri).write_text(copy, "utf-8")
        # No File.generated: mkdocs-jupyter asks a file for the folder that it is in.
        here, there = str(folder), config.site_dir
        files.append(File(file.src_uri, here, there, config.use_directory_urls))


def is_notebook(page: Page) -> bool:
    """Whether a page is made from a notebook."""
    return bool(page.file.src_uri.endswith(".ipynb"))


def source(page: Page) -> str:
    """A page's text with what it says about itself: search finds the post, not its notebook too."""
    notebook = nbformat.read(page.file.abs_src_path, as_version=4)
    text = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    title = text.partition("\n")[0].removeprefix("# ")
    about = f"{title}. Its code in cells to run and to change, with a GPU or without."
    head = f"title: {json.dumps(title)}\ndescription: {json.dumps(about)}"
    return f"---\n{head}\nsearch:\n  exclude: true\n---\n\n{text}\n"


def as_page(content: str, page: Page, files: Files, repository: str | None) -> str:
    """A page put together from what its cells hold, and what stands above them.

    What is downloaded installs the code from the address of the `repository`. Without one its first
    cell could only fail, so there is none to download. Raises NotebookError.
    """
    post = page.file.name
    about = files.get_file_from_path(f"posts/{post}.md")
    if about is None:
        raise NotebookError("there is no post of this name")
    download = f'<a href="../{post}.ipynb" download>Download</a> ' if repository else ""
    run = (
        "Downloaded, it installs the code of the series first."
        if repository
        else "To run it, open it from a checkout, in Jupyter or an editor that runs notebooks."
    )
    notebook = nbformat.read(page.file.abs_src_path, as_version=4)
    head, end, rest = rebuilt(content).partition("</h1>")
    return (
        f'{head}{end}\n<div class="am-file"><p><code>docs/notebooks/{post}.ipynb</code> {download}'
        f'<a href="{about.url_relative_to(page.file)}">The post</a></p></div>\n'
        f'<p class="am-run">{run}</p>\n<p class="am-run">{said(notebook)}</p>{rest}'
    )


def card_path(page: Page) -> str:
    """A notebook has the picture of its post."""
    return f"assets/social/posts-{page.file.name}.png"


def publish(config: MkDocsConfig) -> None:
    """Publish each notebook for download, as it is stored but for the address, if one is known."""
    for post in posts() if config.repo_url else ():
        stored = nbformat.read(NOTEBOOKS / f"{post}.ipynb", as_version=4)
        copy = Path(config.site_dir, "notebooks", f"{post}.ipynb")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(nbformat.writes(addressed(stored, config.repo_url)) + "\n", "utf-8")


def addressed(notebook: Any, repository: str | None) -> Any:
    """The notebook with the repository's address in its first cell. Raises NotebookError."""
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    if first.source.count(REPOSITORY) != 1:
        raise NotebookError(f"the first cell has no line {REPOSITORY}")
    if repository:
        line = REPOSITORY.replace('""', json.dumps(f"git+{repository}"))
        first.source = first.source.replace(REPOSITORY, line)
    return notebook


def said(notebook: Any) -> str:
    """A sentence on where the outputs come from."""
    record = notebook.metadata.get(RECORD)
    if record is None:
        return (
            "The cells have not been run here, so no output is shown. <code>make notebooks</code> "
            "runs them, without a GPU too; this page then shows what they print."
        )
    names = {"python": "Python", "torch": "torch", "triton": "Triton"}
    known = [f"{names[n]} {v}" for n, v in record["versions"].items() if n in names]
    return escape(f"The outputs come from a CPU: {', '.join(known)}.")


def rebuilt(content: str) -> str:
    """A page of mkdocs-jupyter in the elements of this site: text, code and printed output.

    Raises NotebookError for outputs that are not text.
    """
    soup = BeautifulSoup(content, "html.parser")
    for head in soup.select("h1, h2, h3"):  # its table of contents has other names than it
        for link in head.select("a.anchor-link"):
            link.decompose()
        head["id"] = slugify(head.get_text(), "-")
        link = soup.new_tag(
            "a", string="#", attrs={"class": "headerlink", "href": f"#{head['id']}"}
        )
        link["aria-label"] = "Link to this section"
        head.append(link)
    parts = []
    kinds = ".jp-MarkdownOutput, .jp-InputArea .highlight-ipynb pre, .jp-OutputArea-output"
    for part in soup.select(kinds):
        if part.name == "pre":
            code = f"<pre><code>{part.decode_contents().strip()}\n</code></pre>"
            parts.append(f'<div class="language-python highlight">{code}</div>')
        elif "jp-MarkdownOutput" in part.get_attribute_list("class"):
            parts.append(part.decode_contents().strip())
        elif len(part.select("pre")) != 1 or part.select("img, svg, table, script, iframe"):
            raise NotebookError("a cell has an output that is not text")
        else:
            text = escape(part.get_text().strip("\n"), quote=False)
            parts.append(f'<pre class="am-output" tabindex="0">{text}</pre>')
    return "\n".join(parts)
