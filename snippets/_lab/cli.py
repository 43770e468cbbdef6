"""The command line of the lab: measure, draw, check. `make` calls it; so may you."""

import argparse
import importlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from snippets._lab.judge.patch import MutantError
from snippets._lab.judge.refusal import CannotDiagnose
from snippets._lab.results import store
from snippets._lab.results.runs import RUNS
from snippets._lab.rooms import DATA, FIGURES, ROOT, UnknownName, places_of, room_file, rooms

console = Console(highlight=False, markup=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code is 0 when all went well, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    options.given = sys.argv[1:] if arguments is None else arguments
    try:
        return globals()[f"_{options.command.replace('-', '_')}"](options)
    except KeyboardInterrupt:
        console.print("\nstopped; every result stored so far is whole, the others are as they were")
        return 130
    except (UnknownName, CannotDiagnose, MutantError, store.DataError, OSError) as error:
        console.print(f"error: {error}", style="red")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m snippets._lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, text: str, more: str = "") -> argparse.ArgumentParser:
        about = f"{text}. {more}"
        made = commands.add_parser(name, help=text, description=about, allow_abbrev=False)
        made.add_argument("--data", type=Path, default=DATA, help="folder of the raw results")
        return made

    for name, text in (
        ("bench", "measure on this GPU (without one: bench-cpu) and store the raw results"),
        ("bench-cpu", "measure what needs no GPU: traffic, registers, mutants"),
    ):
        bench = command(name, text)
        bench.add_argument("--post", help=f"one of: {', '.join(rooms())}")
        results = "functions of the post's bench.py, or post/function without --post"
        bench.add_argument("--result", nargs="+", default=[None], help=results)
        bench.add_argument("--force", action="store_true", help="measure what is up to date too")
        bench.add_argument("--runs", type=int, default=RUNS, help=f"of a GPU's times, {RUNS}")
        bench.add_argument("--one-run", action="store_true", help="of those, only the next")
        commit = "what to record where there is no git"
        bench.add_argument("--commit", default="", type=_commit, help=commit)
    figures = command("figures", "draw docs/figures from docs/data")
    figures.add_argument("--check", action="store_true", help="write nothing; fail on a difference")
    figures.add_argument("--out", type=Path, default=FIGURES, help="folder of the figures")
    new = command("new", "begin a post that is tested, measured and drawn")
    new.add_argument("name", help="lower-case words joined by underscores")
    new.add_argument("--like", default="basic_attention", help="the room whose kernel it has")
    command("stale", "list results whose code has changed since")
    mutants = command("mutants", "run a post's tests against its wrong kernels")
    sanitize = command("sanitize", "run a post's kernels under compute-sanitizer")
    for judged in (mutants, sanitize):
        judged.add_argument("post", nargs="*", help="default: all")
    executed = "The whole file is executed: do not run it on a stranger's."
    diagnose = command("diagnose", "name the mistake in your own kernel's file", executed)
    diagnose.add_argument("file", type=Path, help="a Python file with a function of q, k and v")
    diagnose.add_argument("--launcher", default="", help="the function, where there are several")
    diagnose.add_argument("--seconds", type=float, default=120.0, help="time limit")
    return parser


def _commit(text: str) -> str:
    """A commit that is typed is whole: a shortened one with a slip names nothing."""
    if text and not re.fullmatch("[0-9a-f]{40}", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole commit; it has 40 digits, as `git rev-parse HEAD` prints them"
        )
    return text


def _bench(options: argparse.Namespace) -> int:
    import torch

    if not torch.cuda.is_available():
        console.print(
            "There is no GPU that torch can use: timings stay as they are, and what needs no GPU "
            "is measured, as make bench-cpu does."
        )
        return _bench_cpu(options)
    if options.one_run or options.runs <= 1:
        return _measure(options, ["gpu"])
    outcome, given = 0, [*options.given, "--one-run"]
    for _ in range(options.runs):  # each in a new Python, for what it imports
        outcome = max(outcome, _apart(given))
        if outcome > 1:
            break
        given = [word for word in given if word != "--force"]  # which begins again
    return outcome


def _apart(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "snippets._lab", *arguments]).returncode


def _bench_cpu(options: argparse.Namespace) -> int:
    import torch

    torch.set_num_threads(1)  # inputs are small, and sums the same on every machine
    _interpret()
    return _measure(options, ["interpreter", "compiler"])


def _selected(options: argparse.Namespace) -> list[tuple[str | None, str | None]]:
    """Which post's which result; None for all. Raises UnknownName for one that there is not."""
    found = []
    for name in options.result:
        post, result = options.post, name
        if name and not post and "/" in name:
            post, _, result = name.partition("/")
        posts = rooms() if post is None else [post]
        known = dict.fromkeys(name for p in posts for name in places_of(p))
        if result is not None and result not in known:
            raise UnknownName(
                f"no result of {', '.join(posts)} is called {result!r}; there are: "
                f"{', '.join(known)}"
            )
        found.append((post, result))
    return found


def _interpret() -> None:
    os.environ["TRITON_INTERPRET"] = "1"  # before any room is imported
    from snippets._lab.probe.interpreter import patch_once_a_launch

    patch_once_a_launch()


def _measure(options: argparse.Namespace, places: list[str]) -> int:
    from snippets._lab.measure.session import Session, jobs

    if options.runs < 1:
        raise UnknownName(f"runs is {options.runs}; at least one is needed")
    selected = _selected(options)
    todo = [job for where in places for chosen in selected for job in jobs(where, *chosen)]
    if not todo:
        console.print("nothing to measure here for this selection")
        return 1
    failed = False
    table = Table("post", "result", "device", "outcome", "seconds", title="measured")
    session = Session(options.data, options.commit, options.force, options.runs)
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as progress, session.compiler:
        bar = progress.add_task("", total=len(todo))
        for job in todo:
            name = f"{job.post}/{job.result}"

            def under_way(case: str, about: str = f"{name} {job.target}") -> None:
                progress.update(bar, description=f"{about} {case}")

            under_way("")
            session.advance = under_way
            began = time.perf_counter()
            try:
                outcome = session.run(job)
            except PermissionError:
                raise
            except Exception as error:  # noqa: BLE001 - the next result may still succeed
                failed, outcome = True, f"failed, nothing stored: {type(error).__name__}: {error}"
                console.print(f"{name}: {outcome}", style="red")
            taken = time.perf_counter() - began
            table.add_row(job.post, job.result, job.folder, outcome, f"{taken:.1f}")
            progress.advance(bar)
    console.print(table, soft_wrap=False)
    return int(failed)


def _new(options: argparse.Namespace) -> int:
    from snippets._lab.skeleton.write import new_post

    for path in new_post(options.name, options.like):
        console.print(f"wrote {path.relative_to(ROOT)}")
    importlib.invalidate_caches()
    outcome = main(["bench-cpu", "--post", options.name]) or main(["figures"])
    console.print(
        f"\nNow make serve shows posts/{options.name}/, and make test and make check are green. "
        "What only a GPU can measure says so on the page until make bench has run on one."
    )
    return outcome


def _figures(options: argparse.Namespace) -> int:
    from snippets._lab.draw import draw_all

    changed = draw_all.draw_all(options.data, options.out, write=not options.check)
    for path in changed:
        console.print(f"{'differs' if options.check else 'wrote'} {path}")
    if options.check and changed:
        console.print("the figures are not what `make figures` draws from docs/data", style="red")
        return 1
    console.print("figures are up to date" if not changed else f"{len(changed)} files written")
    return 0


def _stale(options: argparse.Namespace) -> int:
    """List what is stale by what has changed: whoever changed it sees what it costs to renew."""
    from snippets._lab.results.staleness import changed

    found = list(store.scan(options.data))
    if not found:
        console.print("there are no results: nothing was checked", style="red")
        return 1
    by_change: dict[tuple[str, ...], list[store.Result]] = {}
    for result in found:
        if now := changed(result):
            by_change.setdefault(tuple(now), []).append(result)
    for what, results in by_change.items():
        console.print(f"changed: {_by_file(what)}")
        names = [f"{r.folder}/{r.post}/{r.result}, {r.date}" for r in results]
        wide = max(map(len, names))
        for name, result in zip(names, results, strict=True):
            console.print(f"  {name:{wide}}  {_renewal(result, what)}")
    count = sum(map(len, by_change.values()))
    console.print(f"{count} stale results of {len(found)}")
    return 0


def _by_file(changes: Sequence[str], shown: int = 3) -> str:
    """Definitions, each as "file: name", in few words: a file once, and the first names in it."""
    names: dict[str, list[str]] = {}
    for change in changes:
        file, colon, name = change.partition(": ")
        names.setdefault(file + colon, []).append(name)
    return "; ".join(
        file + ", ".join(some[:shown]) + f" and {len(some) - shown} more" * (len(some) > shown)
        for file, some in names.items()
    )


def _renewal(result: store.Result, what: Sequence[str]) -> str:
    """The command that measures a result again, or removes what nothing measures any more."""
    if result.place == "browser":
        return f"make {result.result}"
    if result.post not in rooms() or f"{result.post}/bench.py: {result.result} is gone" in what:
        return f"git rm docs/data/{result.folder}/{result.post}/{result.result}.json"
    command = "bench" if result.place == "gpu" else "bench-cpu"
    return f"make {command} POST={result.post} RESULT={result.result}"


def _mutants(options: argparse.Namespace) -> int:
    if "TRITON_INTERPRET" not in os.environ:  # who sets it may want a GPU
        _interpret()
    from snippets._lab.judge import mutants

    known = [r for r in rooms() if room_file(r, "mutants.py").exists()]
    if strangers := set(options.post) - set(known):
        raise UnknownName(f"{', '.join(strangers)}: no mutants; there are some in {known}")
    if not (chosen := options.post or known):
        console.print("no post has mutants: nothing was checked", style="red")
        return 1
    for post in chosen:
        table = Table("mutant", "killed by", "message", title=post)
        for row in mutants.rows(post, lambda mutant: ({"mutant": name} for name in mutant)):
            table.add_row(row["mutant"], row["killed_by"], row["message"])
        console.print(table, soft_wrap=False)
    return 0


def _diagnose(options: argparse.Namespace) -> int:
    from snippets._lab.diagnose.diagnosis import diagnosis_of

    found = diagnosis_of(options.file, options.launcher, options.seconds)
    first, *rest = found.text().splitlines()
    console.print(first, style="green" if found.right else "red")
    for line in rest:
        console.print(line)
    return 0  # a mistake that is named is an answer, and no failure of this command


def _sanitize(options: argparse.Namespace) -> int:
    from snippets._lab.judge import sanitizers

    table = Table("post", "tool", "outcome", title="compute-sanitizer")
    outcomes = []
    for post in options.post or rooms():
        for tool in sanitizers.TOOLS:
            outcomes.append(sanitizers.sanitize(post, tool))
            table.add_row(post, tool, outcomes[-1])
    console.print(table, soft_wrap=False)
    return int(any(outcome.startswith("FAULTS") for outcome in outcomes))
