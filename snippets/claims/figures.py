"""The claims page: every sentence with its verdict by regime, from the results of all posts."""

from snippets._lab.draw.figure import Figure, from_all
from snippets._lab.draw.fragment import stale_mark
from snippets._lab.draw.tables import cell, listed, yes
from snippets._lab.draw.units import many
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


@from_all
def claims(results):
    judged = {name: [(r, cases_of(name, r)) for r in _measured(name, results)] for name in CLAIMS}
    groups = {word: [] for word in WORDS}
    for name, found in judged.items():
        groups[verdict([c for _, cases in found for c in cases])].append(name)
    used = {(r.folder, r.post, r.result): r for found in judged.values() for r, _ in found}
    counts = {word: len(names) for word, names in groups.items()}
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
                _index(groups),
                *(_entry(name, judged[name]) for names in groups.values() for name in names),
                "</div>",
            ]
        ),
        sources=tuple(used.values()),
        claims={
            f"docs/index.md: [{said}](lab/claims.md#{name})": name in groups[word]
            for name, word, said in (
                ("attention_is_memory_bound", "depends", WORDS["depends"]),
                ("memory_is_linear_instead_of_quadratic", "true", WORDS["true"]),
            )
        },
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


def _index(groups):
    """Links to the sentences, by verdict."""
    lines = []
    for word, names in groups.items():
        if names:
            lines += [f"{WORDS[word]} ({len(names)}):", ""]
            lines += [f"- [{CLAIMS[name].sentence}](#{name})" for name in names] + [""]
    return "\n".join(lines).strip()


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
