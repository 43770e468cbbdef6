"""Heads of 64 columns: the pieces of kernel.py with which three consumers multiply in turn.

A file of its own, kernel_64.py, for the reason that wide.py gives.
"""

from .wide import CHOICE
from .wide import source as _source

NAME = "kernel_64.py"  # of the file, where it is published
TURNS = [  # pieces of kernel.py, and what makes consumers issue their products in turn
    (
        "@gluon.jit\ndef _issue_qk(",
        """\
@gluon.jit
def _wait_for_turn(channels, queries, count, V: gl.constexpr):
    turn = channels.order_barriers.index(queries.stage.index % V.CONSUMERS)
    mbarrier.wait(turn, count & 1)


@gluon.jit
def _pass_turn(channels, queries, V: gl.constexpr):
    turn = channels.order_barriers.index((queries.stage.index + 1) % V.CONSUMERS)
    mbarrier.arrive(turn, count=1)


@gluon.jit
def _issue_qk(""",
    ),
    (
        "    stage = _stage(keys.before, V)\n"
        "    scores = _issue_qk(queries.tile, channels.k, stage)\n",
        "    _wait_for_turn(channels, queries, keys.before, V)\n"
        "    stage = _stage(keys.before, V)\n"
        "    scores = _issue_qk(queries.tile, channels.k, stage)\n"
        "    _pass_turn(channels, queries, V)\n",
    ),
    (
        "    stage = _stage(keys.before + i, V)\n"
        "    scores = _issue_qk(queries.tile, channels.k, stage)\n"
        "    p = ",
        "    _wait_for_turn(channels, queries, keys.before + i, V)\n"
        "    stage = _stage(keys.before + i, V)\n"
        "    scores = _issue_qk(queries.tile, channels.k, stage)\n"
        "    p = ",
    ),
    (
        "    acc = _issue_pv(p, state.acc, channels.v, before)\n",
        "    acc = _issue_pv(p, state.acc, channels.v, before)\n"
        "    _pass_turn(channels, queries, V)\n",
    ),
    (
        "    v: Any\n\n\n@gluon.jit\ndef _producer(",
        "    v: Any\n    order_barriers: Any\n\n\n@gluon.jit\ndef _producer(",
    ),
    (
        "    channels = Channels(q, k, v)\n",
        "    order_barriers = _barriers(V.CONSUMERS, 1)\n"
        "    mbarrier.arrive(order_barriers.index(0), count=1)\n"
        "    channels = Channels(q, k, v, order_barriers)\n",
    ),
]
TAKEN = [  # two consumers take no turns
    (
        "    mbarrier.wait(turn, count & 1)\n",
        "    if V.CONSUMERS == 3:  # the one before has started its products of the same tile\n"
        "        mbarrier.wait(turn, count & 1)\n",
    ),
    (
        "    mbarrier.arrive(turn, count=1)\n",
        "    if V.CONSUMERS == 3:\n        mbarrier.arrive(turn, count=1)\n",
    ),
]
EARLY = (
    "    _wait_full(channels.v, before)\n    acc, _ = ",
    "    if V.CONSUMERS == 2:  # of three, a softmax runs under the products of the others\n"
    "        _wait_full(channels.v, before)\n    acc, _ = ",
)
PAIRS = [  # weights between two steps: a pair in one register
    (
        "@gluon.jit\ndef _issue_pv(",
        '''\
@gluon.jit
def _pack(p, v):
    """Weights for the next step, [CONSUMER_M, BLOCK_N // 2]: a pair of them is one integer.

    As numbers of 16 bits they would be taken apart and put together again in each step.
    """
    p = gl.inline_asm_elementwise(
        "mov.b32 $0, $2; mov.b32 $1, $2;",
        "=r,=r,r",
        [_left_weights(p, v)],
        dtype=gl.int32,
        is_pure=True,
        pack=2,
    )
    p, _ = gl.split(p.reshape([CONSUMER_M, BLOCK_N // 2, 2]))
    return p


@gluon.jit
def _unpack(p, v):
    """Such weights where wgmma wants them, [CONSUMER_M, BLOCK_N]."""
    p = gl.join(p, p).reshape([CONSUMER_M, BLOCK_N])
    p = gl.convert_layout(p, _left_operand(_acc_layout(v.buffers.shape[-1])))
    return gl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r,r", [p], dtype=v.buffers.dtype, is_pure=True, pack=2
    )


@gluon.jit
def _issue_pv(''',
    ),
    (
        "        p = _left_weights(p, channels.v)\n    state = ",
        "        p = _pack(p, channels.v)\n    state = ",
    ),
    (
        "p_next = _left_weights(p_next, channels.v)\n    return ",
        "p_next = _pack(p_next, channels.v)\n    return ",
    ),
    *(
        (
            f"    p = _left_weights(p, channels.v)\n    {after}",
            "    p = _unpack(p, channels.v) if V.CONSUMERS == 3 else "
            f"_left_weights(p, channels.v)\n    {after}",
        )
        for after in ("before = ", "acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc")
    ),
]
TABLE = """\
VARIANTS = {
    64: (
        Variant(CONSUMERS=2, STAGES=3, OVERLAP=True, Q_IN_REGISTERS=True),
        Variant(CONSUMERS=3, STAGES=3, OVERLAP=True, LAZY=True),
    ),
}
CONFIGURATIONS = {"_variant": VARIANTS}  # what a test may choose instead: all of it
# Whether causal → of each variant the microseconds of a tile of queries, and those of each tile of
# keys that it visits, on an H200.
TILE_TIMES = {
    False: ((0.4, 1.22), (0.8, 1.50)),
    True: ((0.7, 1.07), (7.5, 1.40)),
}
"""
IN_TURN = [
    *TURNS,
    *TAKEN,
    EARLY,
    *PAIRS,
    (CHOICE[0][0], TABLE),
    ("head dimension 64 or 128, rows", "head dimension 64, rows"),
    ("Run it alone: `python kernel.py`", "Run it alone: `python kernel_64.py`"),
    ("float16 or bfloat16; D 64 or 128; H", "float16 or bfloat16; D 64; H"),
]


def source() -> str:
    """The text of the file for 64 columns. Raises MutantError for a piece that is not there."""
    return _source(IN_TURN)
