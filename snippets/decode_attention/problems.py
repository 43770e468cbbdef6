"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.oracle import beside, causal_mask, deviation
from snippets._lab.judge.problems import Problem, draw

from .checks import sequence

GROUP = "decode_attention"


def problems():
    yield decoded("plain", "one token, 24 keys", [24])
    yield decoded("groups", "two groups of three query heads", [9, 17], heads=(6, 2))
    yield decoded("tokens", "three new tokens, which see one another", [20], M=3, heads=(2, 1))
    yield decoded("few", "fewer keys than new tokens", [2, 0], M=4, heads=(2, 1))
    yield decoded("ragged", "sequences of very different lengths", [0, 1, 134], splits=2)
    yield decoded("splits", "three splits, combined", [139], splits=3, heads=(2, 1))
    yield decoded(
        "narrow", "12 columns, and the logsumexp asked for", [134], splits=2, D=12, lse=True
    )
    yield decoded("empty", "more splits than there are tiles", [20], splits=4)
    yield decoded("paged", "pages of 4, in any order", [13, 6], page=4, heads=(2, 1))
    yield decoded("paged_splits", "pages of 8 and two splits", [134], page=8, splits=2)
    yield decoded("large_pages", "pages of 128, each of them larger than a tile", [150], page=128)
    yield decoded(
        "large", "many splits, and scores beyond what exp can hold", [20], splits=17, q=256
    )
    yield decoded("too_long", "a length beyond the cache", [12], beyond=9)
    yield decoded("missing", "a page that does not exist", [8], page=4, missing=True)
    yield decoded("window", "eight keys for each of three tokens", [134, 9], M=3, splits=2, left=7)
    yield decoded("sinks", "a sink for each head", [20], M=2, heads=(4, 2), lse=True, sinks=True)
    yield decoded(
        "sinks_splits",
        "sinks, and splits to combine",
        [139],
        M=2,
        heads=(2, 1),
        splits=3,
        sinks=True,
    )
    yield appended("append", "tokens that fill a cache", 5)
    yield appended("append_paged", "tokens that fill four pages", 8, 2)
    yield appended("append_apart", "tokens whose heads are beside each other", 3, apart=True)


def pages_of(count):
    """As many pages, in an order of their own."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(count)).int()


def decoded(
    name,
    title,
    lengths,
    *,
    M=1,
    heads=(1, 1),
    D=16,
    splits=1,
    page=0,
    missing=False,
    beyond=0,
    q=2,
    lse=False,
    left=None,
    sinks=False,
):
    """New tokens over caches that hold other numbers behind the end of each sequence."""
    (H, Hkv), B = heads, len(lengths)
    capacity = max(lengths) + (0 if beyond else 3)
    q = draw(B, H, M, D) * q
    inputs = {"q": q}
    table = None
    shape = (B, Hkv, capacity, D)
    if page:
        width = -(-capacity // page)
        table = pages_of(B * width).view(B, width)
        shape = (B * width, Hkv, page, D)
    k, v = draw(*shape, seed=1), draw(*shape, seed=2)
    inputs |= {"k": k, "v": v, "lens": torch.tensor(lengths, dtype=torch.int32) + beyond}
    if page:
        inputs["table"] = table.clone()
        if missing:
            inputs["table"][0, 1] = -1
            lengths = [page]  # the keys of the first page are all that is left
    if sinks:
        inputs["sinks"] = torch.arange(1.0, H + 1)
    sinks = inputs.get("sinks", torch.full((H,), -torch.inf))
    want, allowed = expected(q, k, v, lengths, table, left, sinks)
    results = [(want, allowed)]
    if lse:
        results.append(expected_lse(q, k, lengths, table, sinks))

    def call(module, given):
        return module.decode_attention(
            given["q"],
            given["k"],
            given["v"],
            cache_seqlens=given["lens"],
            page_table=given.get("table"),
            num_splits=splits,
            return_lse=lse,
            window=(left, 0),
            sinks=given.get("sinks"),
        )

    wanted, bounds = zip(*results, strict=True)
    return Problem(name, title, inputs, call, wanted, bounds, group=GROUP)


def seen(M, length, left):
    """[M, length], True where a token sees a key."""
    mask = causal_mask(M, length)
    return mask if left is None else mask.triu(length - M - left)


def scores(q, k, b, length, table, mask, sinks):
    """Those of a sequence in float64 and a sink, -inf where a token does not see a key."""
    keys = sequence(k, b, length, table).repeat_interleave(q.shape[1] // k.shape[1], 0)
    products = q[b].double() @ keys.double().mT / q.shape[-1] ** 0.5
    more = sinks.double()[:, None, None].expand(*q.shape[1:3], 1)
    return torch.cat([products.masked_fill(~mask, -torch.inf), more], -1)


def expected_lse(q, k, lengths, table, sinks):
    """The logsumexp in float64, and the rounding of the scores: it moves by no more."""
    every = [
        scores(q, k, b, length, table, seen(q.shape[2], length, None), sinks)
        for b, length in enumerate(lengths)
    ]
    largest = max(float(s[s.isfinite()].abs().max()) for s in every)
    want = torch.stack([s.logsumexp(-1) for s in every])
    return want, 4 * torch.finfo(torch.float32).eps * (largest + 1)


def expected(q, k, v, lengths, table, left, sinks):
    """The result in float64, and how far from it a right kernel may be."""
    share = q.shape[1] // k.shape[1]
    want, allowed = torch.zeros(q.shape, dtype=torch.float64), 1e-7
    for b, length in enumerate(lengths):
        if not length:
            continue
        keys, vals = (sequence(x, b, length, table).repeat_interleave(share, 0) for x in (k, v))
        mask = seen(q.shape[2], length, left)
        weights = scores(q, k, b, length, table, mask, sinks).softmax(-1)[..., :-1]
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
        want[b] = weights @ vals.double()
        found = deviation(want[b].float(), q[b], keys, vals, mask=mask, sinks=sinks)
        allowed = max(allowed, found.allowed)
    return want, allowed


def appended(name, title, M, page=0, *, apart=False, D=16):
    """Tokens that fill the whole cache; `apart` stores the heads of a token beside each other."""
    new_k, new_v = draw(2, 2, M, D, seed=3), draw(2, 2, M, D, seed=4)
    want = [new_k, new_v]
    if apart:
        new_k, new_v = beside(new_k), beside(new_v)
    inputs = {"new_k": new_k, "new_v": new_v, "lens": torch.full((2,), M, dtype=torch.int32)}
    shape = (2, 2, M, D)
    if page:
        inputs["table"] = pages_of(2 * M // page).view(2, M // page)
        shape = (2 * M // page, 2, page, D)
        place = inputs["table"].flatten().long().argsort()  # page → its place among the tokens
        want = [x.unflatten(2, (-1, page)).transpose(1, 2).flatten(0, 1)[place] for x in want]

    def call(module, given):
        k, v = torch.empty(shape), torch.empty(shape)
        new = given["new_k"], given["new_v"]
        module.cache_append(*new, k, v, given["lens"], given.get("table"))
        return k, v

    return Problem(
        name, title, inputs, call, [x.double() for x in want], [0.0, 0.0], group="cache_append"
    )
