"""Wrong attention in plain PyTorch: a model of each mistake, to compare a wrong output with.

A model takes a Probe and returns, in float64, the output of a kernel with this mistake; it returns
None for a probe on which the effect depends on how the kernel is written. A mistake may have
several models: the same in other places, or with other tile sizes.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

TILES = (8, 16, 32, 64, 128, 256)
STEPS = (1, 2, 4, *TILES)  # of an online softmax: keys at a time
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Probe:
    """One input of a launcher: q [B, H, M, D], k and v [B, Hkv, N, D], and its options."""

    name: str
    q: Tensor
    k: Tensor
    v: Tensor
    scale: float | None = None
    causal: bool = False
    align: str = "bottom_right"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, D."""
        return self.q.shape[-2], self.k.shape[-2], self.q.shape[-1]

    @property
    def factor(self) -> float:
        """What the scores are to be multiplied by."""
        return 1 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale

    def heads(self) -> Tensor:
        """[H]: the K/V head of each query head; neighbours share one."""
        return torch.arange(self.q.shape[1]) // (self.q.shape[1] // self.k.shape[1])


Model = Callable[[Probe], Tensor | None]


@dataclass(frozen=True)
class Mistake:
    """What a reader is told, and what it does to the output."""

    sentence: str
    models: Sequence[Model]
    rounding: bool = False  # the models say how the output is rounded, digit for digit they do not
    needs: str = ""  # of a probe: without it this mistake cannot be told from another


def visible(p: Probe, shift: int = 0, align: str = "") -> Tensor:
    """[M, N], True where a query sees a key; with `shift`, that many keys more than it should."""
    M, N, _ = p.sizes
    if not p.causal:
        return torch.ones(M, N, dtype=torch.bool)
    offset = N - M if (align or p.align) == "bottom_right" else 0
    return torch.arange(N) <= torch.arange(M)[:, None] + offset + shift


def softmax(scores: Tensor, hidden: float = 0.0) -> Tensor:
    """Along the last axis; a row of -inf gives zeros, or `hidden`."""
    empty = (scores == -INF).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(empty, hidden)


# q, k, v and what follows are replaced one at a time: each model names what its mistake changes.
def attend(
    p: Probe,
    *,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    factor: float | None = None,
    mask: Tensor | None = None,
    heads: tuple[Tensor, Tensor] | None = None,
    weigh: Callable[[Tensor], Tensor] = softmax,
) -> Tensor:
    """Right attention of a probe in float64, but for what is given."""
    of_k, of_v = (p.heads(), p.heads()) if heads is None else heads
    q = p.q if q is None else q
    k = p.k if k is None else k
    v = p.v if v is None else v
    factor = p.factor if factor is None else factor
    mask = visible(p) if mask is None else mask
    scores = q.double() @ k.double()[:, of_k].mT * factor
    return weigh(scores.masked_fill(~mask, -INF)) @ v.double()[:, of_v]


def zeros(p: Probe) -> Tensor:
    return torch.zeros(p.q.shape, dtype=torch.float64)


def mean_of_values(p: Probe) -> Tensor:
    return attend(p, factor=0.0)


def mean_of_all_values(p: Probe) -> Tensor:
    return attend(p, factor=0.0, mask=torch.ones_like(visible(p)))


def factor_is(default: Callable[[Probe], float], p: Probe) -> Tensor:
    """Another default; a factor that the caller gives is honoured."""
    return attend(p, factor=default(p) if p.scale is None else p.scale)


def power_of_two_above(n: int) -> int:
    return 1 << (n - 1).bit_length()


def mask_moved(shift: int, p: Probe) -> Tensor:
    return attend(p, mask=visible(p, shift))


def first_query_misses_last_key(p: Probe) -> Tensor:
    """The mask moved where there is none too: query m sees N + m - 1 keys, at most N."""
    mask = visible(p, -1).clone()
    if not p.causal:
        mask[0, -1] = False
    return attend(p, mask=mask)


def corner(align: dict[str, str], p: Probe) -> Tensor:
    return attend(p, mask=visible(p, align=align[p.align]))


def not_masked(p: Probe) -> Tensor:
    return attend(p, mask=torch.ones_like(visible(p)))


def mask_reversed(first: int, p: Probe, *, none_is_all: bool = False) -> Tensor:
    """A query sees what comes after its own place, or (first 0) from it on."""
    mask = ~visible(p, first - 1) if p.causal else visible(p)
    empty = ~mask.any(-1, keepdim=True)
    return attend(p, mask=mask | (empty & none_is_all))


def hidden_keys_score_zero(p: Probe) -> Tensor:
    return attend(p, weigh=lambda s: s.masked_fill(s == -INF, 0.0).softmax(-1))


def hidden_row(value: float, p: Probe) -> Tensor:
    return attend(p, weigh=functools.partial(softmax, hidden=value))


def hidden_row_mean(p: Probe) -> Tensor:
    return hidden_row(1 / p.sizes[1], p)


def keys_kept(first: int, last: Callable[[int], int], empty: float, p: Probe) -> Tensor | None:
    """Only keys first … last(N) - 1, with their values; a row of none gives `empty`."""
    if p.causal:
        return None
    mask = visible(p).clone()
    mask[:, :first] = mask[:, max(last(p.sizes[1]), 0) :] = False
    return attend(p, mask=mask, weigh=functools.partial(softmax, hidden=empty))


def last_value_dropped(p: Probe) -> Tensor | None:
    if p.causal:
        return None
    v = p.v.clone()
    v[..., -1, :] = 0
    return attend(p, v=v)


def last_column(outcome: float | None, p: Probe) -> Tensor:
    """Scores without the last column; that of the result as it should be, or `outcome`."""
    q = p.q.clone()
    q[..., -1] = 0
    out = attend(p, q=q)
    if outcome is not None:
        out[..., -1] = outcome
    return out


def rows_not_written(tile: int, p: Probe) -> Tensor:
    """The last tile of queries is never begun."""
    out = attend(p)
    out[..., p.sizes[0] // tile * tile :, :] = NAN
    return out


def online(
    tile: int,
    p: Probe,
    *,
    accumulator: bool = True,
    total: bool = True,
    weigh: Callable[[Tensor, Tensor], Tensor] = lambda s, new: (s - new).exp(),
    rescale: Callable[[Tensor, Tensor], Tensor] = lambda old, new: (old - new).exp(),
    weights: Callable[[Tensor], Tensor] = lambda x: x,
    sums: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor | None:
    """Online softmax in tiles of keys that forgets to rescale, or does it wrongly, or rounds."""
    if p.causal:
        return None
    scores = p.q.double() @ p.k.double()[:, p.heads()].mT * p.factor
    values = p.v.double()[:, p.heads()]
    m_i = torch.full((*scores.shape[:-1], 1), -INF, dtype=torch.float64)
    l_i = torch.zeros_like(m_i)
    acc = zeros(p)
    for s, v in zip(scores.split(tile, -1), values.split(tile, -2), strict=True):
        m_new = torch.maximum(m_i, s.amax(-1, keepdim=True))
        alpha = rescale(m_i, m_new)
        w = weigh(s, m_new)
        m_i = m_new
        l_i = l_i * (alpha if total else 1) + w.sum(-1, keepdim=True)
        acc = sums(acc * (alpha if accumulator else 1) + weights(w) @ v)
    return acc / l_i


def in_float32(x: Tensor, _: Tensor) -> Tensor:
    """exp of scores or maxima from which nothing was subtracted: infinite beyond 88."""
    return x.float().exp().double()


def max_kept(at_least: float, p: Probe) -> Tensor:
    """exp of the scores themselves, in float32; divided by their sum or by `at_least`."""

    def weigh(scores: Tensor) -> Tensor:
        e = scores.float().exp()
        empty = (scores == -INF).all(-1, keepdim=True)
        return (e / e.sum(-1, keepdim=True).clamp(min=at_least)).masked_fill(empty, 0.0).double()

    return attend(p, weigh=weigh)


def not_normalised(p: Probe) -> Tensor:
    def weigh(scores: Tensor) -> Tensor:
        return (scores - scores.amax(-1, keepdim=True)).exp().nan_to_num(0.0)

    return attend(p, weigh=weigh)


def padded(slots: Callable[[int], int], p: Probe) -> Tensor | None:
    """Slots for keys that do not exist have score 0 and value 0."""
    if p.causal:
        return None
    extra = slots(p.sizes[1]) - p.sizes[1]
    k, v = (torch.nn.functional.pad(x, (0, 0, 0, extra)) for x in (p.k, p.v))
    return attend(p, k=k, v=v, mask=torch.ones(p.sizes[0], slots(p.sizes[1]), dtype=torch.bool))


def up_to_tile(tile: int, N: int) -> int:
    return -(-N // tile) * tile


def base(b: float, p: Probe) -> Tensor:
    """A softmax of powers of b, not of e."""
    return attend(p, factor=p.factor * math.log(b))


def over_queries(p: Probe) -> Tensor:
    return attend(p, weigh=lambda s: s.softmax(-2).nan_to_num(0.0))


def without_softmax(p: Probe) -> Tensor:
    return attend(p, weigh=lambda s: s.masked_fill(s == -INF, 0.0))


def kv_head(p: Probe) -> Tensor:
    of = torch.arange(p.q.shape[1]) % p.k.shape[1]
    return attend(p, heads=(of, of))


def first_head(of: str, p: Probe) -> Tensor:
    zero, own = torch.zeros_like(p.heads()), p.heads()
    q = p.q[:, :1].expand(p.q.shape) if "q" in of else None
    return attend(p, q=q, heads=(zero if "k" in of else own, zero if "v" in of else own))


def first_batch(of: str, p: Probe) -> Tensor:
    return attend(p, **{name: getattr(p, name)[:1].expand(getattr(p, name).shape) for name in of})


def only_first(axis: int, p: Probe) -> Tensor:
    """All read and write the first head or batch: the others are never written."""
    out = attend(p)
    out.narrow(axis, 1, out.shape[axis] - 1).fill_(NAN)
    return out


def keys_for_values(p: Probe) -> Tensor:
    return attend(p, v=p.k)


def values_for_keys(p: Probe) -> Tensor:
    return attend(p, k=p.v)


def read_with(strides: Callable[[Tensor], Sequence[int]], of: str, p: Probe) -> Tensor | None:
    """The named tensors, read from their memory with other strides than their own."""
    found = {}
    for name in of:
        x = getattr(p, name)
        wrong = strides(x)
        last = sum((n - 1) * s for n, s in zip(x.shape, wrong, strict=True))
        if last >= x.untyped_storage().nbytes() // x.element_size():
            return None  # beyond the tensor: anything may come
        found[name] = x.as_strided(x.shape, wrong)
    return attend(p, **found)


WRONG_STRIDES: tuple[Callable[[Tensor], Sequence[int]], ...] = (
    lambda x: (*x.stride()[:3], 1),
    lambda x: (*x.stride()[:2], x.shape[3], 1),
    lambda x: torch.empty(x.shape, device="meta").stride(),
)
TENSORS = ("q", "k", "v", "kv", "qk", "qkv")


def row_stride_left_out(x: Tensor) -> Sequence[int]:
    return (*x.stride()[:2], 1, x.stride(3))


def cut(x: Tensor, bits: int, nearest: bool = True) -> Tensor:
    """float32 numbers with `bits` bits of mantissa: rounded to nearest, or the rest cut off."""
    lost = 23 - bits
    whole = x.float().contiguous().view(torch.int32)
    if nearest:
        whole = whole + ((1 << (lost - 1)) - 1) + ((whole >> lost) & 1)
    return (whole >> lost << lost).view(torch.float32).double()


def inputs_rounded(dtype: torch.dtype, p: Probe) -> Tensor:
    return attend(p, **{name: getattr(p, name).to(dtype) for name in "qkv"})


def weights_rounded(dtype: torch.dtype, tile: int | None, p: Probe) -> Tensor | None:
    """Before they meet the values: after the division, or (with a tile) in an online softmax."""
    if tile is None:
        return attend(p, weigh=lambda s: softmax(s).to(dtype).double())
    return online(tile, p, weights=lambda w: w.to(dtype).double())


def accumulator_rounded(tile: int, p: Probe) -> Tensor | None:
    return online(tile, p, sums=lambda acc: acc.half().double())


def tf32(nearest: bool, p: Probe) -> Tensor | None:
    """Both products with 10 bits of mantissa, as tensor cores take float32 by default."""
    short = functools.partial(cut, bits=10, nearest=nearest)
    rounded = replace(p, q=short(p.q), k=short(p.k), v=short(p.v))
    return attend(rounded, weigh=lambda s: short(softmax(s)))


P = functools.partial
HALVES = (torch.float16, torch.bfloat16)
MISTAKES: dict[str, Mistake] = {
    "zeros": Mistake("The result is all zeros.", [zeros]),
    "mean of V": Mistake(
        "Every value gets the same weight: the result ignores the queries and the keys.",
        [
            mean_of_values,
            mean_of_all_values,
            *(P(online, tile, weigh=lambda s, new: torch.ones_like(s)) for tile in STEPS),
        ],
    ),
    "no scale": Mistake(
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
        [P(attend, factor=1.0), P(factor_is, lambda p: 1.0)],
    ),
    "scale 1/D": Mistake(
        "The scores are divided by D and not by √D, or scaled twice: the softmax is too flat.",
        [P(factor_is, lambda p: p.factor**2), lambda p: attend(p, factor=p.factor**2)],
    ),
    "multiplied by √D": Mistake(
        "The scores are multiplied by √D and not divided by it.",
        [lambda p: attend(p, factor=1 / p.factor), P(factor_is, lambda p: 1 / p.factor)],
    ),
    "scale ignored": Mistake(
        "The scale that the caller gives is ignored: it is always 1/√D.",
        [lambda p: attend(p, factor=p.sizes[2] ** -0.5)],
    ),
    "scale of the padded head": Mistake(
        "The scale is 1/√BLOCK_D, of the tile's power of two, and not 1/√D.",
        [P(factor_is, lambda p: power_of_two_above(p.sizes[2]) ** -0.5)],
    ),
    "wrong base": Mistake(
        "exp2 stands where exp belongs, without log2(e) in the scale: the softmax is too flat.",
        [
            P(base, 2.0),
            *(P(online, tile, weigh=lambda s, new: (s - new).exp2()) for tile in STEPS),
        ],
    ),
    "log2(e) with exp": Mistake(
        "log2(e) is in the scale, but exp is not exp2: the softmax is too sharp.",
        [P(base, math.e ** math.log2(math.e))],
    ),
    "mask off by one": Mistake("Every query sees one key of the future.", [P(mask_moved, 1)]),
    "own key hidden": Mistake(
        "No query sees the key at its own place: the mask is off by one.",
        [P(mask_moved, -1), first_query_misses_last_key],
    ),
    "top-left for bottom-right": Mistake(
        "Your mask is top-left; the spec is bottom-right: query m sees keys n ≤ m + N - M.",
        [P(corner, dict.fromkeys(("bottom_right", "top_left"), "top_left"))],
    ),
    "bottom-right for top-left": Mistake(
        "Your mask is bottom-right; the spec is top-left: query m sees keys n ≤ m.",
        [P(corner, dict.fromkeys(("bottom_right", "top_left"), "bottom_right"))],
    ),
    "corners swapped": Mistake(
        "Your mask is bottom-right where the spec is top-left, and top-left where it is "
        "bottom-right: only M = N hides the mistake.",
        [P(corner, {"bottom_right": "top_left", "top_left": "bottom_right"})],
        needs="top-left, fewer queries than keys",
    ),
    "no mask": Mistake("The causal mask is not applied: every query sees every key.", [not_masked]),
    "future, not past": Mistake(
        "The mask points the other way: a query sees the keys after its place.",
        [P(mask_reversed, 0), P(mask_reversed, 1), P(mask_reversed, 1, none_is_all=True)],
    ),
    "hidden keys score zero": Mistake(
        "Hidden keys get a score of 0 and not -inf: they take part in the softmax.",
        [hidden_keys_score_zero],
    ),
    "hidden row gives NaN": Mistake(
        "A query that sees no key gives NaN and not zeros.", [P(hidden_row, NAN)]
    ),
    "hidden row gives the mean": Mistake(
        "A query that sees no key gives the mean of the values and not zeros.", [hidden_row_mean]
    ),
    "last key dropped": Mistake(
        "The last key is never looked at: a loop or a mask ends one early.",
        [P(keys_kept, 0, lambda N: N - 1, empty) for empty in (NAN, 0.0)],
    ),
    "first key dropped": Mistake(
        "The first key is never looked at: a loop or a mask begins one late.",
        [P(keys_kept, 1, lambda N: N, empty) for empty in (NAN, 0.0)],
    ),
    "last value dropped": Mistake(
        "The loop over the values ends one early: the last value never arrives.",
        [last_value_dropped],
    ),
    "last tile dropped": Mistake(
        "The last tile of keys is never looked at: the loop ends a tile early.",
        [
            P(keys_kept, 0, last, empty)
            for tile, empty in itertools.product(TILES, (NAN, 0.0))
            for last in (
                P(lambda t, N: N // t * t, tile),
                P(lambda t, N: (N - 1) // t * t, tile),
                P(lambda t, N: max((N - 1) // t * t, t), tile),
            )
        ],
    ),
    "first tile dropped": Mistake(
        "The first tile of keys is never looked at: the loop begins a tile late.",
        [P(keys_kept, tile, lambda N: N, empty) for tile in TILES for empty in (NAN, 0.0)],
    ),
    "last column dropped": Mistake(
        "The mask of the columns is off by one: the last column is not read.",
        [P(last_column, outcome) for outcome in (NAN, 0.0, None)],
    ),
    "last queries not written": Mistake(
        "The last tile of queries is not begun: the grid is rounded down.",
        [P(rows_not_written, tile) for tile in TILES],
    ),
    "no rescale": Mistake(
        "When the running maximum moves, the accumulator is not rescaled.",
        [P(online, tile, accumulator=False) for tile in STEPS],
    ),
    "sum not rescaled": Mistake(
        "When the running maximum moves, the running sum is not rescaled.",
        [P(online, tile, total=False) for tile in STEPS],
    ),
    "nothing rescaled": Mistake(
        "When the running maximum moves, neither the accumulator nor the sum is rescaled.",
        [P(online, tile, accumulator=False, total=False) for tile in STEPS],
    ),
    "rescaled the wrong way": Mistake(
        "When the running maximum moves, what was kept is multiplied by exp(new - old) and not by "
        "exp(old - new).",
        [
            P(online, tile, rescale=lambda old, new: (new - old).exp().nan_to_num(0.0, posinf=0.0))
            for tile in STEPS
        ],
    ),
    "max not subtracted": Mistake(
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
        [
            P(max_kept, 0.0),
            P(max_kept, 1.0),
            *(P(online, tile, weigh=in_float32, rescale=in_float32) for tile in STEPS),
        ],
    ),
    "not normalised": Mistake(
        "The weights are not divided by their sum: they do not add up to one.", [not_normalised]
    ),
    "padding gets weight": Mistake(
        "Slots for keys that do not exist have a score of 0 and not -inf: they take part in the "
        "softmax.",
        [P(padded, power_of_two_above), *(P(padded, P(up_to_tile, tile)) for tile in TILES)],
    ),
    "wrong axis": Mistake("The softmax runs over the queries, not over the keys.", [over_queries]),
    "softmax left out": Mistake("The values are mixed with the scores.", [without_softmax]),
    "wrong K/V head": Mistake(
        "Query head h reads K/V head h mod Hkv; the spec is h // (H / Hkv): neighbours share.",
        [kv_head],
    ),
    "first head for all": Mistake(
        "Every head reads from head 0.", [*(P(first_head, of) for of in TENSORS), P(only_first, 1)]
    ),
    "first batch for all": Mistake(
        "Every batch reads from batch 0.",
        [*(P(first_batch, of) for of in TENSORS), P(only_first, 0)],
    ),
    "keys for values": Mistake(
        "The keys are loaded in the place of the values.", [keys_for_values]
    ),
    "values for keys": Mistake(
        "The values are loaded in the place of the keys.", [values_for_keys]
    ),
    "strides ignored": Mistake(
        "Rows or columns are assumed to lie side by side: a transposed tensor is read wrongly.",
        [P(read_with, wrong, of) for wrong in WRONG_STRIDES for of in TENSORS],
    ),
    "row stride left out": Mistake(
        "The row number is not multiplied by the row's stride: rows overlap.",
        [P(read_with, row_stride_left_out, of) for of in TENSORS],
    ),
    "inputs rounded to 16 bits": Mistake(
        "float32 inputs are rounded to 16 bits before anything is computed.",
        [P(inputs_rounded, dtype) for dtype in HALVES],
        rounding=True,
    ),
    "weights rounded to 16 bits": Mistake(
        "The weights are rounded to 16 bits before they meet the values.",
        [P(weights_rounded, dtype, tile) for dtype in HALVES for tile in (None, *TILES, 1024)],
        rounding=True,
    ),
    "float16 accumulator": Mistake(
        "The sum over the keys is kept in float16.",
        [P(accumulator_rounded, tile) for tile in (1, *TILES, 1024)],
        rounding=True,
    ),
    "TF32": Mistake(
        'float32 products run in TF32, with 10 bits of mantissa: say input_precision="ieee".',
        [P(tf32, nearest) for nearest in (True, False)],
        rounding=True,
    ),
}
