"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant

MUTANTS = [
    Mutant(
        "Δ forgotten",
        "dst = (pt * (dpt - delta[None, :])).to(q_tile.dtype)",
        "dst = (pt * dpt).to(q_tile.dtype)",
        "The softmax's own gradient is left out: weights of a row no longer share one sum.",
    ),
    Mutant(
        "Δ of the output alone",
        "tl.sum(out.to(tl.float32) * grad_out.to(tl.float32), axis=1)",
        "tl.sum(out.to(tl.float32) * out.to(tl.float32), axis=1)",
        "Δ multiplies the output by itself and not by its gradient.",
    ),
    Mutant(
        "no scale in dK",
        "dk *= scale",
        "dk *= 1.0",
        "dK is larger by 1 / scale: the scores were scaled, so their gradient is too.",
    ),
    Mutant(
        "no scale in dQ",
        "other=0.0) * scale",
        "other=0.0) * 1.0",
        "dQ is larger by 1 / scale: the scores were scaled, so their gradient is too.",
    ),
    Mutant(
        "scale twice in P",
        "scale=scale, scale_log2=scale * LOG2_E.value",
        "scale=scale, scale_log2=scale * scale * LOG2_E.value",
        "P is computed again from scores that are scaled twice: it is not the forward's.",
    ),
    Mutant(
        "logsumexp taken for base 2",
        "lse * LOG2_E",
        "lse",
        "The forward's logsumexp is natural, the kernel's exponential has base 2.",
    ),
    Mutant(
        "P from the logsumexp of another row",
        "pt = tl.exp2(st * scale_log2 - lse_log2[None, :])",
        "pt = tl.exp2(st * scale_log2 - tl.max(lse_log2, axis=0))",
        "All rows of a tile subtract the largest logsumexp: their P no longer sum to 1.",
    ),
    Mutant(
        "P not in dS",
        "dst = (pt * (dpt - delta[None, :])).to(q_tile.dtype)",
        "dst = (dpt - delta[None, :]).to(q_tile.dtype)",
        "The gradient of the scores is not weighted by P.",
    ),
    Mutant(
        "dP from the keys",
        "if not BOTH_FIRST:\n            dpt = tl.dot(v_tile, do_tile.T",
        "if not BOTH_FIRST:\n            dpt = tl.dot(k_tile, do_tile.T",
        "dP is dO Vᵀ; here it is dO Kᵀ.",
    ),
    Mutant(
        "dV from dS",
        "dv = tl.dot(pt.to(do_tile.dtype), do_tile, dv",
        "dv = tl.dot((pt * dpt).to(do_tile.dtype), do_tile, dv",
        "dV is Pᵀ dO; here another matrix stands for P.",
    ),
    Mutant(
        "dK of one head of the group",
        "steps = G * per_head",
        "steps = per_head",
        "Only the first query head of a group is gone through: the others give dK, dV, dQ nothing.",
    ),
    Mutant(
        "wrong head of the group",
        "h, tile_m = hk * G + i // per_head",
        "h, tile_m = hk + i // per_head",
        "The heads that share a head of keys are G neighbors.",
    ),
    Mutant(
        "logsumexp of the tile before",
        "lse_log2, delta = next_lse, next_delta\n            i_next = tl.minimum(i + 1, steps - 1)",
        "lse_log2, delta = next_lse, next_delta\n            i_next = tl.minimum(i, steps - 1)",
        "What is loaded ahead belongs to this iteration and not to the next.",
    ),
    Mutant(
        "turned beyond the last tile",
        "h, tile_m = hk * G + i // per_head, first_tile + (i + turn) % per_head",
        "h, tile_m = hk * G + i // per_head, first_tile + i % per_head + turn",
        "A program that begins later in the queries never comes back to those before.",
    ),
    Mutant(
        "mask off by one",
        "offs_n[:, None] <= offs_m[None, :] + causal_offset",
        "offs_n[:, None] < offs_m[None, :] + causal_offset",
        "A query does not see its own key.",
    ),
    Mutant(
        "wrong corner",
        'causal_offset=N - M if align == "bottom_right" else 0',
        'causal_offset=N - M if align == "top_left" else 0',
        "The triangle of visible keys sits in the other corner; it shows where M ≠ N.",
    ),
    Mutant(
        "first tile of queries skipped",
        "first_tile = 0\n",
        "first_tile = 1\n",
        "Queries 0 … BLOCK_M - 1 give the keys nothing.",
    ),
    Mutant(
        "masked too late",
        "first_query + causal_offset < first_key + BLOCK_N - 1",
        "first_query + causal_offset < first_key",
        "Tiles that the diagonal crosses are taken for unmasked: hidden keys get a gradient.",
    ),
    Mutant(
        "keys beyond the last not masked",
        "hidden = first_key + BLOCK_N > N",
        "hidden = first_key > N",
        "Rows of zeros take part as keys: where all scores are low, their P overflows.",
    ),
    Mutant(
        "dQ not added up",
        'tl.atomic_add(place, tile, mask=mask, sem="relaxed")',
        "tl.store(place, tile, mask=mask)",
        "The tile of keys that is last writes dQ; what the others found is lost.",
    ),
    Mutant(
        "sum of dQ not cleared",
        "zeros = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)",
        "zeros = tl.full([BLOCK_M, BLOCK_D], 1.0, tl.float32)",
        "dQ is added to what the memory held before.",
    ),
    Mutant(
        "gradient of the logsumexp dropped",
        "delta -= tl.load(grad_lse_ptr",
        "delta -= 0.0 * tl.load(grad_lse_ptr",
        "A loss that uses the logsumexp trains on part of its gradient.",
    ),
    Mutant(
        "gradients replaced, not added to",
        "dk += tl.load(grad_k_ptr",
        "dk += 0.0 * tl.load(grad_k_ptr",
        "What the caller had gathered in dK is lost.",
    ),
    Mutant(
        "row without keys not marked",
        'tl.where(lse == float("-inf"), float("inf"), lse * LOG2_E)',
        "lse * LOG2_E",
        "-inf minus -inf is NaN: a query that sees no key spoils the gradients of all.",
    ),
]
