"""flash_attention and hopper_attention with gradients, as PyTorch ops.

`attention(q, k, v)` is a function to train with. Its two ops, attention_measured::attend and
attention_measured::attend_backward, are what torch.compile and torch.export see of it.
"""

import numbers

import torch

from snippets.flash_attention.kernel import _option_refusals, flash_attention
from snippets.hopper_attention.kernel import hopper_attention

from .kernel import _refusals, flash_backward

FORWARD = {"flash_attention": flash_attention, "hopper_attention": hopper_attention}
BACKWARD = {"flash_backward": flash_backward}  # hopper_backward/op.py adds its own
AS_GIVEN = set()  # those whose gradients are stored as q, k and v are
IN_ORDER = ("flash_backward",)  # those that can repeat their bits
TWICE = "attention has no second derivative here: its backward is not differentiable"


def attention(
    q,
    k,
    v,
    *,
    scale=None,
    causal=False,
    align="bottom_right",
    return_lse=False,
    forward="flash_attention",
    backward="flash_backward",
    deterministic=False,
):
    """softmax(q kᵀ · scale) v, differentiable once in q, k and v.

    Source: Dao et al. 2022, https://arxiv.org/abs/2205.14135, algorithms 1 and 4

    Args:
        q, k, v, scale, causal, align, return_lse: as flash_attention takes them; scale at most
            2^8 where gradients are wanted.
        forward: the launcher that computes it, "flash_attention" or "hopper_attention".
        backward: the launcher of its gradients, a name in BACKWARD.
        deterministic: gradients with the same bits in each run.

    Returns:
        [..., H, M, D] in q's dtype; with return_lse also [..., H, M] in float32. Both may be used.

    Raises:
        TypeError, ValueError: what the launchers refuse. RuntimeError: a second derivative.
    """
    _check_launchers(forward, backward, deterministic)
    for error in _option_refusals(scale, causal, align, return_lse):
        raise error
    wanted = torch.is_grad_enabled() and any(
        isinstance(x, torch.Tensor) and x.requires_grad for x in (q, k, v)
    )
    if wanted:
        if isinstance(scale, numbers.Real) and scale > 2.0**8:  # refused before the forward
            raise ValueError(f"scale is {scale!r:.40}; allowed for gradients: 2^-64 to 2^8")
    elif not torch.compiler.is_compiling():  # no op, no sum of a row: as before
        options = {"scale": scale, "causal": causal, "align": align, "return_lse": return_lse}
        return FORWARD[forward](q, k, v, **options)
    out, lse = attend(q, k, v, scale, causal, align, forward, backward)
    return (out, lse) if return_lse else out


def _check_launchers(forward, backward, deterministic):
    """Raise for a launcher that is not there, and for one that cannot repeat its bits."""
    for name, given, known in (("forward", forward, FORWARD), ("backward", backward, BACKWARD)):
        if given not in known:
            raise ValueError(f"{name} is {given!r}; one of {', '.join(known)} is allowed")
    if deterministic and backward not in IN_ORDER:
        raise ValueError(
            f"deterministic is True, and {backward} has no fixed order; use {', '.join(IN_ORDER)}"
        )


@torch.library.custom_op("attention_measured::attend", mutates_args=())
def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float | None = None,
    causal: bool = False,
    align: str = "bottom_right",
    forward: str = "flash_attention",
    backward: str = "flash_backward",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and the logsumexp of its rows; the last argument is for the backward."""
    return FORWARD[forward](q, k, v, scale=scale, causal=causal, align=align, return_lse=True)


@torch.library.custom_op("attention_measured::attend_backward", mutates_args=())
def attend_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad_out: torch.Tensor,
    grad_lse: torch.Tensor | None,
    scale: float | None,
    causal: bool,
    align: str,
    backward: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients for q, k and v."""
    if grad_out.stride(-1) != 1:  # out.sum().backward() hands over one number, expanded
        grad_out = grad_out.contiguous()
    options = {"scale": scale, "causal": causal, "align": align}
    if grad_lse is not None:
        options["grad_lse"] = grad_lse.contiguous()
    return BACKWARD[backward](q, k, v, out, lse, grad_out, **options)


@torch.library.impl("attention_measured::attend", "FuncTorchDynamicLayerFrontMode")
def _in_torch_func(q, k, v, *_):
    """Whatever torch.func does with the op comes here first, and is refused."""
    for error in _refusals(q, k, v, q, None, q, None, None, False, "bottom_right", None):
        raise error


@attend.register_fake
def _shapes(q, k, v, *_):
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@attend_backward.register_fake
def _shapes_of_gradients(q, k, v, out, lse, grad_out, grad_lse, scale, causal, align, backward):
    if backward in AS_GIVEN:
        return tuple(map(torch.empty_like, (q, k, v)))
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx, inputs, output):
    """What the backward needs: five tensors and two rows of numbers, no matrix of scores."""
    q, k, v, ctx.scale, ctx.causal, ctx.align, _, ctx.backward = inputs
    ctx.save_for_backward(q, k, v, *output)
    ctx.set_materialize_grads(False)


def _backward(ctx, grad_out, grad_lse):
    q, k, v, out, lse = ctx.saved_tensors
    if grad_out is None:  # the logsumexp alone was used
        grad_out = torch.zeros_like(out)
    options = ctx.scale, ctx.causal, ctx.align, ctx.backward
    gradients = attend_backward(q, k, v, out, lse, grad_out, grad_lse, *options)
    return (*gradients, None, None, None, None, None)


def _refuse(ctx, *_):
    raise RuntimeError(TWICE)


attend.register_autograd(_backward, setup_context=_keep)
attend_backward.register_autograd(_refuse)
