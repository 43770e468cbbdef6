"""Kernels whose parts agree on something wrong, for protocol.py to find out."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from snippets._lab.judge.mutants import CONTROL, Mutant, MutantError, mutate

from .gluon import KERNEL
from .protocol import ORDERS, judge


class Mistake(NamedTuple):
    """A wrong protocol: pieces of kernel.py, each occurring once, that are replaced."""

    name: str
    changes: list[tuple[str, str]]
    diagnosis: str  # one sentence a reader with this mistake would want to read


MISTAKES = [
    Mistake(
        "no wait for an empty buffer",
        [("mbarrier.wait(channel.empty.index(stage.index), stage.phase ^ 1)", "pass")],
        "The producer runs ahead and copies over tiles that nobody has read.",
    ),
    Mistake(
        "wait for an empty buffer in the first phase",
        [("stage.phase ^ 1", "stage.phase")],
        "Nobody has emptied a buffer that was never full: only the opposite parity lets the first "
        "wait pass.",
    ),
    Mistake(
        "full before the bytes are there",
        [
            (
                "mbarrier.expect(full, desc.block_type.nbytes)",
                "mbarrier.arrive(full, count=1)",
            )
        ],
        "An arrival that announces no bytes ends the phase at once; the copy is still on its way.",
    ),
    Mistake(
        "a phase for each tile of keys",
        [
            (
                """\
            stage = _stage(kv_count, V)
            _fill(k_desc, [b, h // prob.G, row, 0], channels.k, stage)
""",
                """\
            stage = Stage(kv_count % V.STAGES, kv_count & 1)
            _fill(k_desc, [b, h // prob.G, row, 0], channels.k, stage)
""",
            )
        ],
        "The phase changes when a buffer comes round again, not with every tile.",
    ),
    Mistake(
        "a phase for each tile of queries",
        [("count // Q_BUFFERS & 1", "count & 1")],
        "A consumer's queries come through two buffers, so a phase takes two of its tiles.",
    ),
    Mistake(
        "tiles counted anew for each tile of queries",
        [("kv_count += n", "pass")],
        "Barriers remember their phases from one tile of queries to the next, so must the count.",
    ),
    Mistake(
        "one arrival too few",
        [
            (
                "k = _channel(k_desc, V.STAGES, V.CONSUMERS)",
                "k = _channel(k_desc, V.STAGES, V.CONSUMERS - 1)",
            )
        ],
        "Every consumer reads a tile of keys; it is empty when the last of them has released it.",
    ),
    Mistake(
        "one arrival too many",
        [
            (
                "v = _channel(v_desc, V.STAGES, V.CONSUMERS)",
                "v = _channel(v_desc, V.STAGES, V.CONSUMERS + 1)",
            )
        ],
        "The barrier waits for a consumer that does not exist.",
    ),
    Mistake(
        "keys released under their product",
        [
            (
                """\
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release_in_passing(channels.k, stage)
""",
                """\
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    _release_in_passing(channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
""",
            )
        ],
        "A started product still reads its buffers: release them after the wait for its end.",
    ),
    Mistake(
        "values released under their product",
        [
            (
                """\
    acc, _ = warpgroup_mma_wait(0, deps=[acc, p])
    _release(channels.v, before)
""",
                """\
    _release(channels.v, before)
    acc, _ = warpgroup_mma_wait(0, deps=[acc, p])
""",
            )
        ],
        "The product with the values runs until the second wait of a step, and so must the buffer.",
    ),
    Mistake(
        "values of the last tile not released",
        [
            (
                """\
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc, channels.v, stage, V)])
    _release(channels.v, stage)
""",
                """\
    acc = warpgroup_mma_wait(0, deps=[_issue_pv(p, state.acc, channels.v, stage, V)])
""",
            )
        ],
        "The last tile is folded in after the loop, and its buffer is needed by the next queries.",
    ),
    Mistake(
        "scores read too early",
        [("warpgroup_mma_wait(1, deps=[scores])", "warpgroup_mma_wait(2, deps=[scores])")],
        "Two products run; one may be left when the softmax begins, and that is the later one.",
    ),
    Mistake(
        "weights times the values of the next tile",
        [
            (
                "_issue_pv(p, state.acc, channels.v, before, V)",
                "_issue_pv(p, state.acc, channels.v, stage, V)",
            )
        ],
        "With the softmax under the product, the weights at hand belong to the tile before.",
    ),
    Mistake(
        "queries released before the loop",
        [
            (
                "    masked = gl.maximum(masked, 1)\n",
                "    masked = gl.maximum(masked, 1)\n"
                "    if not V.Q_IN_REGISTERS:\n"
                "        _release(channels.q, q_stage)\n",
            ),
            (
                """\
    if not V.Q_IN_REGISTERS:  # the last scores are done
        _release(channels.q, q_stage)
    p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
""",
                """\
    p = gl.convert_layout(p.to(channels.v.buffers.dtype), _left_operand(acc_layout))
""",
            ),
        ],
        "The tensor cores read the queries from shared memory for every tile of keys.",
    ),
    Mistake(
        "queries released before they are used",
        [
            (
                """\
    _wait_for_turn(channels.order_barriers, kv_count, queries.warpgroup, V)
    stage = _stage(kv_count, V)
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    _pass_turn(channels.order_barriers, queries.warpgroup, V)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
    if V.Q_IN_REGISTERS:
        _release(channels.q, q_stage)
""",
                """\
    if V.Q_IN_REGISTERS:
        _release(channels.q, q_stage)
    _wait_for_turn(channels.order_barriers, kv_count, queries.warpgroup, V)
    stage = _stage(kv_count, V)
    scores = _issue_qk(queries.tile, channels.k, stage, V)
    _pass_turn(channels.order_barriers, queries.warpgroup, V)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
""",
            )
        ],
        "A load that has been issued may still wait for its turn when the next queries arrive.",
    ),
    Mistake(
        "queries without keys never released",
        [
            (
                """\
            else:
                _release(channels.q, q_stage)
""",
                """\
            else:
                pass
""",
            )
        ],
        "A tile of queries that sees no key was copied all the same, and its buffer is awaited.",
    ),
    Mistake(
        "turn not passed on",
        [
            (
                "    acc = _issue_pv(p, state.acc, channels.v, before, V)\n"
                "    _pass_turn(channels.order_barriers, queries.warpgroup, V)\n",
                "    acc = _issue_pv(p, state.acc, channels.v, before, V)\n",
            )
        ],
        "The other consumer waits for its turn, this one for the other, and the producer for both.",
    ),
    Mistake(
        "nobody's turn at first",
        [("mbarrier.arrive(order_barriers.index(0), count=1)", "pass")],
        "Each consumer waits for the other to begin.",
    ),
    Mistake(
        "turn not waited for",
        [("_wait_for_turn(channels.order_barriers, count, queries.warpgroup, V)", "pass")],
        "Results stay right, but both consumers may multiply, and then both do their softmax.",
    ),
    Mistake(
        "rows written over rows on their way out",
        [
            (
                """\
        tma.store_wait(0)
        out_tile = out_buffers.index(warpgroup)
""",
                """\
        out_tile = out_buffers.index(warpgroup)
""",
            )
        ],
        "TMA may still be storing the tile before when a short one is done.",
    ),
    Mistake(
        "end before the last rows are out",
        [
            (
                """\
        work_idx = _next_work(work_idx, prob)
    tma.store_wait(0)""",
                """\
        work_idx = _next_work(work_idx, prob)""",
            )
        ],
        "The next program gets this shared memory while TMA still reads it.",
    ),
    Mistake(
        "no fence before the store",
        [("fence_async_shared()", "pass")],
        "TMA reads shared memory another way than threads do, and may see old rows.",
    ),
    Mistake(
        "programs one item apart",
        [("others = (programs - 1) * prob.step", "others = programs * prob.step")],
        "Each program leaves out the work of one program too many, and nobody takes that.",
    ),
]


def with_mistake(mistake: Mistake, source: str) -> str:
    """A kernel's text with all changes of a mistake."""
    for old, new in mistake.changes:
        source = mutate(source, Mutant(mistake.name, old, new, mistake.diagnosis))
    return source


def protocol_mutants(lab: Any, orders: int = ORDERS) -> Iterator[dict[str, Any]]:
    """What the simulation says to each mistake; the kernel as it is comes first and passes."""
    source = KERNEL.read_text("utf-8")
    mistakes = {CONTROL: Mistake(CONTROL, [], "")} | {m.name: m for m in MISTAKES}
    for case in lab.each(mutant=list(mistakes)):
        mistake = mistakes[case["mutant"]]
        found = judge(with_mistake(mistake, source), orders)
        if bool(found["message"]) != bool(mistake.changes):
            raise MutantError(f"{mistake.name}: {found['message'] or 'nothing was found'}")
        yield {**case, "diagnosis": mistake.diagnosis, **found}
