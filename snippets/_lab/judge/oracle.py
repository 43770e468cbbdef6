"""The yardstick: eager attention in float64, and how far from it a right kernel may be."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


class NumericalMismatch(AssertionError):
    """The result differs from the yardstick by more than rounding explains."""


class TrivialInputs(AssertionError):
    """These inputs cannot tell attention from the mean of V: the test would prove nothing."""


def eager_weights(
    q: Tensor,
    k: Tensor,
    *,
    scale: float | None = None,
    mask: Tensor | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """softmax(q kᵀ · scale), written out in q's own dtype.

    q [..., M, D]; k [..., N, D]; mask [M, N] or wider, True where a key is visible. A row
    with no visible key gives zeros. sinks [H]: one more score for each row of a head, whose weight
    no key gets.
    """
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * scale) @ k.mT  # [..., M, N]; scaled first, so that float16 does not overflow
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if sinks is not None:
        more = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, more], -1)
    weights = scores.softmax(-1)[..., : k.shape[-2]]
    if mask is not None:
        weights = weights.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return weights


def eager_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    """softmax(q kᵀ · scale) v in q's own dtype; v [..., N, D], else as in eager_weights.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762
    """
    return eager_weights(q, k, **options) @ v


def causal_mask(
    M: int, N: int, *, align: str = "bottom_right", device: str | torch.device = "cpu"
) -> Tensor:
    """[M, N], True where query m may see key n: n ≤ m + N - M, or n ≤ m with align "top_left"."""
    offset = {"bottom_right": N - M, "top_left": 0}[align]
    m = torch.arange(M, device=device)
    n = torch.arange(N, device=device)
    return n <= m[:, None] + offset


@dataclass(frozen=True)
class Deviation:
    """Largest and mean distance from float64, PyTorch's own distance, and what is allowed."""

    largest: float
    mean: float
    pytorch: float
    allowed: float


# --8<-- [start:bound]
def deviation(out: Tensor, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Deviation:
    """Measure `out` against float64 attention of the same, already rounded, inputs.

    The options are those of eager_weights.

    Allowed is twice the error of PyTorch's own result in the same dtype, plus what rounding must
    cost: one unit in the last place of the result for storing it, and the float32 rounding of
    the scores. A score of size S carries an error of a few eps·S; softmax turns it into a relative
    error of the weights, and the weights move the result by at most that times the largest |v|.
    """
    want = eager_attention(q.double(), k.double(), v.double(), **options)
    same = eager_attention(q, k, v, **options)
    return _measured(out, want, same, q, k, v.abs().max().item(), **options)


def _measured(
    out: Tensor, want: Tensor, same: Tensor, q: Tensor, k: Tensor, size: float, **options: Any
) -> Deviation:
    """How far `out` and PyTorch's `same` are from `want`, for values no larger than `size`."""
    pytorch = (same.double() - want).abs().max().item()
    scale = options.get("scale")
    factor = 1.0 / math.sqrt(q.shape[-1]) if scale is None else abs(scale)
    score_size = (q.double().abs() @ k.double().abs().mT).max().item() * factor
    storing = torch.finfo(q.dtype).eps * want.abs().max().item()
    scoring = 4 * torch.finfo(torch.float32).eps * (score_size + 1) * size
    error = (out.double() - want).abs()
    return Deviation(
        error.max().item(), error.mean().item(), pytorch, 2 * pytorch + storing + scoring
    )
    # --8<-- [end:bound]


def _accepted(found: Deviation, q: Tensor, k: Tensor) -> Deviation:
    # Written so that NaN fails: no comparison with NaN is true.
    if not found.largest <= found.allowed:
        raise NumericalMismatch(
            f"largest difference {found.largest:.2e} from float64, allowed {found.allowed:.2e} "
            f"(PyTorch: {found.pytorch:.2e}) at q {tuple(q.shape)}, k {tuple(k.shape)}, {q.dtype}"
        )
    return found


def assert_attention(out: Tensor, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Deviation:
    """Raise NumericalMismatch unless `out` is attention of q, k, v within rounding.

    Raises TrivialInputs if the mean of the values would pass too: such a test cannot fail. (With
    one key the mean is the right answer, so nothing is asked.)
    """
    if out.shape != q.shape or out.dtype != q.dtype:
        raise NumericalMismatch(
            f"result is {out.dtype} {tuple(out.shape)}, not {q.dtype} {tuple(q.shape)}"
        )
    found = deviation(out, q, k, v, **options)
    if k.shape[-2] > 1:
        mean = v.double().mean(-2, keepdim=True).expand(q.shape)
        if deviation(mean, q, k, v, **options).largest <= found.allowed:
            raise TrivialInputs(f"the mean of V passes at {tuple(q.shape)}: use larger q")
    return _accepted(found, q, k)


SOME_ROWS = 32


def assert_some_rows(
    out: Tensor, q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False
) -> Deviation:
    """As assert_attention, for SOME_ROWS rows of the first and of the last head.

    All scores of a long sequence in float64 may not fit the GPU; those of some rows do.
    """
    if out.shape != q.shape:
        raise NumericalMismatch(f"result has shape {tuple(out.shape)}, not {tuple(q.shape)}")
    M, N = q.shape[-2], k.shape[-2]
    rows = torch.linspace(0, M - 1, min(M, SOME_ROWS), device=q.device).round().long()

    def ends(x: Tensor) -> Tensor:  # [2, rows, D]
        lead = x.dim() - 2
        return torch.stack([x[(0,) * lead], x[(-1,) * lead]])

    mask = None
    if causal:
        mask = torch.arange(N, device=q.device) <= rows[:, None] + N - M
    return assert_attention(ends(out)[:, rows], ends(q)[:, rows], ends(k), ends(v), mask=mask)


def weights_deviation(out: Tensor, q: Tensor, k: Tensor, **options: Any) -> Deviation:
    """Measure weights against the float64 softmax of the same, already rounded, inputs.

    Allowed is what `deviation` allows, with 1, the most a weight can be, instead of |v|.
    """
    want = eager_weights(q.double(), k.double(), **options)
    same = eager_weights(q, k, **options)
    return _measured(out, want, same, q, k, 1.0, **options)


def assert_weights(
    out: Tensor, q: Tensor, k: Tensor, *, mask: Tensor | None = None, **options: Any
) -> Deviation:
    """Raise NumericalMismatch unless `out` [..., M, N] is softmax(q kᵀ · scale) within rounding.

    Raises TrivialInputs if equal weights for all visible keys would pass too. (Where no query
    sees more than one key they are the right answer, so nothing is asked.)
    """
    shape = (*q.shape[:-1], k.shape[-2])
    if out.shape != shape or out.dtype != q.dtype:
        raise NumericalMismatch(f"result is {out.dtype} {tuple(out.shape)}, not {q.dtype} {shape}")
    found = weights_deviation(out, q, k, mask=mask, **options)
    visible = torch.ones(shape, device=q.device) if mask is None else mask.expand(shape)
    counts = visible.double().sum(-1, keepdim=True)
    if counts.max() > 1:
        equal = visible / counts.clamp(min=1)
        if weights_deviation(equal, q, k, mask=mask, **options).largest <= found.allowed:
            raise TrivialInputs(f"equal weights pass at q {tuple(q.shape)}: use larger q")
    return _accepted(found, q, k)


def make_qkv(
    *leading: int,
    N: int,
    D: int,
    M: int | None = None,
    dtype: torch.dtype = torch.float32,
    device: str | torch.device = "cpu",
    seed: int = 0,
    spread: float = 3.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Reproducible q [*leading, M, D] and k, v [*leading, N, D], the same on every device.

    Without an M there are as many queries as keys. Drawn on the CPU from a normal distribution and
    then rounded to `dtype`; q is `spread` times wider, so that the scores' standard deviation is
    about `spread` and the softmax is far from uniform.
    """
    generator = torch.Generator().manual_seed(seed)
    M = N if M is None else M

    def draw(rows: int) -> Tensor:
        return torch.randn(*leading, rows, D, generator=generator)

    q, k, v = draw(M) * spread, draw(N), draw(N)
    return q.to(device, dtype), k.to(device, dtype), v.to(device, dtype)


# Memory orders that a launcher must take.


def transposed(x: Tensor) -> Tensor:
    """The same numbers, columns instead of rows."""
    return x.mT.contiguous().mT


def with_gaps(x: Tensor) -> Tensor:
    """The same numbers as a slice of wider rows."""
    wider = x.new_zeros(*x.shape[:-1], x.shape[-1] + 3)
    wider[..., : x.shape[-1]] = x
    return wider[..., : x.shape[-1]]


def beside(x: Tensor) -> Tensor:
    """The same numbers, the heads of one row next to each other, as models store them."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)
