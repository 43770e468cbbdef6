"""The answers of the page's exercises: a prefix that all queries see, and where a text begins."""

import triton
import triton.language as tl


@triton.jit
def _prefix_kernel(
    s_ptr,  # [M, N]: scores
    out_ptr,  # [M, N]: zeros where a query does not see a key
    M, N,
    prefix,  # so many keys at the beginning are seen by every query
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program masks a tile: causal, but for the first `prefix` keys."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M]
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    inside = (offs_m < M)[:, None] & (offs_n < N)[None, :]  # [BLOCK_M, BLOCK_N]
    place = offs_m[:, None] * N + offs_n[None, :]
    s = tl.load(s_ptr + place, mask=inside, other=0.0)
    own = offs_m[:, None] + N - M  # the key of the query itself
    seen = (offs_n[None, :] <= own) | (offs_n[None, :] < prefix)
    tl.store(out_ptr + place, tl.where(seen, s, 0.0), mask=inside)


def prefix_mask(s, prefix):
    """Scores s [M, N] with zeros where a query sees neither the prefix nor its past."""
    M, N = s.shape
    out = s.new_empty(M, N)
    _prefix_kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16))](
        s, out, M, N, prefix, BLOCK_M=16, BLOCK_N=16
    )
    return out


@triton.jit
def _sequence_kernel(
    cu_ptr,  # [sequences + 1]: the first row of each sequence, and the end of the last
    out_ptr,  # [tiles, 2]: the sequence of each tile, and its first row, counted from there
    sequences,
    BLOCK: tl.constexpr,
    MOST: tl.constexpr,  # a power of two, more than sequences
):
    """One program finds whose tile it is. Sequence i has the tiles from cu[i] // BLOCK + i on."""
    tile = tl.program_id(0)
    offs = tl.arange(0, MOST)  # [MOST]
    cu = tl.load(cu_ptr + offs, mask=offs <= sequences, other=0)
    begun = (cu // BLOCK + offs <= tile) & (offs <= sequences)
    ours = tl.sum(begun.to(tl.int32), axis=0) - 1  # the last one that has begun
    first = (tile - tl.load(cu_ptr + ours) // BLOCK - ours) * BLOCK
    tl.store(out_ptr + 2 * tile, ours)
    tl.store(out_ptr + 2 * tile + 1, first)


def tiles_of_sequences(cu, total, block):
    """[tiles, 2] int32: for each tile of `block` rows its sequence, and its first row in it."""
    sequences = len(cu) - 1
    tiles = total // block + sequences + 1
    out = cu.new_empty(tiles, 2)
    most = triton.next_power_of_2(sequences + 2)
    _sequence_kernel[(tiles,)](cu, out, sequences, BLOCK=block, MOST=most)
    return out
