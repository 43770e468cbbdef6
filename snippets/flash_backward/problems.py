"""The problems on which a reader's changed kernel is tried on the page."""

import torch

from snippets._lab.judge.oracle import causal_mask, with_gaps
from snippets._lab.judge.problems import Problem, draw

from .checks import eager_gradients, float32_steps, forward, of_absolute_values

EPS = torch.finfo(torch.float32).eps


def problems():
    yield gradients("groups", "two groups of two heads of queries", 3, 4, heads=(4, 2))
    yield gradients("tiles", "34 queries and 34 keys: two tiles of both", 34, 34)
    yield gradients("more", "causal, more queries than keys: rows without", 34, 4, causal=True)
    yield gradients("causal", "causal, more keys than queries", 7, 36, causal=True)
    loss = {"B": 2, "gaps": True, "lse": True, "scale": 0.3}
    yield gradients("lse", "two batches, and a loss of the logsumexp too", 3, 4, **loss)
    yield gradients("low", "scores far below zero", 4, 6, low=True)
    one = {"file": "one_pass"}
    yield gradients("one_tiles", "one pass, two tiles of queries and of keys", 34, 34, **one)
    yield gradients("one_more", "one pass, causal: rows without keys", 34, 4, causal=True, **one)
    loss |= {"heads": (2, 1)}
    yield gradients("one_lse", "one pass, and a loss of the logsumexp too", 3, 4, **loss, **one)


def gradients(
    name,
    title,
    M,
    N,
    *,
    D=16,
    B=1,
    heads=(1, 1),
    scale=None,
    causal=False,
    gaps=False,
    lse=False,
    low=False,
    file="kernel",
):
    """The gradients for q, k and v; `low`: all scores are negative."""
    q, grad_out = (draw(B, heads[0], M, D, seed=seed) for seed in (0, 3))
    k, v = (draw(B, heads[1], N, D, seed=seed) for seed in (1, 2))
    if low:
        q, k = q.abs() * 16, -k.abs() * 16
    options = {"scale": scale, "mask": causal_mask(M, N) if causal else None}
    out, sums = forward(q, k, v, **options)
    inputs = {"q": q, "k": k, "v": v, "out": out, "lse": sums, "grad_out": grad_out}
    options["grad_lse"] = draw(B, heads[0], M, seed=4) if lse else None
    if lse:
        inputs["grad_lse"] = options["grad_lse"]
    exact = [x.double() for x in (q, k, v, grad_out)]
    if lse:
        options["grad_lse"] = options["grad_lse"].double()
    want = eager_gradients(*exact, **options)
    steps, sizes = float32_steps(q, k, scale), of_absolute_values(*exact, **options)
    if gaps:
        inputs |= {name: with_gaps(inputs[name]) for name in ("q", "k", "v", "grad_out")}

    launcher = "one_pass" if file == "one_pass" else "flash_backward"

    def call(module, given):
        return getattr(module, launcher)(
            *(given[each] for each in ("q", "k", "v", "out", "lse", "grad_out")),
            scale=scale,
            causal=causal,
            grad_lse=given.get("grad_lse"),
        )

    allowed = [2 * steps * EPS * size for size in sizes]
    return Problem(name, title, inputs, call, want, allowed, file, launcher)
