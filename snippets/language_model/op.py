"""The attentions that a model can be trained with, and the one that it is sampled with."""

import functools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets.decode_attention.kernel import cache_append, decode_attention
from snippets.flash_backward.mutants import MUTANTS
from snippets.flash_backward.op import BACKWARD, attention
from snippets.hopper_backward.op import assert_gradients as assert_gradients  # for bench.py
from snippets.hopper_backward.op import attention as attention_on_hopper

from .module import Cache, sdpa

OURS = "flash_backward"
HOPPER = "hopper_backward"
BACKENDS = {
    "torch:flash": SDPBackend.FLASH_ATTENTION,
    "torch:cudnn": SDPBackend.CUDNN_ATTENTION,
    "torch:math": SDPBackend.MATH,
}


def attend_with(name, *, deterministic=False):
    """Causal attention of q [B, H, N, D], k and v [B, Hkv, N, D] by name.

    "flash_backward" is this site's in Triton, forward and backward, and "hopper_backward" in
    Gluon, for an H100 or H200; "torch:flash", "torch:cudnn" and "torch:math" are PyTorch's
    backends; "torch:eager" is written out.
    """
    if name == OURS:
        return functools.partial(attention, causal=True, deterministic=deterministic)
    if name == HOPPER:
        return functools.partial(attention_on_hopper, causal=True, deterministic=deterministic)
    if name in BACKENDS:
        return functools.partial(_on_backend, BACKENDS[name])
    if name == "torch:eager":
        return eager
    raise ValueError(f"attention is {name!r}; one of {', '.join(NAMES)} is allowed")


NAMES = (OURS, HOPPER, *BACKENDS, "torch:eager")


def fastest(device):
    """The fastest of ours that runs on this device."""
    on_gpu = torch.device(device).type == "cuda"
    hopper = on_gpu and torch.cuda.get_device_capability(device) == (9, 0)
    return HOPPER if hopper else OURS


def _on_backend(backend, q, k, v):
    with sdpa_kernel(backend):
        return sdpa(q, k, v)


def eager(q, k, v):
    """Separate operations: scores, mask, softmax, weighted sum."""
    group, (M, D), N = q.shape[1] // k.shape[1], q.shape[-2:], k.shape[-2]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    hidden = torch.ones(M, N, dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.mT * D**-0.5).masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


def decode_cache(model, batch, capacity):
    """A Cache that decode_attention reads and cache_append writes."""
    return Cache(model, batch, capacity, cache_append, decode_attention)


# Wrong backwards that a loss curve should tell from the right one: name → the mutant of
# flash_backward that it is. M is N here, where both corners of a causal mask are the same: the
# diagonal is what can be wrong about it.
FAULTS = {
    "Δ forgotten": "Δ forgotten",
    "scale 1.02": "",  # no other code: the backward is called with a scale that is off
    "a group not summed": "dK of one head of the group",
    "the diagonal hidden": "mask off by one",
}


def changed(name):
    """The pieces of flash_backward's code that a fault replaces: (old, new), or none."""
    found = [(m.old, m.new) for m in MUTANTS if m.name == FAULTS[name]]
    if FAULTS[name] and not found:
        raise ValueError(f"flash_backward has no mutant called {FAULTS[name]!r}")
    return found


def through(backward):
    """An attention whose gradients come from this launcher, until the next call of `through`."""
    BACKWARD["given"] = backward
    return functools.partial(attention, causal=True, backward="given")
