"""When gradients are right: what the bench asks before it measures, and the tests."""

import math

import torch

from snippets._lab.judge.oracle import NumericalMismatch, eager_attention

FLOAT32 = torch.finfo(torch.float32).eps


def eager_gradients(q, k, v, grad_out, *, scale=None, mask=None, grad_lse=None):
    """What autograd finds for eager attention in q's own dtype: gradients for q, k and v.

    k and v may have fewer heads than q; theirs are then summed over the group.
    """
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    with torch.enable_grad():
        keys, values = leaves[1:]
        if q.dim() > 2:
            group = q.shape[-3] // k.shape[-3]
            keys, values = (x.repeat_interleave(group, dim=-3) for x in (keys, values))
        out = eager_attention(leaves[0], keys, values, scale=scale, mask=mask)
        if grad_lse is None:
            return torch.autograd.grad(out, leaves, grad_out)
        factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
        scores = leaves[0] @ keys.mT * factor
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        lse = torch.where(grad_lse == 0, 0.0, scores.logsumexp(-1))
        return torch.autograd.grad((out, lse), leaves, (grad_out, grad_lse))


def forward(q, k, v, *, scale=None, mask=None):
    """(out in q's dtype, lse in float32), each rounded once from float64: for flash_backward."""
    if q.dim() > 2:
        group = q.shape[-3] // k.shape[-3]
        k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
    q, k, v, dtype = q.double(), k.double(), v.double(), q.dtype
    out = eager_attention(q, k, v, scale=scale, mask=mask).to(dtype)
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return out, scores.logsumexp(-1).float()


def assert_gradients(found, q, k, v, grad_out, *, scale=None, mask=None, grad_lse=None):
    """Raise NumericalMismatch unless `found` are the gradients for q, k and v within rounding.

    Allowed is twice the error that autograd makes with eager attention in the same dtype, plus
    what rounding must cost: one unit in the last place of the result for storing it; what Δ
    inherits from `out`, which arrives rounded to its dtype while eager attention needs no Δ; and
    the float32 rounding of scores, logsumexp and Δ. The last is a relative error of each weight
    and of each product; so many eps times the gradients of absolute values bound it.
    """
    options = {"scale": scale, "mask": mask}
    exact = [x.double() for x in (q, k, v, grad_out)]
    want = eager_gradients(*exact, **options, grad_lse=_double(grad_lse))
    same = eager_gradients(q, k, v, grad_out, **options, grad_lse=grad_lse)
    steps = float32_steps(q, k, scale)
    sizes = of_absolute_values(*exact, **options, grad_lse=_double(grad_lse))
    shifts = _of_rounded_out(*exact, **options)
    each = zip("qkv", found, same, want, sizes, shifts, strict=True)
    for name, ours, theirs, right, size, shift in each:
        if ours.shape != right.shape:
            raise NumericalMismatch(f"grad_{name} has shape {tuple(ours.shape)}")
        pytorch = (theirs.double() - right).abs().max().item()
        pytorch = 0.0 if math.isnan(pytorch) else pytorch  # a row without keys, in 16 bits
        eps = torch.finfo(ours.dtype).eps
        storing = eps * right.abs().max().item()
        allowed = 2 * pytorch + storing + eps / 2 * shift + steps * FLOAT32 * size
        error = (ours.double() - right).abs().max().item()
        if not error <= allowed:  # written so that NaN fails
            raise NumericalMismatch(
                f"grad_{name}: largest difference {error:.2e} from float64, allowed {allowed:.2e} "
                f"(eager: {pytorch:.2e}) at q {tuple(q.shape)}, k {tuple(k.shape)}, {q.dtype}"
            )


def error_of_weights(backward, q, k, scale):
    """The largest error of the weights that a backward computes: with dO = 1, dV is Pᵀ.

    q and k are [1, 1, N, N]. Also returns the logsumexp of each row.
    """
    one = torch.eye(q.shape[-1], dtype=q.dtype, device=q.device)[None, None]
    out, lse = forward(q, k, k, scale=scale)
    into = [torch.zeros_like(x, dtype=torch.float32) for x in (q, k, k)]
    weights = backward(q, k, k, out, lse, one, scale=scale, into=into)[2].mT
    right = (q.double() @ k.double().mT * scale).softmax(-1)
    return (weights.double() - right).abs().max().item(), lse


def _double(x):
    return None if x is None else x.double()


def float32_steps(q, k, scale):
    """How many eps of float32 a weight may be off: four a score, one a column of a product."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else abs(scale)
    largest = q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max() * factor
    return 4 * (largest.item() + 1) + q.shape[-1]


def _weights(q, k, v, scale, mask):
    """Weights, keys and values of each query head, how many share one, and the size of scale."""
    group = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1
    if q.dim() > 2:
        k, v = (x.repeat_interleave(group, dim=-3) for x in (k, v))
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else abs(scale)
    scores = q @ k.mT * factor
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0), k, v, group, factor


def _of_rounded_out(q, k, v, grad_out, *, scale=None, mask=None):
    """How far dQ, dK and dV move, at most, if each number of `out` is off by all of itself."""
    weights, k, v, group, factor = _weights(q, k, v, scale, mask)
    delta = (grad_out.abs() * (weights @ v).abs()).sum(-1, keepdim=True)
    ds = weights * delta * factor
    return (ds @ k.abs()).max().item(), group * (ds.mT @ q.abs()).max().item(), 0.0


def of_absolute_values(q, k, v, grad_out, *, scale=None, mask=None, grad_lse=None):
    """How large the sums of dQ, dK and dV are if no term cancels another: the largest of each."""
    weights, k, v, group, factor = _weights(q, k, v, scale, mask)
    dp = grad_out.abs() @ v.abs().mT
    delta = (weights * dp).sum(-1, keepdim=True)
    if grad_lse is not None:
        delta = delta + grad_lse.abs().unsqueeze(-1)
    ds = weights * (dp + delta) * factor
    sums = ds @ k.abs(), ds.mT @ q.abs(), weights.mT @ grad_out.abs()
    return [sums[0].max().item(), *(group * x.max().item() for x in sums[1:])]
