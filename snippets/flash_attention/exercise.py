"""The answer of the page's exercise: parts of the keys apart, and their results merged."""

import torch

from .kernel import flash_attention as attend


# --8<-- [start:merge]
def flash_attention(q, k, v, *, scale=None, parts=3):
    """Attention from `parts` pieces of k and v [..., Hkv, N, D], each by a launch of its own.

    A piece's result is its weighted mean of values; exp(logsumexp) is the sum it was divided by.
    So the pieces' shares of the whole are the softmax of their logsumexp.
    """
    pieces = zip(k.chunk(parts, dim=-2), v.chunk(parts, dim=-2), strict=True)
    results = [attend(q, *piece, scale=scale, return_lse=True) for piece in pieces]
    outs, lses = map(torch.stack, zip(*results, strict=True))  # [parts, ..., H, M, D] and [.., M]
    shares = lses.softmax(dim=0)  # [parts, ..., H, M]
    return (shares[..., None] * outs).sum(dim=0).to(q.dtype)  # [..., H, M, D]
    # --8<-- [end:merge]
