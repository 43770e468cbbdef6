"""The style of what is written: phrases that readers stumbled over, with what to write instead, and
terms that are used before a post defines them.

Phrases and terms fail the check. Sentence length and passives are a report: `make style`.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from snippets._lab.rooms import ROOT
from snippets._site.checks import spelling

COUNTED = (
    "bytes|columns|cycles|elements|exponentials|FLOPs?|instructions|operations|queries|registers"
    "|sectors|shuffles|stack|threads|tiles|warps|words"
)
EACH = (
    "byte|call|cell|column|component|core|cycle|element|exponential|group|head|iteration|key|lane"
    "|launch|line|mark|multiprocessor|number|page|post|processor|program|query|request|row|score"
    "|sector|step|thread|tile|token|warp|warpgroup"
)


class Phrase(NamedTuple):
    """A pattern that prose must not match, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


def _phrase(pattern: str, instead: str) -> Phrase:
    return Phrase(re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE), instead)


PHRASES = [
    # Carried over from another language.
    _phrase(r"in (?:the|its|their) places? of", "instead of"),
    _phrase(r"behind the (?:last|end)|(?:lies?|lying|follows?) behind", "past"),
    _phrase(r"half as (?:long|much|large|many) again", "grows by half"),
    _phrase(r"the (?:one|ones|post|kernel|tile|row|load) before(?! (?:the|it|that))", "previous"),
    _phrase(r"the other way round|the other way about", "the other way around, or: reversed"),
    _phrase(r"hand(?:s|ed|ing)? over|hands? to each other", "pass, launch, allocate"),
    _phrase(r"hardly any(?:body|time)|needs? hardly", "say how much"),
    _phrase(r"whoever (?!is there)|those who|he who", "name the actor: the program, the caller"),
    _phrase(r"wants? its (?:numbers|keys|rows|operands)", "requires"),
    _phrase(
        r"(?:everybody|nobody|somebody) (?:waits?|works?|arranges|reads?|copies|is idle)",
        "name the warp, thread or program",
    ),
    _phrase(r"held against|hold(?:s|ing)? (?:\w+ ){1,3}against", "compared with"),
    _phrase(r"(?:is|are|be|was) (?:still )?on (?:its|their) way", "in flight"),
    _phrase(r"under way", "in flight, or: running"),
    _phrase(r"(?:taken|takes?|taking) back", "undone, reverted"),
    _phrase(r"the fewest (?:that|which)|the least that", "minimum"),
    _phrase(r"side by side in memory|lies? (?:in memory|apart|in order|beside)", "is stored"),
    _phrase(r"(?:lie|lies|lying|lay) (?:idle|there|around)", "is idle, is stored"),
    _phrase(r"sets? (?:\w+ ){1,3}right", "corrects"),
    _phrase(r"(?:gives?|gave|give) (?:nothing|the same) back", "returns"),
    _phrase(r"(?:is|are) (?:at hand|to hand)", "available"),
    _phrase(r"whatever the (?:dtype|length|mask)", "for every dtype"),
    _phrase(
        r"what that brings|what (?:it|they|this|that) brings?|brings? with it", "what it gains"
    ),
    _phrase(r"up to the compiler", "depends on the compiler"),
    _phrase(r"asked to|when it is asked", "on request"),
    _phrase(r"sends? everybody off|who(?:ever)? (?:is missing|listens|copies|launches)", "name it"),
    _phrase(r"there is nothing to \w+ (?:any )?more", "say what is gone"),
    _phrase(r"mind (?:an?|the|that|keys|weights|rows)", "watch out for"),
    _phrase(r"per cent", "percent"),
    _phrase(r"(?:as|than) an? \w+ (?:needs|wants|takes) that", "a model that predicts … needs"),
    _phrase(r"deviates? by", "has a standard deviation of"),
    _phrase(
        r"(?:cores?|lanes?|threads?|kernels?|products?|TMA|compilers?|units?|cooks?) wants?",
        "needs",
    ),
    _phrase(r"becomes? (?:more|fewer)", "there are more, there are fewer"),
    _phrase(r"no upper end", "it keeps growing"),
    _phrase(r"allows? to", "allows, and the -ing form"),
    _phrase(r"(?:leaves?|left|leaving) (?:it|them) lying|lying", "is stored, stays"),
    _phrase(r"what (?:gives|makes up|carries) (?:this|that|the)", "name it"),
    _phrase(r"counts? as over", "is complete"),
    _phrase(r"none of the numbers of", "no number of"),
    _phrase(r"(?:stands?|stood) in (?:its|their|the) place", "takes over, or: instead"),
    _phrase(r"(?:it|they|this|that|which) (?:is|are|was) no (?!longer|more|less|other)", "isn't a"),
    # Riddles: a thing is announced without being said.
    _phrase(r"remember this line|it comes back|look what|hear what", "say the thing"),
    _phrase(r"worst at 0(?= %)", "leave out what costs nothing"),
    _phrase(r"upside down", "inverted"),
    _phrase(r"clever enough", "say what it pays"),
    # "registers a thread": a unit, not an article.
    _phrase(rf"(?:{COUNTED}) an? (?:{EACH})", "per"),
]
QUESTION = re.compile(r"^#{2,4} (?!Exercise)(?P<title>[^{\n]*\?)\s*(?:\{.*\})?$", re.MULTILINE)

# What a post defines where the series first uses it: emphasized, in that paragraph.
TERMS = {
    "warp": r"warps?",
    "lane": r"lanes?",
    "sector": r"sectors?",
    "coalescing": r"coalesc\w+",
    "causal mask": r"causal masks?",
    "arithmetic intensity": r"arithmetic intensity",
    "occupancy": r"occupancy",
    "latency": r"latency",
    "wave quantization": r"wave quantization",
    "persistent kernel": r"persistent(?: kernels?)?",
    "shuffle": r"shuffles?",
    "spill": r"spill(?:s|ed)?",
    "logsumexp": r"logsumexp",
    "mbarrier": r"mbarriers?",
    "warpgroup": r"warpgroups?",
    "swizzle": r"swizzl\w+",
    "bank conflict": r"bank conflicts?",
    "grouped-query attention": r"grouped-query attention",
    "descriptor": r"descriptors?",
    "ping-pong scheduling": r"ping-pong(?: scheduling)?",
    "CUDA graph": r"CUDA graphs?",
    "broadcasting": r"broadcasts?|broadcasting",
    "autotuning": r"autotun\w+",
}
TEXTS = 60  # that the project has, at least
LONG = 34  # words of a sentence that a reader takes in at once
PASSIVE = re.compile(r"\b(?:is|are|was|were|be|been|being) (?:\w+ly )?\w+(?:ed|en)\b")


class Fault(NamedTuple):
    """What is wrong in a text, and what to do."""

    where: str
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.where}: “{self.found}”: {self.instead}"


def phrases(text: str, where: str = "") -> list[Fault]:
    """The phrases of a Markdown text that the list knows, and headings that ask."""
    said = " ".join(spelling.prose(text).split())
    found = [
        Fault(where, match[0], f"write: {phrase.instead}")
        for phrase in PHRASES
        for match in phrase.pattern.finditer(said)
    ]
    for match in QUESTION.finditer(spelling.without_blocks(text)):
        found.append(Fault(where, match["title"], "a heading says what is learned"))
    return found


def paragraphs(page: Path, root: Path = ROOT) -> Iterable[str]:
    """The paragraphs of a page as read by default: what is folded is left out, includes are in."""
    text = spelling.without_blocks(page.read_text("utf-8"))
    text = re.sub(
        r'^--8<-- "(docs/figures/[^":]+):(\w+)"$', lambda m: _said(root, m), text, flags=re.M
    )
    text = re.sub(r"^(?:\?\?\?|!!!)[^\n]*\n(?:(?: {4}[^\n]*)?\n)*", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"^(?:#|\||<).*$", "", text, flags=re.MULTILINE)
    return [x for x in re.split(r"\n\s*\n", text) if x.strip()]


def _said(root: Path, match: re.Match[str]) -> str:
    file, name = root / match[1], re.escape(match[2])
    if not file.exists():
        return ""  # a GPU is to measure it
    section = re.search(rf"\[start:{name}\] -->\n(.*?)<!--", file.read_text("utf-8"), re.DOTALL)
    return section[1] if section else ""


def undefined(pages: Sequence[Path], root: Path = ROOT) -> list[Fault]:
    """Terms that the series, read in order, uses before a paragraph defines them."""
    found = []
    for term, pattern in TERMS.items():
        used = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
        defined = re.compile(rf"(?<!\*)\*{{1,2}}(?:{pattern})\*{{1,2}}", re.IGNORECASE)
        first = next(
            (
                (p, text)
                for p in pages
                for text in paragraphs(p, root)
                if used.search(spelling.prose(text)) and not text.startswith("After this post")
            ),
            None,
        )
        if first is None:
            found.append(Fault("posts", term, "no post uses it: take it from the list"))
        elif not defined.search(first[1]):
            words = " ".join(first[1].split())[:70]
            found.append(Fault(first[0].stem, term, f"define it where it is first used: {words}…"))
    return found


def in_order(root: Path = ROOT) -> list[Path]:
    """The posts in the order of the series."""
    text = (root / "mkdocs.yml").read_text("utf-8")
    nav = re.search(r"^nav:\n(?:[ -].*\n|\n)+", text, re.MULTILINE)
    assert nav, "mkdocs.yml has no nav"
    names = re.findall(r"posts/\w+\.md", nav[0])
    return [root / "docs" / name for name in names]


def report(text: str) -> tuple[int, int, int]:
    """Sentences, those that are long, and those with a passive."""
    said = " ".join(spelling.prose(text).split())
    sentences = [s for s in re.split(r"(?<=[.?:])\s+", said) if len(s.split()) > 2]
    long = sum(len(s.split()) > LONG for s in sentences)
    return len(sentences), long, sum(bool(PASSIVE.search(s)) for s in sentences)


def checked(root: Path = ROOT) -> list[Path]:
    """What the list is asked of: pages, the words of figures, notebooks, and published Python."""
    words = root.glob("snippets/*/words.md")
    figures = root / "docs" / "figures"
    return [*(f for f in spelling.written(root) if not f.is_relative_to(figures)), *sorted(words)]


def faults(root: Path = ROOT) -> tuple[list[Fault], int]:
    """All faults of the project, and in how many texts they were looked for."""
    texts = checked(root)
    found = [
        fault
        for file in texts
        for fault in phrases(spelling.text_of(file), file.relative_to(root).as_posix())
    ]
    return [*found, *undefined(in_order(root), root)], len(texts)
