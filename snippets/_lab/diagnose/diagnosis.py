"""Names the mistake in a reader's attention kernel: the file runs apart, and its answer is told.

Nothing here imports torch, so that it is imported once: by the process that runs the file. That
process puts the launcher to the test (`examination`) and sends back a Diagnosis.
"""

import contextlib
import os
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from snippets._lab.child import Child, Ended, TooSlow
from snippets._lab.diagnose.front_end import NOT_ASKED, answer, without_a_gpu
from snippets._lab.diagnose.verdict import Diagnosis
from snippets._lab.judge.refusal import CannotDiagnose
from snippets._lab.rooms import ROOT, SNIPPETS, load_file, module_at

SECONDS = 120.0  # for a reader's file, importing torch included
ONLY_HERE = (
    "Triton's compiler accepts its kernels: only the interpreter, in which they run here, fails."
)


def diagnosis_of(
    file: Path, launcher: str = "", seconds: float = SECONDS, *, fresh: bool = True
) -> Diagnosis:
    """Diagnose the launcher in a file. The file runs in a process of its own, never in this one.

    Without `fresh` that process is a fork of this one, which has imported torch, and triton for
    its interpreter, already.

    Raises CannotDiagnose, within `seconds`: there is no such file, it does not import, it has no
    launcher, or it does not come to an end.
    """
    if not file.is_file():
        raise CannotDiagnose(f"{file} is not a file")
    file = file.resolve()
    found: Diagnosis = _heard(file, seconds, _answer, launcher, fresh=fresh)
    if found.launched and found.form:
        compiled = {n: value for n, value in os.environ.items() if n != "TRITON_INTERPRET"}
        args = (launcher, found.form)
        refused, warned = _heard(file, seconds, answer, *args, fresh=True, env=compiled)
        notes = (*found.notes, *(f"Triton's compiler: {said}" for said in warned))
        found = replace(
            found, right=found.right and not refused, refused=tuple(refused), notes=notes
        )
        if found.cannot and not refused and NOT_ASKED not in warned:
            found = replace(found, cannot=f"{found.cannot} {ONLY_HERE}")
    if found.cannot and not found.refused:
        raise CannotDiagnose(f"{file}: {found.cannot}")
    return found


def _heard(file: Path, seconds: float, function: Any, *args: Any, **how: Any) -> Any:
    """What a child says of the file."""
    with Child(function, file, *args, **how) as child:
        try:
            return child.receive(seconds)
        except TooSlow:
            raise CannotDiagnose(
                f"{file} gave no answer within {seconds:g} s: it loops, or it is too slow here"
            ) from None
        except Ended as error:
            raise CannotDiagnose(f"{file}: {error}") from None


def _answer(channel: Connection, file: Path, wanted: str) -> None:
    """In the child: say what comes of the file's launcher."""
    channel.send(said(file, wanted, alone=True))


def module_of(file: Path, always: bool = False) -> ModuleType:
    """The file as a module: one of a room by its own name, so that it finds its neighbors.

    With `always` as much of it as there is before an error.
    """
    if file.is_relative_to(SNIPPETS):
        return import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
    if not always:
        return load_file(file)
    module, execute = module_at(file, file.stem)
    sys.modules[file.stem] = module
    with contextlib.suppress(Exception, SystemExit):
        execute()
    return module


def said(file: Path, wanted: str = "", alone: bool = False) -> Diagnosis:
    """Import the file, here, and examine its launcher; or why that cannot be done.

    A process that is here for it `alone` is told of a GPU, and its interpreter is changed.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and find_spec("triton"):
        os.environ["TRITON_INTERPRET"] = "1"  # before triton decorates the file's kernels
        from snippets._lab.probe.interpreter import patch_as_compiled, patch_once_a_launch

        patch_once_a_launch()
        if alone:
            patch_as_compiled()
            without_a_gpu()
    from snippets._lab.diagnose.examination import examine, failure
    from snippets._lab.judge.launcher import find_launcher

    torch.set_num_threads(1)  # for inputs this small threads cost more than they save
    sys.path.insert(0, str(file.parent))
    try:
        module = module_of(file)
    except SyntaxError as error:
        why = f"SyntaxError: {error.msg}, line {error.lineno}"
        return Diagnosis(False, cannot=f"it cannot be imported: {why}")
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever importing raises is said
        return Diagnosis(False, cannot=f"it cannot be imported: {failure(error)}")
    try:
        return examine(find_launcher(module, wanted), device)
    except CannotDiagnose as error:
        return Diagnosis(False, cannot=str(error), form=error.form, launched=bool(error.form))
