"""The figures of the coalescing page: each draws the result of the same name."""

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, at_ceiling
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.limits import HALF, limit
from snippets._lab.draw.rows import (
    BANDWIDTH,
    TIME,
    Quantity,
    ceiling,
    derived,
    field,
    only,
    over,
    pick,
    values,
)
from snippets._lab.draw.tables import beside, widget
from snippets._lab.draw.units import between, count, exact, percent, ratio, thousands

OURS, WIDE, CLONE = "coalescing", "coalescing:wide", "torch:clone"
ROWS, COLUMNS, TILES = "line_sums:rows", "line_sums:columns", "line_sums:exercise"
TORCH_ROWS, TORCH_COLUMNS = "torch:sum_rows", "torch:sum_columns"
# What the result is made of, each element read once and written once; and what whole sectors leave.
USEFUL = over("bytes_useful", "useful bandwidth")
ALLOWED = field("allowed", "useful bandwidth", units.bandwidth)
PAGE = "docs/posts/coalescing.md"


def strides(results):
    measured = derived(results, _with_allowed)
    rows, peak = measured[0].rows, ceiling(results[0], "copy")
    ours = {(r["dtype"], r["stride"]): r for r in pick(rows, implementation=OURS)}
    single = {stride: r for (dtype, stride), r in ours.items() if dtype == "float32"}
    half = {stride: r for (dtype, stride), r in ours.items() if dtype == "float16"}
    last = max(single)
    drop = USEFUL(single[1]) / USEFUL(single[8])
    against = {
        dtype: {stride: TIME(_beside(rows, r, WIDE)) / TIME(r) for stride, r in one.items()}
        for dtype, one in (("float32", single), ("float16", half))
    }
    numbers = {
        "slower": ratio(TIME(single[last]) / TIME(single[1])),
        "slower_half": ratio(TIME(half[last]) / TIME(half[1])),
        "near": USEFUL.text(single[1]),
        "near_share": percent(USEFUL(single[1]) / peak),
        "alone": USEFUL.text(single[8]),
        "alone_allowed": ALLOWED.text(single[8]),
        "explained": ratio(ALLOWED(single[1]) / ALLOWED(single[last])),
        "growth_64": ratio(_growth(single, 8)),
        "ours": TIME.text(single[last]),
        "torch": TIME.text(_beside(rows, single[last])),
    }
    wide = between([x for found in against.values() for x in found.values()], ratio)
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
        "what is left of it if whole 32-byte sectors move. L2 is flushed before each call. "
        "Medians. The kernel has one element per lane; left alone, Triton gives a lane several "
        f"neighbors, 16 bytes per instruction, and takes {wide} the time.",
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
            f"{PAGE}: Farther apart it keeps growing, more slowly": 1
            < min(_growth(single, 16), _growth(single, 32))
            <= max(_growth(single, 16), _growth(single, 32))
            < 1.75,
            f"{PAGE}: the same 67 million numbers twice": single[1]["elements"] // 10**6 == 67,
            f"{PAGE}: At stride 64 it is": last == 64,
            f"{PAGE}: reading, which runs a little faster than copying": 1
            < ceiling(results[0], "read") / peak
            < 1.1
            and USEFUL(single[8]) > ALLOWED(single[8]),
            f"{PAGE}: About four times: ": 3.7 < drop < 4.5,
            f"{PAGE}: It holds until every lane has a sector of its own": all(
                0.9 < USEFUL(r) / ALLOWED(r) < 1.1 for r in single.values() if r["stride"] <= 8
            ),
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


def lanes(rows):
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
        widget=widget(
            "lanes",
            "coalescing",
            "[The recorded addresses](/figures/coalescing/lanes_addresses.json)",
            shown(some),
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
            "alone_single": alone["float32"],
            "used_single": used(at["float32", alone["float32"]]),
        },
        claims={
            f"{PAGE}: Float16 starts with half as many sectors": 2 * first["float16"]
            == first["float32"]
        },
    )


def transposed(results, rows):
    dtypes = values(rows, "dtype")
    side = max(values(rows, "side"))
    names = {r["implementation"]: r["read"] for r in rows}
    looks = {ROWS: OURS, COLUMNS: OURS, TILES: f"{OURS}:exercise"}

    def ms(implementation, dtype="float32", side=side):
        return TIME(only(rows, implementation=implementation, dtype=dtype, side=side))

    def slower(dtype, side=side, by=COLUMNS, than=ROWS):
        return ms(by, dtype, side) / ms(than, dtype, side)

    torch = slower("float32", by=TORCH_COLUMNS, than=TORCH_ROWS)
    more = {r["dtype"]: r["sector_bytes"] // r["element_bytes"] for r in rows}
    numbers = {
        "single": ratio(slower("float32")),
        "half": ratio(slower("float16")),
        "more_single": more["float32"],
        "more_half": more["float16"],
        "tiles_single_ratio": ratio(slower("float32", by=TILES)),
        "tiles_half_ratio": ratio(slower("float16", by=TILES)),
        "torch": ratio(torch),
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
        claims={f"{PAGE}: So columns can be as fast as rows": torch < 1.05},
    )


PER_REQUEST = Quantity("sectors per request", lambda r: r["sectors"] / r["requests"], units.number)


def sectors(rows):
    loads = [r for r in rows if r["key"].startswith("attention:")]
    loads = [r for r in loads if r["key"] != "attention:transposed"]
    whole = [r for r in loads if r["bytes_used"] == r["sectors"] * r["sector_bytes"]]

    def per_request(key, dtype="float32"):
        return count(PER_REQUEST(only(rows, dtype=dtype, key=key)))

    return Figure(
        finding=f"Attention's row loads use every byte of the sectors they touch in {len(whole)} "
        f"of {len(loads)} cases.",
        numbers={
            "columns": per_request("sums:columns"),
            "rows": per_request("sums:rows"),
            "row_single": per_request("attention:q"),
            "row_half": per_request("attention:q", "float16"),
            "turned_single": per_request("attention:transposed"),
            "late_single": per_request("copy:late"),
            "first_single": per_request("copy:1"),
        },
        claims={f"{PAGE}: the minimum for its bytes": whole == loads},
    )


def bound(results):
    rows = [{**row, "found": limit(row, results[0])} for row in pick(results[0].rows)]

    def of_memory(tokens):
        """The share of a layer's time that memory limits."""
        layer = pick(rows, tokens=tokens)
        by_memory = [r for r in layer if r["found"].by == "memory"]
        whole, part = (sum(r["calls"] * TIME(r) for r in some) for some in (layer, by_memory))
        return part / whole

    few, many = of_memory(1), of_memory(8_192)
    return Figure(
        finding=f"Memory limits {percent(few)} of the time of a transformer layer with 1 token and "
        f"{percent(many)} with 8,192.",
        numbers={"few_share": percent(few), "many_share": percent(many)},
        claims={"docs/posts/attention_memory.md: depends on the batch": many < HALF < few},
    )
