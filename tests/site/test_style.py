"""Phrases that stopped readers: pages do not use them again. Beside each: what to write instead."""

import functools
import re

import pytest

from snippets._lab.rooms import ROOT
from tests.floors import some

STOPS_A_READER = {
    # Carried over from another language.
    r"in (?:the|its|their) places? of": "instead of",
    r"behind the (?:last|end)|(?:lies?|lying|follows?) behind": "past",
    r"half as (?:long|much|large|many) again": "grows by half",
    r"the (?:one|ones|post|kernel|tile|row|load) before(?! (?:the|it|that))": "previous",
    r"the other way (?:round|about)": "the other way around, or: reversed",
    r"hand(?:s|ed|ing)? over|hands? to each other": "pass, launch, allocate",
    r"hardly any(?:body|time)|needs? hardly": "say how much",
    r"whoever (?!is there)|those who|he who": "name the actor: the program, the caller",
    r"wants? its (?:numbers|keys|rows|operands)": "requires",
    r"(?:every|no|some)body (?:waits?|works?|arranges|reads?|copies|is idle)": "name the warp",
    r"held against|hold(?:s|ing)? (?:\w+ ){1,3}against": "compared with",
    r"(?:is|are|be|was) (?:still )?on (?:its|their) way|under way": "in flight, running",
    r"(?:taken|takes?|taking) back": "undone, reverted",
    r"the fewest (?:that|which)|the least that": "minimum",
    r"side by side in memory|lies? (?:in memory|apart|in order|beside)": "is stored",
    r"(?:lie|lies|lying|lay) (?:idle|there|around)": "is idle, is stored",
    r"sets? (?:\w+ ){1,3}right": "corrects",
    r"(?:gives?|gave|give) (?:nothing|the same) back": "returns",
    r"(?:is|are) (?:at hand|to hand)": "available",
    r"whatever the (?:dtype|length|mask)": "for every dtype",
    r"what (?:it|they|this|that) brings?|brings? with it": "what it gains",
    r"up to the compiler": "depends on the compiler",
    r"asked to|when it is asked": "on request",
    r"sends? everybody off|who(?:ever)? (?:is missing|listens|copies|launches)": "name it",
    r"there is nothing to \w+ (?:any )?more": "say what is gone",
    r"mind (?:an?|the|that|keys|weights|rows)": "watch out for",
    r"per cent": "percent",
    r"(?:as|than) an? \w+ (?:needs|wants|takes) that": "a model that predicts … needs",
    r"deviates? by": "has a standard deviation of",
    r"(?:cores?|lanes?|threads?|kernels?|products?|TMA|compilers?|units?) wants?": "needs",
    r"becomes? (?:more|fewer)": "there are more, there are fewer",
    r"no upper end": "it keeps growing",
    r"allows? to": "allows, and the -ing form",
    r"(?:leaves?|left|leaving) (?:it|them) lying|lying": "is stored, stays",
    r"what (?:gives|makes up|carries) (?:this|that|the)": "name it",
    r"counts? as over": "is complete",
    r"none of the numbers of": "no number of",
    r"(?:stands?|stood) in (?:its|their|the) place": "takes over, or: instead",
    r"(?:it|they|this|that|which) (?:is|are|was) no (?!longer|more|less|other)": "isn't a",
    # Riddles: a thing is announced without being said.
    r"remember this line|it comes back|look what|hear what": "say the thing",
    r"upside down": "inverted",
    r"clever enough": "say what it pays",
    # A unit, not an article.
    r"(?:bytes|cycles|elements|FLOPs?|instructions|registers|sectors|tiles|warps) an? "
    r"(?:call|core|element|head|iteration|key|lane|query|request|row|step|thread|warp)": "per",
}
NO_PROSE = re.compile(
    r"\A---\n.*?\n---\n|^( *)```.*?^\1```|<(pre|code|style)\b.*?</\2>|<!--.*?-->|`[^`\n]*`"
    r"|\$\$[^$]*\$\$|\$[^$\n]+\$|^[^\n]*--8<--[^\n]*|<[^<>]*>|\{[^{}\n]*\}|\]\([^()\s]*\)",
    re.MULTILINE | re.DOTALL,
)


@functools.cache
def texts():
    """Pages, the texts at the top and what rooms say, by path."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("snippets/*/*.md")]
    found += [p for p in (ROOT / "docs").rglob("*.md") if p.parts[-3] != "figures"]
    return {path: path.read_text("utf-8") for path in found if "vendor" not in path.parts}


@functools.cache
def prose():
    return {p.as_posix(): " ".join(NO_PROSE.sub(" ", text).split()) for p, text in texts().items()}


@pytest.mark.parametrize("phrase", STOPS_A_READER)
def test_no_page_has_a_phrase_that_stops_a_reader(phrase):
    pattern = re.compile(rf"\b(?:{phrase})\b", re.IGNORECASE)
    found = [
        f"{p}: {m[0]}" for p, text in some(prose(), 30).items() for m in pattern.finditer(text)
    ]
    assert not found, f"write: {STOPS_A_READER[phrase]}: {found}"


def test_a_heading_says_what_is_learned_and_prose_is_calm():
    asks = re.compile(r"^#{2,4} (?!Exercise)[^{\n]*\?\s*(?:\{.*\})?$", re.MULTILINE)
    loud = re.compile(r"\w+!(?![=\[])|[\U0001f300-\U0001faff]")
    said = {path: NO_PROSE.sub(" ", text) for path, text in some(texts(), 30).items()}
    found = [
        asks.findall(text) + loud.findall(prose)
        for text, prose in zip(texts().values(), said.values(), strict=True)
    ]
    assert not [x for x in found if x]
