"""The mistakes that a diagnosis can name, each with what it tells a reader and its models.

A mistake may have several models: the same in other places, or with other tile sizes. Each is a
change to right attention (`models`). Accesses that leave a tensor are no guess from the output:
they are seen, and have sentences of their own here.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from snippets._lab.judge import models as of
from snippets._lab.judge.models import NAN, STEPS, TILES, Change, always, online

TENSORS = ("q", "k", "v", "kv", "qk", "qkv")
WHERE = ((0, 4), (2, 4), (2, 3), (3, 4))  # all strides, or those of rows, of columns, of both
BLOCKS = tuple(itertools.product((16, 32, 64, 128), repeat=2))  # of queries, of keys
HALVES = (torch.float16, torch.bfloat16)
P = functools.partial


@dataclass(frozen=True)
class Mistake:
    """What a reader is told, and what it does to the output."""

    sentence: str
    models: Sequence[Change]
    rounding: bool = False  # the models say how the output is rounded, digit for digit they do not
    unequal: bool = False  # no mistake where there are as many queries as keys
    needs: str = ""  # of a probe: without it this mistake cannot be told from another


# Seen as they happen; the line comes first, then one of these.
MEMORY = {
    "reads outside": "reads outside of {tensor}",
    "writes outside": "writes outside of {tensor}",
    "overwrites": "overwrites the input {tensor}",
}


MISTAKES: dict[str, Mistake] = {
    "zeros": Mistake("The result is all zeros.", [always(finish=torch.zeros_like)]),
    "mean of V": Mistake(
        "Every value gets the same weight: the result ignores the queries and the keys.",
        [
            always(factor=0.0),
            of.mean_of_all_values,
            *(online(tile, weigh=lambda s, new: torch.ones_like(s)) for tile in STEPS),
        ],
    ),
    # Scale.
    "no scale": Mistake(
        "The scores are not multiplied by 1/√D: the softmax is too sharp.",
        [always(factor=1.0), of.factor_is(lambda p: 1.0)],
    ),
    "scale 1/D": Mistake(
        "The scores are divided by D and not by √D, or scaled twice: the softmax is too flat.",
        [of.factor_is(lambda p: p.factor**2), lambda p: {"factor": p.factor**2}],
    ),
    "multiplied by √D": Mistake(
        "The scores are multiplied by √D and not divided by it.",
        [lambda p: {"factor": 1 / p.factor}, of.factor_is(lambda p: 1 / p.factor)],
    ),
    "scale ignored": Mistake(
        "The scale that the caller gives is ignored: it is always 1/√D.",
        [lambda p: {"factor": p.sizes[2] ** -0.5}],
    ),
    "scale of the padded head": Mistake(
        "The scale is 1/√BLOCK_D, of the tile's power of two, and not 1/√D.",
        [of.factor_is(lambda p: of.power_of_two_above(p.sizes[2]) ** -0.5)],
    ),
    "scale 1/√N": Mistake(
        "The scores are divided by the square root of the number of keys, not of the head "
        "dimension.",
        [of.factor_is(lambda p: p.sizes[1] ** -0.5)],
    ),
    "wrong base": Mistake(
        "exp2 is used instead of exp, without log2(e) in the scale: the softmax is too flat.",
        [
            lambda p: {"factor": p.factor * math.log(2)},
            *(online(tile, weigh=lambda s, new: (s - new).exp2()) for tile in STEPS),
        ],
    ),
    # The causal mask.
    "mask off by one": Mistake(
        "Every query sees one key of the future.",
        [of.mask_moved(1), *(of.mask_moved(1, *sizes) for sizes in BLOCKS)],
    ),
    "own key hidden": Mistake(
        "No query sees the key at its own place: the mask is off by one.",
        [of.mask_moved(-1), of.own_key_hidden_somehow, of.first_query_misses_last_key],
    ),
    "top-left for bottom-right": Mistake(
        "Your mask is top-left; the spec is bottom-right: query m sees keys n ≤ m + N - M.",
        [of.corner(dict.fromkeys(("bottom_right", "top_left"), "top_left"))],
        unequal=True,
    ),
    "bottom-right for top-left": Mistake(
        "Your mask is bottom-right; the spec is top-left: query m sees keys n ≤ m.",
        [of.corner(dict.fromkeys(("bottom_right", "top_left"), "bottom_right"))],
        unequal=True,
    ),
    "corners swapped": Mistake(
        "Your mask is bottom-right where the spec is top-left, and top-left where it is "
        "bottom-right: only M = N hides the mistake.",
        [of.corner({"bottom_right": "top_left", "top_left": "bottom_right"})],
        needs="top-left, fewer queries than keys",
        unequal=True,
    ),
    "no mask": Mistake(
        "The causal mask is not applied: every query sees every key, or all of its own tile.",
        [of.not_masked, *(of.mask_moved(1024, *sizes) for sizes in BLOCKS)],
    ),
    "always masked": Mistake(
        "The causal mask is applied although nobody asked for one.",
        [of.always_masked("bottom_right"), of.always_masked("top_left")],
    ),
    "future, not past": Mistake(
        "The mask points the other way: a query sees the keys after its place.",
        [of.mask_reversed(0), of.mask_reversed(1), of.mask_reversed(1, none_is_all=True)],
    ),
    "hidden keys score zero": Mistake(
        "Hidden keys get a score of 0 and not -inf: they take part in the softmax.",
        [always(hidden=0.0)],
    ),
    "hidden row gives NaN": Mistake(
        "A query that sees no key gives NaN and not zeros.", [always(empty=NAN)]
    ),
    # Loops and their ends.
    "last key dropped": Mistake(
        "The last key is never looked at: a loop or a mask ends one early.",
        [of.keys_kept(0, lambda M, N: N - 1, empty) for empty in (NAN, 0.0)],
    ),
    "loop to N - 1": Mistake(
        "The loop over the tiles ends at N - 1: where N is one more than a multiple of the tile, "
        "the last key is never looked at.",
        [
            of.keys_kept(0, P(lambda t, M, N: -(-(N - 1) // t) * t, tile), empty)
            for tile in TILES
            for empty in (NAN, 0.0)
        ],
    ),
    "first key dropped": Mistake(
        "The first key is never looked at: a loop or a mask begins one late.",
        [of.keys_kept(1, lambda M, N: N, empty) for empty in (NAN, 0.0)],
    ),
    "last value dropped": Mistake(
        "The loop over the values ends one early: the last value never arrives.",
        [of.last_value_dropped],
    ),
    "last tile dropped": Mistake(
        "The last tile of keys is never looked at: the loop ends a tile early.",
        [
            of.keys_kept(0, P(last, tile), empty)
            for tile, empty in itertools.product(TILES, (NAN, 0.0))
            for last in (
                lambda t, M, N: N // t * t,
                lambda t, M, N: (N - 1) // t * t,
                lambda t, M, N: max((N - 1) // t * t, t),
            )
        ],
    ),
    "M for N": Mistake(
        "The number of queries is used instead of the number of keys: the loop, or the mask of "
        "the keys, ends at M.",
        [
            *(of.keys_kept(0, lambda M, N: M, empty, outside=True) for empty in (NAN, 0.0)),
            *(of.keys_kept(0, lambda M, N: min(M, N), empty) for empty in (NAN, 0.0)),
            *(
                of.keys_kept(0, P(lambda t, less, M, N: -(-(M - less) // t) * t, tile, less), empty)
                for tile in TILES[:-1]  # no input has enough queries to tell the largest
                for less in (0, 1)
                for empty in (NAN, 0.0)
            ),
        ],
        unequal=True,
    ),
    "N for M": Mistake(
        "The number of keys is used instead of the number of queries: rows from N on are never "
        "written.",
        [
            of.rows_written(lambda M, N: N),
            *(of.rows_written(P(lambda t, M, N: -(-N // t) * t, tile)) for tile in TILES[:2]),
        ],
        unequal=True,
    ),
    "last column dropped": Mistake(
        "The mask of the columns is off by one: the last column is not read.",
        [of.last_column(outcome) for outcome in (NAN, 0.0, None)],
    ),
    "last queries not written": Mistake(
        "The last tile of queries is not begun: the grid is rounded down.",
        [of.rows_written(P(lambda t, M, N: M // t * t, tile)) for tile in TILES],
    ),
    "padding gets weight": Mistake(
        "Slots for keys that do not exist have a score of 0 and not -inf: they take part in the "
        "softmax.",
        [of.padded(of.power_of_two_above), *(of.padded(P(of.up_to_tile, tile)) for tile in TILES)],
    ),
    "V a row ahead": Mistake(
        "Each weight meets the value of the next key: the pointer moves on before it is read.",
        [of.values_ahead, of.values_ahead_inside],
    ),
    "K's pointer stands still": Mistake(
        "Every tile reads the keys of the first: the pointer of K is not moved on.",
        [of.first_tile_again("k", tile) for tile in STEPS[1:]],  # of one key: the mean of V
    ),
    # The online softmax.
    "no rescale": Mistake(
        "When the running maximum moves, the accumulator is not rescaled.",
        [online(tile, accumulator=False) for tile in STEPS],
    ),
    "sum not rescaled": Mistake(
        "When the running maximum moves, the running sum is not rescaled.",
        [online(tile, total=False, start=start) for tile in STEPS for start in (0.0, 1.0)],
    ),
    "rescaled the wrong way": Mistake(
        "When the running maximum moves, what was kept is multiplied by exp(new - old) and not by "
        "exp(old - new).",
        [
            online(tile, rescale=upside_down)
            for upside_down in (
                lambda old, new: of.exponential(new, old).where(old.isfinite(), 0.0),
                lambda old, new: of.exponential(new, old).nan_to_num(0.0, posinf=0.0),
            )
            for tile in STEPS
        ],
    ),
    "maximum not updated": Mistake(
        "The running maximum m_i is not updated: what was kept, or what comes, has a wrong factor.",
        [online(tile, maximum=kept) for kept in ("frozen", "never", "first") for tile in STEPS],
    ),
    "maximum of each tile": Mistake(
        "Each tile's own maximum is subtracted, not the running one: where scores fall from one "
        "tile to the next, the factor exp(old - new) overflows or the weights are not comparable.",
        [
            *(online(tile, maximum="tile") for tile in STEPS),
            *(online(tile, maximum="tile", accumulator=False, total=False) for tile in STEPS[1:]),
            *(online(tile, weigh=of.of_own_tile) for tile in STEPS[1:]),
        ],
    ),
    "values of the last tile only": Mistake(
        "The accumulator is overwritten at each tile: it holds the last tile's values alone.",
        [online(tile, keep_accumulator=False) for tile in STEPS],
    ),
    "sum over the queries": Mistake(
        "Inside a tile the sum runs over the queries (axis 0) and not over the keys (axis 1).",
        [
            of.online_over_queries(tile, largest, guarded)
            for tile in TILES
            for largest in (False, True)
            for guarded in (False, True)
        ],
    ),
    # The softmax.
    "max not subtracted": Mistake(
        "The softmax does not subtract the largest score: exp overflows and the row becomes NaN.",
        [
            of.by_rows(of.max_kept(0.0)),
            of.by_rows(of.max_kept(0.0, guarded=True)),
            of.by_rows(of.max_kept(1.0)),
            *(
                online(tile, weigh=of.in_float32, rescale=of.in_float32, guarded=guarded)
                for tile in STEPS
                for guarded in (False, True)
            ),
        ],
    ),
    "not normalized": Mistake(
        "The weights are not divided by their sum: they do not add up to one.",
        [of.by_rows(of.not_normalized)],
    ),
    "normalized twice": Mistake(
        "The weights are divided by their sum twice.", [of.by_rows(of.normalized_twice)]
    ),
    "wrong axis": Mistake(
        "The softmax runs over the queries, not over the keys.",
        [of.by_rows(lambda s: s.softmax(-2).nan_to_num(0.0))],
    ),
    "softmax left out": Mistake(
        "The values are mixed with the scores.",
        [of.by_rows(lambda s: s.masked_fill(s.isinf(), 0.0))],
    ),
    # Heads and batches.
    "wrong K/V head": Mistake(
        "Query head h reads K/V head h mod Hkv; the spec is h // (H / Hkv): neighbours share.",
        [of.kv_head(names, "modulo") for names in ("kv", "k", "v")],
    ),
    "K/V by the query head": Mistake(
        "With grouped heads K or V is read by the query's head h; the spec is h // (H / Hkv).",
        [of.kv_head(names, "query") for names in ("v", "k")],
    ),
    "Q by the K/V head": Mistake(
        "With grouped heads the queries are read by the head of K and V, h // (H / Hkv), not by h.",
        [lambda p: {"q": p.q[:, p.heads()]}],
    ),
    "first head for all": Mistake(
        "Every head reads from head 0.",
        [*(of.first_head(names) for names in TENSORS), of.only_first(1)],
    ),
    "first batch for all": Mistake(
        "Every batch reads from batch 0.",
        [*(of.first_batch(names) for names in TENSORS), of.only_first(0)],
    ),
    "keys for values": Mistake(
        "The keys are loaded instead of the values.", [lambda p: {"v": p.k}, of.instead("v", "k")]
    ),
    "values for keys": Mistake(
        "The values are loaded instead of the keys.", [lambda p: {"k": p.v}, of.instead("k", "v")]
    ),
    "K and V exchanged": Mistake(
        "The keys and the values have changed places.",
        [lambda p: {"k": p.v, "v": p.k}, of.exchanged],
    ),
    # Strides.
    "strides ignored": Mistake(
        "Rows or columns are assumed to lie side by side: a transposed tensor is read wrongly.",
        [
            of.read_with(wrong, names)
            for wrong in (
                lambda p, x: (*x.stride()[:3], 1),
                lambda p, x: (*x.stride()[:2], x.shape[3], x.stride(3)),
                lambda p, x: (*x.stride()[:2], x.shape[3], 1),
                lambda p, x: torch.empty(x.shape, device="meta").stride(),
            )
            for names in TENSORS
        ],
    ),
    "row stride left out": Mistake(
        "The row number is not multiplied by the row's stride: rows overlap.",
        [of.read_with(lambda p, x: (*x.stride()[:2], 1, x.stride(3)), names) for names in TENSORS],
    ),
    "rows and columns swapped": Mistake(
        "The strides of rows and columns are swapped: the tensor is read transposed.",
        [
            of.read_with(lambda p, x: (*x.stride()[:2], x.stride(3), x.stride(2)), names)
            for names in TENSORS
        ],
    ),
    "V with K's strides": Mistake(
        "V is read with K's strides: right only as long as both lie in memory the same way.",
        [of.read_with(of.strides_of("k", *where), "v") for where in WHERE],
    ),
    # Rounding.
    "inputs rounded to 16 bits": Mistake(
        "float32 inputs are rounded to 16 bits before anything is computed.",
        [of.inputs_rounded(dtype, "qkv") for dtype in HALVES],
        rounding=True,
    ),
    "Q and K rounded to 16 bits": Mistake(
        "float32 queries and keys are rounded to 16 bits for QKᵀ.",
        [of.inputs_rounded(dtype, names) for dtype in HALVES for names in ("qk", "q", "k")],
        rounding=True,
    ),
    "scores rounded to 16 bits": Mistake(
        "The scores are rounded to 16 bits before the softmax.",
        [
            of.scores_rounded(dtype, scaled)
            for dtype in HALVES
            for scaled in (None, 1.0, math.log2(math.e))
        ]
        + [of.product_rounded(dtype) for dtype in HALVES],
        rounding=True,
    ),
    "weights rounded to 16 bits": Mistake(
        "The weights are rounded to 16 bits before they meet the values.",
        [of.weights_rounded(dtype, tile) for dtype in HALVES for tile in (None, *TILES, 1024)],
        rounding=True,
    ),
    "float16 accumulator": Mistake(
        "The sum over the keys is kept in float16.",
        [online(tile, sums=lambda acc: acc.half().double()) for tile in (1, *TILES, 1024)],
        rounding=True,
    ),
    "TF32": Mistake(
        'float32 products run in TF32, with 10 bits of mantissa: say input_precision="ieee".',
        [of.tf32(nearest) for nearest in (True, False)],
        rounding=True,
    ),
}
