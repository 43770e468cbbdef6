"""What the playground says of typical mistakes: each is written into its kernel, and run.

A room lists them in `PLAYGROUND` of its `mutants.py`, ten for each kernel: names of mutants, and
slips that no test judges. In a headless Chromium the playground's own scripts try each on all of
its kernel's problems, without a page around them. `python -m snippets._site mistakes` stores the
answers under docs/data; `snippets/_site/mistakes_table.py` makes of them what docs/playground.md
shows.
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from snippets._lab.judge.mutants import Mutant, MutantError, Slip, mutate
from snippets._lab.results import origin, staleness, store
from snippets._lab.rooms import DATA, ROOT, load, room_file, rooms
from snippets._site import playground
from snippets._site.browser import Server, chromium
from snippets._site.scripts import SOURCE, bundle, needed

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


def declared() -> Iterator[tuple[str, Mutant | Slip]]:
    """(kernel, mistake) of all rooms; a kernel as in basic_attention/kernel.py:_a_kernel.

    Raises MutantError if a mutant is named that the room has not.
    """
    for room in rooms():
        module = load(room, "mutants") if room_file(room, "mutants.py").exists() else None
        known = {mutant.name: mutant for mutant in getattr(module, "MUTANTS", ())}
        for kernel, mistakes in getattr(module, "PLAYGROUND", {}).items():
            for mistake in mistakes:
                if isinstance(mistake, str) and mistake not in known:
                    raise MutantError(f"{room}/mutants.py has no mutant {mistake!r}")
                yield f"{room}/{kernel}", known.get(mistake, mistake)


def opened(kernel: str) -> dict[str, Any]:
    """A kernel as the editor opens it. Raises MutantError if the page can run none of this name."""
    room, _, path = kernel.partition("/")
    found: dict[str, Any] = playground.opened(ROOT / "snippets" / room).get("kernels", {})
    if not found.get(path, {}).get("problems"):
        raise MutantError(f"{room}/mutants.py: the page runs no kernel {path}")
    return {**found[path], "name": path.partition(":")[2]}


def answers(page: Any) -> Iterator[dict[str, Any]]:
    """What the playground says of each mistake; `page` has nothing on it but the scripts."""
    for name, mistake in declared():
        kernel = opened(name)
        room = name.partition("/")[0]
        path = store.path_of("interpreter", room, kernel["problems"])
        given = {
            "kernel": {name: kernel[name] for name in ("name", "text", "rest")},
            "file": json.loads(path.read_text("utf-8")),
            "source": mutate(kernel["text"], mistake),
        }
        said = page.evaluate(TRY, given)
        said["faults"] = said["faults"][:MOST_FAULTS]
        edit = {"old": mistake.old, "new": mistake.new}
        yield {"kernel": name, "mistake": mistake.name, **edit, **said}


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
            for row in answers(page):
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
