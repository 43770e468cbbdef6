"""When a ring's output and gradients are right: what the bench asks first, and the tests."""

import torch

from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_attention,
    causal_mask,
    eager_attention,
)

FLOAT32 = torch.finfo(torch.float32).eps


def eager(q, k, v, grad_out, causal, scale=None):
    """What eager attention in q's dtype and autograd find: gradients for q, k and v.

    k and v may have fewer heads than q; theirs are then summed over the group.
    """
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in leaves[1:])
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device) if causal else None
    out = eager_attention(leaves[0], keys, values, scale=scale, mask=mask)
    return torch.autograd.grad(out, leaves, grad_out)


# --8<-- [start:bound]
def assert_ring(found, q, k, v, grad_out, *, causal, scale=None):
    """Raise NumericalMismatch unless `found` is the output, and the gradients for q, k and v.

    All are whole tensors. The output may be off by what `assert_attention` allows. Of a gradient
    the error may be twice that of autograd with eager attention in the same dtype, plus one unit
    in the last place for storing it, plus the float32 rounding of a sum of N + D products.
    """
    out, *gradients = found
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device) if causal else None
    assert_attention(out, q, keys, values, scale=scale, mask=mask)
    want = eager(*(x.double() for x in (q, k, v, grad_out)), causal, scale)
    same = eager(q, k, v, grad_out, causal, scale)
    terms = q.shape[-2] + q.shape[-1]
    for name, ours, theirs, right in zip("qkv", gradients, same, want, strict=True):
        if ours.shape != right.shape:
            raise NumericalMismatch(f"grad_{name} has shape {tuple(ours.shape)}")
        pytorch = (theirs.double() - right).abs().max().item()
        size = right.abs().max().item()
        allowed = 2 * pytorch + (torch.finfo(ours.dtype).eps + terms * FLOAT32) * size
        error = (ours.double() - right).abs().max().item()
        if not error <= allowed:  # written so that NaN fails
            raise NumericalMismatch(
                f"grad_{name}: largest difference {error:.2e} from float64, allowed {allowed:.2e} "
                f"(eager: {pytorch:.2e}) at q {tuple(q.shape)}, k {tuple(k.shape)}, {q.dtype}"
            )
    # --8<-- [end:bound]
