"""When a ring's output and gradients are right: what the bench asks first, and the tests."""

import torch

from snippets._lab.judge.oracle import NumericalMismatch, assert_attention, causal_mask, make_qkv

from .op import assert_gradients
from .ring import Ring, _plan, positions

FLOAT32 = torch.finfo(torch.float32).eps
HUGE = (1.3 * 2.0**17, 1.9 * 2.0**30, 2.0**64)  # scales, most of which round a product with them
LSE = 1e-3  # of a logsumexp: scores of 16-bit inputs, summed in float32 by tensor cores


def assert_ring(found, q, k, v, grad_out, *, causal, scale=None):
    """Raise NumericalMismatch unless `found` is the output, and the gradients for q, k and v.

    All are whole tensors. The output may be off by what `assert_attention` allows, the gradients
    by what flash_backward's judge does.
    """
    out, *gradients = found
    group = q.shape[1] // k.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (k, v))
    mask = causal_mask(q.shape[-2], k.shape[-2], device=q.device) if causal else None
    assert_attention(out, q, keys, values, scale=scale, mask=mask)
    assert_gradients(gradients, q, k, v, grad_out, scale=scale, mask=mask)


def assert_steps(
    step,
    ranks,
    *,
    H=2,
    Hkv=1,
    L=70,
    D=64,
    dtype=torch.float16,
    causal=True,
    layout="zigzag",
    device="cpu",
):
    """Raise NumericalMismatch unless the steps of each rank, one after the other, are attention.

    Everything is here, so nothing travels; `step` is called as kernel.py's _launch_step is.
    """
    options = {"D": D, "dtype": dtype, "device": device}
    q, _, _ = make_qkv(1, H, N=ranks * L, **options)
    _, k, v = make_qkv(1, Hkv, M=1, N=ranks * L, seed=1, **options)
    found, lse = _in_steps(step, ranks, q, k, v, D**-0.5, causal, layout)
    keys, values = (x.repeat_interleave(H // Hkv, dim=1) for x in (k, v))
    mask = causal_mask(ranks * L, ranks * L, device=device) if causal else None
    assert_attention(found, q, keys, values, mask=mask)
    want = _scores(q, keys, D**-0.5, mask).logsumexp(-1).float()
    error = (lse - want).abs().max().item()
    if not error <= LSE:  # written so that NaN fails
        raise NumericalMismatch(
            f"lse: largest difference {error:.2e} from float64, allowed {LSE:.0e}"
        )


def assert_huge_steps(
    step, ranks, *, scale, L=256, D=64, dtype=torch.float16, causal=True, device="cpu"
):
    """As assert_steps for a scale that makes scores huge, where PyTorch in dtype ends in NaN.

    Queries and keys are whole numbers, so float32 holds their products.
    """
    generator = torch.Generator().manual_seed(0)
    shape = 1, 2, ranks * L, D
    q, k, v = (torch.randint(-8, 9, shape, generator=generator).to(dtype) for _ in range(3))
    q[:, 1], k[:, 1] = q[:, 1].abs(), -k[:, 1].abs()  # all maxima are below 0
    q, k, v = (x.to(device) for x in (q, k, v))
    found, lse = _in_steps(step, ranks, q, k, v, scale, causal, "zigzag")
    mask = causal_mask(ranks * L, ranks * L, device=device) if causal else None
    scores = _scores(q, k, scale, mask)
    rounding = 2 * torch.finfo(dtype).eps * 8.0  # v goes up to 8
    out_error = (found.double() - scores.softmax(-1) @ v.double()).abs().max()
    lse_error = (lse / scores.logsumexp(-1) - 1).abs().max()
    for name, error, allowed in (
        ("out", out_error, rounding),
        ("lse, as a share of it", lse_error, 2 * FLOAT32),
    ):
        if not error <= allowed:  # written so that NaN fails
            raise NumericalMismatch(
                f"{name}: largest difference {error:.2e} at a scale of {scale:.2g}, "
                f"allowed {allowed:.2e}"
            )


def _scores(q, k, scale, mask):
    """[B, H, M, N] in float64, -inf where the mask is off."""
    scores = q.double() @ k.double().mT * scale
    return scores if mask is None else scores.masked_fill(~mask, float("-inf"))


def _in_steps(step, ranks, q, k, v, scale, causal, layout):
    """The whole output and logsumexp of the steps of all ranks, one after the other."""
    H, L, device = q.shape[1], q.shape[2] // ranks, q.device
    found = torch.empty_like(q)
    lse = torch.empty(q.shape[:-1], device=device)
    rings = [Ring(rank, ranks) for rank in range(ranks)]
    where = [positions(L, group=ring, layout=layout).to(device) for ring in rings]
    for ring in rings:
        mine = q[:, :, where[ring.rank]]
        state = [torch.full(mine.shape, float("nan"), device=device)]
        state += torch.full((2, 1, H, L), float("nan"), device=device)
        state += torch.full_like(mine, float("nan")), torch.full_like(state[1], float("nan"))
        for t, part in enumerate(_plan(ring, L, causal, layout)):
            if part.M:
                held = (x[:, :, where[part.source]] for x in (k, v))
                step(mine, *held, tuple(state), part, scale, first=t == 0)
        found[:, :, where[ring.rank]], lse[:, :, where[ring.rank]] = state[3:]
    return found, lse
