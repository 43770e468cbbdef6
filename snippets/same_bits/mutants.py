"""Wrong variants of kernel.py: mistakes people make with chunks, splits and masks."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "zeros",
        "return acc * tl.div_rn(1.0, l_i)[:, None]",
        "return acc * 0.0",
        "The result is all zeros.",
    ),
    Mutant(
        "mean of V",
        "p = tl.exp2(tl.fma(s, scale_log2, -m_sub[:, None]))",
        "p = tl.where(s > float('-inf'), 1.0, 0.0)",
        "Every visible value gets the same weight: the result ignores the queries and the keys.",
    ),
    Mutant(
        "no scale",
        "(D**-0.5 if scale is None else float(scale)) * LOG2_E.value",
        "LOG2_E.value",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "accumulator not rescaled",
        "acc = tl.dot(p, v_tile, acc * alpha[:, None]",
        "acc = tl.dot(p, v_tile, acc",
        "When the maximum moves, what was summed before keeps its old, too large, weight.",
    ),
    Mutant(
        "mask off by one",
        "last_key += m - M + 1",
        "last_key += m - M + 2",
        "The causal mask is off by one: a query sees one key of its future.",
    ),
    Mutant(
        "diagonal not masked",
        "unmasked_end = tl.maximum(length - M + block * BLOCK_M // G + 1, 0)",
        "unmasked_end = tl.maximum(length - M + (block + 1) * BLOCK_M // G + 1, 0)",
        "Tiles that the diagonal cuts are taken whole.",
    ),
    Mutant(
        "wrong head of keys",
        "m, h = offs_r // G, hk * G + offs_r % G",
        "m, h = offs_r // G, offs_r % G * Hkv + hk",
        "Query heads are dealt to the heads of keys in turn; they belong to them in groups.",
    ),
    Mutant(
        "merge without rescaling",
        "acc = tl.fma(acc, old[:, None], acc_j * new[:, None])",
        "acc = acc + acc_j",
        "Chunks are added as if all had the same largest score.",
    ),
    Mutant(
        "merge by the chunk's maximum",
        "m_new = tl.maximum(m_i, m_j)",
        "m_new = m_j",
        "The merge subtracts the newest chunk's largest score, though an older one may be larger.",
    ),
    Mutant(
        "a chunk begins with the last one's sums",
        "            m_j, l_j, acc_j = _nothing(BLOCK_M, D)\n",
        "            m_j, l_j, acc_j = m_j, l_j, acc_j\n",
        "A chunk does not start from zero, so that all before it is counted twice.",
    ),
    Mutant(
        "last chunk forgotten",
        "m_i, l_i, acc = _merge(m_i, l_i, acc, m_j, l_j, acc_j)\n    l_i = ",
        "l_i = ",
        "The last chunk is summed and never merged.",
    ),
    Mutant(
        "one chunk too few",
        "tl.cdiv(tl.maximum(seen, 0), CHUNK)",
        "tl.maximum(seen, 0) // CHUNK",
        "The chunk that is not full is never merged.",
    ),
    Mutant(
        "chunks of another row",
        "tl.load(part_ptr + (row * chunks + j) * D + offs_d)",
        "tl.load(part_ptr + (j * chunks + row) * D + offs_d)",
        "Parts are stored by row and then by chunk, and read the other way around.",
    ),
    Mutant(
        "past the length",
        "length = tl.minimum(tl.maximum(tl.load(lens_ptr + b), 0), capacity)\n    last_key",
        "length = capacity\n    last_key",
        "The sequence's length is ignored, and keys are attended to that are not there.",
    ),
    Mutant(
        "rows of the wrong page",
        "row = offs_n % PAGE if PAGE > 0 else offs_n",
        "row = offs_n % (PAGE + 1) if PAGE > 0 else offs_n",
        "A key's row within its page is wrong.",
    ),
]

PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_same_bits_kernel": [
        "mean of V",
        "accumulator not rescaled",
        Slip("sum not rescaled", "l_i * alpha[:, None]", "l_i"),
        "mask off by one",
        "zeros",
        "merge without rescaling",
        "merge by the chunk's maximum",
        "a chunk begins with the last one's sums",
        "last chunk forgotten",
        Slip("keys not transposed", "tl.dot(q, k_tile.T, ", "tl.dot(q, k_tile, "),
    ],
    "kernel.py:_merge_kernel": [
        "one chunk too few",
        "chunks of another row",
        "merge without rescaling",
        Slip(
            "sums added without rescaling",
            "tl.fma(l_i, old[:, None], l_j * new[:, None])",
            "l_i + l_j",
        ),
        Slip("old and new exchanged", "old, new = tl.exp2(m_i", "new, old = tl.exp2(m_i"),
        Slip("not divided by the weights", "acc * tl.div_rn(1.0, l_i)[:, None]", "acc"),
        Slip(
            "only the last chunk",
            "_merge(m_i, l_i, acc, m_j, l_j, acc_j)\n    out, lse",
            "m_j, l_j, acc_j\n    out, lse",
        ),
        Slip(
            "largest scores taken for sums", "(tl.num_programs(0) + row) * chunks", "row * chunks"
        ),
        Slip(
            "chunks of one row for all",
            "row = tl.program_id(0).to(tl.int64)",
            "row = tl.program_id(0).to(tl.int64) * 0",
        ),
        Slip(
            "maximum of the first chunk for all", "row * chunks + j + one)", "row * chunks + one)"
        ),
    ],
}
