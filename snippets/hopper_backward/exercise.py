"""The answer of the exercise: gradients of a sequence whose keys come in parts."""

import torch

from .kernel import hopper_backward


def in_turn(q, k, v, out, lse, grad_out, *, parts):
    """hopper_backward, one part of the keys after the other; without a mask.

    The parts need nothing from each other: the logsumexp is that of all keys, so the weights that
    it brings back are those of the whole row. dQ adds up, dK and dV lie side by side.
    """
    grad_q = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    of_keys, of_values = [], []
    for some_k, some_v in zip(k.chunk(parts, dim=-2), v.chunk(parts, dim=-2), strict=True):
        dq, dk, dv = hopper_backward(q, some_k, some_v, out, lse, grad_out)
        grad_q += dq
        of_keys.append(dk)
        of_values.append(dv)
    return grad_q.to(q.dtype), torch.cat(of_keys, dim=-2), torch.cat(of_values, dim=-2)
