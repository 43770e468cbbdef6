"""same_bits with gradients, in a language model that is sampled and scored, and beside a ring.

`attention(q, k, v)` is a function to train with; its ops are flash_backward's. A rung of the ladder
from the usual kernels to one order of additions says which attention decodes, which computes the
training forward, and which of PyTorch's functions are replaced by those of one_order.py meanwhile.
"""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from snippets.decode_attention.kernel import cache_append, decode_attention
from snippets.flash_attention.kernel import flash_attention
from snippets.flash_backward import op as flash
from snippets.flash_backward.checks import assert_gradients as assert_gradients  # for bench.py
from snippets.language_model.data import batch, corpus
from snippets.language_model.module import Cache, cast, draw, step
from snippets.language_model.op import attend_with as attend_with  # for bench.py
from snippets.language_model.op import fastest
from snippets.language_model.training import Run, Settings
from snippets.ring_attention.op import LOCAL
from snippets.ring_attention.ranks import Ranks as Ranks  # for bench.py
from snippets.ring_attention.ring import Ring, ring_attention, shard

from .experiments import difference
from .kernel import same_bits
from .one_order import linear, log_softmax, rms_norm


def _forward(q, k, v, *, align, **options):
    """same_bits as flash_backward's op calls a forward."""
    if align != "bottom_right" and q.shape[-2] != k.shape[-2]:
        raise ValueError(f"align is {align!r}; allowed where M is not N: 'bottom_right'")
    return same_bits(q, k, v, **options)


flash.FORWARD["same_bits"] = _forward
# same_bits(q, k, v), differentiable once: causal, scale and return_lse as there. The backward takes
# the logsumexp of this forward; it has no atomics, so that gradients repeat their bits.
attention = functools.partial(flash.attention, causal=True, forward="same_bits")


class Rung(NamedTuple):
    """What a model computes with."""

    decode: Callable = same_bits
    forward: Callable = same_bits
    replaced: Mapping = MappingProxyType({})


USUAL = Rung(decode_attention, functools.partial(flash_attention, causal=True))
PRODUCTS = {F.linear: linear}
NORMS = PRODUCTS | {F.rms_norm: rms_norm}
SAMPLING = NORMS | {torch.log_softmax: log_softmax}
RUNGS = {
    "as usual": USUAL,
    "attention": Rung(),
    "+ products": Rung(replaced=PRODUCTS),
    "+ norms": Rung(replaced=NORMS),
    "+ log-softmax": Rung(replaced=SAMPLING),
    "all but attention": USUAL._replace(replaced=SAMPLING),
}


class Replaced(TorchFunctionMode):
    """PyTorch's functions are those of a rung while this context is open."""

    def __init__(self, replaced):
        super().__init__()
        self.replaced = replaced

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return self.replaced.get(function, function)(*args, **(kwargs or {}))


@torch.no_grad()
def rollout(model, prompt, count, rung, *, seed=0):
    """Sample with a cache: tokens [B, N + count], and the log-probability of each new one."""
    cache = Cache(model, len(prompt), prompt.shape[1] + count, cache_append, rung.decode)
    generator = torch.Generator(prompt.device).manual_seed(seed)
    tokens, sampled = [prompt], []
    with Replaced(rung.replaced):
        for _ in range(count):
            logits = step(model, tokens[-1], cache)  # [B, 256]
            tokens.append(draw(logits, 1.0, generator))
            sampled.append(torch.log_softmax(logits, dim=-1).gather(-1, tokens[-1]))
    return torch.cat(tokens, dim=1), torch.cat(sampled, dim=1)


@torch.no_grad()
def score(model, tokens, count, rung):
    """The log-probabilities of the last `count` tokens, by the forward of a training step."""
    with Replaced(rung.replaced):
        logits = model(tokens[:, :-1], rung.forward)[:, -count:]  # [B, count, 256]
        return torch.log_softmax(logits, dim=-1).gather(-1, tokens[:, -count:, None])[..., 0]


def trained(steps, size, length, settings=None, device="cuda"):
    """A model after so many steps of training, and `size` beginnings of held-out text."""
    run = Run(settings or Settings(attention=fastest(device)), corpus(), device)
    for _ in range(steps):
        run.advance()
    prompt = batch(run.corpus.held_out, size, length, seed=0, step=0)[:, :-1]
    return cast(run.model), prompt


def one_step(model, tokens, rung):
    """A call that computes the probabilities after the last of `tokens`, over a cache of zeros."""
    cache = Cache(model, *tokens.shape, cache_append, rung.decode)

    @torch.no_grad()
    def call():
        cache.lengths.fill_(tokens.shape[1] - 1)
        with Replaced(rung.replaced):
            return torch.log_softmax(step(model, tokens[:, -1:], cache), dim=-1)

    return call


@torch.no_grad()
def on_a_rank(device, dtype, N, D, *, batch=4, calls=20):
    """What one change does to each chunk of this rank's rows in a ring: rows of numbers.

    A row adds up keys as they come by: first the rank's own, then its predecessor's, and so on.
    """
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(batch, H, N, D, generator=generator) for H in (8, 2, 2))
    whole = [x.to(device, dtype) for x in made]
    mine = [shard(x) for x in whole]
    attend = functools.partial(ring_attention, causal=True, validate=False, local=LOCAL)
    want, size = attend(*mine), torch.distributed.get_world_size()
    found = {
        "batch": attend(*(x[:1] for x in mine)),
        "position": attend(*(x.roll(1, 0) for x in mine)).roll(-1, 0),
        "splits": shard(attend(*whole, group=Ring(0, 1))),  # this GPU alone
        "repeated": torch.cat([attend(*mine) for _ in range(calls - 1)]),
    }
    rank = torch.distributed.get_rank()
    rows = []
    for change, other in found.items():
        same = want[:1] if change == "batch" else want.repeat(len(other) // batch, 1, 1, 1)
        halves = zip((rank, 2 * size - 1 - rank), other.chunk(2, 2), same.chunk(2, 2), strict=True)
        rows += [
            {"change": change, "ranks": size, "chunk": chunk, **difference(x, y)}
            for chunk, x, y in halves
        ]
    return rows
