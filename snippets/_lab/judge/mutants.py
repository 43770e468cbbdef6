"""Shows that a room's tests can fail: runs them against wrong variants of its kernel.

Killed means: the mutant was imported, ran, and a numerical assertion rejected its result. A crash,
a refusal, a time-out or an `old` piece that is not found exactly once is an error of the mutant and
no kill. The unchanged kernel runs first and must pass the very same tests.
"""

import atexit
import functools
import gc
import hashlib
import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from snippets._lab.child import Child, Ended, TooSlow
from snippets._lab.judge import patch
from snippets._lab.judge.patch import MutantError as MutantError
from snippets._lab.results import store
from snippets._lab.rooms import (
    ROOT,
    interpreted,
    load,
    load_file,
    module_at,
    room_file,
    source_file,
    test_files,
)

SECONDS = 300  # for the tests of one mutant; they take a few, more on a busy machine
AT_ONCE = 8  # at most: each holds torch
CONTROL = "unchanged kernel"
NO_KILL = (
    "wrong numbers are told by assert_attention, torch.testing.assert_close or NumericalMismatch"
)
GREATEST = re.compile(
    r"^Greatest absolute difference: (\S+) (at index .*?) \(up to (\S+) allowed\)", re.MULTILINE
)


Derive = Callable[[ModuleType, str], str]  # (module, room) → the name of its mistake, or none


class Mutant(NamedTuple):
    """A wrong kernel: replace the code `old`, which must occur exactly once, by `new`."""

    name: str
    old: str
    new: str
    diagnosis: str  # one sentence a reader with this mistake would want to read
    file: str = ""  # of the room that `old` is in, if not the one that a reader copies


class Slip(NamedTuple):
    """A mistake that only the playground is asked about: no test judges it, and it may not run.

    `old` occurs once in the kernel as the editor opens it.
    """

    name: str
    old: str
    new: str


@dataclass(frozen=True)
class Verdict:
    """What the tests said: "survived", "killed" with the test's name and message, or "error"."""

    outcome: str
    test: str = ""
    message: str = ""
    derived: str = ""  # what the output alone says about the mistake


def mutate(source: str, mutant: Mutant | Slip) -> str:
    """The wrong source. Raises MutantError unless `old` is found exactly once."""
    try:
        return patch.replace(source, mutant.old, mutant.new)
    except MutantError as error:
        raise MutantError(f"{mutant.name}: {error}") from None


def variant(
    room: str, changes: Sequence[tuple[str, str]], name: str = "", launcher: str = ""
) -> Callable[..., Any]:
    """The room's launcher with pieces of its code replaced: for timing parts of a kernel.

    `name`: of another file of the room, and of its `launcher` if that has no other. Raises
    MutantError unless each old piece is found exactly once.
    """
    file = room_file(room, f"{name}.py") if name else source_file(room)
    source = file.read_text(encoding="utf-8")
    for old, new in changes:
        source = mutate(source, Mutant("variant", old, new, ""))
    folder = tempfile.mkdtemp(prefix="variant_")  # triton reads the kernel's text from its file
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / file.name
    path.write_text(source, encoding="utf-8")
    # A name of its text alone: Triton's cache asks for it, and finds what another run compiled.
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    module = load_file(path, f"snippets.{room}.variant_{digest}")
    return getattr(module, launcher or name or room)


class _Judge:
    """pytest plugin: remembers the first failure and how many tests passed.

    The test called `first` goes first: what killed a mutant before will kill it again, and soon.
    One failing example is enough, so hypothesis need not look for the smallest.
    """

    def __init__(self, first: str = "") -> None:
        self.first = first
        self.passed = 0
        self.failure: Verdict | None = None

    def pytest_collection(self) -> None:  # conftest.py has chosen its profile by now
        from hypothesis import Phase, settings

        chosen: Any = settings.default
        phases = [phase for phase in chosen.phases if phase is not Phase.shrink]
        settings.register_profile("judge", chosen, phases=phases)
        settings.load_profile("judge")

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: item.name != self.first)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.excinfo is None:
            self.passed += call.when == "call"
        elif self.failure is None and call.excinfo.typename != "Skipped":
            difference = _difference(call.excinfo) if call.when == "call" else None
            if difference is not None:
                self.failure = Verdict("killed", item.name, difference)
            else:
                message = f"{call.excinfo.value}".partition("\n")[0]
                text = f"{call.excinfo.type.__name__}: {message}"
                if call.excinfo.errisinstance(AssertionError):
                    text += f" ({NO_KILL})"
                self.failure = Verdict("error", item.name, text)

    def verdict(self) -> Verdict:
        if self.failure:
            return self.failure
        if not self.passed:
            return Verdict("error", "", "no numerical test ran")
        return Verdict("survived", "", f"{self.passed} tests passed")


def _difference(error: Any) -> str | None:
    """What a test says about wrong numbers; None if it failed for another reason.

    Wrong numbers are told by NumericalMismatch, which `assert_attention` raises, and by PyTorch's
    `assert_close`. Any other assertion may be about anything.
    """
    text = f"{error.value}"
    if error.type.__name__ == "NumericalMismatch":
        return text.partition("\n")[0]
    from_torch = Path(error.traceback[-1].path).parts[-3:] == ("torch", "testing", "_comparison.py")
    if from_torch and (found := GREATEST.search(text)):
        return f"largest difference {found[1]} {found[2]}, allowed {found[3]}"
    return None


def _judge_in_child(
    channel: Connection, room: str, path: Path, first: str, derive: Derive | None
) -> None:
    """Replace the room's file of that name by the one at `path`, and run the numerical tests."""
    import pytest
    import torch

    # Threads do not survive a fork: a child that waits for its parent's would wait for ever.
    torch.set_num_threads(1)
    # The parent may hold the unchanged kernel, and modules that took something from it.
    package = f"snippets.{room}"
    for held in [m for m in sys.modules if f"{m}.".startswith(f"{package}.")]:
        del sys.modules[held]
    tests = test_files(room)
    for file in tests:
        sys.modules.pop(file.stem, None)
    name = f"{package}.{path.stem}"
    module, execute = module_at(path, name)
    judge = _Judge(first)
    try:
        setattr(importlib.import_module(package), path.stem, module)
        sys.modules[name] = module
        execute()
    except Exception as error:  # noqa: BLE001 - whatever importing raises is the verdict
        channel.send(Verdict("error", "", f"import failed: {type(error).__name__}: {error}"))
        return
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is asked for, and they take a second
    sys.stdout = sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - the child ends with it
    # The contract of all launchers names the room in its cases, the room's own tests in their file.
    chosen = ["-x", "-q", "-m", "numerical", "-k", room]
    # A wrong kernel may overflow; only a wrong number rejects it, not a warning made an error.
    quiet = "-p no:cacheprovider -o filterwarnings=ignore --no-header"
    pytest.main([*map(str, tests), *chosen, *quiet.split(), f"--rootdir={ROOT}"], plugins=[judge])
    verdict = judge.verdict()
    if derive and verdict.outcome == "killed":
        verdict = replace(verdict, derived=derive(module, room))
    channel.send(verdict)


@functools.cache
def _import_once() -> None:
    """What takes seconds to import and every child needs; what is imported here it inherits."""
    for slow in ("torch", "torch._inductor", "triton", "pytest", "hypothesis"):
        importlib.import_module(slow)
    importlib.import_module("snippets._lab.judge.oracle")
    gc.freeze()  # what was imported is no garbage, and a child need not look through it


def judge(
    room: str, source: str, *, file: str = "", first: str = "", derive: Derive | None = None
) -> Verdict:
    """Run the room's numerical tests against `source` in a process of its own.

    `source` takes the place of `file`, or of the one that a reader copies. The test `first` runs
    before the others. `derive` says of a killed mutant's module what its
    output alone tells about the mistake.
    """
    _import_once()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (file or source_file(room).name)
        path.write_text(source, encoding="utf-8")
        with Child(_judge_in_child, room, path, first, derive) as child:
            try:
                verdict: Verdict = child.receive(SECONDS)
            except TooSlow:
                return Verdict("error", "", f"no verdict within {SECONDS} s")
            except Ended as error:
                return Verdict("error", "", str(error))
    return verdict


def _killers(room: str) -> dict[str, str]:
    """Mutant → the test that killed it when it was judged last; empty if that is not known."""
    try:
        known = [r for r in store.scan() if (r.post, r.result) == (room, "mutants")]
    except store.DataError:
        return {}
    return {row["mutant"]: row["killed_by"] for result in known for row in result.rows}


def rows(
    room: str,
    each: Callable[..., Iterator[dict[str, Any]]],
    *,
    derive: Derive | None = None,
) -> Iterator[dict[str, Any]]:
    """One row for each mutant of a room, for the data file; some of them run at a time.

    Raises MutantError if the unchanged kernel fails, a mutant survives or one cannot be judged.
    """
    mutants: list[Mutant] = load(room, "mutants").MUTANTS
    control = Mutant(CONTROL, "", "", "")
    files = {m.name: m.file or source_file(room).name for m in (control, *mutants)}
    texts = {name: room_file(room, name).read_text(encoding="utf-8") for name in files.values()}
    sources = {CONTROL: texts[files[CONTROL]]}
    sources |= {m.name: mutate(texts[files[m.name]], m) for m in mutants}
    if len(sources) != len(mutants) + 1:
        raise MutantError(f"{room}: two mutants have the same name")
    killers = _killers(room)
    if not interpreted(room):
        derive = None  # outputs are looked at in the interpreter
    with ThreadPoolExecutor(min(AT_ONCE, os.cpu_count() or 1)) as pool:
        pending = {
            name: pool.submit(
                judge, room, text, file=files[name], first=killers.get(name, ""), derive=derive
            )
            for name, text in sources.items()
        }
        try:
            verdicts = {
                case["mutant"]: pending[case["mutant"]].result()
                for case in each(mutant=list(pending))
            }
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for the others
            raise
    wrong = [
        f"{name}: {v.outcome} {v.test} {v.message}"
        for name, v in verdicts.items()
        if v.outcome != ("survived" if name == CONTROL else "killed")
    ]
    if wrong:
        raise MutantError(f"{room}:\n  " + "\n  ".join(wrong))
    for mutant in mutants:
        found = verdicts[mutant.name]
        old, new = patch.changed_lines(texts[files[mutant.name]], sources[mutant.name])
        yield {
            "mutant": mutant.name,
            "diagnosis": mutant.diagnosis,
            "old": old,
            "new": new,
            "killed_by": found.test,
            "message": found.message,
            "derived": found.derived,
        }
