"""What a chart draws under a name comes from rows of that name, in all rooms and all results."""

import collections
import functools
from dataclasses import replace

import pytest

from snippets._lab.draw.draw_all import figure_functions, reference_first
from snippets._lab.draw.identity import named
from snippets._lab.results import store
from snippets._lab.rooms import DATA, rooms

# Shares: what one costs is told by the times of others, or by what the whole takes.
RELATIVE = {
    "basic_attention/ablation",
    "vectorized_attention/forward",
    "scoreboard/grids",  # both are of the fastest
    "scoreboard/regimes",
}


@functools.cache
def stored():
    """(room, figure) → its results, as a figure gets them."""
    found = {}
    for path in sorted(DATA.rglob("*.json")):
        result = store.read(path)
        found.setdefault((result.post, result.result), []).append(result)
    return {key: reference_first(results) for key, results in found.items()}


def timed(results):
    """The implementations that were timed."""
    rows = [row for row in results[0].rows if "ms_p50" in row]
    return sorted({row["implementation"] for row in rows if "implementation" in row})


def label(implementation):
    try:
        return named(implementation)
    except store.DataError:  # a rung, or what a room calls so in its figure alone
        return implementation


def drawn(figure):
    """Name → all values drawn under it: of a trace, or of a bar with a name of its own."""
    found = {}
    for panel in figure.plot.panels if figure.plot else ():
        for trace in panel.traces:
            flat = trace.type == "bar" and trace.orientation == "h"
            values, places = (trace.x, trace.y) if flat else (trace.y, trace.x)
            bars = (panel.y if flat else panel.x).names
            for value, place in zip(values, places, strict=True):
                name = bars[round(place)] if bars and not trace.name else trace.name
                found.setdefault(name, []).append(value)
    return found


def slower(result, implementation):
    """A result in which one implementation took twice as long."""

    def twice(row):
        if row.get("implementation") != implementation:
            return row
        times = {name: row[name] for name in ("ms_p20", "ms_p50", "ms_p80") if name in row}
        return row | {name: 2 * ms for name, ms in times.items()}

    return replace(result, rows=[twice(row) for row in result.rows])


FIGURES = [
    (room, name)
    for room in rooms()
    for name, function in figure_functions(room).items()
    if (room, name) in stored() and timed(stored()[room, name])
    if f"{room}/{name}" not in RELATIVE and not hasattr(function, "from_all")
]


@pytest.mark.parametrize(("room", "name"), FIGURES, ids=str)
def test_a_slower_implementation_moves_what_is_drawn_under_its_name_alone(room, name):
    function, results = figure_functions(room)[name], stored()[room, name]
    before = drawn(function(results))
    owner = {}
    for implementation in sorted(timed(results), key=lambda name: len(label(name))):
        own = [x for x in before if f"{x},".startswith(f"{label(implementation)},")]
        owner |= dict.fromkeys(own, implementation)  # the longest name that fits
    if not owner:
        pytest.skip("nothing is drawn under the name of what was timed")
    moved = {}
    for implementation in owner.values():
        after = drawn(function([slower(result, implementation) for result in results]))
        for shown in owner:
            if before[shown] != after.get(shown):
                moved.setdefault(shown, set()).add(implementation)
    assert moved == {shown: {implementation} for shown, implementation in owner.items()}


# Figure → how many of its claims other times do not turn: they speak of the cases, of what was
# compiled, of errors and of bytes.
NOT_OF_TIMES = {
    "attention_memory/intensity": 3,
    "attention_weights/forward": 1,
    "coalescing/strides": 2,
    "composed_attention/alignment": 1,
    "hopper_attention/timeline": 2,
    "language_model/steps": 1,
    "latency_hiding/latency": 1,
    "masks_and_packing/windows": 1,
    "multi_head_attention/head_dim": 6,
    "multi_head_attention/layer_time": 1,
    "scoreboard/kernels": 2,
    "scoreboard/regimes": 2,
    "tiled_attention/axes": 2,
    "tiled_attention/tiles": 1,
    "vectorized_attention/forward": 2,
    "vectorized_attention/remedies": 1,
}


def choices(results):
    """Ways to choose rows that were timed: all, those with one value of one field, and those of
    one implementation with one value of another.
    """
    found = collections.defaultdict(set)
    for row in (row for result in results for row in result.rows if "ms_p50" in row):
        for name, value in row.items():
            if isinstance(value, str | int) and not name.startswith(("ms", "bytes", "flops")):
                found[name].add(value)
    several = {name: values for name, values in found.items() if 1 < len(values) <= 40}
    single = [{name: x} for name, values in several.items() for x in sorted(values, key=str)]
    who = [x for x in single if "implementation" in x]
    return [{}, *single, *(x | y for x in who for y in single if y not in who)]


def otherwise(result, chosen, factor):
    """A result whose chosen rows took so many times as long."""

    def changed(row):
        if any(row.get(name) != value for name, value in chosen.items()):
            return row
        times = {name: x for name, x in row.items() if name.startswith("ms") and x is not None}
        return row | {
            name: [factor * ms for ms in x] if isinstance(x, list) else factor * x
            for name, x in times.items()
        }

    return replace(result, rows=[changed(row) for row in result.rows])


CLAIMING = [
    (room, name)
    for room in rooms()
    for name, function in figure_functions(room).items()
    if (room, name) in stored() and not hasattr(function, "from_all")
    if any("ms_p50" in row for result in stored()[room, name] for row in result.rows)
    if function(stored()[room, name]).claims
]


@pytest.mark.parametrize(("room", "name"), CLAIMING, ids=str)
def test_other_times_turn_what_is_claimed_of_times(room, name):
    function, results = figure_functions(room)[name], stored()[room, name]
    now, turned = function(results).claims, set()
    left = NOT_OF_TIMES.get(f"{room}/{name}", 0)
    for chosen in choices(results):
        for factor in (3.0, 1 / 3):
            try:
                other = function([otherwise(x, chosen, factor) for x in results]).claims
            except (store.DataError, ValueError):  # some times no figure can be drawn of
                continue
            turned |= {claim for claim in now if other.get(claim) != now[claim]}
        if len(now) - len(turned) <= left:
            return
    pytest.fail(f"no other times turn {sorted(now.keys() - turned)}")
