"""The figures of the page about other cards: each draws the result of the same name."""

import html
from collections import Counter

from snippets._lab.draw.figure import Figure
from snippets._lab.draw.tables import table
from snippets._lab.draw.units import binary, kib, plain, share, thousands
from snippets._lab.draw.words import listed, many
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

SHOWN_FIRST = "H200"  # without a choice, and without a script
DTYPES = ("float16", "bfloat16", "float32")
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
    every = [row for rows in shown.values() for row in rows]
    verdicts = Counter(row["verdict"] for row in every)
    first = next(card for card in CARDS if card.name == SHOWN_FIRST)
    fallback = [{name: row[name] for name in STATIC} for row in shown[first.target]]
    return Figure(
        finding=f"{len(every) - verdicts['refused']} kernels compiled for {len(shown)} kinds of "
        f"GPU: {verdicts['fits']} fit in registers and shared memory, {verdicts['spills']} spill, "
        f"{verdicts['does not fit']} do not fit; {verdicts['refused']} calls are refused by their "
        "launcher.",
        caption="Which dtypes a launcher takes on which card: at least one of its calls is not "
        "refused there and its kernels compile and fit. Nothing ran. Registers and spills are the "
        "compiler's word, for one thread; shared memory is for one program.",
        table=[
            {
                "launcher": launcher,
                **{_cards_of(target): _dtypes(launcher, rows) for target, rows in shown.items()},
            }
            for launcher in dict.fromkeys(row["launcher"] for row in every)
        ],
        open_table=True,
        widget="\n".join(
            [
                '<div class="am-cards" data-widget="your_gpu" markdown>',
                f"[Every card's kernels](/figures/your_gpu/kernels_cards.json){{ .am-source }} "
                f"Below are those for the {first.name}; with a script you may choose another card.",
                "",
                *table(fallback),
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
        sentences={
            "limits": "\n".join(
                table([{"card": c.name, **{h: value for h, _, value in _limits(c)}} for c in CARDS])
            ),
            "sources": _sources(),
            "bfloat": _about_bfloat(by_target),
            "refused": _about_refusals(by_target),
            "spills": _about_spills(shown),
            "instruction": _about_instructions(by_target),
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
        ("registers", "registers of each", thousands(limits.registers)),
        ("threads", "threads of each, at most", thousands(limits.warps * limits.lanes)),
        ("KiB shared", "KiB of shared memory of each", kib.scale([]).number(limits.shared_sm)),
        ("a program", "KiB of that for one program", kib.scale([]).number(limits.shared_block)),
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


def _about_bfloat(by_target):
    """What refuses bfloat16, or does not compile with it, on which card."""
    said = []
    for target, rows in by_target.items():
        mine = [r for r in rows if r["dtype"] == "bfloat16"]
        able = {r["launcher"] for r in mine} - _unable(mine)
        unable = _unable(mine) - _refused_altogether(rows)
        if unable:
            names = listed([f"`{name}`" for name in sorted(unable)])
            rest = (
                f" The other {len(able)} launchers compile: Triton converts by ordinary arithmetic."
            )
            said.append(
                f"On the {_cards_of(target)}, {names} cannot take bfloat16.{rest * bool(able)}"
            )
    return " ".join(said) or "Every launcher takes bfloat16 on each of these cards."


def _unable(rows):
    return {r["launcher"] for r in rows if r["refused"] or r.get("error")}


def _refused_altogether(rows):
    """The launchers of which no call is taken."""
    return {r["launcher"] for r in rows} - {r["launcher"] for r in rows if not r["refused"]}


def _about_refusals(by_target):
    """Which launchers are for some of the cards only."""
    refusing = {}  # launcher → the cards
    for target, rows in by_target.items():
        for name in sorted(_refused_altogether(rows)):
            refusing.setdefault(name, []).append(_cards_of(target))
    said = " ".join(
        f"`{name}` refuses every call on these cards: {', '.join(cards)}."
        for name, cards in refusing.items()
    )
    return said or "No launcher refuses every call on one of these cards."


def _about_spills(shown):
    """Which kernels spill on which cards."""
    said = []
    for target, rows in shown.items():
        names = sorted({r["launcher"] for r in rows if r["verdict"] == "spills"})
        if names:
            said.append(f"{_cards_of(target)} ({listed([f'`{n}`' for n in names])})")
    return (
        f"Kernels spill on these cards: {listed(said)}."
        if said
        else "No kernel spills on any card."
    )


def _about_instructions(by_target):
    """What each card's float16 flash kernels multiply with."""
    said = []
    for target, rows in by_target.items():
        names = {
            r["tensor_core"]
            for r in rows
            if r["launcher"] == "flash_attention" and r["dtype"] == "float16" and r["kernel"]
        }
        used = sorted(names - {"none", None})
        with_what = listed([f"`{name}`" for name in used]) if used else "none on tensor cores"
        said.append(f"{_cards_of(target)}: {with_what}")
    return f"The instruction that multiplies in `flash_attention`, in float16. {'; '.join(said)}."


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
        caption="How many kernels each version compiles for a target, each in one typical "
        "configuration. Those made for Hopper are compiled for it alone. Nothing ran.",
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


def excerpts(results):
    rows = results[0].rows
    return Figure(
        finding=f"{len(rows)} points of {len({r['post'] for r in rows})} posts, each found in the "
        "compiled kernel below the line of Python that made it.",
        caption="The code of each kernel was searched for the instruction, and for none that would "
        "contradict. Triton notes beside each instruction which line it stems from. Long lists of "
        "registers are cut.",
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
        sentences={
            post: "\n\n".join(_excerpt(r) for r in rows if r["post"] == post)
            for post in dict.fromkeys(r["post"] for r in rows)
        },
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
