"""The drawing vocabulary: figures are written in it, and it says and draws what it should."""

import itertools
import json
import math
import xml.etree.ElementTree
from dataclasses import replace

import pytest

from snippets._lab import rooms
from snippets._lab.draw import charts, drawings, identity, tables, units
from snippets._lab.draw.chart import specification
from snippets._lab.draw.charts import Reference, Series, View
from snippets._lab.draw.comparison import Comparison
from snippets._lab.draw.limits import limit
from snippets._lab.draw.rows import RATE, TIME, Quantity, derived, field, gains, only, pick, values
from snippets._lab.results.store import DataError
from tests import made_up
from tests.floors import perhaps, some

# Units.


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (units.time(0.01234), "12.3 µs"),
        (units.time(0.874), "874 µs"),
        (units.time(1), "1 ms"),
        (units.time(0.9999), "1 ms"),
        (units.time(12.345), "12.3 ms"),
        (units.time(2500), "2.5 s"),
        (units.time(0.000025), "25 ns"),
        (units.host_time(0.0147), "15 µs"),  # after a 1 halves count
        (units.host_time(0.0124), "10 µs"),
        (units.host_time(0.00996), "10 µs"),
        (units.host_time(0.0344), "30 µs"),
        (units.size(16_777_216), "16.8 MB"),
        (units.size(512), "512 bytes"),
        (units.size(0), "0 bytes"),
        (units.counted(140_660_178_944), "140.7 GB"),
        (units.counted(80_000_000_000), "80 GB"),
        (units.counted(4_311_744_512), "4.31 GB"),
        (units.binary(65536), "64 KiB"),
        (units.binary(62_914_560), "60 MiB"),
        (units.bandwidth(4.5e12), "4.5 TB/s"),
        (units.bandwidth(9.1e11), "910 GB/s"),
        (units.flops(6.12e14), "612 TFLOP/s"),
        (units.percent(0.842), "84 %"),
        (units.percent(0.0961), "9.6 %"),
        (units.gain(0.119), "+12 %"),
        (units.gain(-0.004), "0 %"),
        (units.share(1, 3), "33 %"),
        (units.exact(0.125), "12.5 %"),
        (units.change(1.12), "+12 %"),
        (units.change(0.9), "−10 %"),
        (units.change(1.001), "0 %"),
        (units.change(0.999), "0 %"),
        (units.ratio(0.777), "0.78×"),
        (units.ratio(1.999), "2.0×"),
        (units.ratio(7.64), "7.6×"),
        (units.ratio(9.96), "10×"),
        (units.ratio(16384), "16,384×"),
        (units.count(9999), "9999"),
        (units.count(-16384), "−16,384"),
        (units.thousands(1024), "1,024"),
        (units.decimals(-0.5), "−0.50"),
        (units.error(1.23e-06), "1.2e−6"),
        (units.error(0), "0"),
        (units.significant(1234.5), "1234"),
        (units.significant(0.000012), "1.2e−5"),
        (units.significant(0), "0"),
    ],
)
def test_a_number_is_read_as_it_should_be(text, said):
    assert text == said


def test_what_stands_together_has_one_unit():
    scale = units.time.scale([0.008, 170.0])
    assert scale.name == "ms"
    assert [scale.number(x) for x in (0.008, 170)] == ["0.008", "170"]
    assert units.time.scale([0.008, 0.5]).name == "µs"
    assert units.time.scale([0.0012, 175.0]).name == "µs", "the least value is read too"
    assert units.time.scale([0.0012, 175.0], small=False).name == "ms"
    assert units.size.scale([5e5, 8e10]).name == "MB"
    assert units.flops.scale([1e9, 7e14]).name == "TFLOP/s"
    assert units.number.scale([]).name == ""


# Words and ranges.


def gained(*ratios, runs=3, spread=0.0):
    """Gains, read together, of rows that were timed in so many runs; these differ by `spread`."""
    several = {"runs": [1] * runs} if runs > 1 else {}

    def row(ms):
        ms = [ms * (1 + spread * (run - 1)) for run in range(runs)]
        return {"ms_p50": ms[len(ms) // 2], "ms_samples": ms, **several}

    ours = {"ms_p50": 1.0, "ms_samples": [1.0] * runs, **several}
    return list(gains({at: (ours, row(ratio)) for at, ratio in enumerate(ratios)}).values())


def test_a_gain_has_a_word_only_from_three_runs():
    assert [gain.word for gain in gained(1.1, 0.9, 1.001)] == ["ahead", "behind", "level"]
    assert [gain.word for gain in gained(1.1, 0.9, spread=0.2)] == ["undecided"] * 2
    one = gained(1.1, 0.9, runs=1)
    assert [(gain, gain.word) for gain in one] == [(1.1, ""), (0.9, "")], "the ratio stays"


# Rows, comparisons and tables.


def timed(implementation, ms, **fields):
    return {
        "implementation": implementation,
        "ms_p20": ms * 0.98,
        "ms_p50": ms,
        "ms_p80": ms * 1.02,
        "ms_samples": [ms] * 3,
        "runs": [1, 1, 1],
        "flops": 1e9 * ms,
        **fields,
    }


ROWS = [
    timed("tiled_attention", 1.0, N=64, causal=False),
    timed("tiled_attention", 2.0, N=128, causal=False),
    timed("torch:sdpa", 2.0, N=64, causal=False),
    timed("torch:sdpa", 1.0, N=128, causal=False),
    timed("torch:cudnn", 1.008, N=64, causal=False),
    {"implementation": "torch:cudnn", "N": 128, "causal": False, "error": "does not run"},
]


def test_a_comparison_knows_where_it_stands():
    compared = Comparison(ROWS, "tiled_attention", ["torch:sdpa", "torch:cudnn"])
    sdpa, cudnn = (compared[name] for name in compared.others)
    assert [case.N for case in compared.cases] == [64, 128]
    assert dict(sdpa) == {(64,): 2.0, (128,): 0.5}
    assert (sdpa.best.N, sdpa.worst.N) == (64, 128)
    assert [(c.N, gain.word) for c, gain in sdpa.items()] == [(64, "ahead"), (128, "behind")]
    assert [gain.word for gain in cudnn.values()] == ["level"]
    assert len(cudnn) == 1, "what was not measured is left out"
    assert not compared["torch:flex"]
    assert sdpa.between() == "0.50 to 2.00"
    assert dict(sdpa.where(N=64)) == {(64,): 2.0}
    assert sdpa.verdicts() == "ahead in 1 of 2 cases, behind in 1"
    once = Comparison([{**r, "runs": [1]} for r in ROWS], "tiled_attention")["torch:sdpa"]
    assert once.verdicts() == "no verdict: fewer than three runs"
    assert compared.ms("torch:sdpa", compared.case(64)) == 2.0
    assert compared.ms("torch:cudnn", (128,)) is None
    assert tables.case(sdpa.best) == "N 64"


def test_two_rows_of_one_case_are_refused():
    with pytest.raises(DataError, match="two rows of tiled_attention have"):
        Comparison(ROWS, "tiled_attention", by=("causal",))


def test_a_column_has_one_unit_and_says_which():
    found = tables.columns(
        pick(ROWS, implementation="tiled_attention"),
        {"N": "N", "causal": "causal", "time": TIME, "rate": RATE, "twice": lambda r: 2 * r["N"]},
    )
    assert found == [
        {"N": 64, "causal": "no", "time, ms": "1", "rate, TFLOP/s": "1", "twice": 128},
        {"N": 128, "causal": "no", "time, ms": "2", "rate, TFLOP/s": "1", "twice": 256},
    ]
    assert tables.table(found)[1] == "| ---: | --- | ---: | ---: | ---: |"


# Identities.

LIGHT, DARK = "#fcfbf8", "#15181b"
EVERY = [*identity.ROAD, *identity.OTHERS, *identity.TENSORS, *identity.MEMORIES, *identity.WARPS]
# Machado, Oliveira and Fernandes 2009: what a reader sees without one kind of cone, in linear RGB.
DEFICIENCIES = {
    "protanopia": [
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ],
    "deuteranopia": [
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ],
    "tritanopia": [
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ],
    "none": [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
}


def linear(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels]


def contrast(a, b):
    luminance = [
        sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear(c), strict=True)) for c in (a, b)
    ]
    return (max(luminance) + 0.05) / (min(luminance) + 0.05)


def oklab(rgb):
    r, g, b = (max(0.0, x) for x in rgb)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def apart(a, b, deficiency):
    """How far two colors are for a reader, in OKLab: 0.02 is just seen side by side."""
    seen = [
        oklab([sum(m * x for m, x in zip(row, linear(c), strict=True)) for row in deficiency])
        for c in (a, b)
    ]
    return sum((x - y) ** 2 for x, y in zip(*seen, strict=True)) ** 0.5


@pytest.mark.parametrize("key", EVERY)
def test_every_color_is_seen_on_the_light_and_on_the_dark_page(key):
    for shade in some(range(identity.SHADES)):
        color = identity.identity(key, shade).color
        assert contrast(color, LIGHT) >= 3, f"{key}, shade {shade}: {color}"
        assert contrast(color, DARK) >= 3, f"{key}, shade {shade}: {color}"


def measured_together():
    """What stands in one result, by the names of its rows."""
    found = {}
    for path in sorted(rooms.DATA.rglob("*.json")):
        raw = json.loads(path.read_text("utf-8"))
        names = {r["implementation"] for r in raw["rows"] if "implementation" in r}
        known = {n for n in names if n in identity.ROAD or n in identity.OTHERS}
        if len(known) > 1:
            found[f"{raw['post']}/{raw['result']}"] = known
    assert len(found) > 10
    return found


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_what_is_compared_can_be_told_apart(deficiency):
    """By its color, or by its symbol and its name at the line's end."""
    for where, names in measured_together().items():
        for a, b in some(itertools.combinations(sorted(names), 2)):
            one, two = identity.identity(a), identity.identity(b)
            distance = apart(one.color, two.color, DEFICIENCIES[deficiency])
            if deficiency == "none":
                assert distance > 0.04, f"{where}: {a} and {b} look alike"
            else:
                assert distance > 0.02 or one.symbol != two.symbol, f"{where}: {a}, {b}"


def test_no_library_has_the_color_of_a_tensor():
    """A drawing of q, k and v and a chart of libraries stand on one page."""
    for tensor, name in some(itertools.product(identity.TENSORS, identity.OTHERS)):
        colors = identity.TENSORS[tensor], identity.identity(name).color
        assert apart(*colors, DEFICIENCIES["none"]) > 0.04, (tensor, name)
    assert identity.identity("torch:anything").color == identity.identity("torch:sdpa").color


# Charts.


def result(label="GPU A", factor=1.0, rows=ROWS):
    ceilings = {way: {"per_s_p50": 4e12} for way in ("read", "write", "copy")}
    return made_up.result(
        "tiled_attention",
        "forward",
        [{**r, **({"ms_p50": r["ms_p50"] * factor} if "ms_p50" in r else {})} for r in rows],
        device={"name": label, "l2_bytes": 50_000_000},
        ceilings=ceilings | {"matmul_bfloat16": {"per_s_p50": 7e14}},
    )


NAMES = ["tiled_attention", "torch:sdpa", "torch:cudnn"]
STEPS = [
    {"step": "first", "kind": kind, "n": n, "ms_p50": n * x, "low": n * 0.5, "high": n * 2.0}
    for n in (1, 2)
    for kind, x in (("a", 1.0), ("b", 3.0))
]
GRID = [{"head": h, "layer": y, "share": (h + y) / 10} for h in range(4) for y in range(3)]


def every_kind():
    """A chart of each kind, from one device and from two."""
    one, two = [result()], [result(), result("GPU B", 1.5)]
    steps = [result(rows=STEPS)]
    groups = [Series("k", "part a", {"kind": "a"}), Series("v", "part b", {"kind": "b"})]
    places = [Series("tiled_attention", f"place {n}", {"n": n}) for n in (1, 2)]
    panels = {"not causal": {"causal": False}, "all": {}}
    flops = [{**r, "bytes_compulsory": 1e6 * r["N"]} for r in ROWS]
    return {
        "lines": charts.lines(one, NAMES),
        "lines of two devices": charts.lines(two, NAMES, views=panels),
        "rates": charts.lines(two, NAMES, "N", RATE, log="x"),
        "references": charts.lines(
            one, NAMES, references=[Reference("as fast as light", 0.5), Reference("here", 100, "x")]
        ),
        "points": charts.points(one, NAMES, "N"),
        "shaded": charts.lines(one, NAMES, views=[View("", bands=[(80, 128, NAMES[0])])]),
        "bars": charts.bars(two, NAMES[:2], views={"short": {"N": 64}, "long": {"N": 128}}),
        "grouped": charts.bars(steps, places, groups=groups),
        "spread": charts.bars(
            steps, places, groups=[replace(g, spread=("low", "high")) for g in groups]
        ),
        "gains": charts.bars(
            derived(one, lambda _: [{"s": "up", "x": 0.1}, {"s": "down", "x": -0.2}]),
            [Series("tiled_attention", s, {"s": s}) for s in ("up", "down")],
            field("x", "gain", units.percent),
        ),
        "dots": charts.dots(steps, places, groups=groups),
        "dots that look like their places": charts.dots(
            steps, places, groups=[replace(g, key="", like="") for g in groups]
        ),
        "roofline": charts.roofline(
            [result(rows=flops)],
            NAMES[:2],
            Quantity("FLOP per byte", lambda r: r["flops"] / r["bytes_compulsory"]),
            {"matmul_bfloat16": "tensor cores"},
        ),
        "heatmap": charts.heatmap(
            [result(rows=GRID)], "head", "layer", field("share", "share", units.percent)
        ),
    }


KINDS = list(every_kind())


@pytest.fixture(scope="module")
def drawn():
    return {kind: specification(c) for kind, c in every_kind().items()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_description_gives_the_same_bytes_and_lists_of_numbers(kind, drawn):
    text = json.dumps(drawn[kind])
    assert json.dumps(specification(every_kind()[kind])) == text
    assert "bdata" not in text, "an array in base64, which no diff shows"
    assert "template" not in drawn[kind]["layout"], "it is the page's, once for all charts"


@pytest.mark.parametrize("phone", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_chart_names_and_holds_what_it_draws(kind, phone, drawn):
    """Every name is at a line's end or in the legend, and every mark within its axes."""
    spec = drawn[kind]
    layout = spec["layout"] | (spec["layout"]["meta"]["narrow"] if phone else {})
    notes = " ".join(note["text"] for note in layout.get("annotations", ()))
    assert all(panel.title in notes for panel in every_kind()[kind].panels)
    listed = {t["name"] for t in spec["data"] if t["showlegend"] and layout["showlegend"]}
    names = {t["name"] for t in spec["data"] if t["showlegend"]}
    for name in perhaps(names if len(names) > 1 else (), "a chart of one series has no legend"):
        assert name in listed or name in notes
    domains = [layout[f"xaxis{n}"]["domain"] for n in ("", *range(2, 9)) if f"xaxis{n}" in layout]
    assert all(low < high for low, high in some(domains))
    assert domains == [[0, 1]] * len(domains) or not phone, "a phone has one panel in a row"
    for trace in some(spec["data"]):
        for side in "xy" if trace["type"] != "heatmap" else "":
            axis = layout[trace[f"{side}axis"].replace(side, f"{side}axis")]
            low, high = sorted(axis["range"])
            values_ = [v for v in trace[side] if v is not None]
            shown = [math.log10(v) if axis.get("type") == "log" else v for v in some(values_)]
            assert all(low - 1e-9 <= v <= high + 1e-9 for v in shown)


def test_values_are_in_the_unit_of_the_axis():
    made = charts.lines([result()], NAMES, views={"": {}})
    (panel,) = made.panels
    assert panel.y.title == "time, ms"
    assert (panel.traces[0].x, panel.traces[0].y) == ((64, 128), (1.0, 2.0))
    short = [{**r, **({"ms_p50": r["ms_p50"] / 100} if "ms_p50" in r else {})} for r in ROWS]
    (panel,) = charts.lines([result(rows=short)], NAMES).panels
    assert panel.y.title == "time, µs"
    assert panel.traces[0].y == pytest.approx((10.0, 20.0))


def test_panels_of_one_quantity_share_an_axis_and_others_do_not():
    panels = {"64": {"N": 64}, "128": {"N": 128}}
    assert charts.lines([result()], NAMES, "N", TIME, panels).shared_y
    two = [View("time"), View("rate", y=RATE, log="x")]
    made = charts.lines([result()], NAMES, views=two)
    assert not made.shared_y
    assert [p.y.title for p in made.panels] == ["time, ms", "rate, TFLOP/s"]
    assert [p.y.log for p in made.panels] == [True, False]


@pytest.mark.parametrize(
    ("flops", "moved", "product", "by"),
    [
        (1e9, 3e9, True, "memory"),
        (5e11, 1e9, True, "arithmetic"),
        (1e9, 1e9, True, "neither"),
        (3e10, 1e9, False, "arithmetic"),
        (3e10, 1e9, True, "neither"),
    ],
)
def test_the_limit_is_the_ceiling_that_is_nearest(flops, moved, product, by):
    run = result()
    units_of = {"matmul_float16": {"per_s_p50": 8e14}, "fma_float32": {"per_s_p50": 5e13}}
    run.ceilings.update(units_of)
    row = {"ms_p50": 1.0, "flops": flops, "bytes_compulsory": moved, "product": product}
    found = limit(row, run)
    assert found.by == by
    assert found.memory == pytest.approx(moved / 4e9)
    assert found.arithmetic == pytest.approx(flops / (8e11 if product else 5e10))


def test_a_place_with_two_rows_is_refused_and_an_empty_chart_too():
    with pytest.raises(DataError, match="2 rows for tiled_attention"):
        charts.bars([result()], ["tiled_attention"])
    with pytest.raises(DataError, match="nothing to draw of time"):
        charts.lines([result()], ["flash_attention"])


def test_names_at_the_ends_of_lines_do_not_cover_each_other():
    close = [timed(name, 1 + i / 1000, N=64) for i, name in enumerate(NAMES)]
    close += [timed(name, 2 + i / 1000, N=128) for i, name in enumerate(NAMES)]
    made = charts.lines([result(rows=close)], NAMES)
    at = sorted(300 * note["y"] for note in specification(made)["layout"]["annotations"])
    assert len(at) == 3
    assert all(b - a > 16 for a, b in itertools.pairwise(at))
    assert at[0] >= 0
    assert at[-1] <= 300


def test_many_names_are_a_legend():
    rows = [timed(f"torch:way_{i}", 1 + i, N=N) for i in range(12) for N in (64, 128)]
    made = charts.lines([result(rows=rows)], [f"torch:way_{i}" for i in range(12)])
    layout = specification(made)["layout"]
    assert layout["showlegend"]
    assert "annotations" not in layout


def test_what_is_pointed_at_is_told_in_words():
    (panel,) = charts.lines([result()], NAMES).panels
    said = "tiled_attention<br>N 64: 1 ms<br>p20–p80: 980 µs – 1.02 ms"
    assert panel.traces[0].hovertext[0] == said


def test_a_quantity_of_a_field_and_of_rows():
    row = ROWS[0]
    assert TIME.text(row) == "1 ms"
    assert TIME.called("latency").name == "latency"
    assert field("absent").text(row) == "–"
    assert Quantity("twice", lambda r: 2 * r["N"], units.whole).text(row) == "128"
    assert values(ROWS, "N") == [64, 128]
    assert values(ROWS, "implementation") == NAMES
    assert only(ROWS, implementation="tiled_attention", N=64) is row


def test_drawings_follow_the_theme_and_escape_words():
    made = drawings.svg(
        100,
        50,
        'a "picture"',
        [
            drawings.labeled(0, 0, 20, 10, "#123456", "a < b"),
            drawings.arrow("M0 0H90", (90, 0), "right", "#654321", stroke_dasharray="3 3"),
        ],
    )
    assert 'aria-label="a &quot;picture&quot;"' in made
    assert ">a &lt; b</text>" in made
    assert "color-mix(in srgb,#123456 22%,var(--am-paper))" in made
    assert 'fill="var(--am-ink)"' in made
    assert '<path d="M0 0H90" stroke-dasharray="3 3"/><path d="M85 -3L90 0L85 3"/>' in made
    assert xml.etree.ElementTree.fromstring(made).tag == "div"
