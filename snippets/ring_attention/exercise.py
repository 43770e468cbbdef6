"""The answer of the page's exercise: two parts of a softmax become one, without overflow."""

import torch


def merge(out, lse, other_out, other_lse):
    """Attention to the keys of both parts, from the outputs [..., M, D] and logsumexps [..., M].

    The weight of the second part is exp(other_lse) / (exp(lse) + exp(other_lse)): a sigmoid of the
    difference, which no difference is too large for. In float32.
    """
    share = torch.sigmoid(other_lse - lse)  # [..., M]
    merged = torch.lerp(out.float(), other_out.float(), share.unsqueeze(-1))
    return merged, lse - torch.nn.functional.logsigmoid(lse - other_lse)
