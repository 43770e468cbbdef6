"""What the page about `make diagnose` shows: its verdicts on kernels, and all it can name."""

import importlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from snippets._lab.diagnose.diagnosis import diagnosis_of
from snippets._lab.diagnose.verdict import Diagnosis
from snippets._lab.judge import patch
from snippets._lab.judge.refusal import CannotDiagnose
from snippets._lab.rooms import measured_on

from .cases import CASES, STYLES, right_kernel

SECONDS = 240  # for one kernel, on a busy machine
AT_ONCE = 2


def check(device):
    """Raise if a case is there twice."""
    if len({sources(case)[1] for case in CASES}) != len(CASES):
        raise RuntimeError("two of the cases are the same kernel")


def sources(case):
    """The right kernel's text, and the case's."""
    before = right_kernel(case.kernel)
    after = before
    for old, new in case.edits:
        after = patch.replace(after, old, new)
    return before, after


def verdict(case, found):
    """What a diagnosis is worth: "right", "no name", or "wrong name" (the one that must not be).

    Right: everything planted is named, and nothing else. Several names that the inputs cannot tell
    apart are right if the planted one is among them, and are called so.
    """
    named, planted = set(found.names), set(case.names)
    strangers = named - planted
    if strangers and not (len(named) > 1 and named & planted):
        return "wrong name"
    if not case.names and not case.memory and found.memory:
        return "wrong name"  # an access that is none of the planted mistakes
    if planted <= named and set(case.memory) <= set(found.memory) and case.says in found.text():
        return "right"
    return "no name"


def answered(case):
    """The diagnosis of a case's file, as a reader's; or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "my_kernel.py"
        file.write_text(sources(case)[1], encoding="utf-8")
        try:
            return diagnosis_of(file, seconds=SECONDS, fresh=False)
        except CannotDiagnose as error:
            return Diagnosis(False, error=str(error).replace(f"{file}: ", ""))


def row(case, found):
    """All that a page says of a case."""
    before, after = sources(case)
    old, new = patch.changed_lines(before, after)
    return {
        "style": STYLES[case.kernel],
        "planted": case.planted,
        "mistakes": len(case.names) + len(case.memory) + (bool(case.says) and not found.right),
        "verdict": verdict(case, found),
        "named": " or ".join((*found.names, *found.memory)),
        "said": found.text(),
        "old": old,
        "new": new,
    }


@measured_on("interpreter")
def kernels(lab):
    """The verdict on each of the kernels."""
    for once in ("torch", "triton", "snippets._lab.diagnose.examination"):
        importlib.import_module(once)  # a fork inherits it
    by_name = {f"{case.kernel}: {case.planted}": case for case in CASES}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        pending = {name: pool.submit(answered, case) for name, case in by_name.items()}
        for at in lab.each(case=list(by_name)):
            yield at | row(by_name[at["case"]], pending[at["case"]].result())


@measured_on("interpreter")
def mistakes(lab):
    """Every mistake that can be named, and what is said of it."""
    from snippets._lab.judge.mistakes import MISTAKES

    for case in lab.each(mistake=list(MISTAKES)):
        mistake = MISTAKES[case["mistake"]]
        kind = "rounding" if mistake.rounding else "output"
        yield case | {"sentence": mistake.sentence, "seen": kind, "models": len(mistake.models)}
