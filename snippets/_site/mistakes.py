"""What the playground says of typical mistakes: each is written into its kernel, and run.

A room declares them in `mistakes.toml`, ten for each kernel: what a mistake is, the page's code and
what stands there instead. In a headless Chromium the playground's own scripts try each on all of
its kernel's problems, without a page around them. `make mistakes` stores the answers under
docs/data; `snippets/_site/mistakes_table.py` makes of them what docs/playground.md shows.
"""

import json
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from snippets._lab.results import origin, staleness, store
from snippets._lab.rooms import DATA, ROOT
from snippets._site import playground
from snippets._site.browser import Server, chromium
from snippets._site.scripts import SOURCE, bundle, needed

FILE = "mistakes.toml"
SCRIPTS = ("engine_room.js", "trial.js", "engine/recorded.js", "engine/worker.js")
MOST_FAULTS = 2  # that a row keeps: one more read out of bounds says nothing new

TRY = """async ({ kernel, file, source }) => {
  const load = (name) => import(new URL(name, location.href).href);
  const [{ engineRoom }, { tried, alikeTo }, { problemsOf }] = await Promise.all(
    ["engine_room.js", "trial.js", "engine/recorded.js"].map(load));
  window.room ??= engineRoom();
  const problems = problemsOf(file).filter((problem) => problem.kernels.includes(kernel.name));
  const recorded = { file, problems };
  const { says, results, mistake, error } = await tried(room, source, { kernel, recorded });
  const wrong = results.find((result) => !result.right);
  return {
    says,
    right: results.filter((result) => result.right).length,
    of: problems.length,
    refused: Boolean(error) || ["syntax", "compile"].includes(results[0].error?.kind),
    faults: (wrong?.faults ?? []).map((fault) => fault.message),
    named: mistake?.name ?? null,
    sentence: mistake?.sentence ?? null,
    line: mistake?.line ?? null,
    alike: mistake ? alikeTo(mistake) : [],
  };
}"""


@dataclass(frozen=True)
class Mistake:
    """A typical mistake with a kernel of the site."""

    kernel: str  # basic_attention/kernel.py:_basic_attention_kernel
    what: str
    old: str
    new: str


class Mistyped(store.DataError):
    """A mistake is declared that cannot be made."""


def declared() -> list[Mistake]:
    """The mistakes of all rooms, in the order of their files."""
    return [
        Mistake(f"{path.parent.name}/{kernel}", what, *pair)
        for path in sorted((ROOT / "snippets").glob(f"*/{FILE}"))
        for kernel, entries in tomllib.loads(path.read_text("utf-8")).items()
        for what, pair in entries.items()
    ]


def opened(kernel: str) -> dict[str, Any]:
    """A kernel as the editor opens it. Raises Mistyped if there is none that the page can run."""
    room, _, path = kernel.partition("/")
    found: dict[str, Any] = playground.opened(ROOT / "snippets" / room).get("kernels", {})
    if not found.get(path, {}).get("problems"):
        raise Mistyped(f"{room}/{FILE}: the page runs no kernel {path}")
    return {**found[path], "name": path.partition(":")[2]}


def with_mistake(text: str, mistake: Mistake) -> str:
    """A kernel's text with the mistake in it. Raises Mistyped unless it fits exactly once."""
    if text.count(mistake.old) != 1:
        there = text.count(mistake.old)
        raise Mistyped(f"{mistake.kernel}: {mistake.old!r} is there {there} times, not once")
    return text.replace(mistake.old, mistake.new)


def answers(page: Any, mistakes: list[Mistake]) -> Iterator[dict[str, Any]]:
    """What the playground says of each; `page` has nothing on it but the scripts."""
    for mistake in mistakes:
        kernel = opened(mistake.kernel)
        room = mistake.kernel.partition("/")[0]
        path = store.path_of("interpreter", room, kernel["problems"])
        given = {
            "kernel": {name: kernel[name] for name in ("name", "text", "rest")},
            "file": json.loads(path.read_text("utf-8")),
            "source": with_mistake(kernel["text"], mistake),
        }
        said = page.evaluate(TRY, given)
        said["faults"] = said["faults"][:MOST_FAULTS]
        edit = {"old": mistake.old, "new": mistake.new}
        yield {"kernel": mistake.kernel, "mistake": mistake.what, **edit, **said}


def laid_out(folder: Path) -> None:
    """Put the playground's scripts, as they are shipped, into a folder with an empty page."""
    source = ROOT / "docs" / SOURCE / "playground"
    for name in SCRIPTS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(bundle(needed((source / name).resolve())), "utf-8")
    (folder / "index.html").write_text("<!doctype html><title>Mistakes</title>", "utf-8")


def mistakes(advance: Callable[[str], None] = lambda _kernel: None) -> store.Result:
    """Try every mistake: a row for each, with what the page says of it."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        laid_out(Path(folder))
        with Server(Path(folder)) as server:
            page = browser.new_page()
            page.goto(server.address)
            for row in answers(page, declared()):
                if not rows or rows[-1]["kernel"] != row["kernel"]:
                    advance(row["kernel"])
                rows.append(row)
        version = browser.version
    code = staleness.code_of("playground", "mistakes", "browser")
    return store.Result(
        post="playground",
        result="mistakes",
        place="browser",
        folder="browser",
        device={"name": f"Chromium {version}"},
        versions=dict.fromkeys(store.VERSIONS, "absent"),
        commit=origin.commit(),
        measured_at=origin.now(),
        seed=0,
        source_hash=staleness.source_hash(code),
        code=code,
        rows=rows,
    )


def stored() -> store.Result:
    """What the playground said when it was asked last."""
    return store.read(store.path_of("browser", "playground", "mistakes", DATA))
