"""hopper_attention with gradients: its forward, and the backward of this room, as PyTorch ops.

The ops and the judge of gradients are flash_backward's.
"""

import functools
import math

import torch

from snippets.flash_backward import op as flash
from snippets.flash_backward.checks import assert_gradients, forward
from snippets.hopper_attention.kernel import hopper_attention

from .kernel import hopper_backward

__all__ = ["assert_gradients", "attention", "forward", "hopper_attention"]


def _for_tma(q, k, v, out, lse, grad_out, **options):
    """hopper_backward for a gradient that autograd made, whose strides may be any."""
    steps = grad_out.stride()[:-1]
    if 0 in steps or grad_out.data_ptr() % 16 or math.gcd(*steps) * grad_out.itemsize % 16:
        grad_out = grad_out.clone(memory_format=torch.contiguous_format)
    return hopper_backward(q, k, v, out, lse, grad_out, **options)


flash.BACKWARD["hopper_backward"] = _for_tma
flash.AS_GIVEN.add("hopper_backward")

# softmax(q kᵀ · scale) v, differentiable once in q, k and v. It takes scale, causal, align and
# return_lse as hopper_attention does; where gradients are wanted, scale may be at most 2^8.
attention = functools.partial(
    flash.attention, forward="hopper_attention", backward="hopper_backward"
)
