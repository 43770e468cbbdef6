"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected.

Mistakes with barriers are not among them: what those do depends on the moment, so the simulation of
the protocol rejects them.
"""

from snippets._lab.judge.mutants import Mutant

MUTANTS = [
    Mutant(
        "zeros",
        "state.acc * gl.convert_layout(1.0 / l_i, gl.SliceLayout(1, _acc_layout(D)))[:, None]",
        "state.acc * 0.0",
        "The result is all zeros.",
    ),
    Mutant(
        "mean of V",
        "    p = gl.exp2((s * before - m_sub[:, None]) * after)\n"
        "    alpha = gl.exp2((state.m_i - m_sub) * after)\n",
        '    p = gl.where(s > float("-inf"), 1.0, 0.0)\n'
        '    alpha = gl.where(state.m_i > float("-inf"), 1.0, 0.0)\n',
        "Every visible value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "no scale",
        "scale_log2 = scale * LOG2_E.value",
        "scale_log2 = LOG2_E.value",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "wrong base",
        "scale_log2 = scale * LOG2_E.value",
        "scale_log2 = scale",
        "exp2 without log2(e) in the scale: the softmax is too flat.",
    ),
    Mutant(
        "max not subtracted",
        "m_new = gl.max(s, axis=1) * before",
        "m_new = gl.zeros([CONSUMER_M], gl.float32, gl.SliceLayout(1, SCORES_LAYOUT))\n"
        "    state = Running(m_new, state.l_i, state.acc)",
        "The softmax does not subtract the largest score: exp2 overflows and the row becomes NaN.",
    ),
    Mutant(
        "accumulator not rescaled under overlap",
        "return p_next, Running(m_i, l_i, _rescale(acc, alpha, V))",
        "return p_next, Running(m_i, l_i, acc)",
        "Where softmax and product overlap, what was summed before keeps its old weight.",
    ),
    Mutant(
        "accumulator not rescaled without overlap",
        "acc = _rescale(state.acc, alpha, V)",
        "acc = state.acc",
        "Where the consumers fill each other's gaps, what was summed before keeps its old weight.",
    ),
    Mutant(
        "maximum that never follows",
        "gl.where((m_new - state.m_i) * after > GROWTH, m_new, state.m_i)",
        "gl.where((m_new - state.m_i) * after > GROWTH, state.m_i, state.m_i)",
        "A maximum that may lag behind stays minus infinity: sums are thrown away each time.",
    ),
    Mutant(
        "maximum that lags too far",
        "GROWTH = gl.constexpr(4.0)",
        "GROWTH = gl.constexpr(400.0)",
        "The weights may pass what 16 bits hold before the maximum follows.",
    ),
    Mutant(
        "sum not rescaled",
        "l_i = l_i * alpha + gl.sum(p, axis=1)",
        "l_i = l_i + gl.sum(p, axis=1)",
        "When the maximum moves, the sum of the weights keeps its old scale.",
    ),
    Mutant(
        "sums of the threads not rescaled",
        "l_i = l_i * alpha[:, None] + ",
        "l_i = l_i + ",
        "When the maximum moves, the sums that the threads keep have their old scale.",
    ),
    Mutant(
        "one thread's sum",
        "l_i = gl.convert_layout(gl.sum(l_i, axis=1), rows)",
        "l_i = gl.convert_layout(gl.max(l_i, axis=1), rows)",
        "Of the four threads that share a row only one's weights are counted in the sum.",
    ),
    Mutant(
        "maximum not kept",
        "return p, alpha, m_new, _add_row_sums(state.l_i, alpha, p)",
        "return p, alpha, gl.max(s, axis=1) * before, _add_row_sums(state.l_i, alpha, p)",
        "The maximum of the last tile replaces the maximum so far.",
    ),
    Mutant(
        "last key dropped",
        "s = _hide(s, last_key - start, V)",
        "s = _hide(s, last_key - start - 1, V)",
        "The mask is off by one: a query does not see the last key it should see.",
    ),
    Mutant(
        "threads of a row alike",
        "8 * i <= last - 2 * j - k",
        "8 * i <= last - k",
        "The mask takes every thread for the first of its row: most columns are judged wrong.",
    ),
    Mutant(
        "mask off by one",
        "last_key = gl.minimum(last_key, offs_m + prob.causal_offset)",
        "last_key = gl.minimum(last_key, offs_m + prob.causal_offset + 1)",
        "The causal mask is off by one: a query sees one key of its future.",
    ),
    Mutant(
        "other corner",
        'N - M if align == "bottom_right" else 0',
        'N - M if align == "top_left" else 0',
        "The triangle of the causal mask sits in the other corner.",
    ),
    Mutant(
        "zeros past the last key",
        "masked = causal or N % BLOCK_N.value != 0",
        "masked = causal",
        "TMA fills the last tile of keys with zeros, and nothing hides their scores.",
    ),
    Mutant(
        "last tile dropped",
        "n = gl.cdiv(end, BLOCK_N)",
        "n = end // BLOCK_N",
        "The keys after the last whole tile never arrive.",
    ),
    Mutant(
        "diagonal without a mask",
        "return n, n - seen_by_all // BLOCK_N",
        "return n, n - gl.cdiv(seen_by_all, BLOCK_N)",
        "A tile of keys that some queries do not see whole is taken whole: they see their future.",
    ),
    Mutant(
        "rows without a key",
        "l_i = gl.where(state.l_i == 0.0, 1.0, state.l_i)",
        "l_i = state.l_i * 1.0",
        "A row that sees no key is divided by zero.",
    ),
    Mutant(
        "hidden rows become NaN",
        'm_sub = gl.where(m_new == float("-inf"), 0.0, m_new)',
        "m_sub = m_new",
        "A row that has seen no key subtracts -inf from -inf.",
    ),
    Mutant(
        "wrong head of keys",
        """\
            _fill(k_desc, [b, h // prob.G, row, 0], channels.k, stage)
            _fill(v_desc, [b, h // prob.G, row, 0], channels.v, stage)
""",
        """\
            _fill(k_desc, [b, h % (prob.H // prob.G), row, 0], channels.k, stage)
            _fill(v_desc, [b, h % (prob.H // prob.G), row, 0], channels.v, stage)
""",
        "Query heads are dealt to the heads of keys in turn; they belong to them in groups.",
    ),
    Mutant(
        "keys for values",
        "_fill(v_desc, [b, h // prob.G, row, 0], channels.v, stage)",
        "_fill(k_desc, [b, h // prob.G, row, 0], channels.v, stage)",
        "The weights are summed over the keys again and not over the values.",
    ),
    Mutant(
        "values of another tile",
        "_fill(v_desc, [b, h // prob.G, row, 0], channels.v, stage)",
        "_fill(v_desc, [b, h // prob.G, i * BLOCK_N, 0], channels.v, stage)",
        "Keys come from the last tile to the first, their values from the first to the last.",
    ),
    Mutant(
        "queries of the first consumer",
        "row = (tile * V.CONSUMERS + warpgroup) * CONSUMER_M",
        "row = tile * V.CONSUMERS * CONSUMER_M",
        "Every consumer is handed the first consumer's 64 queries.",
    ),
    Mutant(
        "rows of the first consumer",
        "[head, first, 0]",
        "[head, tile * V.CONSUMERS * CONSUMER_M, 0]",
        "Every consumer stores to the first consumer's 64 rows; the others are never written.",
    ),
    Mutant(
        "a pair that misses",
        "tile = gl.where(work_idx % 2 == 0, prob.tiles - 1 - tile // 2, tile // 2)",
        "tile = gl.where(work_idx % 2 == 0, prob.tiles - tile // 2, tile // 2)",
        "The longer tile of a pair is one too far: one lies past the head, another is left out.",
    ),
    Mutant(
        "work between two rounds",
        "next_idx = work_idx + programs",
        "next_idx = work_idx + programs + 1",
        "A program that has done its item moves one program too far: nobody takes some tiles.",
    ),
    Mutant(
        "a pair of the next program",
        "work_idx + 2 * programs - 1)",
        "work_idx + 2 * programs + 1)",
        "A program's second pair is its neighbor's, and the first program's second is nobody's.",
    ),
    Mutant(
        "back one too far",
        "turn = work_idx + 2 * (programs - 1 - (work_idx - prob.paired) % programs) + 1",
        "turn = work_idx + 2 * (programs - 1 - (work_idx - prob.paired) % programs) + 2",
        "On the way back each program takes its neighbor's tile, and nobody takes the first.",
    ),
    Mutant(
        "the first head's tiles again",
        "long = (dealt + 1 - first * prob.tiles % 2) // 2",
        "long = (dealt + 1 - first * prob.tiles % 2) // 2 - 1",
        "Of the head that pairs have begun, one long tile is done twice and a short one never.",
    ),
    Mutant(
        "logsumexp in base 2",
        "(m_i + gl.log2(l_i)) / LOG2_E",
        "(m_i + gl.log2(l_i))",
        "The logsumexp stays a logarithm of base 2.",
    ),
    Mutant(
        "logsumexp without the scale",
        "m_i = state.m_i * prob.scale_log2 if V.EXACT else state.m_i",
        "m_i = state.m_i",
        "The largest of huge scores is kept without its scale, which the logsumexp needs.",
    ),
    Mutant(
        "huge scores scaled first",
        "EXACT=scale > 1",
        "EXACT=False",
        "A multiply-add subtracts a maximum that was rounded: huge scores end in NaN or zeros.",
    ),
    Mutant(
        "correction not scaled",
        "alpha = gl.exp2((state.m_i - m_sub) * after)",
        "alpha = gl.exp2(state.m_i - m_sub)",
        "What was summed before is corrected by a power of the difference without its scale.",
    ),
]
