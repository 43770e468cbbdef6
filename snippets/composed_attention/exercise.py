"""No transpose: the product reads k with its two strides swapped."""

import torch

from .kernel import _refusals, _run_matmul, _run_softmax


def composed_attention(q, k, v, *, scale=None):
    """softmax(q kᵀ · scale) v without a copy of k; contract as in kernel.py."""
    tensors = {"q": q, "k": k, "v": v}
    for error in _refusals(tensors, "MD ND ND", "MN MD", row="N", scale=scale):
        raise error
    shape = q.shape
    q, k, v = (x[(None,) * (4 - x.dim())] for x in (q, k, v))
    (B, H, M, D), N = q.shape, k.shape[-2]
    scale = D**-0.5 if scale is None else float(scale)
    out, scores = q.new_empty(B, H, M, D), q.new_empty(B, H, M, N, dtype=torch.float32)
    weights = scores.view(q.dtype)[..., :N]

    _run_matmul(q, k.mT, scores, scale)  # a view: strides swapped, no copy
    _run_softmax(scores, weights)
    _run_matmul(weights, v, out)
    return out.view(shape)
