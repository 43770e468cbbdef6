"""Names of implementations that a bench.py may compare, and the functions behind them.

Some are packages that a machine may have or not: FlashAttention by its own makers. One is a file,
Triton's own tutorial. What is missing is Unavailable, which the lab turns into a row that says so.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from snippets._lab.judge.oracle import causal_mask, eager_attention
from snippets._lab.rooms import load, rooms, source_file

Attention = Callable[..., torch.Tensor]
TOKENS, HIDDEN = 16_384, 2048  # of same_work: batch · N, and heads · D


class Unavailable(RuntimeError):
    """A competitor that this machine does not have; the text says what is missing."""


@dataclass(frozen=True)
class Package:
    """A package with attention of its own: q, k, v and the result are [B, M, H, D] there."""

    distribution: str  # what pip calls it
    module: str  # what has its functions
    wanted: str  # how the versions begin that the name stands for
    told: str = ""  # before a version that is none of the name's own

    def version(self) -> str:
        """The version that is installed. Raises Unavailable for none, and for another."""
        try:
            found = importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            raise Unavailable(f"{self.distribution} is not installed") from None
        if not found.startswith(self.wanted):
            raise Unavailable(
                f"{self.distribution} {found} is installed; version {self.wanted}* is compared"
            )
        return self.told + found

    def function(self, name: str = "flash_attn_func") -> Attention:
        """One of its functions. Raises Unavailable where it is missing or cannot be used."""
        said = f"{self.distribution} {self.version().removeprefix(self.told)}"
        try:
            function: Attention = getattr(importlib.import_module(self.module), name)
        except Exception as error:
            raise Unavailable(f"{said} cannot be imported: {in_a_line(error)}") from error
        return function


PACKAGES = {
    "flash_attention_2": Package("flash-attn", "flash_attn", "2."),
    "flash_attention_3": Package("fa3-fwd", "fa3_fwd_interface", "0.", "fa3-fwd "),  # no backward
    "flash_attention_4": Package("flash-attn-4", "flash_attn.cute", "4."),
    "flashinfer": Package("flashinfer-python", "flashinfer", "0."),  # for decode_attention
}
# Who calls its tensors [B, M, H, D], the heads of a token side by side, and is given them so.
# PyTorch's own FlashAttention-2 takes [B, H, M, D] and transposes it before its kernel sees it.
TOKENS_FIRST = (*PACKAGES, "torch:flash")
AS_OURS = ":as ours"  # of such a name: the same, but its tensors lie in memory as ours


TUTORIAL = "triton_tutorial_06"
TUTORIAL_FILE = "06-fused-attention"  # in python/tutorials of github.com/triton-lang/triton

BACKENDS = {
    "torch:math": SDPBackend.MATH,
    "torch:flash": SDPBackend.FLASH_ATTENTION,  # FlashAttention-2
    "torch:efficient": SDPBackend.EFFICIENT_ATTENTION,
    "torch:cudnn": SDPBackend.CUDNN_ATTENTION,
}


def _sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, **options: Any
) -> torch.Tensor:
    """PyTorch's own attention; it takes [B, H, M, D] and chooses its backend by itself."""
    if causal:
        if q.shape[-2] != k.shape[-2]:
            raise ValueError("causal is True and M is not N: PyTorch aligns the other corner there")
        options["is_causal"] = True
    lead = (None,) * (4 - q.dim())
    if not lead:  # as eager code calls it: nothing here may cost the host
        own: torch.Tensor = scaled_dot_product_attention(q, k, v, **options)
        return own
    out: torch.Tensor = scaled_dot_product_attention(q[lead], k[lead], v[lead], **options)
    return out.view(q.shape)


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
        past = lambda b, h, row, column: row >= column  # noqa: E731
        mask = create_block_mask(past, None, None, q[-2], k[-2], device=str(device))
    return torch.compile(flex_attention, dynamic=False), mask


PYTORCH: dict[str, Attention] = {"torch:sdpa": _sdpa, "torch:eager": _eager, "torch:flex": _flex}


def in_a_line(error: Exception) -> str:
    """An error as a row says it: its kind, and the first line of its text."""
    text = f"{error}".strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:200]}"


def _packaged(package: Package) -> Attention:
    """A package's attention for [..., M, D]; it returns a tensor, or one with its statistics."""
    attend = package.function()

    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False
    ) -> torch.Tensor:
        lead = (None,) * (4 - q.dim())
        there = (x[lead].transpose(1, 2) for x in (q, k, v))  # [B, M, H, D], see own_layout
        out = _its_result(attend(*there, causal=causal)).transpose(1, 2)
        return out.view(q.shape) if lead else out

    return attention


def _tutorial_version() -> str:
    """What git calls the tutorial's content, ten digits of it. Raises Unavailable for none."""
    found = importlib.util.find_spec(TUTORIAL_FILE)
    if found is None or not found.origin:
        raise Unavailable(f"{TUTORIAL_FILE}.py is in no folder of PYTHONPATH")
    text = Path(found.origin).read_bytes()
    blob = hashlib.sha1(b"blob %d\0" % len(text) + text, usedforsecurity=False)
    return f"blob {blob.hexdigest()[:10]}"


def tutorial_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad_out: torch.Tensor,
    *,
    causal: bool,
) -> Callable[[], tuple[torch.Tensor, ...]]:
    """A call of the backward of Triton's tutorial 06; it takes float16, and M = N.

    q to grad_out are [B, H, N, D] without gaps, N a multiple of 128; lse is [B, H, N], in float32,
    the natural logarithm of a forward's sums: the tutorial keeps those in base 2. Raises
    Unavailable where the file is missing or has no such backward.
    """
    said = f"{TUTORIAL_FILE}.py, {_tutorial_version()},"
    try:
        module = importlib.import_module(TUTORIAL_FILE)
    except Exception as error:
        raise Unavailable(f"{said} cannot be imported: {in_a_line(error)}") from error
    if not hasattr(module, "_attention"):
        raise Unavailable(f"{said} has no class _attention")
    context = SimpleNamespace(
        saved_tensors=(q, k, v, out, lse / math.log(2)),
        sm_scale=q.shape[-1] ** -0.5,
        HEAD_DIM=q.shape[-1],
        causal=causal,
    )

    def backward() -> tuple[torch.Tensor, ...]:
        grads: tuple[torch.Tensor, ...] = module._attention.backward(context, grad_out)[:3]
        return grads

    return backward


def _its_result(found: Any) -> torch.Tensor:
    out: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return out


def bind(
    name: str, function: Attention, *tensors: torch.Tensor, **options: Any
) -> Callable[[], torch.Tensor]:
    """A call without arguments, of a name's function: what only this lab needs is done before.

    A package gets what its own function takes, and a backend that PyTorch chooses by itself for
    these tensors is not forced in each call, which takes the host longer than the call.
    """
    name = name.removesuffix(AS_OURS)
    if name in PACKAGES and tensors[0].dim() == 4:
        attend = PACKAGES[name].function()
        there = [x.transpose(1, 2) for x in tensors]
        causal = options.get("causal", False)
        return lambda: _its_result(attend(*there, causal=causal)).transpose(1, 2)
    if name in BACKENDS and tensors[0].dim() == 4:
        shared = options.get("enable_gqa", False)
        causal = options.get("causal", False)
        chosen = torch._fused_sdp_choice(*tensors, is_causal=causal, enable_gqa=shared)
        if chosen == BACKENDS[name].value:
            function = _sdpa
    return functools.partial(function, *tensors, **options)


def layout_of(name: str) -> str:
    """How the tensors of somebody else's attention lie in memory; "" for all that is none."""
    if name in TOKENS_FIRST:
        return "[B, M, H, D]"
    others = (*TOKENS_FIRST, *BACKENDS, *PYTORCH)
    return "[B, H, M, D]" if name.removesuffix(AS_OURS) in others else ""


def own_layout(name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same [..., H, M, D] in the memory order with which its authors call an attention."""
    if name not in TOKENS_FIRST or tensors[0].dim() < 3:
        return tensors
    return tuple(x.transpose(-2, -3).contiguous().transpose(-2, -3) for x in tensors)


def version_of(name: str) -> str:
    """The version of a competitor that was brought along; "" for this house's own and torch's."""
    if name == TUTORIAL:
        return _tutorial_version()
    package = PACKAGES.get(name.partition(":")[0])
    return package.version() if package else ""


def is_ours(name: str) -> bool:
    """Whether a name is that of a room, and not of somebody else's attention."""
    return name.partition(":")[0] not in (*PACKAGES, TUTORIAL, "torch")


def same_work(case: dict[str, Any]) -> dict[str, Any]:
    """The case with the batch and the heads that keep tokens and hidden size the same."""
    return case | {"batch": TOKENS // case["N"], "heads": HIDDEN // case["D"]}


def resolve(name: str) -> Attention | None:
    """The function behind a name; None for a room that does not exist yet.

    "basic_attention" is a room's launcher, "basic_attention:exercise" the answer of its exercise,
    "torch:sdpa" PyTorch's choice, "torch:eager" separate operations, "torch:flex" FlexAttention,
    and the other "torch:" names force one backend; "flash_attention_4" and its elders are packages.
    ":as ours" behind one of TOKENS_FIRST changes nothing here: see own_layout. Raises Unavailable
    for a package that is not there, and ValueError for any other name.
    """
    name = name.removesuffix(AS_OURS)
    if name in PACKAGES:
        return _packaged(PACKAGES[name])
    owner, _, variant = name.partition(":")
    if owner != "torch":
        if owner not in rooms():
            return None
        module = load(owner, variant or source_file(owner).stem)
        return getattr(module, owner)
    if name in PYTORCH:
        return PYTORCH[name]
    if name in BACKENDS:

        @functools.wraps(_sdpa)
        def forced(*tensors: torch.Tensor, **options: Any) -> torch.Tensor:
            with sdpa_kernel(BACKENDS[name]):
                return _sdpa(*tensors, **options)

        return forced
    allowed = ", ".join([*PYTORCH, *BACKENDS, *PACKAGES])
    raise ValueError(f"no implementation is called {name!r}; allowed are rooms and {allowed}")
