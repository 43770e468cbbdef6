"""The exercise of the decode_attention page: merge two results whose keys were shared out."""

import torch


def merge(out_a, lse_a, out_b, lse_b):
    """Attention over all keys, from that over some of them and that over the others.

    out_a, out_b: [..., M, D]; lse_a, lse_b: [..., M], the logarithm of the sum of exp(score),
    -inf where a row has no key. Returns out and lse of the whole.
    """
    lse = torch.logaddexp(lse_a, lse_b)  # [..., M]
    known = lse.where(lse != -torch.inf, 0.0)  # no key on either side: -inf - (-inf) is NaN
    weight_a, weight_b = (torch.exp(x - known)[..., None] for x in (lse_a, lse_b))
    return weight_a * out_a + weight_b * out_b, lse
