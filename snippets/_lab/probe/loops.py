"""What an iteration of a compiled kernel's loop does: instructions counted in its PTX, by kind."""

import re

KINDS = {
    "loads": r"ld\.global",
    "shuffles": r"shfl\.sync",  # a thread hands a value to another of its warp
    "barriers": r"bar(?:rier)?\.(?:cta\.)?sync",  # a program's warps wait for each other
    "selects": r"selp\.",  # one of two values, element by element
    "shared memory": r"(?:ld|st)\.shared",
}


# --8<-- [start:loops]
def loops(ptx: str) -> list[dict[str, int]]:
    """For each loop of a kernel, in the order of the text: kind → instructions an iteration.

    A loop is what lies between a label and a branch back to it. Of nested loops the outer counts
    the instructions of the inner once.
    """
    lines = [line.split("//")[0].strip() for line in ptx.splitlines()]
    labels = {line[:-1]: at for at, line in enumerate(lines) if re.fullmatch(r"\$\w+:", line)}
    found = []
    for at, line in enumerate(lines):
        branch = re.search(r"\bbra(?:\.uni)?\s+(\$\w+);", line)
        if branch and labels.get(branch[1], at) < at:
            body = lines[labels[branch[1]] : at]
            found.append({k: sum(bool(re.search(p, x)) for x in body) for k, p in KINDS.items()})
    return found
    # --8<-- [end:loops]
