"""The language model sampled and scored: a ladder from the usual kernels to one order of additions.

A rung says which attention decodes, which computes the training forward, and which of PyTorch's
functions are replaced by those of one_order.py while either runs.
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
from snippets.language_model.data import batch, corpus
from snippets.language_model.module import Cache, cast, draw, step
from snippets.language_model.op import attend_with as attend_with  # for bench.py
from snippets.language_model.op import fastest
from snippets.language_model.training import Run, Settings

from .kernel import same_bits
from .one_order import linear, log_softmax, rms_norm


class Rung(NamedTuple):
    """What a model computes with."""

    decode: Callable = same_bits
    forward: Callable = same_bits
    replaced: Mapping = MappingProxyType({})


# --8<-- [start:ladder]
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


# --8<-- [end:ladder]


# --8<-- [start:rollout]
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


# --8<-- [end:rollout]


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
