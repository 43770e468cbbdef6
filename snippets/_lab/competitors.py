"""Names of implementations that a bench.py may compare, and the functions behind them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .oracle import eager_attention
from .rooms import load, rooms, source_file

Attention = Callable[..., torch.Tensor]

BACKENDS = {
    "torch:math": SDPBackend.MATH,
    "torch:flash": SDPBackend.FLASH_ATTENTION,
    "torch:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch:cudnn": SDPBackend.CUDNN_ATTENTION,
}


def _sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> torch.Tensor:
    """PyTorch's own attention; it takes [B, H, N, D] and chooses its backend by itself."""
    lead = (None,) * (4 - q.dim())
    out: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
        q[lead], k[lead], v[lead], **options
    )
    return out.view(q.shape)


def resolve(name: str) -> Attention | None:
    """The function behind a name; None for a room that does not exist yet.

    "basic_attention" is a room's launcher, "basic_attention:exercise" the answer of its exercise,
    "torch:sdpa" PyTorch's choice, "torch:eager" separate operations, and the other "torch:" names
    force one backend. Raises ValueError for any other name.
    """
    owner, _, variant = name.partition(":")
    if owner != "torch":
        if owner not in rooms():
            return None
        module = load(owner, variant or source_file(owner).stem)
        return getattr(module, owner)
    if variant == "sdpa":
        return _sdpa
    if variant == "eager":
        return eager_attention
    if name in BACKENDS:

        @functools.wraps(_sdpa)
        def forced(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
            with sdpa_kernel(BACKENDS[name]):
                return _sdpa(*tensors, **options)

        return forced
    allowed = ", ".join(["torch:sdpa", "torch:eager", *BACKENDS])
    raise ValueError(f"no implementation is called {name!r}; allowed are rooms and {allowed}")
