"""Rules for the number of splits: ours beside those that others have published."""

from typing import NamedTuple

from .kernel import split_rule

MAX_SPLITS = 128  # FlashAttention's own limit
FLASHINFER_KEYS = 128  # of a chunk, at least


class Work(NamedTuple):
    """What a rule may know: shapes and the GPU, but no lengths."""

    programs: int  # without splits: sequences × heads of keys × blocks of rows
    keys: int  # of the longest sequence
    tile: int  # keys of a program's iteration
    processors: int
    slots: int  # programs that the GPU runs at once

    @property
    def tiles(self):
        return -(-self.keys // self.tile)


def ours(work):
    """The fewest turns of tiles, starts and the combining included."""
    return split_rule(work.programs, work.tiles, work.slots)


def flash_attention_three(work):
    """Enough work: one. Otherwise the fewest splits with 85 % of the best wave efficiency.

    Source: num_splits_heuristic in hopper/heuristics.h of FlashAttention; also
    https://arxiv.org/abs/2604.00028.
    """
    if work.programs >= 0.8 * work.processors or work.tiles <= 4:
        return 1
    most = min(MAX_SPLITS, work.processors, work.tiles)

    def efficiency(splits):
        waves = work.programs * splits / work.processors
        return waves / -(-work.programs * splits // work.processors)

    best = max(efficiency(splits) for splits in range(1, most + 1))
    return next(s for s in range(1, most + 1) if efficiency(s) >= 0.85 * best)


def flash_attention_four(work):
    """As many as there are multiprocessors for each program, and never more than tiles.

    Source: num_splits_heuristic in flash_attn/cute/interface.py.
    """
    return max(1, min(work.processors // work.programs, MAX_SPLITS, work.tiles))


def flashinfer(work):
    """The smallest chunk, found by halving, with which the whole grid runs at once.

    Source: PartitionPagedKVCacheBinarySearchMinNumPagePerBatch in FlashInfer's scheduler.cuh. It
    knows the lengths of all sequences; here they are alike.
    """
    if work.programs >= work.slots:
        return 1
    low, high = FLASHINFER_KEYS, max(FLASHINFER_KEYS, work.keys)
    while low < high:
        middle = (low + high) // 2
        if work.programs * -(-work.keys // middle) > work.slots:
            low = middle + 1
        else:
            high = middle
    return -(-work.keys // low)


RULES = {
    "decode_attention": ours,
    "FlashAttention-3": flash_attention_three,
    "FlashAttention-4": flash_attention_four,
    "FlashInfer": flashinfer,
}
