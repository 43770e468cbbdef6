"""Rules for the number of splits: ours beside those that others have published."""

from typing import NamedTuple

from .kernel import SPLIT_KEYS, split_rule

MAX_SPLITS = 128  # FlashAttention's own limit
FLASHINFER_KEYS = 128  # of a chunk, at least
SEGMENTS, SEGMENTED = 16, 128  # vLLM's Triton kernel: so many segments, below so many programs
SGLANG_KEYS = 256  # of a split, always


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


def vllm(work):
    """A fixed number of segments while there are few programs.

    Source: vllm/v1/attention/ops/triton_unified_attention.py; https://arxiv.org/abs/2511.11581.
    """
    return SEGMENTS if work.programs < SEGMENTED else 1


def fixed_size(work):
    """A fixed number of keys, so that a sequence is cut alike in every batch.

    Source: SGLang's deterministic inference, https://lmsys.org/blog/2025-09-22-sglang-deterministic/.
    """
    return -(-work.keys // SGLANG_KEYS)


def batch_invariant(work):
    """The same, as decode_attention(batch_invariant=True) does it."""
    return -(-work.keys // SPLIT_KEYS)


RULES = {
    "decode_attention": ours,
    "FlashAttention-3": flash_attention_three,
    "FlashAttention-4": flash_attention_four,
    "FlashInfer": flashinfer,
    "vLLM": vllm,
    "SGLang, every 256 keys": fixed_size,
    "batch-invariant, every 1,024 keys": batch_invariant,
}
