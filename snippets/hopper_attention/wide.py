"""Heads of 256 columns: the pieces of kernel.py that change, and the file that they make.

It is a file of its own because kernel.py, with a choice in it, would be another kernel: all that
was timed through it, on one GPU and on two, would have to be timed again.
"""

from collections.abc import Sequence

from snippets._lab.judge.patch import replace
from snippets._lab.rooms import source_file

NAME = "kernel_256.py"  # of the file, where it is published
PIECES = [
    ("BLOCK_N = gl.constexpr(128)", "BLOCK_N = gl.constexpr(64)"),
    (
        "Q_BUFFERS = gl.constexpr(2)\nGROWTH = ",
        "Q_BUFFERS = gl.constexpr(1)  # of a consumer: its rows leave through it, too\nGROWTH = ",
    ),
    (
        "    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 1)\n",
        "    # Empty after two arrivals: the queries are read, and the rows have left.\n"
        "    q = _channel(q_desc, Q_BUFFERS * V.CONSUMERS, 2)\n",
    ),
    (
        """\
    out_shape: gl.constexpr = [V.CONSUMERS] + out_desc.block_shape
    out = gl.allocate_shared_memory(out_desc.dtype, out_shape, out_desc.layout)
    results = (out_desc, lse_ptr, out)
""",
        "    results = (out_desc, lse_ptr, q.buffers)\n",
    ),
    (
        "        _tma_store(out_desc, [head, first, 0], out_tile)\n",
        """\
        _tma_store(out_desc, [head, first, 0], out_tile.reshape(out_desc.block_shape))
        tma.store_wait(0)
        _release(channels.q, q_stage)
""",
    ),
    (  # no registers for a sum of each thread's own
        """\
    m_i = gl.full([CONSUMER_M], float("-inf"), gl.float32, rows)
    if MASKED:
        l_i = gl.zeros([CONSUMER_M, 4], gl.float32, ROW_SUM_LAYOUT)
    else:
        l_i = gl.zeros([CONSUMER_M], gl.float32, rows)
""",
        """\
    m_i = gl.full([CONSUMER_M], float("-inf"), gl.float32, rows)
    l_i = gl.zeros([CONSUMER_M], gl.float32, rows)
""",
    ),
    (
        """\
    l_i = state.l_i
    if MASKED:
        l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)
    return Running(state.m_i, l_i, state.acc)
""",
        "    return state\n",
    ),
]
# What chooses between variants and widths, and what is said of them.
CHOICE = [
    (
        """\
VARIANTS = {
    64: (
        Variant(CONSUMERS=2, STAGES=3, OVERLAP=True, Q_IN_REGISTERS=True),
        Variant(CONSUMERS=3, STAGES=3),
        Variant(CONSUMERS=3, STAGES=3, OVERLAP=True, LAZY=True),
    ),
    128: (Variant(CONSUMERS=2, STAGES=2, OVERLAP=True, LAZY=True),),
}
CONFIGURATIONS = {"_variant": VARIANTS}
TILE_TIMES = {
    False: ((0.5, 1.18), (0.45, 1.54), (1.4, 1.50)),
    True: ((1.5, 0.99), (5.1, 1.39), (6.6, 1.62)),
}
""",
        """\
VARIANTS = {256: (Variant(CONSUMERS=2, STAGES=2, OVERLAP=True, LAZY=True),)}
CONFIGURATIONS = {"_variant": VARIANTS}  # what a test may choose instead: all of it
""",
    ),
    (
        """\
    def microseconds(candidate):
        variant, (alone, each) = candidate
        total = heads * -(-M // (CONSUMER_M.value * variant.CONSUMERS))
        keys, rounds = N, -(-total // programs)
        if causal and total > programs:
            keys = (N - M // 2 if M <= N else N * N // (2 * M)) + BLOCK_N.value
            rounds = total / programs
        return rounds * (alone + each * -(-keys // BLOCK_N.value))

    return min(zip(VARIANTS[D], TILE_TIMES[causal], strict=False), key=microseconds)[0]
""",
        "    return VARIANTS[D][0]\n",
    ),
    (
        "The Variant that is done first: as many rounds of tiles as the busiest program takes.",
        "The Variant for D: there is one.",
    ),
    ("head dimension 64 or 128, rows", "head dimension 256, rows"),
    ("Run it alone: `python kernel.py`", "Run it alone: `python kernel_256.py`"),
    ("float16 or bfloat16; D 64 or 128; H", "float16 or bfloat16; D 256; H"),
    ("torch.randn(2, 4, rows, 64, ", "torch.randn(2, 4, rows, 256, "),
]
WIDE = [*PIECES, *CHOICE]


def source(pieces: Sequence[tuple[str, str]] = WIDE) -> str:
    """kernel.py with these pieces changed. Raises MutantError for one that is not there."""
    text = source_file("hopper_attention").read_text("utf-8")
    for old, new in pieces:
        text = replace(text, old, new)
    return text
