"""Runs a room's kernels under NVIDIA's compute-sanitizer: bad memory accesses and races."""

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from snippets._lab.judge.oracle import NumericalMismatch
from snippets._lab.rooms import ROOT, load, source_file

TOOLS = {"memcheck": (), "racecheck": ("--racecheck-report", "hazard", "--print-limit", "100000")}
SECONDS = 600
WARP = 32


class CannotSanitize(OSError):
    """compute-sanitizer is missing or does not work on this machine; the text says which."""


class Hazard(NamedTuple):
    """What racecheck found: two threads of a program at the same byte of shared memory."""

    kind: str  # "RAW": read after write
    byte: int
    before: tuple[str, int]  # where in which kernel, and the thread
    after: tuple[str, int]
    lines: tuple[int, int]  # of the kernel's file, of both


def sanitize(post: str, tool: str) -> str:
    """Outcome of one tool on the kernels of one post, as a sentence that starts with a verdict.

    "clean", "known" (reports, all known to be false) or "FAULTS". Raises CannotSanitize.
    """
    program = shutil.which("compute-sanitizer")
    if program is None:
        raise CannotSanitize("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    command = [program, "--tool", tool, *TOOLS[tool]]
    command += [sys.executable, "-m", "snippets._lab.judge.sanitizers", post]
    # Without torch's caching allocator every tensor is an allocation of its own, with its own end.
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, cwd=ROOT, env=environment
        )
    except subprocess.TimeoutExpired:
        raise CannotSanitize(f"{tool} on {post} did not end within {SECONDS} s") from None
    bench = load(post, "bench")
    known = getattr(bench, "WRONG_UNDER_A_TOOL", {})
    ordered = lines_of(getattr(bench, "ORDERED_BY_BARRIERS", ()), source_file(post).read_text())
    return outcome(tool, done.stdout + done.stderr, known.get(tool), ordered)


def lines_of(pairs: Iterable[tuple[str, str]], source: str) -> set[tuple[int, int]]:
    """Pairs of pieces of code as pairs of line numbers; each piece is part of one line only."""
    lines = source.splitlines()

    def number(piece: str) -> int:
        found = [i for i, line in enumerate(lines, 1) if piece in line]
        if len(found) != 1:
            raise ValueError(
                f"{piece!r} is in {len(found)} lines of the kernel's file; one is needed"
            )
        return found[0]

    return {(number(before), number(after)) for before, after in pairs}


def outcome(
    tool: str,
    output: str,
    wrong_because: str | None = None,
    ordered: Collection[tuple[int, int]] = (),
) -> str:
    """What a tool's output says, as `sanitize` returns it.

    `wrong_because`: why a wrong result under this tool is the tool's doing, with the evidence.
    `ordered`: pairs of lines between which the kernel waits at a barrier in shared memory.
    """
    summary = re.search(r"(ERROR SUMMARY|RACECHECK SUMMARY): (.*)", output)
    result = re.search(r"^check (passed|failed.*)$", output, re.MULTILINE)
    if result is None or summary is None:
        lines = [x for x in output.splitlines() if x.strip()][-3:]
        raise CannotSanitize(f"{tool} does not work on this machine: {' / '.join(lines)}")
    wrong = ""
    if result[1] != "passed":
        if wrong_because is None:
            return f"FAULTS: {result[0]}"
        wrong = f"; a wrong result: {wrong_because}"
    if summary[2].startswith("0 "):
        return f"known: {summary[2]}{wrong}" if wrong else f"clean: {summary[2]}"
    found = hazards(output) if tool == "racecheck" else []
    if f"({len(found)} errors, 0 warnings)" not in summary[2]:  # some could not be read
        return f"FAULTS: {summary[2]}"
    others = [hazard for hazard in found if hazard.lines not in ordered]
    if others and not handed_over(others):
        return f"FAULTS: {summary[2]}"
    said = f"known: {len(others)} hazards, each on the byte by which Triton tells a warp its part"
    said += " of the work"
    if len(others) < len(found):
        said += f"; {len(found) - len(others)} between lines that barriers in shared memory order"
    return said + wrong


def hazards(output: str) -> list[Hazard]:
    """What racecheck printed, hazard by hazard."""
    pattern = re.compile(
        r"(\w+) hazard detected at __shared__ (0x[0-9a-f]+) in block .*\n"
        r".*(?:Write|Read) Thread \((\d+),0,0\) at (\S+) in \S+:(\d+)\n"
        r".*(?:Write|Read) Thread \((\d+),0,0\) at (\S+) in \S+:(\d+)\n"
    )
    return [
        Hazard(kind, int(byte, 16), (first, int(one)), (second, int(other)), (int(up), int(down)))
        for kind, byte, one, first, up, other, second, down in pattern.findall(output)
    ]


def handed_over(found: list[Hazard]) -> bool:
    """Whether all hazards are Triton's way to start the warps of a warp-specialized kernel.

    The first warps write a byte for each of the others, all threads meet at a barrier, and each of
    the others reads its byte. racecheck does not see the barrier. So between two places of the code
    the bytes must follow the warps: the same distance for all of them. Nothing else is excused.
    """
    bases = defaultdict(set)
    for hazard in found:
        writer, reader = hazard.before[1] // WARP, hazard.after[1] // WARP
        if hazard.kind != "RAW" or not writer < 4 <= reader:
            return False
        bases[hazard.before[0], hazard.after[0]].add(hazard.byte - reader)
    return bool(found) and all(len(base) == 1 for base in bases.values())


if __name__ == "__main__":
    try:
        load(sys.argv[1], "bench").check("cuda")
        print("check passed")
    except NumericalMismatch as error:
        print(f"check failed: {error}")
