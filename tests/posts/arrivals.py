"""Arrivals at barriers in shared memory, read from PTX, for the tests of Gluon kernels."""

import re

TOUCHES = re.compile(r"\b(ld|st)(\.shared|matrix)|\bwgmma\.|\bcp\.(async|reduce)")
EXPECTS_NOTHING = re.compile(r"mbarrier\.arrive\.expect_tx\.shared.*, 0;")
MEETS = re.compile(r"\bbar(rier)?\.(warp\.)?sync")


def arrivals(ptx, products=False):
    """(line, whether its warps have met since they last touched memory) of each arrival.

    `products`: four warps make one together, so having waited for its end counts as having met.
    CUTLASS releases its buffers that way, by one thread of the four warps.

    One thread arrives for all the threads of its warps. So they must have met before: a thread that
    still reads a buffer would otherwise see what comes next. The arrival that expects a copy's
    bytes is none of these unless it expects none; nor are those of copies, which every lane makes
    for itself.
    """
    lines = [line.strip() for line in ptx.splitlines()]
    lines = [line for line in lines if line and not line.startswith((".loc", "//"))]
    found = []
    for i, line in enumerate(lines):
        if "mbarrier.arrive.shared" in line or EXPECTS_NOTHING.search(line):
            before = next(x for x in reversed(lines[:i]) if TOUCHES.search(x) or MEETS.search(x))
            ended = products and "wgmma.wait_group" in before
            found.append((line, bool(MEETS.search(before)) or ended))
    return found
