"""The last few percent: pieces of kernel.py that make it faster on long and on short rows.

A file of its own, kernel_fast.py, for the reason that wide.py gives.
"""

from .wide import CHOICE
from .wide import source as _source

NAME = "kernel_fast.py"  # of the file, where it is published
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
        "    if V.CONSUMERS == 3:  # an order and no permission: one warp passes it on for four\n"
        "        mbarrier.expect(turn, 0)\n",
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
UNMET = [  # products end for four warps at once: no barrier before their buffers are released
    (
        """\
@gluon.jit
def _release_in_passing(channel, stage):
    \"\"\"The same, but Gluon puts no barrier for all four warps before what follows.\"\"\"
    _meet()
    mbarrier.expect(channel.empty.index(stage.index), 0)
""",
        """\
@gluon.jit
def _release_after_product(channel, stage, V: gl.constexpr):
    \"\"\"The same, once a product has ended that alone has read it.\"\"\"
    if V.Q_IN_REGISTERS:  # a slow warp may yet wait for the buffer a second time
        _release(channel, stage)
    else:  # four warps make a product, and it ends for all of them: the first one says so
        mbarrier.expect(channel.empty.index(stage.index), 0)
""",
    ),
    (
        "    s = warpgroup_mma_wait(1, deps=[scores])\n    _release(channels.k, stage)\n",
        "    s = warpgroup_mma_wait(1, deps=[scores])  # products end in order: one may still run\n"
        "    _release_after_product(channels.k, stage, V)\n",
    ),
    (
        "deps=[acc, p])\n    _release(channels.v, before)\n",
        "deps=[acc, p])\n    _release_after_product(channels.v, before, V)\n",
    ),
    *(  # the steps that do not overlap are in no row of the table
        (
            f"    _release_in_passing(channels.{x}, stage)\n",
            f"    _release_after_product(channels.{x}, stage, V)\n",
        )
        for x in "kv"
    ),
]
LEFT = (  # then nobody needs _meet; and maxima may lag further behind
    'GROWTH = gl.constexpr(4.0)\n_meet = getattr(gl, "thread_barrier", None) or gl.barrier\n',
    "GROWTH = gl.constexpr(8.0)  # LAZY: the maximum lags by this at most, in powers of two\n",
)
DEALT = (  # the longer the rows and the more of them, the more rounds go by length
    "    return max(0, total // (2 * programs) - 1 - tiles // 64) * 2 * programs\n",
    """\
    rounds = total // (2 * programs)
    by_length = max(0, (rounds * tiles).bit_length() - 6)  # tuned on an H200
    return max(0, rounds - by_length) * 2 * programs
""",
)
HELD = (  # a barrier that no copy turns before all four warps have met
    "    if V.CONSUMERS == 2:\n        _wait_full(channels.v, before)\n",
    """\
    if V.CONSUMERS == 2:  # of three, a softmax runs under the products of the others
        if V.Q_IN_REGISTERS:
            _wait_full(channels.v, before)
        else:  # the queries came before, and stay until all four warps have met
            _wait_full(channels.q, queries.stage)
""",
)
SUMS = [  # two consumers always keep a sum of each thread
    (
        "    if MASKED:\n        l_i = gl.zeros([CONSUMER_M, 4]",
        "    if MASKED or V.CONSUMERS == 2:\n        l_i = gl.zeros([CONSUMER_M, 4]",
    ),
    (
        "    if MASKED:\n        l_i = gl.convert_layout",
        "    if MASKED or V.CONSUMERS == 2:\n        l_i = gl.convert_layout",
    ),
]
LIMIT = (  # a mask by numbers in the instructions, where registers are few
    "    if V.OVERLAP:\n        offs_n = ",
    "    if V.Q_IN_REGISTERS:  # each column has its number in a register\n        offs_n = ",
)
CHAINS = [  # the largest of a row: not one long chain
    ("m_new = gl.max(s, axis=1) * before", "m_new = _row_max(s, state.l_i, V) * before"),
    (
        "@gluon.jit\ndef _hide(",
        '''\
@gluon.jit
def _row_max(s, l_i, V: gl.constexpr):
    """The largest score of each row, [CONSUMER_M], in two short chains of each thread, or one."""
    rows: gl.constexpr = gl.SliceLayout(1, SCORES_LAYOUT)
    if V.CONSUMERS == 3 and len(l_i.shape) == 2:  # with a mask somewhere, one does as well
        m = gl.max(s, axis=1)
    else:  # [CONSUMER_M, 16, 4, 2], as COLUMNS_LAYOUT says
        m = gl.max(s.reshape([CONSUMER_M, BLOCK_N // 8, 4, 2]), axis=1)
        m = gl.max(gl.max(m, axis=2), axis=1)
    return gl.convert_layout(m, rows)


@gluon.jit
def _hide(''',
    ),
]
TABLE = """\
VARIANTS = {
    64: (
        Variant(CONSUMERS=2, STAGES=3, OVERLAP=True, Q_IN_REGISTERS=True),
        Variant(CONSUMERS=3, STAGES=3, OVERLAP=True, LAZY=True),
    ),
    128: (Variant(CONSUMERS=2, STAGES=2, OVERLAP=True, LAZY=True),),
}
CONFIGURATIONS = {"_variant": VARIANTS}  # what a test may choose instead: all of it
# Whether causal → of each variant for D 64 the microseconds of a tile of queries, and those of each
# tile of keys that it visits, on an H200.
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
    *UNMET,
    LEFT,
    DEALT,
    HELD,
    *SUMS,
    LIMIT,
    *CHAINS,
    (CHOICE[0][0], TABLE),
    ("Run it alone: `python kernel.py`", "Run it alone: `python kernel_fast.py`"),
]


def source() -> str:
    """The text of the fast file. Raises MutantError for a piece that is not there."""
    return _source(IN_TURN)
