"""Wrong variants of kernel.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant, Slip

MUTANTS = [
    Mutant(
        "zeros",
        "out_tile, out.to(out_ptr.dtype.element_ty)",
        "out_tile, (out * 0.0).to(out_ptr.dtype.element_ty)",
        "The result is all zeros.",
    ),
    Mutant(
        "no scale",
        "s * scale_log2",
        "s * LOG2_E",
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
    ),
    Mutant(
        "acc not rescaled",
        "acc = acc * alpha[:, None]",
        "acc = acc * 1.0",
        "When the maximum moves, the values collected so far keep their old, too large weights.",
    ),
    Mutant(
        "sum not rescaled",
        "l_i = l_i * alpha + tl.sum(p, axis=1)",
        "l_i = l_i + tl.sum(p, axis=1)",
        "When the maximum moves, the sum keeps exponentials of the old one: it is too large.",
    ),
    Mutant(
        "newest token hidden",
        "offs_n[None, :] <= last_key[:, None]",
        "offs_n[None, :] < last_key[:, None]",
        "A token does not see its own key: the lengths count it already.",
    ),
    Mutant(
        "new tokens see each other",
        "visible = places.there[None, :] & (offs_n[None, :] <= last_key[:, None])",
        "visible = places.there[None, :] & (offs_n[None, :] <= last_key[:, None] + BLOCK_N)",
        "Nothing hides the tokens that come after: with several new tokens each sees them all.",
    ),
    Mutant(
        "lengths without the new tokens",
        "last_key = known - M + m",
        "last_key = known + m",
        "The lengths are taken for those before the new tokens: each sees M keys too many.",
    ),
    Mutant(
        "length not limited",
        "length = tl.minimum(tl.maximum(known, 0), capacity)",
        "length = tl.maximum(known, 0)",
        "A length beyond the cache is believed, and what lies behind the cache is read.",
    ),
    Mutant(
        "last split dropped",
        "share = tl.cdiv(tl.cdiv(length, BLOCK_N), splits) * BLOCK_N",
        "share = tl.maximum(tl.cdiv(length, BLOCK_N) // splits, 1) * BLOCK_N",
        "The share of a split is rounded down: the last keys belong to no split.",
    ),
    Mutant(
        "splits overlap",
        "stop = tl.minimum(first + chunk, end)",
        "stop = tl.minimum(first + chunk + BLOCK_N, end)",
        "Each split goes a tile too far: the keys there count twice.",
    ),
    Mutant(
        "splits averaged",
        "weight = tl.exp2(lse - offset)",
        "weight = tl.where(lse != float('-inf'), 1.0, 0.0)",
        "Splits are averaged, whatever part of the softmax each of them holds.",
    ),
    Mutant(
        "merged in another base",
        "weight = tl.exp2(lse - offset)",
        "weight = tl.exp(lse - offset)",
        "The logsumexp of a split is in base 2, and is combined as if it were in base e.",
    ),
    Mutant(
        "maximum of the last splits",
        "largest = tl.maximum(largest, tl.max(lse, axis=0))",
        "largest = tl.max(lse, axis=0)",
        "Splits are compared with the maximum of the last sixteen alone, which may be empty.",
    ),
    Mutant(
        "empty split is NaN",
        'offset = tl.where(largest == float("-inf"), 0.0, largest)',
        "offset = largest * 1.0",
        "A sequence without keys subtracts -inf from -inf: NaN where zeros belong.",
    ),
    Mutant(
        "no guard for rows without keys",
        "out = acc / tl.where(l_i == 0.0, 1.0, l_i)[:, None]",
        "out = acc / l_i[:, None]",
        "A row without a visible key is 0 / 0: NaN where zeros belong.",
    ),
    Mutant(
        "first head of keys for all",
        "k_ptr + hk * stride_kh",
        "k_ptr + hk * 0",
        "All groups read the keys of the first head.",
    ),
    Mutant(
        "groups mixed up",
        "m, h = offs_r // G, hk * G + offs_r % G",
        "m, h = offs_r // G, hk + offs_r % G * Hkv",
        "Query heads are dealt out to heads of keys in turn, and not in groups of neighbors.",
    ),
    Mutant(
        "rows in another order",
        "m, h = offs_r // G, hk * G + offs_r % G",
        "m, h = offs_r % M, hk * G + offs_r % G",
        "A tile's rows take head and token from one number: some pairs come twice, some never.",
    ),
    Mutant(
        "pages in order",
        "return tl.load(entry + (n // PAGE).to(tl.int64) * pages.stride_n, mask=mask, other=-1)",
        "return tl.where(mask, n // PAGE, -1)",
        "The table is not asked: the pages are read as they lie in the pool.",
    ),
    Mutant(
        "first sequence's pages for all",
        "entry = pages.table_ptr + pages.b.to(tl.int64) * pages.stride_b",
        "entry = pages.table_ptr + pages.b.to(tl.int64) * 0",
        "Every sequence reads through the table of the first.",
    ),
    Mutant(
        "row within the page forgotten",
        "rows = offs % PAGE",
        "rows = offs % PAGE * 0",
        "Every key of a page is its first.",
    ),
    Mutant(
        "every tile from its page's first row",
        "first_row = start % PAGE",
        "first_row = 0",
        "A page of several tiles is read from its beginning by each of them.",
    ),
    Mutant(
        "a tile's pages in turns",
        "tl.broadcast_to(page[:, None], [BLOCK_N // PAGE, PAGE])",
        "tl.broadcast_to(page[None, :], [PAGE, BLOCK_N // PAGE])",
        "The pages of a tile take turns from key to key, where each has all its keys in a row.",
    ),
    Mutant(
        "first tile's pages for all",
        "n += BLOCK_N",
        "n += 0",
        "The next tile's pages are not looked up: every tile reads those of the first.",
    ),
    Mutant(
        "looked up behind the end",
        """n += BLOCK_N
            page = _look_up(pages, n, n < stop, PAGE=PAGE)""",
        """n += BLOCK_N
            page = _look_up(pages, n, n >= 0, PAGE=PAGE)""",
        "No tile comes after the last, and the table is asked where its pages lie all the same.",
    ),
    Mutant(
        "negative pages believed",
        "return (page >= 0) & (page < num_pages)",
        "return page < num_pages",
        "A page of -1 is read: what lies in front of the pool.",
    ),
    Mutant(
        "one share for every batch",
        "SPLIT_KEYS if batch_invariant else 0,",
        "0,",
        "The keys of a split depend on how many splits there are, so on the longest sequence.",
    ),
    Mutant(
        "appended one too late",
        "offs_n = known - M + m",
        "offs_n = known - M + m + 1",
        "New tokens are written one place too far: the lengths count them already.",
    ),
    Mutant(
        "values appended as keys",
        "tl.store(v_ptr + to_v, tl.load(new_v_ptr + from_v, mask=mask), mask=mask)",
        "tl.store(v_ptr + to_v, tl.load(new_k_ptr + from_v, mask=mask), mask=mask)",
        "The cache of values gets the new keys.",
    ),
]

# What the playground is asked about each kernel: mutants by name, and slips that no test judges.
PLAYGROUND: dict[str, list[str | Slip]] = {
    "kernel.py:_decode_attention_kernel": [
        Slip("scores not scaled", 's * scale_log2, float("-inf")', 's, float("-inf")'),
        "acc not rescaled",
        "sum not rescaled",
        Slip("maximum not carried on", "        m_i = m_new\n", "        m_i = m_i\n"),
        "newest token hidden",
        Slip("a token sees the next one", "known - M + m", "known - M + m + 1"),
        Slip("each split has all keys", "first = split * chunk", "first = 0"),
        "first head of keys for all",
        "groups mixed up",
        Slip("keys not transposed", "tl.dot(q, k_tile.T, ", "tl.dot(q, k_tile, "),
    ],
    "kernel.py:_combine_kernel": [
        Slip("weights all equal", "weight = tl.exp2(lse - offset)", "weight = tl.exp2(lse * 0.0)"),
        Slip("not divided by the weights", "acc / total", "acc"),
        Slip("largest logsumexp not subtracted", "tl.exp2(lse - offset)", "tl.exp2(lse)"),
        Slip(
            "splits of one row for all",
            "row = tl.program_id(0).to(tl.int64)",
            "row = tl.program_id(0).to(tl.int64) * 0",
        ),
        "merged in another base",
        Slip("weights along the columns", "weight[:, None] * part", "weight[None, :] * part"),
        Slip("only the last block of splits", "acc = acc * alpha + tl.sum", "acc = tl.sum"),
        Slip("stride between splits left out", "at[:, None] * D + offs_d", "at[:, None] + offs_d"),
        Slip("store without its mask", ", mask=offs_d < D)\n    if", ")\n    if"),
        Slip("logsumexp in base 2", "lse / LOG2_E", "lse"),
    ],
    "kernel.py:_cache_append_kernel": [
        Slip("written over the first tokens", "offs_n = known - M + m", "offs_n = m"),
        "appended one too late",
        Slip("new tokens written past the end", "offs_n = known - M + m", "offs_n = known + m"),
        "values appended as keys",
        Slip("first head for all", "block * stride_kb + hk * stride_kh + ", "block * stride_kb + "),
        Slip("page number taken for the sequence", "page.to(tl.int64),", "b.to(tl.int64),"),
        Slip("row of the sequence and not of the page", "rows % PAGE, mask &", "rows, mask &"),
        Slip("store without its mask", "from_k, mask=mask), mask=mask)", "from_k, mask=mask))"),
        Slip("strides of the cache used for the tokens", "m * stride_nkm", "m * stride_kn"),
        Slip("columns not broadcast", "there[:, None] & (offs_d < D)", "there & (offs_d < D)"),
    ],
}
