"""Names of implementations that a bench.py may compare, and the functions behind them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from snippets._lab.judge.oracle import causal_mask, eager_attention
from snippets._lab.rooms import load, rooms, source_file

Attention = Callable[..., torch.Tensor]
TOKENS, HIDDEN = 16_384, 2048  # of same_work: batch · N, and heads · D

BACKENDS = {
    "torch:math": SDPBackend.MATH,
    "torch:flash": SDPBackend.FLASH_ATTENTION,
    "torch:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch:cudnn": SDPBackend.CUDNN_ATTENTION,
}


def _sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, **options: Any
) -> torch.Tensor:
    """PyTorch's own attention; it takes [B, H, M, D] and chooses its backend by itself."""
    if causal:
        _refuse_two_corners(q, k)
        options["is_causal"] = True
    lead = (None,) * (4 - q.dim())
    out: torch.Tensor = torch.nn.functional.scaled_dot_product_attention(
        q[lead], k[lead], v[lead], **options
    )
    return out.view(q.shape)


def _refuse_two_corners(q: torch.Tensor, k: torch.Tensor) -> None:
    if q.shape[-2] != k.shape[-2]:
        raise ValueError("causal is True and M is not N: PyTorch aligns the other corner there")


def _eager(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, **options: Any
) -> torch.Tensor:
    """Separate operations, the mask included."""
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device) if causal else None
    return eager_attention(q, k, v, mask=mask, **options)


def _flex(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, **options: Any
) -> torch.Tensor:
    """FlexAttention, compiled afresh for each shape, as its makers advise; q [B, H, M, D]."""
    attend, block_mask = _compiled_flex(q.shape, k.shape, q.dtype, q.device, causal)
    out: torch.Tensor = attend(q, k, v, block_mask=block_mask, **options)
    return out


@functools.lru_cache(maxsize=1)
def _compiled_flex(
    q: torch.Size, k: torch.Size, dtype: torch.dtype, device: torch.device, causal: bool
) -> tuple[Attention, Any]:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch._dynamo.reset()  # beyond its limit of recompilations it would fall back to eager
    mask = None
    if causal:
        mask = create_block_mask(_not_later, None, None, q[-2], k[-2], device=str(device))
    return torch.compile(flex_attention, dynamic=False), mask


def _not_later(b: Any, h: Any, row: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    return row >= column


def same_work(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the batch and the heads that keep tokens and hidden size the same."""
    return case | {"batch": TOKENS // case["N"], "heads": HIDDEN // case["D"]}


def resolve(name: str) -> Attention | None:
    """The function behind a name; None for a room that does not exist yet.

    "basic_attention" is a room's launcher, "basic_attention:exercise" the answer of its exercise,
    "torch:sdpa" PyTorch's choice, "torch:eager" separate operations, "torch:flex" FlexAttention,
    and the other "torch:" names force one backend. Raises ValueError for any other name.
    """
    owner, _, variant = name.partition(":")
    if owner != "torch":
        if owner not in rooms():
            return None
        module = load(owner, variant or source_file(owner).stem)
        return getattr(module, owner)
    own: dict[str, Attention] = {"sdpa": _sdpa, "eager": _eager, "flex": _flex}
    if variant in own:
        return own[variant]
    if name in BACKENDS:

        @functools.wraps(_sdpa)
        def forced(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
            with sdpa_kernel(BACKENDS[name]):
                return _sdpa(*tensors, **options)

        return forced
    allowed = ", ".join([*(f"torch:{name}" for name in own), *BACKENDS])
    raise ValueError(f"no implementation is called {name!r}; allowed are rooms and {allowed}")
