"""Attention in float64 with a place for each mistake: what a wrong kernel would return.

`attend` is right attention until one of its keyword arguments says otherwise. A *change* is a
function of a probe that says which arguments a mistake gives it, or None for a probe on which its
effect depends on how a kernel is written. What is read beyond a tensor is 0: `bounds` sees to that.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TILES = (8, 16, 32, 64, 128, 256)
STEPS = (1, 2, 4, *TILES)  # of an online softmax: keys at a time
NAN, INF = math.nan, math.inf
ANY = 12_345.678  # in a result of which a model does not say what it is


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
    promised: bool = True  # an input that a launcher must take, or refuse

    @functools.cached_property
    def in_float64(self) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v."""
        return self.q.double(), self.k.double(), self.v.double()

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, D."""
        return self.q.shape[-2], self.k.shape[-2], self.q.shape[-1]

    @property
    def factor(self) -> float:
        """What the scores are to be multiplied by."""
        return 1 / math.sqrt(self.q.shape[-1]) if self.scale is None else self.scale

    def heads(self) -> Tensor:
        """[H]: the K/V head of each query head; neighbors share one."""
        return torch.arange(self.q.shape[1]) // (self.q.shape[1] // self.k.shape[1])


Arguments = dict[str, Any]
Change = Callable[[Probe], Arguments | None]
Mix = Callable[[Tensor, Tensor, float], Tensor]  # scores, values, weight where no key is seen


def visible(p: Probe, shift: int = 0, align: str = "", causal: bool | None = None) -> Tensor:
    """[M, N], True where a query sees a key; with `shift`, that many keys more than it should."""
    M, N, _ = p.sizes
    if not (p.causal if causal is None else causal):
        return torch.ones(M, N, dtype=torch.bool)
    offset = N - M if (align or p.align) == "bottom_right" else 0
    return torch.arange(N) <= torch.arange(M)[:, None] + offset + shift


def hides(p: Probe) -> bool:
    """Whether a causal mask keeps a key from a query."""
    return p.causal and not bool(visible(p).all())


def softmax(scores: Tensor, empty: float = 0.0) -> Tensor:
    """Along the last axis; a row of -inf gives zeros, or `empty`."""
    none = (scores == -INF).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(none, empty)


def weighted(scores: Tensor, values: Tensor, empty: float = 0.0) -> Tensor:
    """softmax(scores) values, as it should be."""
    return softmax(scores, empty) @ values


def attend(
    p: Probe,
    *,
    q: Tensor | None = None,
    k: Tensor | None = None,
    v: Tensor | None = None,
    factor: float | None = None,
    causal: Tensor | None = None,  # [M, N]: what each query sees
    keys: Tensor | None = None,  # [N] or [M, N]: which keys are looked at, apart from any mask
    hidden: float = -INF,  # the score of a key that the mask hides
    pad: int = 0,  # slots for keys that do not exist, with score and value 0
    of_k: Tensor | None = None,  # [H]: the head of k that each head of q reads
    of_v: Tensor | None = None,
    empty: float = 0.0,  # the weights of a query without any key
    mix: Mix = weighted,
    finish: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Right attention of a probe in float64, but for what is given."""
    own_q, own_k, own_v = p.in_float64
    q = own_q if q is None else q.double()
    k = own_k if k is None else k.double()
    v = own_v if v is None else v.double()
    if k.shape[1] != q.shape[1] or of_k is not None:
        k = k[:, p.heads() if of_k is None else of_k]
    if v.shape[1] != q.shape[1] or of_v is not None:
        v = v[:, p.heads() if of_v is None else of_v]
    scores = q @ k.mT * (p.factor if factor is None else factor)
    if p.causal or causal is not None:
        scores = scores.masked_fill(~(visible(p) if causal is None else causal), hidden)
    if keys is not None:
        scores = scores.masked_fill(~keys, -INF)
    if pad:
        scores = torch.nn.functional.pad(scores, (0, pad))
        v = torch.nn.functional.pad(v, (0, 0, 0, pad))
    out = mix(scores, v, empty)
    return out if finish is None else finish(out)


def output(p: Probe, change: Change) -> Tensor | None:
    """What a kernel with this mistake returns; None where it does not say."""
    arguments = change(p)
    return None if arguments is None else attend(p, **arguments)


def always(**arguments: Any) -> Change:
    """The same arguments whatever the probe."""
    return lambda p: arguments


def unless_causal(change: Change) -> Change:
    """With a causal mask the effect depends on which tiles a kernel skips."""
    return lambda p: None if hides(p) else change(p)


# Scale.


def factor_is(default: Callable[[Probe], float]) -> Change:
    """Another default; a factor that the caller gives is honored."""
    return lambda p: {"factor": default(p) if p.scale is None else p.scale}


def power_of_two_above(n: int) -> int:
    return 1 << (n - 1).bit_length()


# Masks.


def mask_moved(shift: int, block: int = 0, step: int = 1) -> Change:
    """Queries see keys of the future: none past the tile where the loop of their block ends."""

    def change(p: Probe) -> Arguments:
        M, N, _ = p.sizes
        mask = visible(p, shift)
        if block and p.causal:
            end = (torch.arange(M) // block + 1) * block + (N - M) * (p.align == "bottom_right")
            mask = mask & (torch.arange(N) < -(-end // step)[:, None] * step)
        return {"causal": mask}

    return change


def own_key_hidden_somehow(p: Probe) -> Arguments:
    """With a large negative number instead of -inf a query without any key sees whatever."""
    mask = visible(p, -1)
    hidden = ~mask.any(-1)[:, None]
    return {"causal": mask, "finish": lambda out: out.masked_fill(hidden, ANY)}


def first_query_misses_last_key(p: Probe) -> Arguments:
    """The mask moved where there is none too: query m sees N + m - 1 keys, at most N."""
    mask = visible(p, -1).clone()
    if not p.causal:
        mask[0, -1] = False
    return {"causal": mask}


def corner(align: dict[str, str]) -> Change:
    return lambda p: {"causal": visible(p, align=align[p.align])}


def not_masked(p: Probe) -> Arguments:
    return {"causal": torch.ones_like(visible(p))}


def always_masked(align: str) -> Change:
    return lambda p: {"causal": visible(p, align=align if not p.causal else "", causal=True)}


def mask_reversed(first: int, none_is_all: bool = False) -> Change:
    """A query sees what comes after its own place, or (first 0) from it on."""

    def change(p: Probe) -> Arguments:
        mask = ~visible(p, first - 1) if p.causal else visible(p)
        return {"causal": mask | (~mask.any(-1, keepdim=True) & none_is_all)}

    return change


# Which keys, values, queries and columns.


def keys_kept(
    first: int, last: Callable[[int, int], int], empty: float, outside: bool = False
) -> Change:
    """Only keys first … last(M, N) - 1, with their values; a row of none gives `empty`.

    With `outside`, a kernel that goes on beyond N gets slots of zeros, or what no model knows.
    """

    def change(p: Probe) -> Arguments | None:
        M, N, _ = p.sizes
        end = last(M, N)
        if hides(p):
            return None
        if outside and end > N:
            alone = p.q.shape[:2] == (1, 1)  # else what follows the end is the next head
            return {"pad": end - N} if alone else None
        keys = torch.ones(N, dtype=torch.bool)
        keys[:first] = keys[max(end, 0) :] = False
        return {"keys": keys, "empty": empty}

    return change


def last_value_dropped(p: Probe) -> Arguments | None:
    if hides(p):
        return None
    v = p.v.clone()
    v[..., -1, :] = 0
    return {"v": v}


def values_ahead(p: Probe) -> Arguments:
    """Row n + 1 of V is read instead of row n: beyond the end, what lies there."""
    return {"v": _reread(p.v, p.v.stride(), p.v.stride(2))}


def values_ahead_inside(p: Probe) -> Arguments:
    """The same, but what would be read outside is masked: zeros."""
    v = p.v.roll(-1, -2)
    v[..., -1, :] = 0
    return {"v": v}


def first_tile_again(names: str, tile: int) -> Change:
    """The pointer is never moved on: each tile reads the first tile's rows."""

    def change(p: Probe) -> Arguments | None:
        if hides(p):
            return None
        again = torch.arange(p.sizes[1]) % tile
        return {name: getattr(p, name)[..., again, :] for name in names}

    return change


def last_column(outcome: float | None) -> Change:
    """Scores without the last column; that of the result as it should be, or `outcome`."""

    def change(p: Probe) -> Arguments:
        q = p.q.clone()
        q[..., -1] = 0
        if outcome is None:
            return {"q": q}

        def finish(out: Tensor) -> Tensor:
            out[..., -1] = outcome
            return out

        return {"q": q, "finish": finish}

    return change


def rows_written(last: Callable[[int, int], int]) -> Change:
    """Only the first last(M, N) rows of the result are ever written."""

    def change(p: Probe) -> Arguments:
        def finish(out: Tensor) -> Tensor:
            out[..., max(0, last(*p.sizes[:2])) :, :] = NAN
            return out

        return {"finish": finish}

    return change


# Heads and batches.


def kv_head(names: str, by: str) -> Change:
    """K or V by the query head modulo their number, or by the query head itself."""

    def change(p: Probe) -> Arguments:
        if by == "modulo":
            of = torch.arange(p.q.shape[1]) % p.k.shape[1]
            return {f"of_{name}": of for name in names}
        shape = (*p.q.shape[:2], *p.k.shape[2:])
        return {n: _reread(getattr(p, n), getattr(p, n).stride(), shape=shape) for n in names}

    return change


def first_head(names: str) -> Change:
    def change(p: Probe) -> Arguments:
        zero = torch.zeros_like(p.heads())
        found: Arguments = {f"of_{name}": zero for name in names if name in "kv"}
        return found | ({"q": p.q[:, :1].expand(p.q.shape)} if "q" in names else {})

    return change


def first_batch(names: str) -> Change:
    return lambda p: {n: getattr(p, n)[:1].expand(getattr(p, n).shape) for n in names}


def only_first(axis: int) -> Change:
    """All read and write the first head or batch: the others are never written."""

    def finish(out: Tensor) -> Tensor:
        out.narrow(axis, 1, out.shape[axis] - 1).fill_(NAN)
        return out

    return always(finish=finish)


# Memory: tensors that are read with strides that are not theirs.

Strides = Sequence[int]


def read_with(strides: Callable[[Probe, Tensor], Strides], names: str) -> Change:
    """The named tensors, read from their memory with other strides than their own."""

    def change(p: Probe) -> Arguments:
        return {n: _reread(getattr(p, n), strides(p, getattr(p, n))) for n in names}

    return change


def instead(name: str, other: str) -> Change:
    """Another tensor is read, with the strides of the one that should be."""
    return lambda p: {name: _reread(getattr(p, other), getattr(p, name).stride())}


def exchanged(p: Probe) -> Arguments:
    """K and V, each read with the strides of the other."""
    return {a: _reread(getattr(p, b), getattr(p, a).stride()) for a, b in ("kv", "vk")}


def _reread(
    x: Tensor, strides: Strides, first: int = 0, shape: Sequence[int] | None = None
) -> Tensor:
    """x's memory seen with other strides; what belongs to no element of x is 0."""
    image = torch.zeros(1 + _span(x.shape, x.stride()), dtype=torch.float64)
    image[_places(x.shape, x.stride())] = x.double()
    places = first + _places(shape or x.shape, strides)
    there = (places >= 0) & (places < len(image))
    return torch.where(there, image[places.clamp(0, len(image) - 1)], 0.0)


def _span(shape: Sequence[int], strides: Strides) -> int:
    return sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _places(shape: Sequence[int], strides: Strides) -> Tensor:
    """The offset of each element, in elements."""
    places = torch.zeros((), dtype=torch.int64)
    for n, s in zip(shape, strides, strict=True):
        places = places[..., None] + torch.arange(n) * s
    return places


def strides_of(name: str, first: int, last: int) -> Callable[[Probe, Tensor], Strides]:
    """Another tensor's strides, for the dimensions from `first` to `last`."""

    def strides(p: Probe, x: Tensor) -> Strides:
        other = getattr(p, name).stride()
        return (*x.stride()[:first], *other[first:last], *x.stride()[last:])

    return strides


# Softmax.


def by_rows(weigh: Callable[[Tensor], Tensor]) -> Change:
    """All scores of a row at once become weights."""
    return always(mix=lambda s, v, empty: weigh(s) @ v)


def divided(e: Tensor, at_least: float, guarded: bool) -> Tensor:
    """Exponentials over their sum, or over `at_least`; with a guard, a sum of 0 counts as 1."""
    total = e.sum(-1, keepdim=True).clamp(min=at_least)
    return (e / (total.masked_fill(total == 0, 1.0) if guarded else total)).double()


def max_kept(at_least: float, guarded: bool = False) -> Callable[[Tensor], Tensor]:
    """exp of the scores themselves, in float32."""

    def weigh(scores: Tensor) -> Tensor:
        empty = (scores == -INF).all(-1, keepdim=True)
        return divided(scores.float().exp(), at_least, guarded).masked_fill(empty, 0.0)

    return weigh


def not_normalized(scores: Tensor) -> Tensor:
    return (scores - scores.amax(-1, keepdim=True)).exp().nan_to_num(0.0)


def normalized_twice(scores: Tensor) -> Tensor:
    e = not_normalized(scores)
    return (e / e.sum(-1, keepdim=True) ** 2).nan_to_num(0.0)


def mean_of_all_values(p: Probe) -> Arguments:
    return {"factor": 0.0, "causal": torch.ones_like(visible(p))}


def padded(slots: Callable[[int], int]) -> Change:
    """Slots for keys that do not exist have score 0 and value 0."""
    return unless_causal(lambda p: {"pad": slots(p.sizes[1]) - p.sizes[1]})


def up_to_tile(tile: int, N: int) -> int:
    return -(-N // tile) * tile


def exponential(scores: Tensor, largest: Tensor) -> Tensor:
    return overflowing((scores - largest).exp())


def overflowing(x: Tensor) -> Tensor:
    """Infinite where it is in float32."""
    return torch.where(x.abs() > torch.finfo(torch.float32).max, x.sign() * INF, x)


def of_own_tile(scores: Tensor, _: Tensor) -> Tensor:
    """A tile's weights from the tile's own maximum."""
    return exponential(scores, scores.amax(-1, keepdim=True))


def in_float32(x: Tensor, _: Tensor) -> Tensor:
    """exp of scores or maxima from which nothing was subtracted: infinite beyond 88."""
    return x.float().exp().double()


# The pieces of an online softmax are replaced one at a time: each model names what it changes.
def online(
    tile: int,
    *,
    accumulator: bool = True,
    total: bool = True,
    start: float = 0.0,  # of the sum: the first rescaling removes it
    maximum: str = "kept",  # or "never", or the "first" (then "frozen"), or each "tile"'s own
    keep_accumulator: bool = True,
    guarded: bool = False,
    weigh: Callable[[Tensor, Tensor], Tensor] = exponential,
    rescale: Callable[[Tensor, Tensor], Tensor] = exponential,
    weights: Callable[[Tensor], Tensor] = lambda x: x,
    sums: Callable[[Tensor], Tensor] = lambda x: x,
) -> Change:
    """Online softmax in tiles of keys that forgets to rescale, or does it wrongly, or rounds."""

    def mix(scores: Tensor, values: Tensor, empty: float) -> Tensor:
        m_i = torch.full((*scores.shape[:-1], 1), -INF, dtype=torch.float64)
        l_i = torch.full_like(m_i, start)
        acc = scores.new_zeros(*scores.shape[:-1], values.shape[-1])
        for s, v in zip(scores.split(tile, -1), values.split(tile, -2), strict=True):
            m_new = s.amax(-1, keepdim=True)
            if maximum == "frozen" and l_i.any():
                m_new = m_i
            elif maximum != "tile":
                m_new = torch.maximum(m_i, m_new)
            alpha = rescale(m_i, m_new)
            w = weigh(s, m_new)
            if maximum in ("kept", "frozen", "tile") or (maximum == "first" and not l_i.any()):
                m_i = m_new
            l_i = overflowing(l_i * (alpha if total else 1)) + w.sum(-1, keepdim=True)
            acc = overflowing(acc * (alpha if accumulator else 1)) * keep_accumulator
            acc = sums(acc + weights(w) @ v)
        if guarded:
            l_i = l_i.masked_fill(l_i == 0, 1.0)
        return acc / l_i

    return unless_causal(always(mix=mix))


def online_over_queries(tile: int, largest: bool, guarded: bool) -> Change:
    """Sums, and with `largest` maxima, run down the columns of square tiles, and count as rows'."""

    def mix(scores: Tensor, values: Tensor, empty: float) -> Tensor:
        M, N = scores.shape[-2:]
        extra = (-M % tile, -N % tile)
        s = torch.nn.functional.pad(scores, (0, 0, 0, extra[0]))  # absent queries are zeros
        s = torch.nn.functional.pad(s, (0, extra[1]), value=-INF)
        v = torch.nn.functional.pad(values, (0, 0, 0, extra[1]))
        blocks = [_wrong_block(rows, v, tile, largest, guarded) for rows in s.split(tile, -2)]
        return torch.cat(blocks, -2)[..., :M, :]

    return unless_causal(always(mix=mix))


def _wrong_block(scores: Tensor, values: Tensor, tile: int, largest: bool, guarded: bool) -> Tensor:
    """One block of queries [tile, N]: what the axis -2 gives is used as if it were of the rows."""
    m_i = torch.full((*scores.shape[:-1], 1), -INF, dtype=torch.float64)
    l_i = torch.zeros_like(m_i)
    acc = scores.new_zeros(*scores.shape[:-1], values.shape[-1])
    for s, v in zip(scores.split(tile, -1), values.split(tile, -2), strict=True):
        m_new = torch.maximum(m_i, s.amax(-2 if largest else -1)[..., None])
        alpha = (m_i - m_new).exp()
        w = (s - m_new).exp()
        m_i = m_new
        l_i = l_i * alpha + w.sum(-2)[..., None]
        acc = acc * alpha + w @ v
    return acc / (l_i.masked_fill(l_i == 0, 1.0) if guarded else l_i)


# Rounding.


def cut(x: Tensor, bits: int, nearest: bool = True) -> Tensor:
    """float32 numbers with `bits` bits of mantissa: rounded to nearest, or the rest cut off."""
    lost = 23 - bits
    whole = x.float().contiguous().view(torch.int32)
    if nearest:
        whole = whole + ((1 << (lost - 1)) - 1) + ((whole >> lost) & 1)
    return (whole >> lost << lost).view(torch.float32).double()


def inputs_rounded(dtype: torch.dtype, names: str) -> Change:
    return lambda p: {name: getattr(p, name).to(dtype) for name in names}


def scores_rounded(dtype: torch.dtype, scaled: float | None) -> Change:
    """Before they are multiplied by the scale, or after, and then by `scaled`."""

    def change(p: Probe) -> Arguments:
        def mix(scores: Tensor, values: Tensor, empty: float) -> Tensor:
            by = 1 / scaled if scaled else p.factor
            return weighted((scores / by).to(dtype).double() * by, values, empty)

        return {"mix": mix}

    return change


def product_rounded(dtype: torch.dtype) -> Change:
    """Q and K, and their product."""
    scores = scores_rounded(dtype, None)
    return lambda p: {**{n: getattr(p, n).to(dtype) for n in "qk"}, **(scores(p) or {})}


def weights_rounded(dtype: torch.dtype, tile: int | None) -> Change:
    """Before they meet the values: after the division, or (with a tile) in an online softmax."""
    if tile is None:
        return by_rows(lambda s: softmax(s).to(dtype).double())
    return online(tile, weights=lambda w: w.to(dtype).double())


def tf32(nearest: bool) -> Change:
    """Both products with 10 bits of mantissa, as tensor cores take float32 by default."""
    short = functools.partial(cut, bits=10, nearest=nearest)
    return lambda p: {
        **{name: short(getattr(p, name)) for name in "qkv"},
        "mix": lambda s, v, empty: short(softmax(s)) @ v,
    }
