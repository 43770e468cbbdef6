"""The figures of the multi_head_attention page: each draws the result of the same name."""

import itertools
import re

from snippets._lab.draw import charts, units
from snippets._lab.draw.charts import Series, View
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import (
    RATE,
    TIME,
    ceiling,
    derived,
    field,
    only,
    pick,
    rate,
    values,
)
from snippets._lab.draw.tables import beside, columns
from snippets._lab.draw.units import count, decimals, flops, ratio, time
from snippets._lab.draw.words import Words, between, faster, listed, many, yes

from .journey import journey

ROOM = "multi_head_attention"
LOOP, WIDE = "multi_head_attention:loop", "multi_head_attention:vectorized"
FUSED, SDPA = "multi_head_attention:exercise", "multi_head_attention:SDPA"
TORCH = "multi_head_attention:torch"
FORMS = [
    Series(LOOP, "loop over heads"),
    Series(WIDE, "vectorized", shade=4),
    Series(FUSED, "one projection for q, k, v"),
    Series(SDPA, "vectorized, with SDPA", like="torch:sdpa"),
    Series(TORCH, "torch.nn.MultiheadAttention", like="torch:efficient"),
]
NAMES = {form.key: form.name for form in FORMS}
COLUMNS = {form.name: form.key for form in FORMS}
FORWARD, BOTH = "forward", "forward and backward"
words = Words(__file__)


def launches(results):
    rows = results[0].rows

    def counts(implementation, passes=FORWARD):
        found = pick(rows, implementation=implementation, passes=passes)
        return {r["heads"]: r["launches"] for r in found}

    loop, wide, fused, sdpa = (counts(name) for name in (LOOP, WIDE, FUSED, SDPA))
    few, most = sorted(loop)[min(1, len(loop) - 2)], max(loop)  # one head is a case of its own
    shown = next(r for r in rows if r["implementation"] == WIDE and r["kernels"])
    heads = shown["heads"]
    return Figure(
        finding=words("launches", heads=heads, loop=loop[heads], wide=wide[heads]),
        caption=words(
            "launches.caption",
            B=shown["B"],
            N=shown["N"],
            E=shown["E"],
            dtype=shown["dtype"],
        ),
        table=beside(rows, ["passes", "heads"], COLUMNS, field("launches", unit=units.whole)),
        plot=charts.lines(
            results,
            FORMS,
            "heads",
            field("launches", "kernels launched", units.whole),
            charts.views("{}", "passes", values(rows, "passes")),
        ),
        sentences={
            "slope": words(
                "launches.slope",
                slope=units.significant((loop[most] - loop[few]) / (most - few), 2),
                loop_few=loop[few],
                few=many(few, "head"),
                loop_many=loop[most],
                many=most,
                wide=_of_wide(wide),
            ),
            "backward": words(
                "launches.backward",
                heads=heads,
                loop=counts(LOOP, BOTH)[heads],
                wide=counts(WIDE, BOTH)[heads],
            ),
            "kernels": words("launches.kernels", kernels=len(shown["kernels"]), heads=heads)
            + "\n\n"
            + _listing(shown["kernels"]),
            "fused": words(
                "launches.fused",
                heads=heads,
                fused=fused[heads],
                wide=wide[heads],
                sdpa=sdpa[heads],
            ),
            "claim": _of_claim(loop[8], wide[8]),
        },
    )


def _of_wide(wide):
    """How many kernels the vectorized layer launches, by its number of heads."""
    few, most = min(wide), max(wide)
    if len(set(wide.values())) == 1:
        return f"{wide[most]}, whatever the number of heads."
    others = [launched for heads, launched in wide.items() if heads > few]
    if wide[few] >= min(others):
        return f"{between(wide.values(), count)}."
    return words("launches.one_head", wide=between(others, count), few=few, wide_few=wide[few])


def _of_claim(loop, wide):
    """“48 launches and more for a loop of 8 heads, about 6 when vectorized”, judged."""
    first, second = loop >= 48, 5 <= wide <= 7
    if second:
        said = "the second does too." if first else "the second does."
    else:
        said = words("launches.forgets") if wide > 7 else "the second is too many."
    return words(
        "launches.claim",
        loop=loop,
        wide=wide,
        first="holds" if first else "does not hold here",
        second=said,
    )


def _listing(kernels):
    return "\n".join(["```text", *(k if len(k) < 90 else f"{k[:88]}…" for k in kernels), "```"])


CLOCKS = {"gpu": "on the GPU", "host": "from call to call"}


def layer_time(results):
    rows = results[0].rows
    sizes = {r["size"]: f"{r['size']}: B {r['B']}, N {r['N']}, E {r['E']}" for r in rows}

    def at(implementation, size, clock, heads=8, passes=FORWARD):
        wanted = {"size": size, "clock": clock, "heads": heads, "passes": passes}
        return TIME(only(rows, implementation=implementation, **wanted))

    def loop_by_wide(heads, passes=FORWARD):
        return units.rough_ratio(
            at(LOOP, "small", "host", heads, passes) / at(WIDE, "small", "host", heads, passes)
        )

    small = {name: at(name, "small", "host") for name in NAMES}
    large = {name: at(name, "large", "gpu") for name in NAMES}
    called = {name: at(name, "large", "host") for name in NAMES}
    busy, most = at(LOOP, "small", "gpu"), max(values(rows, "heads"))
    fastest = min(large, key=large.get)
    return Figure(
        finding=words(
            "layer_time",
            heads=8,
            loop=units.host_time(small[LOOP]),
            wide=units.host_time(small[WIDE]),
        ),
        caption=words("layer_time.caption", dtype=rows[0]["dtype"], **_first_upper(sizes)),
        table=beside(
            [{**r, "clock": CLOCKS[r["clock"]], "pass": r["passes"]} for r in rows],
            ["size", "clock", "pass", "heads"],
            COLUMNS,
        ),
        plot=charts.lines(
            results,
            FORMS,
            "heads",
            TIME,
            [
                View(
                    f"{size} input, {said}",
                    {"size": size, "clock": clock, "passes": FORWARD},
                )
                for size, (clock, said) in itertools.product(sizes, CLOCKS.items())
            ],
            columns=2,
        ),
        sentences={
            "small": words(
                "layer_time.small",
                heads=8,
                ratio=loop_by_wide(8),
                one=loop_by_wide(1),
                many=loop_by_wide(most),
                most=most,
                both=loop_by_wide(8, BOTH),
            ),
            "waits": words(
                "layer_time.waits",
                busy=time(busy),
                call=units.host_time(small[LOOP]),
                verdict=words(
                    "layer_time.bound" if small[LOOP] > 1.2 * busy else "layer_time.keeps_up"
                ),
            ),
            "large": words(
                "layer_time.large",
                heads=8,
                loop=time(large[LOOP]),
                wide=time(large[WIDE]),
                loop_called=time(called[LOOP]),
                wide_called=time(called[WIDE]),
                verdict=words(
                    "layer_time.longer" if called[LOOP] > 1.2 * large[LOOP] else "layer_time.hidden"
                ),
                few=_few(rows),
            ),
            "sdpa": words(
                "layer_time.sdpa",
                heads=8,
                fastest=NAMES[fastest],
                time=time(large[fastest]),
                against=""
                if fastest == WIDE
                else f", {faster(large[WIDE] / large[fastest])} than the plain vectorized layer",
                scores=" The scores never go through memory there."
                if fastest in (SDPA, TORCH)
                else "",
                wide=_wide_heads(rows),
            ),
            "fused": words(
                "layer_time.fused",
                small=time(small[FUSED]),
                small_wide=time(small[WIDE]),
                large=time(large[FUSED]),
                large_wide=time(large[WIDE]),
            ),
        },
    )


def _first_upper(sizes):
    return {size: said[0].upper() + said[1:] for size, said in sizes.items()}


def _large(rows, implementation, passes=FORWARD):
    """Heads → time on the GPU, on the large input."""
    wanted = {"size": "large", "clock": "gpu", "passes": passes}
    return {r["heads"]: TIME(r) for r in pick(rows, implementation=implementation, **wanted)}


def _few(rows):
    """Where the loop keeps the GPU busy for less time than the vectorized layer, or nothing."""
    loop, wide = _large(rows, LOOP), _large(rows, WIDE)
    ahead = [heads for heads in sorted(loop) if wide[heads] > 1.05 * loop[heads]]
    if not ahead:
        return ""
    most = max(ahead, key=lambda heads: wide[heads] / loop[heads])
    return " " + words(
        "layer_time.few",
        heads=listed(ahead),
        loop=time(loop[most]),
        wide=time(wide[most]),
        most=most,
    )


def _wide_heads(rows):
    """With which number of heads SDPA is behind the plain layer, or nothing."""
    plain, sdpa = _large(rows, WIDE), _large(rows, SDPA)
    behind = [heads for heads in sorted(plain) if sdpa[heads] > 1.05 * plain[heads]]
    if not behind:
        return ""
    heads = behind[0]
    return " " + words(
        "layer_time.wide",
        heads=many(heads, "head"),
        width=next(r["E"] for r in rows if r["size"] == "large") // heads,
        sdpa=time(sdpa[heads]),
        plain=time(plain[heads]),
        sdpa_both=time(_large(rows, SDPA, BOTH)[heads]),
        plain_both=time(_large(rows, WIDE, BOTH)[heads]),
    )


A_LAUNCH = field("launch_p50", "time per launch", units.time)
LAUNCHES = {"host": "from launch to launch, host", "gpu": "on the GPU, queue full"}


def empty_launch(results):
    each = derived(results, _a_launch)
    rows = each[0].rows
    names = values(rows, "implementation")
    host = {r["implementation"]: A_LAUNCH(r) for r in pick(rows, clock="host")}
    gpu = {r["implementation"]: A_LAUNCH(r) for r in pick(rows, clock="gpu")}
    return Figure(
        finding=words(
            "empty_launch",
            host=between(host.values(), units.host_time),
            gpu=between(gpu.values(), time),
        ),
        caption=words("empty_launch.caption", launches=rows[0]["launches"]),
        table=beside(
            [{**r, "launched": r["implementation"]} for r in rows],
            ["launched"],
            {"host": "host", "GPU": "gpu"},
            A_LAUNCH,
            name="clock",
        ),
        plot=charts.bars(
            each,
            [Series(ROOM, name, {"implementation": name}) for name in names],
            A_LAUNCH,
            groups=[
                Series(
                    ROOM if clock == "host" else "context",
                    said,
                    {"clock": clock},
                    spread=("launch_p20", "launch_p80"),
                )
                for clock, said in LAUNCHES.items()
            ],
        ),
        sentences={
            "empty": words(
                "empty_launch.empty", host=units.host_time(host[names[0]]), gpu=time(gpu[names[0]])
            ),
            "claim": words(
                "empty_launch.claim",
                host="; ".join(f"{name}: {units.host_time(ms)}" for name, ms in host.items()),
                verdict=_five_to_ten(host),
                gpu=between(gpu.values(), time),
            ),
        },
    )


def _a_launch(result):
    """The rows with the times of one launch among many."""
    for row in pick(result.rows):
        times = {p: row[f"ms_{p}"] / row["launches"] for p in ("p20", "p50", "p80")}
        yield {**row, **{f"launch_{p}": ms for p, ms in times.items()}}


def _five_to_ten(host):
    """For which of some launches the claim of 5 to 10 µs holds; times in milliseconds."""
    low, high = 0.005, 0.01
    inside = [name for name, ms in host.items() if low <= ms <= high]
    if len(inside) == len(host):
        return "holds for all four"
    if inside:
        sides = {"below" if ms < low else "above" for n, ms in host.items() if n not in inside}
        others = len(host) - len(inside)
        return f"holds for {listed(inside)}; the other {others} lie {listed(sorted(sides))} it"
    if max(host.values()) < low:
        return "is too high"
    return "is too low" if min(host.values()) > high else "holds for none of them"


DTYPES = ("float16", "bfloat16", "float32")
TF32 = "torch:matmul, TF32"


def head_dim(results):
    result = results[0]
    rows = result.rows
    labels = {r["operation"]: r["label"] for r in rows}
    widths = values(rows, "around")

    def at(operation, dtype, D):
        return _product(rows, operation, dtype)[D]

    def odd(operation, dtype):  # one column more than 64, beside 64
        return ratio(TIME(at(operation, dtype, 65)) / TIME(at(operation, dtype, 64)))

    def surely(D):  # without tensor cores 16 bits are at most twice as fast: two in one instruction
        limits = {dtype: fma if dtype == "float32" else 2 * fma for dtype in DTYPES}
        rates = {(op, dtype): rate(at(op, dtype, D)) for op in labels for dtype in DTYPES}
        above = {case: found for case, found in rates.items() if found > limits[case[1]]}
        return (
            "; ".join(f"{labels[op]} in {d} ({flops(found)})" for (op, d), found in above.items())
            or "none"
        )

    fma, half = ceiling(result, "fma_float32"), ceiling(result, "matmul_float16")
    tf32 = only(rows, operation="scores", dtype="float32", D=64, implementation=TF32)
    whole = TIME(at("attention", "float32", 64)) / TIME(at("attention", "float16", 64))
    names = {
        (operation, dtype, D): [
            k for k in at(operation, dtype, D)["kernels"] or [] if not k.startswith("Mem")
        ]
        for operation in labels
        for dtype in DTYPES
        for D in (64, 65)
    }
    worst = {op: _worst(rows, op, "float16") for op in labels}
    near = {width: field("D", f"D, around {width}", units.number) for width in widths}
    return Figure(
        finding=words(
            "head_dim", scores=odd("scores", "float16"), attention=odd("attention", "float16")
        ),
        caption=words(
            "head_dim.caption",
            widths=listed(widths),
            heads=rows[0]["batch"] * rows[0]["heads"],
            N=rows[0]["N"],
        ),
        table=beside(
            [{**r, "operation": r["label"]} for r in rows if r["implementation"] != TF32],
            ["operation", "D"],
            {dtype: dtype for dtype in DTYPES},
            more=lambda case: {"rate in float16": RATE.text(case["float16"])},
            name="dtype",
        ),
        plot=charts.lines(
            results,
            [*map(_line, DTYPES), *map(_eights, DTYPES)],
            "D",
            TIME,
            [
                View(label, {"operation": op, "around": width}, x=x)
                for op, label in labels.items()
                for width, x in near.items()
            ],
            log="y",
            ticks={"x": [D for D in values(rows, "D") if D % 4 == 0]},
            columns=len(widths),
            height=220,
        ),
        sentences={
            "odd": " ".join(
                words(
                    "head_dim.odd",
                    operation=label[0].upper() + label[1:],
                    half=odd(op, "float16"),
                    single=odd(op, "float32"),
                )
                for op, label in labels.items()
            ),
            "worst": words(
                "head_dim.worst",
                worst="; ".join(
                    f"{labels[op]}, D {D}, {ratio(slower)}" for op, (D, slower) in worst.items()
                ),
            ),
            "names": words("head_dim.names")
            + "\n\n"
            + _listing(names["scores", "float16", 64])
            + "\n\nand D 65:\n\n"
            + _listing(names["scores", "float16", 65]),
            "backend": _backend(names),
            "reaches": words(
                "head_dim.reaches",
                fma=flops(fma),
                even=surely(64),
                odd=surely(65),
                tf32=flops(rate(tf32)),
                float32=flops(rate(at("scores", "float32", 64))),
                by_name=_by_name(names["scores", "float16", 65]),
            ),
            "claim": words(
                "head_dim.claim",
                half=ratio(half / fma),
                plain=ratio(half / ceiling(result, "matmul_float32")),
                middle=ratio(ceiling(result, "matmul_tf32") / fma),
                whole=ratio(whole),
                verdict=words("head_dim.near")
                if 6 <= whole <= 10
                else ". No single factor covers these.",
            ),
        },
    )


def _line(dtype):
    """The time of an operation of PyTorch in a dtype, TF32 apart."""
    where = _of_dtype(dtype)
    return Series("torch:matmul", dtype, where, dtype=dtype, size=4)


def _eights(dtype):
    """The widths among them that are multiples of 8."""
    return Series(
        "torch:matmul",
        "a multiple of 8",
        _of_dtype(dtype, multiple=8),
        symbol="diamond",
        joined=False,
        size=9,
    )


def _of_dtype(dtype, multiple=1):
    return lambda row: (
        row["dtype"] == dtype and row["implementation"] != TF32 and row["D"] % multiple == 0
    )


def _by_name(kernels):
    """What the name of a product's kernel says about tensor cores, or nothing."""
    found = [re.search(r"tensorop.*?align(\d+)", name) for name in kernels]
    aligned = [match[1] for match in found if match]
    if not aligned:
        return ""
    loads = "a single element" if aligned[0] == "1" else f"{aligned[0]} elements"
    return " " + words("head_dim.by_name", align=aligned[0], loads=loads)


BACKENDS = {  # part of a kernel's name → who wrote it
    "cudnn": "cuDNN",
    "flash": "flash",
    "fmha_cutlass": "memory-efficient attention",
    "softmax": "separate products with a softmax between",
}


def _backend(names):
    """What SDPA runs at D 64 and at D 65, by the names of its kernels, in one sentence a dtype."""
    said = []
    for dtype in ("float16", "float32"):
        kernels = [names["attention", dtype, D] for D in (64, 65)]
        took = [_written_by(found) for found in kernels]
        counts = [many(len(found), "kernel") for found in kernels]
        if all(took) and took[0] != took[1]:
            said.append(
                f"in {dtype} {took[0]} at D 64 ({counts[0]}) and {took[1]} at D 65 ({counts[1]})"
            )
    return words("head_dim.backend", said=", and ".join(said)) if said else ""


def _written_by(kernels):
    return next((who for part, who in BACKENDS.items() if any(part in k for k in kernels)), "")


def _product(rows, operation, dtype):
    """D → row of an operation in a dtype, TF32 apart."""
    found = pick(rows, operation=operation, dtype=dtype)
    return {r["D"]: r for r in found if r["implementation"] != TF32}


def _worst(rows, operation, dtype):
    """(D, how much slower than D rounded up to a multiple of 8) of the worst D up to 72."""
    at = {D: TIME(r) for D, r in _product(rows, operation, dtype).items() if D <= 72}
    slower = {D: ms / at[-(-D // 8) * 8] for D, ms in at.items() if D % 8}
    return max(slower.items(), key=lambda item: item[1])


def shapes(results):
    rows = results[0].rows
    letters = dict(pair.split("=") for pair in rows[0]["letters"])
    by_size = {int(size): letter for letter, size in letters.items()}

    def named(shape):
        return f"[{', '.join(by_size[size] for size in shape)}]"

    wide, loop = pick(rows, form="vectorized"), pick(rows, form="loop")
    lanes = {
        lane: [(r["operation"], r["shape"]) for r in pick(wide, lane=lane)]
        for lane in ("W_q", "W_k", "W_v")
    }
    same = all(steps[1:3] == lanes["W_q"][1:3] for steps in lanes.values())
    main = pick(wide, lane="W_q")
    copied = [r for r in wide if r["operation"] == "contiguous" and not r["same_memory"]]
    views = pick(wide, same_memory=True)
    return Figure(
        finding=words(
            "shapes",
            x=named(rows[0]["x"]),
            steps=len(main),
            views=len(views),
            operations=len(wide),
        ),
        caption=words(
            "shapes.caption",
            letters=", ".join(f"{a} = {b}" for a, b in letters.items() if a != "H·D"),
            same="Keys and values take the same first three steps. " if same else "",
        ),
        table=columns(
            rows,
            {
                "form": "form",
                "step": "step",
                "operation": "operation",
                "from": lambda r: " and ".join(map(named, r["inputs"])),
                "to": lambda r: named(r["shape"]),
                "strides": lambda r: str(tuple(r["stride"])),
                "same memory": "same_memory",
            },
        ),
        widget=f'<div class="am-journey">{journey(main, rows[0]["x"], by_size)}</div>',
        sentences={
            "count": words(
                "shapes.count",
                heads=letters["H"],
                loop=len(loop),
                wide=len(wide),
                new=len(wide) - len(views),
            ),
            "copies": words("shapes.one_copy", copy=copied[0]["operation"])
            if len(copied) == 1
            else words("shapes.copies", copies=len(copied)),
        },
    )


def contiguity(results):
    rows = {r["expression"]: r for r in results[0].rows}
    B, H, N, D = results[0].rows[0]["sizes"]
    before, turned = rows["out"], rows["out.transpose(1, 2)"]
    copy = rows["out.transpose(1, 2).contiguous()"]
    raised = next(r for r in rows.values() if r["raised"])
    wrong = [r for r in rows.values() if r.get("right") is False]
    silent = [r for r in rows.values() if r.get("right") and "contiguous" not in r["expression"]]
    return Figure(
        finding=words("contiguity", bytes=copy["bytes_copied"]),
        caption=words("contiguity.caption", B=B, H=H, N=N, D=D, torch=_torch_version(results[0])),
        table=columns(
            rows.values(),
            {
                "expression": "expression",
                "shape": _unless_raised(lambda r: str(tuple(r["shape"]))),
                "strides": _unless_raised(lambda r: str(tuple(r["stride"]))),
                "contiguous": _unless_raised(lambda r: yes(r["contiguous"])),
                "bytes copied": _unless_raised(lambda r: r["bytes_copied"]),
                "result": _outcome,
            },
        ),
        open_table=True,
        sentences={
            "error": "\n".join(
                ["```pycon", f">>> {raised['expression']}", *_wrapped(raised["raised"]), "```"]
            ),
            "strides": words(
                "contiguity.strides",
                before_shape=str(tuple(before["shape"])),
                before=str(tuple(before["stride"])),
                turned_shape=str(tuple(turned["shape"])),
                turned=str(tuple(turned["stride"])),
            ),
            "copies": words(
                "contiguity.copies",
                bytes=copy["bytes_copied"],
                B=B,
                H=H,
                N=N,
                D=D,
                stride=str(tuple(copy["stride"])),
                silent=words(
                    "contiguity.silent",
                    expression=silent[0]["expression"].removeprefix("out."),
                    bytes=silent[0]["bytes_copied"],
                )
                if silent
                else "",
            ),
            "wrong": words("contiguity.wrong", expression=wrong[0]["expression"]) if wrong else "",
        },
    )


def _torch_version(result):
    return result.versions["torch"].split("+")[0]


def _unless_raised(column):
    return lambda row: None if row["raised"] else column(row)


def _wrapped(text, width=78):
    """Lines of an error message that fit a phone's scrolling box."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(lines[-1]) + len(word) < width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _outcome(row):
    if row["raised"]:
        return row["raised"].split(":")[0]
    return {True: "right", False: "wrong numbers", None: None}[row["right"]]


RIGHT = 1e-6  # a difference below this is rounding


def masks(results):
    rows = {r["convention"]: r for r in results[0].rows}
    kinds = {name: r["hidden_row"] for name, r in rows.items()}
    theirs = [name for name in rows if name.startswith("nn.")]
    nan = [name for name, kind in kinds.items() if kind == "NaN"]
    wrong, added = (
        [r[given]["difference"] for r in rows.values() if r[given].get("difference", 0) > RIGHT]
        for given in ("given_bool", "given_float")
    )
    train, evaluate = (kinds[name] for name in theirs[1:3])
    return Figure(
        finding=words("masks", nan=len(nan), calls=len(rows), names="; ".join(map(_call, nan)))
        if nan
        else words("masks.none"),
        caption=words(
            "masks.caption",
            visible=str(rows["this page"]["visible"]),
            torch=_torch_version(results[0]),
        ),
        table=columns(
            rows.values(),
            {
                "call": "convention",
                "the mask": lambda r: ", ".join(map(_mark, r["mask"])),
                "a query that sees nothing": "hidden_row",
                "given this page's bool mask": lambda r: _handed(r["given_bool"]),
                "given 1.0 and 0.0": lambda r: _handed(r["given_float"]),
            },
        ),
        open_table=True,
        sentences={
            "hidden": "; ".join(f"{_call(name)} gives {kinds[name]}" for name in theirs) + ".",
            "same": words("masks.same", train=train)
            if train == evaluate
            else words("masks.differs", train=train, evaluate=evaluate),
            "silent": words(
                "masks.silent",
                wrong=len(wrong),
                most=decimals(max(wrong), 1),
                added=len(added),
            )
            if wrong and added
            else "",
        },
    )


def _call(name):
    """“nn.MultiheadAttention, eval()” → `nn.MultiheadAttention` with `eval()`, as Markdown."""
    of, *options = (f"`{part}`" for part in name.split(", "))
    return f"{of} with {listed(options)}" if options else of


def _mark(value):
    return {"-inf": "-∞", "0.0": "0"}.get(value, value)


def _handed(found):
    if "raised" in found:
        return found["raised"].split(":")[0]
    if found["result"] == "NaN":
        return "NaN"
    difference = found["difference"]
    return "right" if difference < RIGHT else f"wrong by {decimals(difference, 1)}"


KINDS = {  # the field of a row → the place that it is the share of
    "to_first": "the start token, [CLS]",
    "to_last": "the end token, [SEP]",
    "to_self": "itself",
    "to_previous": "the token before",
    "to_next": "the token after",
}
MOST = 0.5  # from this share on a head attends to one place
NONE = "none of these"
STRONGEST = field("distance_strongest", "distance to the strongest key, tokens", units.number)
ENTROPY = field("entropy_relative", "entropy, 1 = equal weights", units.fraction)


def heads(results):
    told = derived(results, _with_kinds)
    rows = told[0].rows
    groups = {place: pick(rows, mostly=place) for place in (*KINDS.values(), NONE)}
    near = [r for r in rows if STRONGEST(r) < 1.5]
    sharp, flat = min(rows, key=ENTROPY), max(rows, key=ENTROPY)
    layers = {layer: pick(rows, layer=layer) for layer in values(rows, "layer")}
    elsewhere = {
        layer: sum(r["elsewhere"] for r in found) / len(found) for layer, found in layers.items()
    }
    least, most = min(elsewhere, key=elsewhere.get), max(elsewhere, key=elsewhere.get)
    alone = max(rows, key=lambda r: r["elsewhere"])
    one_place = [(place, found) for place, found in groups.items() if found and place != NONE]
    counted = [
        f"{len(found)} "
        + ("give more than half of their attention to " if i == 0 else "to ")
        + place.replace("[", "`[").replace("]", "]`")
        for i, (place, found) in enumerate(one_place)
    ]
    return Figure(
        finding=words("heads", heads=len(rows), counted=listed(counted), others=len(groups[NONE])),
        caption=words("heads.caption", sentences=len(rows[0]["sentences"])),
        table=columns(
            rows,
            {
                "layer": "layer",
                "head": "head",
                "strongest key, tokens away": lambda r: decimals(STRONGEST(r), 1),
                "mean distance": lambda r: decimals(r["distance_mean"], 1),
                "entropy of log N": lambda r: decimals(ENTROPY(r)),
                "elsewhere than its layer": lambda r: decimals(r["elsewhere"]),
                "mostly to": "mostly",
            },
        ),
        plot=charts.points(
            told,
            [
                *(
                    Series(ROOM, _entry(place, groups), {"mostly": place}, shade=i, told=_told)
                    for i, place in enumerate(KINDS.values())
                ),
                Series("context", _entry(NONE, groups), {"mostly": NONE}, told=_told),
            ],
            STRONGEST,
            ENTROPY,
            log="",
            ends={"y": (0, 1)},
        ),
        sentences={
            "range": words(
                "heads.range",
                sharp_layer=sharp["layer"],
                sharp_head=sharp["head"],
                sharp=decimals(ENTROPY(sharp)),
                flat_layer=flat["layer"],
                flat_head=flat["head"],
                flat=decimals(ENTROPY(flat)),
                near=len(near),
                heads=len(rows),
            ),
            "elsewhere": words(
                "heads.elsewhere",
                least=decimals(elsewhere[least]),
                least_layer=least,
                most=decimals(elsewhere[most]),
                most_layer=most,
                layer=alone["layer"],
                head=alone["head"],
                alone=decimals(alone["elsewhere"]),
            ),
        },
    )


def _with_kinds(result):
    """The rows, each with the place that gets more than half of the head's attention."""
    for row in pick(result.rows):
        best = max(KINDS, key=lambda key: row[key])
        yield {**row, "mostly": KINDS[best] if row[best] > MOST else NONE}


def _entry(place, groups):
    return f"{place} ({len(groups[place])})"


def _told(row):
    return (
        f"layer {row['layer']} head {row['head']}<br>strongest key {decimals(STRONGEST(row), 1)} "
        f"tokens away<br>mean distance {decimals(row['distance_mean'], 1)}<br>elsewhere than its "
        f"neighbors {decimals(row['elsewhere'])}<br>entropy {decimals(ENTROPY(row))}"
    )
