"""The figures of the page about other cards: each draws the result of the same name."""

import html
from collections import Counter

from snippets._lab.draw.figure import Figure
from snippets._lab.draw.tables import listed, table
from snippets._lab.draw.units import binary, kib, many, plain, share, thousands
from snippets._lab.probe.gpus import (
    AMD_SPECIFICATIONS,
    ARCHITECTURES,
    CARDS,
    CUDA_GUIDE,
    CUDA_TRAITS,
    LLVM,
    programs_at_once,
)
from snippets._lab.results.store import DataError

PAGE = "docs/lab/your_gpu.md"
SHOWN_FIRST = "H200"  # without a choice
EXCERPTS = ("flash_attention", "vectorized_attention")  # of one point each, shown on a page
DTYPES = ("float16", "bfloat16", "float32")
NOT_ON_T4 = {"flash_attention", "masks_and_packing"}  # bfloat16 and wide heads, by the page
STATIC = (
    "launcher",
    "case",
    "dtype",
    "verdict",
    "kernel",
    "registers",
    "spills",
    "shared memory",
    "at once",
    "tensor cores",
    "warps",
)
COLUMNS = (*STATIC, "limit", "reason")


def kernels(results):
    by_target = {r.folder.removeprefix("compiler/"): r.rows for r in results}
    if missing := {card.target for card in CARDS} - by_target.keys():
        raise DataError(f"nothing was compiled for {', '.join(sorted(missing))}")
    by_target = {target: by_target[target] for target in dict.fromkeys(c.target for c in CARDS)}
    shown = {target: [_shown(r, target) for r in rows] for target, rows in by_target.items()}
    t4 = [r for r in by_target["sm_75"] if r["launcher"] != "hopper_attention"]
    every = [row for rows in shown.values() for row in rows]
    verdicts = Counter(row["verdict"] for row in every)
    first = next(card for card in CARDS if card.name == SHOWN_FIRST)
    return Figure(
        finding=f"Of {len(every) - verdicts['refused']} kernels compiled for {len(shown)} kinds of "
        f"GPU, {verdicts['spills']} spill and {verdicts['does not fit'] or 'none'} "
        f"{'needs' if verdicts['does not fit'] < 2 else 'need'} more than a card has; launchers "
        f"refuse {verdicts['refused']} more calls.",
        caption="Each kernel as the compiler made it for a card, ahead of time, with Triton "
        f"{listed(sorted({r.versions['triton'] for r in results}))}. Nothing ran.",
        numbers={"launchers": len({row["launcher"] for row in every})},
        table=[{name: row[name] for name in STATIC} for row in shown[first.target]],
        widget="\n".join(
            [
                '<div class="am-cards" data-widget="your_gpu" markdown>',
                "[Every card's kernels](/figures/your_gpu/kernels_cards.json){ .am-source } "
                "Dtypes that a launcher accepts and whose kernels fit; with JavaScript you can "
                "choose a card.",
                "",
                *table(
                    [
                        {
                            "launcher": launcher,
                            **{_cards_of(t): _dtypes(launcher, rows) for t, rows in shown.items()},
                        }
                        for launcher in dict.fromkeys(row["launcher"] for row in every)
                    ]
                ),
                "",
                "</div>",
            ]
        ),
        extra_files={
            "kernels_cards.json": {
                "first": _slug(first),
                "cards": [
                    {
                        "id": _slug(c),
                        "name": c.name,
                        "target": c.target,
                        "facts": [[words, value] for _, words, value in _limits(c)],
                    }
                    for c in CARDS
                ],
                "columns": list(COLUMNS),
                "kernels": {
                    target: [[row[name] for name in COLUMNS] for row in rows]
                    for target, rows in shown.items()
                },
            }
        },
        pieces={
            "limits": "\n".join(
                table([{"card": c.name, **{h: value for h, _, value in _limits(c)}} for c in CARDS])
            ),
            "sources": _sources(),
        },
        claims={
            f"{PAGE}: `hopper_attention` takes 16-bit calls on the H100 and H200, and": all(
                _refused_altogether(rows) == ({"hopper_attention"} if target != "sm_90" else set())
                for target, rows in by_target.items()
            )
            and {
                (r["dtype"] != "float32", not r["refused"])
                for r in by_target["sm_90"]
                if r["launcher"] == "hopper_attention"
            }
            == {(True, True), (False, False)},
            f"{PAGE}: On the T4, `flash_attention` and `masks_and_packing` refuse bfloat16 and "
            "more than 128 columns; bfloat16 compiles in the others": _unable(
                r for r in t4 if r["dtype"] == "bfloat16"
            )
            == NOT_ON_T4
            and {
                (r["dtype"] == "bfloat16" or _wide(r), bool(r["refused"]))
                for r in t4
                if r["launcher"] in NOT_ON_T4
            }
            == {(True, True), (False, False)},
            f"{PAGE}: `tiled_attention` spills on every card": all(
                ("tiled_attention", "spills") in {(r["launcher"], r["verdict"]) for r in rows}
                for rows in shown.values()
            ),
            f"{PAGE}: `mma` on the A100, the L4 and the RTX 4090, `wgmma` on the H100 and H200, "
            "`tcgen05` on the B200, `mfma` on the MI300X": {
                target: _instructions(rows) for target, rows in by_target.items()
            }
            == {
                "sm_75": {"none"},
                "sm_80": {"mma"},
                "sm_89": {"mma"},
                "sm_90": {"wgmma"},
                "sm_100": {"tcgen05"},
                "gfx942": {"mfma"},
            },
        },
    )


def _slug(card):
    return card.name.lower().replace(" ", "-")


def _cards_of(target):
    """The cards of a target in a few words: "H100, H200"."""
    names = [c.name for c in CARDS if c.target == target]
    return ", ".join(
        dict.fromkeys(name.partition(" ")[0] if "GB" in name else name for name in names)
    )


def _shown(row, target):
    """A row as a table has it."""
    if row["refused"]:
        return dict.fromkeys(COLUMNS) | {
            **{name: row[name] for name in ("launcher", "case", "dtype")},
            "verdict": "refused",
            "reason": row["refused"],
        }
    name = row["kernel"].strip("_").removesuffix("_kernel")
    sizes, roles = {}, {}  # a kernel whose warps have roles says how many of each
    for key, n in row["blocks"].items():
        (sizes if key.startswith("BLOCK") else roles)[key] = n
    blocks = " × ".join(str(n) for key, n in sizes.items() if key != "BLOCK_D")
    blocks = ", ".join([blocks, *(f"{n} {key.lower()}" for key, n in roles.items())])
    about = {
        **{name: row[name] for name in ("launcher", "case", "dtype")},
        "kernel": blocks if name == row["launcher"] else f"{name}, {blocks}",
        "warps": row["num_warps"],
        "registers": row["registers"],
    }
    spills = (row["spill_store_bytes"] or 0) + (row["spill_load_bytes"] or 0)
    verdict, at_once, limit = "does not fit" if row["error"] else "fits", None, None
    if not row["error"]:
        at_once, limit = programs_at_once(
            target, row["registers"], row["num_warps"], row["shared_bytes"]
        )
        verdict = "does not fit" if not at_once else "spills" if spills else "fits"
    elif row["shared_bytes"] is None:
        verdict = "does not compile"
    return about | {
        "spills": None if row["registers"] is None else f"{spills} bytes" if spills else "none",
        "shared memory": _kib(row["shared_bytes"], ARCHITECTURES[target].shared_block),
        "at once": at_once,
        "limit": limit,
        "tensor cores": row["tensor_core"],
        "verdict": verdict,
        "reason": row["error"],
    }


def _kib(size, limit):
    """Bytes of shared memory, and their part of what a program may have."""
    if size is None:
        return None
    return f"{binary(size)}, {share(size, limit)}" if size else "none"


def _dtypes(launcher, rows):
    """The dtypes of which some call is taken and fits, as a cell: "all", "float16, float32"."""
    taken = []
    for dtype in DTYPES:
        mine = [r for r in rows if (r["launcher"], r["dtype"]) == (launcher, dtype)]
        cases = {case: [r for r in mine if r["case"] == case] for case in {r["case"] for r in mine}}
        if any(all(r["verdict"] in ("fits", "spills") for r in case) for case in cases.values()):
            taken.append(dtype)
    return "all" if len(taken) == len(DTYPES) else ", ".join(taken) or "none"


def _known(value):
    return "not stated" if value is None else plain(value)


def _limits(card):
    """(head of a table's column, words where there is room, value) of all that a card has."""
    limits = ARCHITECTURES[card.target]
    return [
        ("capability", "capability", card.capability),
        ("multi-processors", "multiprocessors", _known(card.multiprocessors)),
        ("registers", "registers per multiprocessor", thousands(limits.registers)),
        ("threads", "threads of each, at most", thousands(limits.warps * limits.lanes)),
        ("KiB shared", "KiB of shared memory of each", kib.scale([]).number(limits.shared_sm)),
        ("a program", "KiB of that per program", kib.scale([]).number(limits.shared_block)),
        ("GB", "GB of memory", _known(card.memory_gb)),
        ("GB/s", "GB/s from memory", _known(card.gb_per_s)),
        ("TFLOP/s, 16 bits", "TFLOP/s, 16 bits, tensor cores", _known(card.tensor_tflops)),
        ("TFLOP/s, float32", "TFLOP/s, float32, no tensor cores", _known(card.fp32_tflops)),
    ]


def _sources():
    """A list, one line for each column or card."""
    lines = [
        f"- Registers, shared memory, threads: [{CUDA_GUIDE[0]}]({CUDA_GUIDE[1]}), "
        f"and [{CUDA_TRAITS[0]}]({CUDA_TRAITS[1]}); for the MI300X "
        f"[{AMD_SPECIFICATIONS[0]}]({AMD_SPECIFICATIONS[1]}) and [{LLVM[0]}]({LLVM[1]}).",
    ]
    for card in CARDS:
        links = " and ".join(f"[{text}]({address})" for text, address in card.sources)
        lines.append(f"- {card.name}: {links}.")
    return "\n".join(lines)


def _unable(rows):
    return {r["launcher"] for r in rows if r["refused"] or r.get("error")}


def _wide(row):
    """Whether a call is of more than 128 columns: "1024 keys, D 256, causal"."""
    return " D 256" in row["case"]


def _refused_altogether(rows):
    """The launchers of which no call is taken."""
    return {r["launcher"] for r in rows} - {r["launcher"] for r in rows if not r["refused"]}


def _instructions(rows):
    """What a card's float16 flash kernels multiply with."""
    mine = [r for r in rows if (r["launcher"], r["dtype"]) == ("flash_attention", "float16")]
    return {r["tensor_core"] for r in mine if r["kernel"]}


def tritons(results):
    by_target = {r.folder.removeprefix("compiler/"): r.rows for r in results}
    every = [row for rows in by_target.values() for row in rows]
    refusing = [row for row in every if row["error"]]
    versions = [*dict.fromkeys(row["triton"] for row in every)]
    return Figure(
        finding=f"Triton {listed(versions)}: "
        + (
            f"{many(len(refusing), 'compilation')} of {len(every)} failed."
            if refusing
            else f"each compiles all {len({(r['module'], r['kernel']) for r in every})} kernels."
        ),
        caption="Kernels that each version compiles, in one typical configuration each; those for "
        "Hopper are compiled for it alone. Nothing ran.",
        table=[
            {
                "Triton": version,
                **{
                    _cards_of(target): _compiled([r for r in rows if r["triton"] == version])
                    for target, rows in by_target.items()
                },
            }
            for version in versions
        ],
        open_table=True,
    )


def _compiled(rows):
    """How many of them were compiled, and the names of the others."""
    refused = [f"{r['module']}: {r['kernel']}" for r in rows if r["error"]]
    return "; ".join([f"{len(rows) - len(refused)} of {len(rows)}", *refused])


def excerpts(rows):
    return Figure(
        finding=f"{len(rows)} points of {len({r['post'] for r in rows})} posts, each found in the "
        "compiled kernel below the line of Python that made it.",
        table=[
            {
                "post": r["post"],
                "what to see": r["claim"],
                "Python": _on_one_line(r["python"].partition("  #")[0]),
                "first instruction": r["lines"][0],
                "of them": r["instructions"],
                "in": r["language"],
            }
            for r in rows
        ],
        numbers={"points": len(rows)},
        pieces={r["post"]: _excerpt(r) for r in rows if r["post"] in EXCERPTS},
    )


def _on_one_line(python):
    return " ".join(python.split()).replace("( ", "(").replace(" )", ")")


def _excerpt(row):
    """The claim, the line, and the instructions, as Markdown."""
    number = row["instructions"]
    found = many(number, "such instruction") if number > 1 else "One instruction"
    claim = html.escape(row["claim"][0].upper() + row["claim"][1:])
    lines = [" ".join(line.split()) for line in row["lines"]]
    return "\n".join(
        [
            f"{claim}. {found} in {row['language']} for {row['dtype']}, from this line:",
            "",
            "```python",
            row["python"],
            "```",
            "",
            "```text",
            *lines,
            *["…"] * (row["instructions"] > len(lines)),
            "```",
        ]
    )
