"""Wrong variants of kernel.py, of ring.py and of the step in op.py. Each must be rejected."""

from snippets._lab.judge.mutants import Mutant

MUTANTS = [
    Mutant(
        "sums carried in 16 bits",
        "tl.store(acc_ptr + place, acc, mask=",
        "tl.store(acc_ptr + place, acc.to(tl.float16).to(tl.float32), mask=",
        "What a rank hands from step to step is rounded each time: the error grows with the ring.",
    ),
    Mutant(
        "local logsumexp in the backward",
        "tl.store(lse_ptr + row, (m_i * after + tl.log2(l_i)) / LOG2_E, mask=last)",
        "tl.store(lse_ptr + row, (m_i * after + tl.log2(l_i)) / LOG2_E, mask=mask_m & FIRST)",
        "The logsumexp is that of a rank's own keys: the backward's weights sum to more than 1.",
    ),
    Mutant(
        "v not rotated",
        "        held = arriving\n    yield held",
        "        held = (arriving[0], held[1])\n    yield held",
        "Keys of one rank weigh the values of another.",
        "ring.py",
    ),
    Mutant(
        "k not rotated in the backward",
        "                    compute(*held, (grad_q, *found), step)",
        "                    compute(k, held[1], (grad_q, *found), step)",
        "The backward needs the keys that the forward saw at this step, not the rank's own.",
        "ring.py",
    ),
    Mutant(
        "dK and dV one hop short of home",
        "            with _travel(ring, last, whole):\n                pass",
        "            whole = last",
        "After the last step the sums are at the neighbor of the rank whose keys they belong to.",
        "ring.py",
    ),
    Mutant(
        "earlier ranks' dK and dV dropped",
        "x[:, :, keys] += more[:, :, keys]",
        "x[:, :, keys] = more[:, :, keys]",
        "Each rank replaces what the ranks before it had found for the same keys.",
        "ring.py",
    ),
    Mutant(
        "neighboring chunks instead of mirrored ones",
        "chunks = (ring.rank, 2 * ring.size - 1 - ring.rank) if",
        "chunks = (2 * ring.rank, 2 * ring.rank + 1) if",
        "Shards are cut as if contiguous, and masked as if in zigzag.",
        "ring.py",
    ),
    Mutant(
        "the other chunk of keys",
        "return whole._replace(N=half) if source < rank else",
        "return whole._replace(first_key=half, N=half) if source < rank else",
        "Of an earlier rank's keys a query sees the first chunk; the mirrored one lies after it.",
        "ring.py",
    ),
    Mutant(
        "the other chunk of queries",
        "else whole._replace(first_row=half, M=half)",
        "else whole._replace(M=half)",
        "Keys of a later rank are seen by the second chunk of queries only.",
        "ring.py",
    ),
    Mutant(
        "staircase upside down",
        "return whole if source < rank else whole._replace(M=0)",
        "return whole if source > rank else whole._replace(M=0)",
        "Queries see the keys of later ranks and not those of earlier ones.",
        "ring.py",
    ),
    Mutant(
        "a buffer received into while it is read",
        "arriving = buffers[t % 2]",
        "arriving = buffers[0]",
        "The next keys overwrite the ones that the step is computing with.",
        "ring.py",
    ),
    Mutant(
        "running sum not rescaled",
        "l_i = l_i * alpha + l_old * beta",
        "l_i = l_i + l_old * beta",
        "Weights of this step are counted under its own maximum, and not under the common one.",
    ),
    Mutant(
        "old output not rescaled",
        "acc = acc * alpha[:, None] + old * beta[:, None]",
        "acc = acc * alpha[:, None] + old",
        "What earlier steps have summed stays under their smaller maximum.",
    ),
    Mutant(
        "finished too early",
        "later = [other.first_row for other in steps[t + 1 :] if other.M]",
        "later = []",
        "Every step divides and writes the output, and leaves nothing for the next one.",
        "ring.py",
    ),
    Mutant(
        "no scale in dQ",
        'dq = tl.dot(dst.T, k_tile, input_precision="ieee") * scale',
        'dq = tl.dot(dst.T, k_tile, input_precision="ieee")',
        "The scores were scaled, so their gradient is too.",
    ),
    Mutant(
        "mask off by one",
        "offs_n[None, :] <= last_key[:, None]",
        "offs_n[None, :] < last_key[:, None]",
        "A query does not see its own key.",
    ),
    Mutant(
        "huge scores scaled first",
        "q.dtype == torch.float32 or scale > 1",
        "q.dtype == torch.float32",
        "A multiply-add subtracts a maximum that was rounded: huge scores end in NaN or zeros.",
    ),
    Mutant(
        "carried sums corrected without the scale",
        "beta = tl.exp2((m_old - m_sub) * after)",
        "beta = tl.exp2(m_old - m_sub)",
        "What earlier steps have summed is corrected by a power of the difference without its "
        "scale.",
    ),
]

# Of the step for Hopper: pieces of op.py and of hopper_attention's loop, played by its stand-in.
STEP_MUTANTS = [
    Mutant(
        "sums carried in bfloat16",
        "_places(row, D), state.acc, mask=more)",
        "_places(row, D), state.acc.to(gl.bfloat16).to(gl.float32), mask=more)",
        "What a step hands to the next is rounded each time: the error grows with the ring.",
    ),
    Mutant(
        "carried values not rescaled",
        "acc += old * gl.convert_layout(beta, across)[:, None]",
        "acc += old",
        "What earlier steps have summed stays under their smaller maximum.",
    ),
    Mutant(
        "values of this step not rescaled",
        "acc = state.acc * gl.convert_layout(alpha, across)[:, None]",
        "acc = state.acc",
        "Where an earlier step has seen the largest score, this step's values weigh too much.",
    ),
    Mutant(
        "carried maximum forgotten",
        "m_old = gl.load(carried.m_ptr + row, mask=mask, other=0.0)",
        "m_old = state.m_i",
        "The weights of earlier steps were taken under a maximum that nobody knows any more.",
    ),
    Mutant(
        "first_row forgotten",
        "head.to(gl.int64) * carried.L + carried.first_row + offs_m",
        "head.to(gl.int64) * carried.L + offs_m",
        "A step of the later chunk of queries goes on with the sums of the earlier one.",
    ),
    Mutant(
        "heads as far apart as this step is long",
        "head.to(gl.int64) * carried.L",
        "head.to(gl.int64) * prob.M",
        "The sums of a head lie L rows after those of the head before, whatever a step takes.",
    ),
    Mutant(
        "queries released before they are used",
        """\
    stage = _stage(keys.before, V)
    scores = _issue_qk(queries.tile, channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
    if V.Q_IN_REGISTERS:
        _release(channels.q, queries.stage)
""",
        """\
    if V.Q_IN_REGISTERS:
        _release(channels.q, queries.stage)
    stage = _stage(keys.before, V)
    scores = _issue_qk(queries.tile, channels.k, stage)
    s = warpgroup_mma_wait(0, deps=[scores])
    _release(channels.k, stage)
""",
        "A load that has been issued may still wait for its turn when the next queries arrive.",
    ),
    Mutant(
        "a tile that is done in part is not carried on",
        "if first + CONSUMER_M > carried.done:",
        "if first >= carried.done:",
        "Where chunks are no multiple of 64 rows, a tile has rows of both kinds.",
    ),
    Mutant(
        "a tile that is done in part is not stored",
        "if first < carried.done:",
        "if first + CONSUMER_M <= carried.done:",
        "Where chunks are no multiple of 64 rows, a tile has rows of both kinds.",
    ),
    Mutant(
        "huge scores scaled first",
        "LAZY, EXACT)\n"
        "    prob = Problem(H, G, M, N, tiles, total, paired, causal_offset, scale_log2)\n"
        "    carried = ",
        "LAZY, False)\n"
        "    prob = Problem(H, G, M, N, tiles, total, paired, causal_offset, scale_log2)\n"
        "    carried = ",
        "A multiply-add subtracts a maximum that was rounded: huge scores end in NaN or zeros.",
    ),
    Mutant(
        "logsumexp without the scale",
        "            m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i\n"
        "            lse = ",
        "            m_i = state.m_i\n            lse = ",
        "The largest of huge scores is kept without its scale, which the logsumexp needs.",
    ),
    Mutant(
        "divided by the sum of one step",
        "Running(m_new, state.l_i * alpha + l_old * beta, acc)",
        "Running(m_new, state.l_i * alpha, acc)",
        "The output is divided by the weights of all keys, and they are summed over all steps.",
    ),
]
