"""The claims page: every sentence with its verdict by regime, from the results of all posts."""

from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.fragment import stale_mark
from snippets._lab.draw.tables import cell, listed, yes
from snippets._lab.draw.units import between, many, ratio, share
from snippets._lab.results.store import DataError

from .sentences import CLAIMS, cases_of, verdict

WORDS = {
    "false": "False wherever it was measured",
    "depends": "It depends",
    "true": "True wherever it was measured",
}
HOLDS = {
    "true": "wherever they were measured",
    "depends": "in some regimes only",
    "false": "in none",
}
PAGE = "docs/lab/claims.md"
FLASH, GRADIENT, CORES, STRIDE = (
    "flash_attention_is_two_to_four_times_faster",
    "softmax_without_scaling_has_small_gradients",
    "tensor_cores_give_eight_times",
    "a_stride_of_two_halves_the_efficiency",
)
RANGES = {  # what the page's table names: of a sentence, the cases that …
    "flash": (FLASH, lambda c: c.holds, ratio),
    "flash_short": (FLASH, lambda c: not c.holds, ratio),
    "gradient": (GRADIENT, lambda c: c.holds, ratio),
    "cores": (CORES, lambda c: c.holds, ratio),
    "cores_small": (CORES, lambda c: not c.holds, ratio),
    "stride": (STRIDE, lambda c: "clone" not in c.regime, share),
    "stride_clone": (STRIDE, lambda c: "clone" in c.regime, share),
    "cudnn": ("cudnn_is_up_to_three_quarters_faster", lambda c: c.holds, ratio),
    "multiples": ("multiples_of_sixteen_bytes_are_more_efficient", lambda c: c.holds, ratio),
}
PROSE = (  # words of the page's table, and what they say of each case
    ("attention_is_memory_bound", "nearer to the memory's ceiling", lambda c: c.value > 1),
    (FLASH, "from 512 keys on", lambda c: c.holds == (_last(c) >= 512)),
    (GRADIENT, "larger up to 128 columns", lambda c: (c.value > 1) == (_last(c) <= 128)),
    (CORES, "as fast at N 512", lambda c: c.holds != c.regime.endswith("N 512")),
)


@from_all
def claims(results):
    judged = {name: [(r, cases_of(name, r)) for r in _measured(name, results)] for name in CLAIMS}
    groups = {word: [] for word in WORDS}
    for name, found in judged.items():
        groups[verdict([c for _, cases in found for c in cases])].append(name)
    used = {(r.folder, r.post, r.result): r for found in judged.values() for r, _ in found}
    counts = {word: len(names) for word, names in groups.items()}
    first = {name: found[0][1] for name, found in judged.items()}  # on the reference device
    return Figure(
        finding=f"Of {len(judged)} popular sentences "
        + listed(f"{_hold(counts[word])} {where}" for word, where in HOLDS.items() if counts[word])
        + ".",
        caption="A verdict names the first and the last regime of each kind; the data has all. "
        "More than a sentence promises counts as true.",
        table=[
            {
                "claim": name,
                "device": r.label,
                "regime": c.regime,
                "measured": c.measured,
                "holds": yes(c.holds),
            }
            for name, found in judged.items()
            for r, cases in found
            for c in cases
        ],
        widget="\n\n".join(
            [
                "<div markdown>",
                *(_entry(name, judged[name]) for names in groups.values() for name in names),
                "</div>",
            ]
        ),
        sources=tuple(used.values()),
        numbers={
            short: between((c.value for c in first[name] if wanted(c)), text)
            for short, (name, wanted, text) in RANGES.items()
        },
        claims={
            f"docs/index.md: [{said}](lab/claims.md#{name})": name in groups[word]
            for name, word, said in (
                ("attention_is_memory_bound", "depends", WORDS["depends"]),
                ("softmax_without_scaling_has_small_gradients", "depends", WORDS["depends"]),
                ("memory_is_linear_instead_of_quadratic", "true", WORDS["true"]),
                ("a_launch_takes_microseconds", "true", WORDS["true"]),
            )
        }
        | {  # with another verdict the words are others, and the page lacks them
            f"{PAGE}: [{CLAIMS[name].sentence}](#{name})”** | {word.capitalize()}": True
            for word, names in groups.items()
            for name in names
        }
        | {f"{PAGE}: {words}": all(map(holds, first[name])) for name, words, holds in PROSE},
    )


def _hold(number):
    return many(number, "holds", "hold")


def _measured(name, results):
    """The results that decide a claim: those of GPUs if there are any, else the interpreter's."""
    claim = CLAIMS[name]
    found = [r for r in results if (r.post, r.result) == (claim.post, claim.result)]
    chosen = [r for r in found if r.place == "gpu"] or [r for r in found if r.place != "compiler"]
    if not chosen:
        raise DataError(f"claim {name} has no data: {claim.post}/{claim.result} is not measured")
    return chosen


def _last(case):
    """The number that a regime ends with: its length or its width."""
    return int(case.regime.split()[-1])


def _entry(name, found):
    """One sentence: its anchor, verdict, reading, measurement and regimes."""
    claim = CLAIMS[name]
    lines = [f"### {claim.sentence} {{ #{name} }}", ""]
    for result, cases in found:
        device = f" on {cell(result.label)}" if len(found) > 1 else ""
        said = f"**{WORDS[verdict(cases)]}{device}:** {_by_regime(cases)}"
        lines += [said + stale_mark(result), ""]
    measured = ", ".join(f"{cell(r.label)}, {r.date}" for r, _ in found)
    figure = f"/posts/{claim.post}.md#figure-{claim.post}-{claim.result}"
    title = claim.post.replace("_", " ")
    lines += [
        f"*Who says so:* {_said(claim.said)}",
        "",
        f"*Read here as:* {claim.read_as}",
        "",
        f"*Measured:* [the figure in *{title}*]({figure}), {measured}.",
    ]
    return "\n".join(lines)


def _said(source):
    """Who says it, with a link to where it stands and the few words that stand there."""
    of = f" It speaks of {source.about}." if source.about else ""
    return f"{source.who}, [{source.title}]({source.address}): “{source.words}”.{of}"


def _by_regime(cases):
    """ "true for …; false for …", the first and the last of each kind."""
    parts = []
    for holds, word in ((True, "true"), (False, "false")):
        chosen = [c for c in cases if c.holds is holds]
        if chosen:
            ends = [chosen[0], *chosen[1:][-1:]]
            shown = [f"{cell(c.regime)} ({cell(c.measured)})" for c in ends]
            more = f", and in {len(chosen) - len(shown)} more" if len(chosen) > len(shown) else ""
            parts.append((word, f"{'; '.join(shown)}{more}"))
    if len(parts) == 1:  # the verdict has said it
        return f"{parts[0][1]}."
    return "; ".join(f"*{word}* for {text}" for word, text in parts) + "."
