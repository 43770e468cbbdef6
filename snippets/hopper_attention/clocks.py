"""A variant of kernel.py that notes when each of its parts is where: the multiprocessor's clock.

Every part of a program, at every tile of keys, writes the cycle at which it reached each of its
marks. The kernel is cut nowhere: the marks are put into its text, and each is found exactly once.
"""

import re
from typing import Any

import torch

from snippets._lab.judge.oracle import make_qkv

TILES = 6  # of keys, that each program takes one tile of queries through
MARKS = 8  # of a part at one tile, at most
WHOLE = TILES  # the place after those of the tiles: what a part does once
PARTS = 4  # of a program: consumers, then the producer
PLACES = PARTS * (TILES + 2) * MARKS
WARM, REPEATS = 3, 20

NOTE = f"""\
@gluon.jit
def _note(prob, part, tile, mark):
    now = gl.inline_asm_elementwise(
        "mov.u32 $0, %clock;", "=r", [], dtype=gl.int32, is_pure=False, pack=1
    )
    gl.store(prob.clocks + ((part * {TILES + 2} + tile) * {MARKS} + mark), now)


"""
# What each mark of a consumer is, in the order in which a step has them.
ASKED, SCORES, VALUES, SCORED, WEIGHED, ADDED = range(6)
CAME, STORES, STORED = range(3)  # once: its queries came, it stores its rows, it has
# Of the producer, for keys and, three further on, for values.
WAITS, FREE, STARTED = range(3)
OF_QUERIES = "queries.stage.index % V.CONSUMERS"  # the consumer, from what a step knows
OF_STAGE = "q_stage.index % V.CONSUMERS"
# Pieces of kernel.py. A line that begins with @ is a mark: the part, the tile, and which it is. One
# before a release would hold that back until after the softmax.
MARKED = f"""\
    @ 3, tile, mark
    mbarrier.wait(channel.empty.index(stage.index), stage.phase ^ 1)
    @ 3, tile, mark + {FREE}

    _tma_load(desc, coordinates, full, channel.buffers.index(stage.index))
    @ 3, tile, mark + {STARTED}

    stage = _stage(keys.before, V)
    @ {OF_QUERIES}, 0, {ASKED}
    scores = _issue_qk(queries.tile, channels.k, stage)
    @ {OF_QUERIES}, 0, {SCORES}
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
    @ {OF_QUERIES}, 0, {SCORED}

    p, _, m_i, l_i = _online_softmax(s, state, start, queries.last_key, prob, MASKED, V)
    @ {OF_QUERIES}, 0, {WEIGHED}

    stage = _stage(keys.before + i, V)
    @ {OF_QUERIES}, i, {ASKED}
    scores = _issue_qk(queries.tile, channels.k, stage)
    @ {OF_QUERIES}, i, {SCORES}
    p = _left_weights(p, channels.v)

    acc = _issue_pv(p, state.acc, channels.v, before)
    @ {OF_QUERIES}, i - 1, {VALUES}
    s = warpgroup_mma_wait(1, deps=[scores])
    _release(channels.k, stage)
    @ {OF_QUERIES}, i, {SCORED}

    _wait_full(channels.v, before)
    @ {OF_QUERIES}, i, {WEIGHED}
    acc, _ = warpgroup_mma_wait(0, deps=[acc, p])
    _release(channels.v, before)
    @ {OF_QUERIES}, i - 1, {ADDED}

    _wait_full(channels.q, q_stage)
    @ {OF_STAGE}, {WHOLE}, {CAME}

        @ warpgroup, {WHOLE}, {STORES}
        _tma_store(out_desc, [head, first, 0], out_tile)

    tma.store_wait(0)
    @ warpgroup, {WHOLE}, {STORED}
class Keys(NamedTuple):
"""
MARK = re.compile(r"( *)@ (.*)\n")
ALL_AT_ONCE = "warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc, channels.v, stage)])"
LAST = f"""_issue_pv(p, state.acc, channels.v, stage)
    @ {OF_QUERIES}, keys.n - 1, {VALUES}
    acc = warpgroup_mma_wait(0, deps=[acc])
    _release(channels.v, stage)
    @ {OF_QUERIES}, keys.n - 1, {ADDED}
    return Running(state.m_i, state.l_i, acc)
"""


def _noted(piece: str) -> str:
    return MARK.sub(r"\1_note(prob, \2)\n", piece)


def _filled(kind: str, first: int) -> tuple[str, str]:
    """The producer's call for keys or values, which says where its marks go."""
    old = f"_fill({kind}_desc, [b, h // prob.G, row, 0], channels.{kind}, stage)"
    return old, old.replace("stage)", f"stage, prob, i, {first})")


CLOCKED = [
    ("    lse_ptr,  # [B, H, M]", "    clock_ptr, lse_ptr,"),
    ("_launch(plan, *descriptors, lse)", "_launch(plan, *descriptors, CLOCKS, lse)"),
    ("    prob = Problem(H, ", f"    prob = Problem(clock_ptr + gl.program_id(0) * {PLACES}, H, "),
    ("    H: Any\n    G: Any\n", "    clocks: Any\n    H: Any\n    G: Any\n"),
    ("@gluon.jit\ndef _producer(", f"{NOTE}@gluon.jit\ndef _producer("),
    (
        "def _fill(desc, coordinates, channel, stage)",
        "def _fill(desc, coordinates, channel, stage, prob, tile, mark)",
    ),
    (
        "channels.q, _q_stage(warpgroup, q_count, V))",
        f"channels.q, _q_stage(warpgroup, q_count, V), prob, {WHOLE}, 3 * warpgroup)",
    ),
    _filled("k", 0),
    _filled("v", 3),
    (
        f"{ALL_AT_ONCE}\n    _release(channels.v, stage)\n"
        "    return Running(state.m_i, state.l_i, acc)\n",
        _noted(LAST),
    ),
    *((MARK.sub("", x), _noted(x)) for x in MARKED.replace("\n\n", "\n\0").split("\0")),
]


def recorded(launch: Any, launcher: Any, consumers: int, D: int = 128) -> tuple[Any, list[int]]:
    """Marks of the median program, [PARTS][TILES + 2][MARKS], and the cycles that all took, sorted.

    One program for each multiprocessor, all at once, again and again; the median is of all of them.
    All share the keys of one head, as they do where sequences are long. A mark is the cycles since
    the producer began.
    """
    programs = torch.cuda.get_device_properties(0).multi_processor_count
    sizes = {"M": 64 * consumers * programs, "N": 128 * TILES, "D": D, "dtype": torch.bfloat16}
    q, k, v = make_qkv(1, 1, device="cuda", **sizes)
    notes = torch.zeros(programs, PARTS, TILES + 2, MARKS, dtype=torch.int32, device="cuda")
    launcher.__globals__["CLOCKS"] = notes
    found = []
    for _ in range(WARM + REPEATS):
        launch(q, k, v)
        found.append(notes.cpu())
    marks = torch.stack(found[WARM:]).flatten(0, 1)
    marks -= marks[:, -1, WHOLE, 0].clone()[:, None, None, None]  # counters wrap round, so do these
    cycles = marks[:, :consumers, WHOLE, STORED].amax(dim=1)
    middle = cycles.argsort()[len(cycles) // 2]
    return marks[middle].tolist(), sorted(cycles.tolist())
