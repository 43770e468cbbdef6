"""Runs a room's kernels under NVIDIA's compute-sanitizer: bad memory accesses and races."""

import os
import re
import shutil
import subprocess
import sys

from .rooms import ROOT, load

TOOLS = ("memcheck", "racecheck")
SECONDS = 600
# (post, tool) → why reports of this tool about this post are known to be false, with the evidence.
KNOWN_FALSE_POSITIVES: dict[tuple[str, str], str] = {}


class CannotSanitize(RuntimeError):
    """compute-sanitizer is missing or does not work on this machine; the text says which."""


def sanitize(post: str, tool: str) -> str:
    """Outcome of one tool on the kernels of one post, as a sentence that starts with a verdict.

    "clean", "known" (reports, all known to be false) or "FAULTS". Raises CannotSanitize.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise CannotSanitize("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    command = [program, "--tool", tool, sys.executable, "-m", "snippets._lab.sanitize", post]
    # Without torch's caching allocator every tensor is an allocation of its own, with its own end.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    output = done.stdout + done.stderr
    summary = re.search(r"(ERROR SUMMARY|RACECHECK SUMMARY): (.*)", output)
    if "check passed" not in output or summary is None:
        lines = [x for x in output.splitlines() if x.strip()][-3:]
        raise CannotSanitize(f"{tool} does not work on this machine: {' / '.join(lines)}")
    if summary[2].startswith("0 "):
        return f"clean: {summary[2]}"
    if reason := KNOWN_FALSE_POSITIVES.get((post, tool)):
        return f"known: {summary[2]}, false positives: {reason}"
    return f"FAULTS: {summary[2]}"


if __name__ == "__main__":
    load(sys.argv[1], "bench").check("cuda")
    print("check passed")
