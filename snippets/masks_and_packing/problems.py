"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.problems import attention, draw, launched


def problems():
    yield from attention("masks_and_packing", only=["plain", "ragged", "causal_more"])
    for name, title, (M, N), prefix in (
        ("plain", "6 queries, 6 keys, a prefix of 2", (6, 6), 2),
        ("none", "no prefix", (6, 6), 0),
        ("all", "a prefix of all keys", (5, 7), 7),
        ("more", "20 keys and 4 queries", (4, 20), 3),
        ("tiles", "two tiles of each", (20, 20), 18),
    ):
        s = draw(M, N) + 10.0  # no score is 0
        m, n = torch.arange(M)[:, None], torch.arange(N)[None, :]
        want = torch.where((n <= m + N - M) | (n < prefix), s, 0.0)
        yield launched(
            "prefix_mask", name, title, {"s": s}, [want], [0.0], "exercise", prefix=prefix
        )
    for name, title, sizes, block in (
        ("plain", "5, 1 and 9 rows in tiles of 4", (5, 1, 9), 4),
        ("whole", "sequences that fill their tiles", (4, 8, 4), 4),
        ("empty", "two empty sequences", (3, 0, 0, 6), 4),
        ("one", "one sequence", (10,), 4),
    ):
        ends = torch.tensor([0, *sizes]).cumsum(0)
        firsts = [int(end) // block + i for i, end in enumerate(ends)]
        tiles = int(ends[-1]) // block + len(sizes) + 1
        ours = [max(i for i, first in enumerate(firsts) if first <= tile) for tile in range(tiles)]
        want = torch.tensor([[i, (t - firsts[i]) * block] for t, i in enumerate(ours)])
        yield launched(
            "tiles_of_sequences", name, title, {"cu": ends.int()}, [want], [0.0], "exercise",
            total=int(ends[-1]), block=block,
        )  # fmt: skip
