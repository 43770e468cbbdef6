"""The problems on which a reader's changed kernel is tried on the page."""

from dataclasses import replace

import torch

from snippets._lab.judge.oracle import beside, with_gaps
from snippets._lab.judge.problems import attention, logsumexp, make, rising


def problems():
    yield from attention("flash_attention")
    yield from attention(
        "flash_attention",
        also=logsumexp,
        options={"return_lse": True},
        only=["causal_more"],
        ending="_lse",
    )


def pasted():
    """For kernels from elsewhere: lengths that are equal or not, and whole tiles of 16 or not."""
    for dtype, ending in ((torch.float32, ""), (torch.float16, "_half")):
        probes = [
            (title, replace(p, q=p.q.to(dtype), k=p.k.to(dtype), v=p.v.to(dtype)))
            for title, p in _probes()
        ]
        yield from attention("flash_attention", probes=probes, ending=ending)


def _probes():
    yield "13 queries and keys, two batches of three heads", make("square", 13, 13, heads=(2, 3))
    yield "16 queries and keys, two batches of three heads", make("whole", 16, 16, heads=(2, 3))
    yield "48 keys with rising scores", rising(make("tiles", 48, 48))
    yield "21 queries, 37 keys, 24 columns", make("wide", 21, 37, 24, heads=(1, 2))
    yield "21 queries, 37 keys", make("fewer", 21, 37)
    yield "37 queries, 21 keys", make("more", 37, 21)
    yield "16 queries, 48 keys", make("whole_fewer", 16, 48)
    yield "48 queries, 16 keys", make("whole_more", 48, 16)
    for title, causal in (("", ""), ("causal, ", "causal_")):
        mask = {"causal": bool(causal)}
        p = make(f"{causal}gaps", 16, 16, **mask)
        gaps = replace(p, q=with_gaps(p.q), k=with_gaps(p.k))
        yield f"{title}gaps between rows of q and k, none in v", gaps
        p = make(f"{causal}grouped", 16, 16, heads=(1, 4), **mask)
        grouped = replace(p, k=p.k[:, :2], v=p.v[:, :2])
        yield f"{title}two heads of queries for each head of keys", grouped
        yield f"{title}a scale of its own, 0.3", make(f"{causal}scale", 16, 16, scale=0.3, **mask)
    p = make("beside", 16, 16, heads=(1, 3))
    yield "heads beside each other", replace(p, q=beside(p.q), k=beside(p.k), v=beside(p.v))
    p = make("large", 48, 48)  # one query, so that rounding its scores changes no weight
    q = p.q[..., :1, :].repeat(1, 1, 48, 1) * 64
    falling = (q @ p.k.mT)[0, 0, 0].argsort(descending=True)
    yield "scores beyond what exp can hold", replace(p, q=q, k=p.k[:, :, falling].contiguous())
    yield "causal", make("causal", 21, 21, causal=True)
    p = make("causal_heads", 16, 16, heads=(2, 3), causal=True)
    yield "causal, two batches of three heads", p
    yield "causal, whole tiles", make("causal_whole", 48, 48, causal=True)
    yield "causal, fewer queries than keys", make("causal_fewer", 5, 9, causal=True)
    yield "causal, more queries than keys", make("causal_more", 9, 5, causal=True)
    yield "causal, 16 queries, 48 keys", make("causal_whole_fewer", 16, 48, causal=True)
