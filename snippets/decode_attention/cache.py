"""Which lengths and pages of a cache cannot be: a check beside kernel.py that waits for the GPU."""

import torch

from .kernel import _layout, _refusals


def check_cache(q, k_cache, v_cache, *, cache_seqlens=None, page_table=None):
    """Raise ValueError for the first length and the first page that cannot be, by their places.

    The launchers do not look: that would have to wait for the GPU, as this does. Only the pages
    that a sequence of its length has are looked at.
    """
    for error in _refusals({"q": q}, k_cache, v_cache, cache_seqlens, page_table, {}):
        raise error
    _, capacity, _ = _layout(k_cache, v_cache, cache_seqlens, page_table)
    if cache_seqlens is None:
        lengths = torch.full(q.shape[:1], capacity)
    else:
        lengths = cache_seqlens.cpu().long()
    wrong = ((lengths < 0) | (lengths > capacity)).nonzero().flatten().tolist()
    if wrong:
        raise ValueError(
            f"cache_seqlens[{wrong[0]}] is {lengths[wrong[0]]}; allowed: 0 to {capacity}"
            f"{_and_more(wrong)}"
        )
    if page_table is None:
        return
    pages, size = k_cache.shape[0], k_cache.shape[2]
    table = page_table.cpu().long()
    used = torch.arange(table.shape[1]) < ((lengths + size - 1) // size)[:, None]
    wrong = (used & ((table < 0) | (table >= pages))).nonzero().tolist()
    if wrong:
        b, n = wrong[0]
        raise ValueError(
            f"page_table[{b}, {n}] is {table[b, n]}; allowed: 0 to {pages - 1}{_and_more(wrong)}"
        )


def _and_more(wrong):
    return f" ({len(wrong) - 1} more like it)" if len(wrong) > 1 else ""
