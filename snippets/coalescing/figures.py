"""The figures of the coalescing page: each draws the result of the same name."""

from typing import NamedTuple

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, at_ceiling
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.limits import HALF, limit
from snippets._lab.draw.rows import (
    BANDWIDTH,
    INTENSITY,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    moved,
    only,
    over,
    pick,
    ridge,
    spread,
    values,
)
from snippets._lab.draw.tables import Numeral, beside, columns, table
from snippets._lab.draw.units import between, count, exact, percent, ratio, thousands, time

OURS, WIDE, CLONE = "coalescing", "coalescing:wide", "torch:clone"
ROWS, COLUMNS, TILES = "line_sums:rows", "line_sums:columns", "line_sums:exercise"
TORCH_ROWS, TORCH_COLUMNS = "torch:sum_rows", "torch:sum_columns"
# What the result is made of, each element read once and written once; and what whole sectors leave.
USEFUL = over("bytes_useful", "useful bandwidth")
ALLOWED = field("allowed", "useful bandwidth", units.bandwidth)
PAGE = "docs/posts/coalescing.md"


def _share_used(row):
    return exact(row["bytes_used"] / (row["sectors"] * row["sector_bytes"]))


def strides(results):
    measured = derived(results, _with_allowed)
    rows, peak = measured[0].rows, ceiling(results[0], "copy")
    ours = {(r["dtype"], r["stride"]): r for r in pick(rows, implementation=OURS)}
    single = {stride: r for (dtype, stride), r in ours.items() if dtype == "float32"}
    half = {stride: r for (dtype, stride), r in ours.items() if dtype == "float16"}
    last = max(single)
    against = {
        dtype: {stride: TIME(_beside(rows, r, WIDE)) / TIME(r) for stride, r in one.items()}
        for dtype, one in (("float32", single), ("float16", half))
    }
    numbers = {
        "last": last,
        "slower": ratio(TIME(single[last]) / TIME(single[1])),
        "slower_half": ratio(TIME(half[last]) / TIME(half[1])),
        "near": USEFUL.text(single[1]),
        "near_share": percent(USEFUL(single[1]) / peak),
        "alone": USEFUL.text(single[8]),
        "alone_allowed": ALLOWED.text(single[8]),
        "growth_64": ratio(_growth(single, 8)),
        "growth_128": ratio(_growth(single, 16)),
        "growth_256": ratio(_growth(single, 32)),
        "ours": TIME.text(single[last]),
        "torch": TIME.text(_beside(rows, single[last])),
        "wide": between([x for found in against.values() for x in found.values()], ratio),
    }
    whole = Series(
        "ceiling",
        "if whole sectors move",
        {"implementation": OURS},
        value=ALLOWED,
        joined=False,
        symbol="circle-open",
        size=13,
    )
    return Figure(
        finding=f"The same elements arrive {numbers['slower']} slower at stride {last} than at "
        f"stride 1: {numbers['near']} of useful data drops to {USEFUL.text(single[last])}.",
        caption=f"Copies of {thousands(single[1]['elements'])} elements, both axes logarithmic. "
        "Useful bytes: each element read once and written once, without what comes along. The "
        "dashed line is what this GPU copies at best, measured in the same run; open marks are "
        "what is left of it if whole 32-byte sectors move. The result is larger than L2, which "
        "is flushed before each call. Medians.",
        plot=charts.lines(
            measured,
            [OURS, Series(WIDE, "several elements per lane", shade=1), CLONE, whole],
            field("stride", "stride, elements", units.whole),
            USEFUL,
            charts.views("{}", "dtype", values(rows, "dtype")),
            references=[at_ceiling("copy", "a plain copy, measured")],
        ),
        numbers=numbers,
        claims={
            f"{PAGE}: the time nearly doubles again": _growth(single, 8) >= 1.75,
            f"{PAGE}: less than the distance": max(_growth(single, 16), _growth(single, 32)) < 1.75,
        },
        pieces={
            "wide": "\n".join(
                table(
                    [
                        {"stride": dtype, **{str(s): Numeral(ratio(x)) for s, x in found.items()}}
                        for dtype, found in against.items()
                    ]
                )
            )
        },
    )


def _growth(single, stride):
    """How much longer the copy takes where elements are twice as far apart."""
    return TIME(single[2 * stride]) / TIME(single[stride])


def _with_allowed(result):
    """The rows, each with the useful bytes a second that whole sectors at the ceiling leave."""
    peak = ceiling(result, "copy")
    for row in pick(result.rows):
        yield {**row, "allowed": peak * row["bytes_useful"] / row["bytes_compulsory"]}


def _beside(rows, ours, implementation=CLONE):
    """Another implementation's row beside one of ours."""
    return only(rows, implementation=implementation, dtype=ours["dtype"], stride=ours["stride"])


def lanes(results):
    rows = results[0].rows
    at = {(r["dtype"], r["stride"]): r for r in rows}
    asked, dtypes = len(rows[0]["lane_bytes"]), values(rows, "dtype")

    def used(row):
        return exact(asked * row["element_bytes"] / (row["sectors"] * row["sector_bytes"]))

    def shown(some):
        return beside(
            some,
            ["stride"],
            {f"{dtype}: sectors": dtype for dtype in dtypes},
            field("sectors", unit=units.whole),
            lambda case: {f"{dtype}: bytes used": used(case[dtype]) for dtype in dtypes},
            name="dtype",
        )

    alone = {
        dtype: min(r["stride"] for r in pick(rows, dtype=dtype) if r["sectors"] == asked)
        for dtype in dtypes
    }
    some = [r for r in rows if r["stride"] in (1, 2, 3, 4, 8, 16, 32)]
    first = {dtype: at[dtype, 1]["sectors"] for dtype in dtypes}
    return Figure(
        finding=f"A warp's {asked} float32 lie in {first['float32']} sectors at stride 1 and in "
        f"{asked} from stride {alone['float32']} on.",
        caption="Which sectors of 32 bytes the 32 lanes of one request touch: addresses recorded "
        "while the interpreter ran the kernel. What a lane does not ask for is fetched all the "
        "same.",
        table=shown(rows),
        widget="\n".join(
            [
                '<div class="am-lanes" data-widget="coalescing" markdown>',
                "[The recorded addresses](/figures/coalescing/lanes_addresses.json){ .am-source }",
                "",
                *table(shown(some)),
                "",
                "</div>",
            ]
        ),
        extra_files={
            "lanes_addresses.json": {
                "sectorBytes": rows[0]["sector_bytes"],
                "requests": [
                    {
                        "dtype": r["dtype"],
                        "stride": r["stride"],
                        "elementBytes": r["element_bytes"],
                        "bytes": r["lane_bytes"],
                    }
                    for r in rows
                ],
            }
        },
        numbers={
            "single": first["float32"],
            "half": first["float16"],
            "alone_single": alone["float32"],
            "alone_half": alone["float16"],
            "used_single": used(at["float32", alone["float32"]]),
            "used_half": used(at["float16", alone["float16"]]),
        },
    )


def layout(results):
    rows = results[0].rows
    one, four = (
        only(rows, dtype="float32", stride=2, dealt=dealt)
        for dealt in ("one a lane", "as Triton chooses")
    )
    near = only(rows, dtype="float32", stride=1, dealt="as Triton chooses")
    return Figure(
        finding=f"At stride {four['stride']}, lanes with {four['neighbours']} neighbors each ask "
        f"for {four['sectors']} sectors per request; with one element each they ask for "
        f"{one['sectors']}.",
        caption="Read from the load and store instructions of the compiled copy, one tile of "
        "1,024 elements on four warps. What one instruction stores lies in one lane, so its "
        "width tells how many neighbors a lane has. Sectors: of the first request of a warp.",
        table=columns(
            rows,
            {
                "dtype": "dtype",
                "stride": "stride",
                "dealt": "dealt",
                "neighbors per lane": "neighbours",
                "loads per thread": "loads",
                "bytes per load": "load_bytes",
                "stores": "stores",
                "bytes per store": "store_bytes",
                "sectors per request": "sectors",
                "bytes used": _share_used,
            },
        ),
        open_table=True,
        numbers={
            "near_bytes": near["load_bytes"],
            "near_loads": near["loads"],
            "near_loads_alone": only(rows, dtype="float32", stride=1, dealt="one a lane")["loads"],
            "far_loads": four["loads"],
            "far_sectors": four["sectors"],
            "far_sectors_alone": one["sectors"],
        },
    )


def transposed(results):
    rows = results[0].rows
    dtypes = values(rows, "dtype")
    other, side = values(rows, "side")
    names = {r["implementation"]: r["read"] for r in rows}
    looks = {ROWS: OURS, COLUMNS: OURS, TILES: f"{OURS}:exercise"}

    def ms(implementation, dtype="float32", side=side):
        return TIME(only(rows, implementation=implementation, dtype=dtype, side=side))

    def slower(dtype, side=side, by=COLUMNS, than=ROWS):
        return ms(by, dtype, side) / ms(than, dtype, side)

    best = only(rows, implementation=ROWS, dtype="float32", side=side)
    more = {r["dtype"]: r["sector_bytes"] // r["element_bytes"] for r in rows}
    numbers = {
        "single": ratio(slower("float32")),
        "half": ratio(slower("float16")),
        "more_single": more["float32"],
        "more_half": more["float16"],
        "single_other": ratio(slower("float32", other)),
        "half_other": ratio(slower("float16", other)),
        "rows_share": percent(moved(best) / ceiling(results[0], "read")),
        "tiles_single": time(ms(TILES)),
        "tiles_single_ratio": ratio(slower("float32", by=TILES)),
        "tiles_half": time(ms(TILES, "float16")),
        "tiles_half_ratio": ratio(slower("float16", by=TILES)),
        "torch": ratio(slower("float32", by=TORCH_COLUMNS, than=TORCH_ROWS)),
    }
    return Figure(
        finding=f"Summing down the columns takes {numbers['single']} the time of summing along "
        f"the rows in float32, and {numbers['half']} in float16.",
        caption=f"Sums of a matrix of {thousands(side)} × {thousands(side)}, stored row by row, "
        "each element counted once; one program for each line, except “by tiles” (the exercise) "
        "and PyTorch. The dashed line is what this GPU reads at best, measured in the same run. "
        "L2 flushed before every call.",
        plot=charts.bars(
            results,
            [
                Series(looks.get(name, name), read, {"implementation": name})
                for name, read in names.items()
            ],
            BANDWIDTH,
            {dtype: {"dtype": dtype, "side": side} for dtype in dtypes},
            references=[at_ceiling("read", "best read")],
        ),
        numbers=numbers,
    )


PER_REQUEST = Quantity("sectors per request", lambda r: r["sectors"] / r["requests"], units.number)


def sectors(results):
    rows = results[0].rows
    dtypes = values(rows, "dtype")
    loads = [r for r in rows if r["key"].startswith("attention:")]
    loads = [r for r in loads if r["key"] != "attention:transposed"]
    whole = [r for r in loads if r["bytes_used"] == r["sectors"] * r["sector_bytes"]]

    def per_request(key, dtype="float32"):
        return count(PER_REQUEST(only(rows, dtype=dtype, key=key)))

    return Figure(
        finding=f"Attention's row loads use every byte of the sectors they touch in {len(whole)} "
        f"of {len(loads)} cases.",
        caption="32-byte sectors for each request of 32 neighboring elements, from the addresses "
        "that the interpreter recorded. Attention: the first kernel of the series, D "
        f"{loads[0]['D']}.",
        table=beside(
            rows,
            ["read"],
            {f"{dtype}: sectors per request": dtype for dtype in dtypes},
            PER_REQUEST,
            lambda case: {f"{dtype}: bytes used": _share_used(case[dtype]) for dtype in dtypes},
            name="dtype",
        ),
        open_table=True,
        numbers={
            "columns": per_request("sums:columns"),
            "rows": per_request("sums:rows"),
            "tiles": per_request("sums:exercise"),
            "row_single": per_request("attention:q"),
            "row_half": per_request("attention:q", "float16"),
            "turned_single": per_request("attention:transposed"),
            "turned_half": per_request("attention:transposed", "float16"),
            "late_single": per_request("copy:late"),
            "late_half": per_request("copy:late", "float16"),
            "first_single": per_request("copy:1"),
            "first_half": per_request("copy:1", "float16"),
        },
        claims={f"{PAGE}: the minimum for its bytes": whole == loads},
    )


LIMITS = ("memory", "arithmetic", "neither")


def bound(results):
    limited = derived(results, _with_limits)
    rows, tokens = limited[0].rows, values(results[0].rows, "tokens")
    counts = {t: _shares(pick(rows, tokens=t)) for t in tokens}
    few, most = tokens[0], tokens[-1]
    up = {t: only(rows, tokens=t, operation="matmul, up") for t in (few, most)}
    numbers = {
        "few_share": percent(counts[few]["memory"].time),
        "many_share": percent(counts[most]["memory"].time),
        "ridge": count(ridge(results[0], "matmul_float16", "read")),
        "few_memory": percent(up[few]["memory"]),
        "few_arithmetic": percent(up[few]["arithmetic"]),
        "many_memory": percent(up[most]["memory"]),
        "many_arithmetic": percent(up[most]["arithmetic"]),
    }
    return Figure(
        finding=f"Of the {counts[few]['all'].calls} operations of a transformer layer, memory "
        f"limits {counts[few]['memory'].calls} with {_tokens(few)} and "
        f"{counts[most]['memory'].calls} with {_tokens(most)}; in time that is "
        f"{numbers['few_share']} and {numbers['many_share']} of the layer.",
        caption=f"PyTorch's operations of a layer {rows[0]['width']} wide, float16, one call each "
        "with L2 flushed before; both axes logarithmic. FLOPs and bytes are counted from the "
        "formulas: every operand and result moves once. An operation is “limited by” the ceiling "
        "that it comes closest to, provided it reaches at least half of it; otherwise by "
        "neither. Ceilings measured in the same run.",
        plot=charts.roofline(
            limited,
            [Series(by, "", {"limit": by}, joined=False, told=_told) for by in LIMITS],
            INTENSITY.called("FLOP for each byte that must move"),
            roofs={"matmul_float16": "the most this GPU does"},
            memory="read",
            views=[charts.View(_tokens(t), {"tokens": t}) for t in tokens],
            columns=2,
            height=240,
        ),
        numbers=numbers,
        claims={
            f"{PAGE}: Memory never limits more than half of the operations": all(
                found["memory"].calls <= HALF * found["all"].calls for found in counts.values()
            ),
            f"{PAGE}: Only with 1 token does it limit more than half of the time": [
                t for t in tokens if counts[t]["memory"].time > HALF
            ]
            == [1],
        },
    )


def _with_limits(result):
    """The rows, each with what limits it and the shares of both ceilings."""
    for row in pick(result.rows):
        found = limit(row, result)
        yield {
            **row,
            "limit": found.by,
            "memory": found.memory,
            "arithmetic": found.arithmetic,
        }


def _told(row):
    return f"{row['operation']}: {spread(row)}"


def _tokens(number):
    return "1 token" if number == 1 else f"{thousands(number)} tokens"


class _Share(NamedTuple):
    """What a kind of limit holds of a layer: so many calls, and so much of its time."""

    calls: int
    time: float


def _shares(rows):
    """For one number of tokens: kind of limit → its share; "all" for the whole layer."""
    kinds = {"all": rows} | {by: pick(rows, limit=by) for by in LIMITS}
    total = sum(r["calls"] * TIME(r) for r in rows)
    return {
        by: _Share(sum(r["calls"] for r in some), sum(r["calls"] * TIME(r) for r in some) / total)
        for by, some in kinds.items()
    }
