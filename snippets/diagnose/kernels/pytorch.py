"""No kernel: a loop over tiles of keys in PyTorch, for one head, as a first draft is written."""

import torch

TILE = 32


def attend(q, k, v, *, scale=None, causal=False):
    rows, width = q.shape
    columns = k.shape[0]
    scale = width**-0.5 if scale is None else scale
    m = torch.full((rows, 1), float("-inf"), device=q.device)
    total = torch.zeros(rows, 1, device=q.device)
    acc = torch.zeros(rows, width, device=q.device)
    for start in range(0, columns, TILE):
        stop = min(start + TILE, columns)
        scores = q.float() @ k[start:stop].float().T * scale
        if causal:
            seen = torch.arange(start, stop) <= torch.arange(rows)[:, None] + columns - rows
            scores = scores.masked_fill(~seen.to(q.device), float("-inf"))
        m_new = torch.maximum(m, scores.amax(1, keepdim=True))
        base = m_new.masked_fill(m_new == float("-inf"), 0.0)
        p = torch.exp(scores - base)
        alpha = torch.exp(m - base)
        total = total * alpha + p.sum(1, keepdim=True)
        acc = acc * alpha + p @ v[start:stop].float()
        m = m_new
    return (acc / total.masked_fill(total == 0, 1.0)).to(q.dtype)
