"""What masks_and_packing computes, in PyTorch's words: one matrix of scores, any dtype."""

import torch

HIDDEN = float("-inf")


def visible(M, N, *, causal=False, align="bottom_right", window=(None, None), device=None):
    """[M, N]: whether query m sees key n."""
    left, right = (window[0], 0) if causal else window
    own = torch.arange(M, device=device)[:, None] + (N - M if align == "bottom_right" else 0)
    keys = torch.arange(N, device=device)[None, :]
    seen = torch.ones(M, N, dtype=torch.bool, device=device)
    if right is not None:
        seen &= keys <= own + right
    if left is not None:
        seen &= keys >= own - left
    return seen


def attend(q, k, v, *, scale=None, softcap=None, bias=None, sinks=None, **mask):
    """q [B, H, M, D], k and v [B, Hkv, N, D]: the output, and the logsumexp [B, H, M]."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, dim=1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    seen = visible(*scores.shape[-2:], device=q.device, **mask)
    scores = scores.masked_fill(~seen, HIDDEN)
    if sinks is not None:  # one more column, whose value is zeros
        column = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, column], dim=-1)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.masked_fill(lse == HIDDEN, 0.0)[..., None]).exp()
    return weights[..., : k.shape[2]] @ v, lse


def attend_packed(q, k, v, cu_seqlens_q, cu_seqlens_k, **options):
    """q [total, H, D], k and v [total, Hkv, D], a sequence at a time; rows beyond get zeros."""
    ends = zip(cu_seqlens_q.tolist(), cu_seqlens_k.tolist(), strict=True)
    parts, lse, (first_q, first_k) = [], [], next(ends)
    for end_q, end_k in ends:
        rows, keys = slice(first_q, end_q), slice(first_k, end_k)
        one = (x.transpose(0, 1)[None] for x in (q[rows], k[keys], v[keys]))
        out, sums = attend(*one, **options)
        parts, lse = [*parts, out[0].transpose(0, 1)], [*lse, sums[0]]
        first_q, first_k = end_q, end_k
    nobody = attend(*(x[first_q:].transpose(0, 1)[None] for x in (q, q[:0], q[:0])), **options)
    parts, lse = [*parts, nobody[0][0].transpose(0, 1)], [*lse, nobody[1][0]]
    return torch.cat(parts), torch.cat(lse, dim=-1)
