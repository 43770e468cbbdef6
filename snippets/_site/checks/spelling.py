"""The spelling of what is written: pages, what they include, notebooks, and what the files that
readers copy say in docstrings, comments and errors.

What is no prose (code, formulas, markup, addresses) is taken out by patterns, and a pattern can
take too much. Each text is therefore also gone through line by line, and one of whose words too few
were read is an error.
"""

import ast
import functools
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from snippets._lab.rooms import ROOT
from snippets._site.checks import TooLittle
from snippets._site.published import NAMES

AT_THE_TOP = ("README.md", "CONTRIBUTING.md")
WORDS = Path(__file__).with_name("words.txt")
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
FENCED = re.compile(r"^( *)(```+|~~~+).*?^\1\2[^\S\n]*$", re.MULTILINE | re.DOTALL)
ELEMENT = re.compile(r"<(pre|code|style)\b.*?</\1>|<!--.*?-->|&#?\w+;", re.DOTALL)
# Each of these ends with its line or with the mark that began it.
NO_PROSE = re.compile(
    r"``[^\n]*?``|`[^`\n]*`|\$\$[^$]*\$\$|\$[^$\n]+\$|^[^\n]*--8<--[^\n]*$|<[^<>]*>|\{[^{}\n]*\}"
    r"|\]\([^()\s]*\)|https?://\S+|^::: [^\n]*$|/[\w./-]+|\b\w+(?:[_./]\w+)+",
    re.MULTILINE,
)
ONE_LINE = re.compile(
    r"^[^\n]*--8<--.*|^(?:::: |\||---).*|<(?:style|code)\b.*?</(?:style|code)>|<[^<>]*>"
    r"|`[^`]*`|\]\([^()\s]*\)|\{ \.am-[^{}]*\}"
)
WORD = re.compile(r"(?<![\w'’@#-])[A-Za-z][a-z]+(?:['’][a-z]+)?(?![\w])")
# Of the words outside front matter, code and tables so many are prose, at least.
SHARE = 0.8
SHORT = 25  # words: of fewer than these one formula may be the larger part
A_FILE = 20  # words that a file which readers copy says, at least
TEXTS, ALL_WORDS = 150, 35_000  # that the project has, at least


class Reading(NamedTuple):
    """What was read of one text: its words of prose, and how many words there are."""

    words: list[str]
    of: int

    def whole(self) -> bool:
        return self.of < SHORT or len(self.words) >= SHARE * self.of


def prose(text: str) -> str:
    """Markdown without front matter, code, formulas, markup and addresses."""
    return NO_PROSE.sub(" ", without_blocks(text))


def without_blocks(text: str) -> str:
    return ELEMENT.sub(" ", FENCED.sub(" ", FRONT_MATTER.sub("", text)))


def _lines(text: str) -> Iterator[str]:
    """The lines outside front matter and code; no pattern reaches beyond a line here."""
    lines = text.splitlines()
    begin = lines.index("---", 1) + 1 if lines[:1] == ["---"] else 0
    fence, listing = "", False
    for line in lines[begin:]:
        mark = line.strip()[:3]
        listing = listing or "<pre" in line
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        elif not fence and not listing:
            yield ONE_LINE.sub(" ", line)
        listing = listing and "</pre>" not in line


def spoken(source: str) -> str:
    """What a Python file says to people: docstrings, comments, and the words of its errors."""
    lines: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            lines.append(ast.get_docstring(node) or "")
        elif isinstance(node, ast.Raise) and node.exc is not None:
            lines.append(" ".join(_strings(node.exc)))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "--8<--" not in token.string:
            lines.append(re.sub(r"#\s*(?:noqa|fmt|type):.*|\[[^\]]*\]", "", token.string))
    return "\n\n".join(lines)


def _strings(node: ast.AST) -> Iterator[str]:
    """The literal parts of an expression's strings, in order."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _strings(child)


def text_of(file: Path) -> str:
    """What a file says to people. Raises TooLittle where a file that readers copy says nothing."""
    text = file.read_text("utf-8")
    if file.suffix == ".py":
        text = spoken(text)
        if len(WORD.findall(text)) < A_FILE:
            raise TooLittle(f"{file}: hardly a word is said there: nothing was checked")
    elif file.suffix == ".ipynb":
        cells: list[dict[str, Any]] = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    elif "figures" in file.parts:  # their tables are data
        text = re.sub(r"^\|[^\n]*", "", text, flags=re.MULTILINE)
    return text


def reading(file: Path) -> Reading:
    """The words of a file's prose. Raises TooLittle where a file that readers copy says nothing."""
    text = text_of(file)
    return Reading(WORD.findall(prose(text)), sum(len(WORD.findall(x)) for x in _lines(text)))


def project_words(file: Path = WORDS) -> set[str]:
    """The project's own words. Raises ValueError unless they are sorted and each is needed once."""
    lines = [x for x in file.read_text("utf-8").splitlines() if x and not x.startswith("#")]
    if lines != sorted(set(lines), key=lambda word: (word.lower(), word)):
        raise ValueError(f"{file.name} is not sorted, or has a word twice")
    return {line.lower() for line in lines}


def written(root: Path = ROOT) -> list[Path]:
    """The texts people read: pages and what they include, notebooks, the files at the top, and what
    is published of the rooms.
    """
    docs = root / "docs"
    files = [
        *(root / name for name in AT_THE_TOP),
        *docs.rglob("*.md"),
        *docs.glob("notebooks/*.ipynb"),
    ]
    files += [p for p in (root / "snippets").glob("[!_]*/*.py") if p.name in NAMES]
    return sorted(f for f in files if "vendor" not in f.parts)


@functools.cache
def _english() -> Any:
    from spellchecker import SpellChecker

    return SpellChecker(language="en")


def misspelled(files: Iterable[Path], own: set[str]) -> tuple[list[str], int]:
    """Words that neither the English list nor the project's knows, each with its first place; and
    how many words were read.

    Raises TooLittle where there is no text, or where too little of one was read.
    """
    if not (files := list(files)):
        raise TooLittle("no text: nothing was checked")
    english = _english()
    places: dict[str, str] = {}
    read = 0
    for file in files:
        found = reading(file)
        if not found.whole():
            raise TooLittle(f"{file}: {len(found.words)} of {found.of} words were read")
        read += len(found.words)
        for word in found.words:
            plain = re.sub(r"['’]s?$|['’](?:t|re|ve|ll|d|m)$", "", word).lower()
            if plain not in own and word.lower() not in own and plain not in english:
                places.setdefault(plain, "/".join(file.parts[-2:]))
    return [f"{word} ({place})" for word, place in sorted(places.items())], read
