"""Runs a room's kernels under NVIDIA's compute-sanitizer: bad memory accesses.

Not its race check: it does not follow mbarriers, nor how Triton starts the warps of a specialized
kernel. Whether such a protocol holds in every order, snippets/_warps says.
"""

import os
import re
import shutil
import subprocess
import sys

from snippets._lab.judge.oracle import NumericalMismatch
from snippets._lab.rooms import ROOT, load

SECONDS = 600


class CannotSanitize(OSError):
    """compute-sanitizer is missing or does not work on this machine; the text says which."""


def sanitize(post: str) -> str:
    """What is said of the kernels of one post: "clean: …" or "FAULTS: …".

    Raises CannotSanitize.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise CannotSanitize("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    command = [program, "--tool", "memcheck", sys.executable]
    command += ["-m", "snippets._lab.judge.sanitizers", post]
    # Without torch's caching allocator every tensor is an allocation of its own, with its own end.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment
        )
    except subprocess.TimeoutExpired:
        raise CannotSanitize(f"{post} did not end within {SECONDS} s") from None
    return outcome(done.stdout + done.stderr)


def outcome(output: str) -> str:
    """What the tool's output says, as `sanitize` returns it."""
    summary = re.search(r"ERROR SUMMARY: (.*)", output)
    result = re.search(r"^check (passed|failed.*)$", output, re.MULTILINE)
    if result is None or summary is None:
        lines = [x for x in output.splitlines() if x.strip()][-3:]
        raise CannotSanitize(f"it does not work on this machine: {' / '.join(lines)}")
    if result[1] != "passed":
        return f"FAULTS: {result[0]}"
    return f"{'clean' if summary[1].startswith('0 ') else 'FAULTS'}: {summary[1]}"


if __name__ == "__main__":
    try:
        load(sys.argv[1], "bench").check("cuda")
        print("check passed")
    except NumericalMismatch as error:
        print(f"check failed: {error}")
