"""flash_attention as a PyTorch op: torch.ops.attention_measured.flash_attention."""

import torch

from .kernel import _refusals, flash_attention


def _check(q, k, v, scale=None, causal=False, align="bottom_right"):
    """Raise what the launcher would, but for the device."""
    for error in _refusals(q, k, v, scale, causal, align, return_lse=False):
        if f"{error}".startswith("q is on "):  # the last rules: of where it is
            break
        raise error


# --8<-- [start:op]
@torch.library.custom_op(
    "attention_measured::flash_attention", mutates_args=(), device_types="cuda"
)
def flash_attention_op(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    causal: bool = False,
    align: str = "bottom_right",
) -> torch.Tensor:
    """softmax(q kᵀ · scale) v: the Triton kernel on a GPU, plain PyTorch on a CPU.

    Arguments and refusals are those of flash_attention().
    """
    return flash_attention(q, k, v, scale=scale, causal=causal, align=align)


@flash_attention_op.register_kernel("cpu")
def _on_cpu(q, k, v, scale=None, causal=False, align="bottom_right"):
    """The same without Triton: scores, softmax and sums in float32, rounded once."""
    _check(q, k, v, scale, causal, align)
    M, N = q.shape[-2], k.shape[-2]
    if q.dim() > 2:  # query heads that share a head of keys
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q.float() @ k.float().mT * scale  # [..., M, N]
    if causal:
        causal_offset = N - M if align == "bottom_right" else 0
        hidden = torch.ones(M, N, dtype=torch.bool).triu(causal_offset + 1)
        scores = scores.masked_fill(hidden, float("-inf"))
    weightless = (scores == float("-inf")).all(-1, keepdim=True)
    weights = scores.softmax(-1).masked_fill(weightless, 0.0)  # not 0 / 0
    return (weights @ v.float()).to(q.dtype)


@torch.library.impl("attention_measured::flash_attention", "FuncTorchDynamicLayerFrontMode")
def _in_torch_func(q, k, v, *_):
    """Whatever torch.func does with the op comes here first, and is refused."""
    _check(q, k, v)


@flash_attention_op.register_fake
def _shapes_only(q, k, v, scale=None, causal=False, align="bottom_right"):
    """What torch.compile and torch.export ask: shape, dtype and device of a result."""
    _check(q, k, v, scale, causal, align)
    return q.new_empty(q.shape)
    # --8<-- [end:op]
