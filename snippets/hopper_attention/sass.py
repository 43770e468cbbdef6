"""What the machine code of the kernel does in its loops: which exponentials run under a product.

Names of SASS: HGMMA starts part of a product of a group of four warps and does not wait for it;
WARPGROUP.DEPBAR waits until no more products run than it says; MUFU.EX2 is one exponential; FSEL
chooses between a score and minus infinity; LDL and STL reach the memory that registers spill to.
"""

import re
from typing import NamedTuple

INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?);")


class Loop(NamedTuple):
    """An innermost loop with tensor-core instructions: how many of what one iteration executes."""

    products: int  # tensor-core instructions
    exponentials: int
    under_products: int  # exponentials while a product still runs
    masked: bool
    local: int  # loads and stores of local memory: spilled registers


def loops(sass: str) -> list[Loop]:
    """The loops over tiles of keys, in the order of the code: for each consumer those it has.

    `sass` is what `cuobjdump -sass` prints. Raises ValueError if there is no such loop.
    """
    code = [(int(address, 16), text) for address, text in INSTRUCTION.findall(sass)]
    index = {address: i for i, (address, _) in enumerate(code)}
    found: list[tuple[int, int]] = []
    for end, (_, text) in enumerate(code):
        jump = re.search(r"\bBRA\b.* 0x([0-9a-f]+)", text)
        start = index.get(int(jump[1], 16), end) if jump else end
        if start >= end:
            continue
        body = [text for _, text in code[start : end + 1]]
        # What waits longer at a barrier lies past the exit and jumps back: no loop of ours.
        if _count(body, "HGMMA") and not _count(body, "EXIT"):
            found.append((start, end))
    innermost = [
        (a, b)
        for a, b in found
        if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in found)
    ]
    if not innermost:
        raise ValueError("no loop holds a tensor-core instruction of Hopper")
    return [_loop([text for _, text in code[a : b + 1]]) for a, b in innermost]


def in_loops(sass: str) -> dict[str, int]:
    """Of the loops without a mask, where nearly all time goes: the worst of each, for a row."""
    plain = [loop for loop in loops(sass) if not loop.masked]
    return {
        "exponentials": max(loop.exponentials for loop in plain),
        "exponentials_under_products": min(loop.under_products for loop in plain),
        "local_memory_instructions": max(loop.local for loop in plain),
    }


def _loop(body: list[str]) -> Loop:
    under, running = 0, False
    for second, text in [(False, x) for x in body] + [(True, x) for x in body]:
        # Twice: a product may still run when the loop begins again.
        if "HGMMA" in text:
            running = True
        elif re.search(r"WARPGROUP\.DEPBAR.* 0x0\b", text):
            running = False
        under += second and running and "MUFU.EX2" in text
    exponentials = _count(body, "MUFU.EX2")
    return Loop(
        products=_count(body, "HGMMA"),
        exponentials=exponentials,
        under_products=under,
        masked=_count(body, "FSEL") > exponentials // 2,  # one for each score, or a few in all
        local=_count(body, "LDL") + _count(body, "STL"),
    )


def _count(body: list[str], name: str) -> int:
    return sum(name in text for text in body)
