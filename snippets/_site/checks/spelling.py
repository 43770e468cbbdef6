"""The spelling of what is written: pages, what they include, and the files at the top."""

import re
from collections.abc import Iterable
from pathlib import Path

from snippets._lab.rooms import ROOT

WORDS = Path(__file__).with_name("words.txt")
CODE = re.compile(
    r"^( *)(```+|~~~+).*?^\1\2\s*$|<(pre|code)\b.*?</\3>|&\w+;", re.MULTILINE | re.DOTALL
)
NO_PROSE = re.compile(
    r"\A---\n.*?\n---\n|<!--.*?-->|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]+\$|^.*--8<--.*$|<[^>]*>|\{[^}]*\}"
    r"|\]\([^)]*\)|https?://\S+|^::: .*$|/[\w./-]+|\b\w+(?:[_./]\w+)+",
    re.DOTALL | re.MULTILINE,
)
WORD = re.compile(r"(?<![\w'’@#-])[A-Za-z][a-z]+(?:['’][a-z]+)?(?![\w])")


def prose(text: str) -> str:
    """Markdown without front matter, code, formulas, markup and addresses."""
    return NO_PROSE.sub(" ", CODE.sub(" ", text))


def project_words(file: Path = WORDS) -> set[str]:
    """The project's own words. Raises ValueError unless they are sorted and each is needed once."""
    lines = [x for x in file.read_text("utf-8").splitlines() if x and not x.startswith("#")]
    if lines != sorted(set(lines), key=lambda word: (word.lower(), word)):
        raise ValueError(f"{file.name} is not sorted, or has a word twice")
    return {line.lower() for line in lines}


def written(root: Path = ROOT) -> list[Path]:
    """The texts people read: pages, what they include, and the files at the top."""
    files = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return sorted(f for f in files if "vendor" not in f.parts)


def misspelt(files: Iterable[Path], own: set[str]) -> list[str]:
    """Words that neither the English list nor the project's knows, each with its first place.

    Raises ValueError where there is no text.
    """
    from spellchecker import SpellChecker

    if not (files := list(files)):
        raise ValueError("no text: nothing was checked")

    english = SpellChecker(language="en")
    places: dict[str, str] = {}
    for file in files:
        text = file.read_text("utf-8")
        if "figures" in file.parts:  # their tables are data
            text = re.sub(r"^\|.*", "", text, flags=re.MULTILINE)
        for word in WORD.findall(prose(text)):
            plain = re.sub(r"['’]s?$|['’](?:t|re|ve|ll|d|m)$", "", word).lower()
            if plain not in own and word.lower() not in own and plain not in english:
                places.setdefault(plain, file.name)
    return [f"{word} ({place})" for word, place in sorted(places.items())]
