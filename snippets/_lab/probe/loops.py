"""What an iteration of a compiled kernel's loop does: its machine code, counted by kind."""

import re

KINDS = {
    "loads": "LDG",
    "shuffles": "SHFL",  # a thread hands a value to another of its warp
    "barriers": "BAR",  # a program's warps wait for each other
    "selects": "F?SEL",  # one of two values, element by element
    "shared memory": "LDS|STS",
    "arithmetic": "FADD|FMUL|FFMA|MUFU|I2FP?|F2F|F2I",
}
OTHERS = "others"  # addresses, comparisons, moves, the loop itself
INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\d+ )?((\w+).*?);")


def loops(sass: str) -> list[dict[str, int]]:
    """For each loop of a kernel, in the order of the code: kind → instructions an iteration.

    `sass` is what `cuobjdump -sass` prints. A loop is what lies between an instruction and a branch
    back to it. Raises ValueError for a loop with several loads: the compiler has unrolled it, and
    an iteration there is not one of the source.
    """
    code = [(int(address, 16), text, name) for address, text, name in INSTRUCTION.findall(sass)]
    found = []
    for end, text, name in code:
        target = re.search(r"\b0x([0-9a-f]+)", text) if name == "BRA" else None
        start = int(target[1], 16) if target else end
        body = [name for at, _, name in code if start <= at <= end]
        if start == end or start > end or "EXIT" in body:  # past the exit wait those that jump back
            continue
        counts = {k: sum(bool(re.fullmatch(p, x)) for x in body) for k, p in KINDS.items()}
        if counts["loads"] > 1:
            raise ValueError(f"a loop has {counts['loads']} loads an iteration: it is unrolled")
        found.append(counts | {OTHERS: len(body) - sum(counts.values())})
    return found
