"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.oracle import make_qkv
from snippets._lab.judge.problems import Problem, attention, draw, launched
from snippets._lab.probe.launches import on_the_lattice

from . import checks

SINKS = torch.tensor([1.5, -1.0])


def masked(name, title, M, N, groups=1, large=1, **options):
    """Two heads of float32; allowed are a few roundings of the scores, as float32 makes them."""
    q, k, v = (on_the_lattice(x) for x in make_qkv(1, 2, M=M, N=N, D=16, seed=M + N))
    q, k, v = q * large, k[:, : 2 // groups], v[:, : 2 // groups]
    if "cu_seqlens_q" in options:
        q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    attend = checks.attend_packed if "cu_seqlens_q" in options else checks.attend
    want, _ = attend(q.double(), k.double(), v.double(), **options)
    more = {x: options.pop(x) for x in [*options] if isinstance(options[x], torch.Tensor)}
    inputs = {"q": q, "k": k, "v": v} | more

    def call(module, given):
        named = dict(given)
        tensors = [named.pop(name) for name in "qkv"]
        return module.masks_and_packing(*tensors, **named, **options)

    return Problem(name, title, inputs, call, [want], [1e-5], group="masks_and_packing")


def problems():
    yield from attention("masks_and_packing", only=["plain", "causal_more", "grouped"])
    yield masked("window", "a causal window of 4 keys", 9, 9, causal=True, window=(3, None))
    yield masked("sides", "2 keys to the left and 1 to the right", 7, 12, window=(2, 1))
    yield masked("tiles", "a window that skips tiles", 70, 70, causal=True, window=(5, None))
    yield masked("sinks", "a sink for each head", 5, 9, sinks=SINKS)
    yield masked("groups", "two heads that share keys, each with its sink", 5, 9, 2, sinks=SINKS)
    yield masked("large", "scores beyond what exp can hold", 5, 9, large=64)
    bias = draw(1, 2, 1, 9, seed=2)
    yield masked("bias", "a bias for each head and key", 5, 9, bias=bias)
    ends = {
        f"cu_seqlens_{x}": torch.tensor(e).int()
        for x, e in (("q", [0, 3, 4, 9]), ("k", [0, 5, 9, 16]))
    }
    yield masked("packed", "three sequences in one launch", 9, 16, causal=True, **ends)
    yield masked("cap", "scores capped at 2", 5, 9, softcap=2.0)
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
