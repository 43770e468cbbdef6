"""masks_and_packing with gradients, as PyTorch ops.

`masked_attention` is a function to train with. Its two ops, attention_measured::masked and
attention_measured::masked_backward, are what torch.compile and torch.export see of it.
"""

import torch
from torch import Tensor

from .backward import masks_and_packing_backward
from .kernel import _refusals, masks_and_packing

TWICE = "attention has no second derivative here: its backward is not differentiable"


def masked_attention(
    q, k, v, *, scale=None, causal=False, align="bottom_right", window=(None, None), sinks=None,
    softcap=None, bias=None, cu_seqlens_q=None, cu_seqlens_k=None, return_lse=False,
):  # fmt: skip
    """masks_and_packing, differentiable once in q, k, v, sinks and bias.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithms 1 and 4

    Args:
        q, k, v, scale, causal, align, window, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k:
            as masks_and_packing takes them; scale at most 2^8 where gradients are wanted.
        return_lse: also return the logsumexp of each row.

    Returns:
        [..., H, M, D], packed [total, H, D], in q's dtype; with return_lse also [..., H, M], packed
        [H, total], in float32. Both may be used. The bias's gradient is computed if it is wanted.

    Raises:
        TypeError, ValueError: what the launchers refuse. RuntimeError: a second derivative.
    """
    tensors = [x for x in (q, k, v, sinks, bias) if isinstance(x, Tensor)]
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
    options = {"scale": scale, "causal": causal, "align": align, "window": window}
    options |= {"sinks": sinks, "softcap": softcap, "bias": bias}
    options |= {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k}
    if not wanted and not torch.compiler.is_compiling():  # no op, no sum of a row
        return masks_and_packing(q, k, v, **options, return_lse=return_lse)
    if not torch.compiler.is_compiling():  # the op's schema would convert what is refused
        given = (x.detach() if isinstance(x, Tensor) else x for x in (q, k, v, *options.values()))
        for error in _refusals(*given, return_lse):
            raise error
    left, right = window  # an op takes no list with a None in it
    out, lse = attend(
        q, k, v, scale, causal, align, left, right, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k
    )
    return (out, lse) if return_lse else out


def _named(scale, causal, align, left, right, *more):
    """The launchers' options from an op's arguments."""
    names = "sinks", "softcap", "bias", "cu_seqlens_q", "cu_seqlens_k"
    named = {"scale": scale, "causal": causal, "align": align, "window": (left, right)}
    return named | dict(zip(names, more, strict=True))


@torch.library.custom_op("attention_measured::masked", mutates_args=())
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None,
    causal: bool,
    align: str,
    left: int | None,
    right: int | None,
    sinks: Tensor | None,
    softcap: float | None,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The output and the logsumexp of its rows."""
    options = scale, causal, align, left, right, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k
    return masks_and_packing(q, k, v, **_named(*options), return_lse=True)


@torch.library.custom_op("attention_measured::masked_backward", mutates_args=())
def attend_backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    grad_lse: Tensor | None,
    want_grad_bias: bool,
    scale: float | None,
    causal: bool,
    align: str,
    left: int | None,
    right: int | None,
    sinks: Tensor | None,
    softcap: float | None,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients for q, k, v, sinks and bias; an empty one where there is none."""
    options = scale, causal, align, left, right, sinks, softcap, bias, cu_seqlens_q, cu_seqlens_k
    if grad_out.stride(-1) != 1:  # out.sum().backward() hands over one number, expanded
        grad_out = grad_out.contiguous()
    gradients = masks_and_packing_backward(
        q, k, v, out, lse, grad_out, **_named(*options), want_grad_bias=want_grad_bias,
        grad_lse=None if grad_lse is None else grad_lse.contiguous(),
    )  # fmt: skip
    return tuple(q.new_empty(0, dtype=torch.float32) if x is None else x for x in gradients)


@torch.library.impl("attention_measured::masked", "FuncTorchDynamicLayerFrontMode")
def _in_torch_func(q, k, v, *options):
    """Whatever torch.func does with the op comes here first, and is refused."""
    masks_and_packing(q, k, v, **_named(*options))


@attend.register_fake
def _shapes(q, k, v, scale, causal, align, left, right, sinks, softcap, bias, cu_q, cu_k):
    rows = q.shape[:-1] if cu_q is None else q.shape[1::-1]
    return q.new_empty(q.shape), q.new_empty(rows, dtype=torch.float32)


@attend_backward.register_fake
def _shapes_of_gradients(q, k, v, out, lse, grad_out, grad_lse, want_grad_bias, *options):
    named = _named(*options)
    sinks, bias = named["sinks"], named["bias"] if want_grad_bias else None
    extra = (q.new_empty(0 if x is None else x.shape, dtype=torch.float32) for x in (sinks, bias))
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), *extra


def _keep(ctx, inputs, output):
    """What the backward needs: no matrix of scores, but the bias where there is one."""
    q, k, v, *ctx.options = inputs
    tensors = {i: x for i, x in enumerate(ctx.options) if isinstance(x, Tensor)}
    ctx.save_for_backward(q, k, v, *output, *tensors.values())
    ctx.places = list(tensors)
    for i in tensors:
        ctx.options[i] = None
    ctx.bias_dtype = inputs[10].dtype if inputs[10] is not None else None
    ctx.set_materialize_grads(False)


def _backward(ctx, grad_out, grad_lse):
    q, k, v, out, lse, *tensors = ctx.saved_tensors
    options = list(ctx.options)
    for i, x in zip(ctx.places, tensors, strict=True):
        options[i] = x
    if grad_out is None:  # the logsumexp alone was used
        grad_out = torch.zeros_like(out)
    wants_bias = ctx.needs_input_grad[10]
    found = attend_backward(q, k, v, out, lse, grad_out, grad_lse, wants_bias, *options)
    grad_sinks = found[3] if ctx.needs_input_grad[8] else None
    grad_bias = found[4].to(ctx.bias_dtype) if wants_bias else None
    return *found[:3], None, None, None, None, None, grad_sinks, None, grad_bias, None, None


def _refuse(ctx, *_):
    raise RuntimeError(TWICE)


attend.register_autograd(_backward, setup_context=_keep)
attend_backward.register_autograd(_refuse)
