"""The answers of both posts' exercises: who waits for which parity, and pairs of equal work."""


def waits(tile, buffers):
    """A tile of keys → its buffer, the parity its readers wait for, and the one its writer does."""
    uses, buffer = divmod(tile, buffers)
    return buffer, uses % 2, 1 - uses % 2


def kernels_order(work_idx, tiles, heads):
    """Work item → head and tile, as kernel.py hands them out in pairs."""
    head, i = divmod(work_idx, tiles)
    return head, tiles - 1 - i // 2 if i % 2 == 0 else i // 2


def work(order, tiles, heads, programs):
    """Tiles of keys that each program visits; it takes two items in a row, then its next two.

    Tiles of keys are as tall as those of queries, so tile i sees i + 1 of them.
    """
    visited = [0] * programs
    for work_idx in range(heads * tiles):
        _, tile = order(work_idx, tiles, heads)
        visited[work_idx // 2 % programs] += tile + 1
    return visited


def tile_of(work_idx, tiles, heads):
    """Item → head and tile: the longest tile left of a head, with the shortest of the next head.

    Each head is half of its pairs, so it does not matter whether it has a middle. A last head
    without a partner keeps the kernel's order.
    """
    two_heads, i = divmod(work_idx, 2 * tiles)
    if 2 * two_heads + 1 == heads:
        return kernels_order(work_idx, tiles, heads)
    second = i % 2
    return 2 * two_heads + second, i // 2 if second else tiles - 1 - i // 2
