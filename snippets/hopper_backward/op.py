"""hopper_attention with gradients: its forward, and the backward of this room.

The judge of gradients is flash_backward's, and what plays Gluon on a CPU hopper_attention's.
"""

import torch

from snippets.flash_backward.checks import assert_gradients, forward
from snippets.hopper_attention.kernel import hopper_attention
from snippets.hopper_attention.simulator import on_cpu as stand_in

from .kernel import hopper_backward

__all__ = ["assert_gradients", "attention", "forward", "stand_in"]


# --8<-- [start:attention]
class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, scale, causal, align):
        ctx.options = {"scale": scale, "causal": causal, "align": align}
        q, k, v = (x.detach() for x in (q, k, v))
        out, lse = hopper_attention(q, k, v, return_lse=True, **ctx.options)
        ctx.save_for_backward(q, k, v, out, lse)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out):
        # Gradients of views and sums come with strides that TMA does not take.
        grads = hopper_backward(*ctx.saved_tensors, grad_out.contiguous(), **ctx.options)
        return (*grads, None, None, None)


def attention(q, k, v, *, scale=None, causal=False, align="bottom_right"):
    """softmax(q kᵀ · scale) v, differentiable once in q, k and v; arguments of hopper_attention."""
    return _Attention.apply(q, k, v, scale, causal, align)
    # --8<-- [end:attention]
