"""The figures of the coalescing page: each draws the result of the same name."""

import itertools
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
from snippets._lab.draw.units import count, exact, percent, ratio, time
from snippets._lab.draw.words import Words, between, listed

OURS, WIDE, CLONE = "coalescing", "coalescing:wide", "torch:clone"
ROWS, COLUMNS, TILES = "line_sums:rows", "line_sums:columns", "line_sums:exercise"
TORCH_ROWS, TORCH_COLUMNS = "torch:sum_rows", "torch:sum_columns"
# What the result is made of, each element read once and written once; and what whole sectors leave.
USEFUL = over("bytes_useful", "useful bandwidth")
ALLOWED = field("allowed", "useful bandwidth", units.bandwidth)
words = Words(__file__)


def strides(results):
    measured = derived(results, _with_allowed)
    rows, peak = measured[0].rows, ceiling(results[0], "copy")
    ours = {(r["dtype"], r["stride"]): r for r in pick(rows, implementation=OURS)}
    single = {stride: r for (dtype, stride), r in ours.items() if dtype == "float32"}
    half = {stride: r for (dtype, stride), r in ours.items() if dtype == "float16"}
    last = max(single)
    sector, size = single[1]["sector_bytes"], single[1]["element_bytes"]
    alone = single[sector // size]  # from this stride on each element has its own sector
    l2 = results[0].device["l2_bytes"]
    slower = ratio(TIME(single[last]) / TIME(single[1]))
    wide = (
        [Series(WIDE, "several elements per lane", shade=1)]
        if pick(rows, implementation=WIDE)
        else []
    )
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
        finding=words(
            "strides",
            slower=slower,
            last=last,
            near=USEFUL.text(single[1]),
            far=USEFUL.text(single[last]),
        ),
        caption=words(
            "strides.caption",
            elements=units.thousands(single[1]["elements"]),
            sector=sector,
            half=ratio(half[1]["bytes_useful"] / 2 / l2),
            single=ratio(single[1]["bytes_useful"] / 2 / l2),
        ),
        table=columns(
            ours.values(),
            {
                "dtype": "dtype",
                "stride": "stride",
                "time": TIME,
                "useful": USEFUL,
                "of the copy ceiling": Quantity("", lambda r: USEFUL(r) / peak, percent),
                "if whole sectors move": ALLOWED,
                **(
                    {"several a lane": Quantity("", lambda r: TIME(_beside(rows, r, WIDE)), time)}
                    if wide
                    else {}
                ),
                "PyTorch": Quantity("", lambda r: TIME(_beside(rows, r)), time),
            },
        ),
        plot=charts.lines(
            measured,
            [OURS, *wide, CLONE, whole],
            field("stride", "stride, elements", units.whole),
            USEFUL,
            charts.views("{}", "dtype", values(rows, "dtype")),
            references=[at_ceiling("copy", "a plain copy, measured")],
        ),
        sentences={
            "first": words(
                "strides.first",
                near=USEFUL.text(single[1]),
                share=percent(USEFUL(single[1]) / peak),
            ),
            "sectors": words(
                "strides.sectors",
                alone=alone["stride"],
                sector=sector,
                size=size,
                allowed=ALLOWED.text(alone),
                measured=USEFUL.text(alone),
            ),
            "beyond": _beyond(single, alone, size),
            "half": words(
                "strides.half",
                last=last,
                slower=slower,
                half=ratio(TIME(half[last]) / TIME(half[1])),
            ),
            "torch": words(
                "strides.torch",
                last=last,
                torch=TIME.text(_beside(rows, single[last])),
                ours=TIME.text(single[last]),
            ),
            "wide": _wide(rows, single, half) if wide else "",
        },
    )


def _with_allowed(result):
    """The rows, each with the useful bytes a second that whole sectors at the ceiling leave."""
    peak = ceiling(result, "copy")
    for row in pick(result.rows):
        yield {**row, "allowed": peak * row["bytes_useful"] / row["bytes_compulsory"]}


def _beside(rows, ours, implementation=CLONE):
    """Another implementation's row beside one of ours."""
    return only(rows, implementation=implementation, dtype=ours["dtype"], stride=ours["stride"])


def _wide(rows, single, half):
    """What it costs, or gains, that a lane takes several neighbors: a sentence and a table."""
    against = {
        dtype: {stride: TIME(_beside(rows, r, WIDE)) / TIME(r) for stride, r in ours.items()}
        for dtype, ours in (("float32", single), ("float16", half))
    }
    said = words(
        "strides.wide",
        range=between([x for found in against.values() for x in found.values()], ratio),
    )
    lines = table(
        [
            {"stride": dtype, **{str(stride): Numeral(ratio(x)) for stride, x in found.items()}}
            for dtype, found in against.items()
        ]
    )
    return "\n".join([said, "", *lines])


DOUBLES = 1.75  # a time that grows by more than this is said to double, nearly


def _beyond(single, alone, size):
    """What happens where no more sectors are touched: the time of each doubling of the distance."""
    beyond = [single[stride] for stride in sorted(single) if stride >= alone["stride"]]
    growth = [(b["stride"] * size, TIME(b) / TIME(a)) for a, b in itertools.pairwise(beyond)]
    doubled = list(itertools.takewhile(lambda step: step[1] >= DOUBLES, growth))
    rest = growth[len(doubled) :]
    told = listed(f"{ratio(more)} to {apart} bytes" for apart, more in rest)
    if not doubled:
        return words("strides.flat", growth=told)
    apart = doubled[-1][0]
    return words(
        "strides.more",
        sector=alone["sector_bytes"],
        apart=apart,
        sectors=apart // alone["sector_bytes"],
        growth=told,
    )


def layout(results):
    rows = results[0].rows
    one, four = (
        only(rows, dtype="float32", stride=2, dealt=dealt)
        for dealt in ("one a lane", "as Triton chooses")
    )
    near = only(rows, dtype="float32", stride=1, dealt="as Triton chooses")
    return Figure(
        finding=words(
            "layout",
            neighbors=four["neighbours"],
            stride=four["stride"],
            four=four["sectors"],
            one=one["sectors"],
        ),
        caption=words("layout.caption"),
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
        sentences={
            "near": words(
                "layout.near",
                bytes=near["load_bytes"],
                loads=near["loads"],
                more=only(rows, dtype="float32", stride=1, dealt="one a lane")["loads"],
            ),
            "far": words(
                "layout.far",
                stride=four["stride"],
                loads=four["loads"],
                four=four["sectors"],
                one=one["sectors"],
                neighbors=four["neighbours"],
            ),
        },
    )


def transposed(results):
    rows = results[0].rows
    dtypes = values(rows, "dtype")
    *others, side = values(rows, "side")
    names = {r["implementation"]: r["read"] for r in rows}
    looks = {ROWS: OURS, COLUMNS: OURS, TILES: f"{OURS}:exercise"}

    def ms(implementation, dtype="float32", side=side):
        return TIME(only(rows, implementation=implementation, dtype=dtype, side=side))

    def slower(dtype, side=side, by=COLUMNS, than=ROWS):
        return ms(by, dtype, side) / ms(than, dtype, side)

    best = only(rows, implementation=ROWS, dtype="float32", side=side)
    more = {r["dtype"]: r["sector_bytes"] // r["element_bytes"] for r in rows}
    factors = {dtype: ratio(slower(dtype)) for dtype in dtypes}
    return Figure(
        finding=words("transposed", **factors),
        caption=words("transposed.caption", side=units.thousands(side)),
        table=columns(
            sorted(pick(rows), key=lambda r: (dtypes.index(r["dtype"]), -r["side"])),
            {
                "dtype": "dtype",
                "side": "side",
                "read": "read",
                "time": TIME,
                "bandwidth": BANDWIDTH,
                "against rows": lambda r: ratio(
                    slower(r["dtype"], r["side"], by=r["implementation"])
                ),
            },
        ),
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
        sentences={
            "rows": words(
                "transposed.rows", share=percent(moved(best) / ceiling(results[0], "read"))
            ),
            "factor": words(
                "transposed.factor",
                more32=more["float32"],
                more16=more["float16"],
                **factors,
            ),
            "pitch": " ".join(
                words(
                    "transposed.pitch",
                    side=units.thousands(other),
                    **{dtype: ratio(slower(dtype, other)) for dtype in dtypes},
                )
                for other in others[::-1]
            ),
            "exercise": words(
                "transposed.exercise",
                single=time(ms(TILES)),
                single_ratio=ratio(slower("float32", by=TILES)),
                half=time(ms(TILES, "float16")),
                half_ratio=ratio(slower("float16", by=TILES)),
            ),
            "torch": words(
                "transposed.torch",
                ratio=ratio(slower("float32", by=TORCH_COLUMNS, than=TORCH_ROWS)),
            ),
        },
    )


def lanes(results):
    rows = results[0].rows
    at = {(r["dtype"], r["stride"]): r for r in rows}
    asked, dtypes = len(rows[0]["lane_bytes"]), values(rows, "dtype")

    def used(row):
        return exact(asked * row["element_bytes"] / (row["sectors"] * row["sector_bytes"]))

    def numbers(some):
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
        finding=words(
            "lanes",
            lanes=asked,
            one=first["float32"],
            far=at["float32", alone["float32"]]["sectors"],
            alone=alone["float32"],
        ),
        caption=words("lanes.caption", lanes=asked, sector=rows[0]["sector_bytes"]),
        table=numbers(rows),
        widget="\n".join(
            [
                '<div class="am-lanes" data-widget="coalescing" markdown>',
                "[The recorded addresses](/figures/coalescing/lanes_addresses.json){ .am-source }",
                "",
                *table(numbers(some)),
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
        sentences={
            "grow": words(
                "lanes.grow",
                lanes=asked,
                single=first["float32"],
                half=first["float16"],
                alone32=alone["float32"],
                alone16=alone["float16"],
                used32=used(at["float32", alone["float32"]]),
                used16=used(at["float16", alone["float16"]]),
            ),
        },
    )


def sectors(results):
    rows = results[0].rows
    dtypes = values(rows, "dtype")
    loads = [r for r in rows if r["key"].startswith("attention:")]
    loads = [r for r in loads if r["key"] != "attention:transposed"]
    whole = [r for r in loads if r["bytes_used"] == r["sectors"] * r["sector_bytes"]]

    def per_request(dtype, key):
        return count(PER_REQUEST(only(rows, dtype=dtype, key=key)))

    return Figure(
        finding=words("sectors", whole=len(whole), cases=len(loads)),
        caption=words(
            "sectors.caption",
            sector=loads[0]["sector_bytes"],
            lanes=loads[0]["lanes"],
            D=loads[0]["D"],
        ),
        table=beside(
            rows,
            ["read"],
            {f"{dtype}: sectors per request": dtype for dtype in dtypes},
            PER_REQUEST,
            lambda case: {f"{dtype}: bytes used": _share_used(case[dtype]) for dtype in dtypes},
            name="dtype",
        ),
        open_table=True,
        sentences={
            "late": words(
                "sectors.late",
                late32=per_request("float32", "copy:late"),
                first32=per_request("float32", "copy:1"),
                late16=per_request("float16", "copy:late"),
                first16=per_request("float16", "copy:1"),
            ),
            "attention": words(
                "sectors.attention",
                row32=per_request("float32", "attention:q"),
                row16=per_request("float16", "attention:q"),
                turned32=per_request("float32", "attention:transposed"),
                turned16=per_request("float16", "attention:transposed"),
            ),
            "columns": words(
                "sectors.columns",
                columns=per_request("float32", "sums:columns"),
                rows=per_request("float32", "sums:rows"),
            ),
            "tiles": words(
                "sectors.tiles",
                tiles=per_request("float32", "sums:exercise"),
                columns=per_request("float32", "sums:columns"),
            ),
        },
    )


PER_REQUEST = Quantity("sectors per request", lambda r: r["sectors"] / r["requests"], units.number)


def _share_used(row):
    return exact(row["bytes_used"] / (row["sectors"] * row["sector_bytes"]))


def bound(results):
    limited = derived(results, _with_limits)
    rows, tokens = limited[0].rows, values(results[0].rows, "tokens")
    counts = {t: _shares(pick(rows, tokens=t)) for t in tokens}
    few, most = tokens[0], tokens[-1]
    up = {t: only(rows, tokens=t, operation="matmul, up") for t in (few, most)}
    return Figure(
        finding=words(
            "bound",
            calls=counts[few]["all"].calls,
            few=_tokens(few),
            few_calls=counts[few]["memory"].calls,
            few_share=percent(counts[few]["memory"].time),
            many=_tokens(most),
            many_calls=counts[most]["memory"].calls,
            many_share=percent(counts[most]["memory"].time),
        ),
        caption=words("bound.caption", width=rows[0]["width"]),
        table=columns(
            rows,
            {
                "new tokens": "tokens",
                "operation": "operation",
                "calls a layer": "calls",
                "FLOP per byte": INTENSITY,
                "time": TIME,
                "of memory's ceiling": field("memory", unit=percent),
                "of arithmetic's ceiling": field("arithmetic", unit=percent),
                "limited by": "limit",
            },
        ),
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
        sentences={
            "ridge": words("bound.ridge", ridge=count(ridge(results[0], "matmul_float16", "read"))),
            "up": words(
                "bound.up",
                few=_tokens(few),
                few_memory=percent(up[few]["memory"]),
                few_arithmetic=percent(up[few]["arithmetic"]),
                many=_tokens(most),
                many_memory=percent(up[most]["memory"]),
                many_arithmetic=percent(up[most]["arithmetic"]),
            ),
            "claim_bound": words(
                "bound.claim",
                by_number=_with(
                    t for t in tokens if counts[t]["memory"].calls > HALF * counts[t]["all"].calls
                ),
                by_time=_with(t for t in tokens if counts[t]["memory"].time > HALF),
                verdicts=" ".join(_verdict(t, counts[t]) for t in tokens),
            ),
        },
    )


LIMITS = ("memory", "arithmetic", "neither")


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
    return "1 token" if number == 1 else f"{units.thousands(number)} tokens"


def _with(tokens):
    return " and with ".join(map(_tokens, tokens)) or words("bound.never")


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


def _verdict(tokens, shares):
    parts = [
        f"{shares[by].calls} by {by} ({percent(shares[by].time)} of the time)"
        for by in LIMITS
        if shares[by].calls
    ]
    return words("bound.verdict", tokens=_tokens(tokens), parts=", ".join(parts))
