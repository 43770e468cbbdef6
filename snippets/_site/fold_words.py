"""What a folded file says: comments and docstrings without the clauses that name what is gone."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Sequence, Set

WIDTH = 98
PARAGRAPH = re.compile(r"(?=\n\n)|(?<=s:)(?=\n)|(?=\n {8}\w[\w, ]*: )")  # its parts begin there


def worded(text: str, gone: Set[str], words: Sequence[str]) -> str:
    """A file without the clauses that name one of these names or words."""
    listed = [*words, *(x for x in gone if len(x) > 1 and (x.upper() == x or "_" in x))]
    if not listed:
        return text
    names = "|".join(map(re.escape, sorted(listed)))
    said = functools.partial(_said, re.compile(rf"(?<![\w.])(?:{names})(?!\w)"))

    def docstring(found: re.Match[str]) -> str:
        parts: list[str] = []
        for part in PARAGRAPH.split(found[2].rstrip()):
            flat = " ".join(part.split())
            entry = re.match(r"\n {8}(\w+(?:, \w+)*): ", part)
            left = "" if entry and gone >= {*entry[1].split(", ")} else said(flat)
            indent = part[: len(part) - len(part.lstrip())]
            after = indent.strip("\n") + "    " * bool(entry) if indent else found[1]
            width = WIDTH if indent else WIDTH - 8  # the quotes stand there
            filled = textwrap.fill(left, width, initial_indent=indent, subsequent_indent=after)
            parts.append(part if left == flat else filled)
        whole = re.sub(r"\n\n +\w+:(?=\n\n|$)", "", "".join(parts)).strip()
        if "\n" not in whole and len(whole) > WIDTH - 8:
            whole = textwrap.fill(whole, WIDTH - 8, subsequent_indent=found[1])
        end = f"\n{found[1]}" if "\n" in whole else ""
        return f'{found[1]}"""{whole}{end}"""\n' if whole else ""

    def above(found: re.Match[str]) -> str:
        text = " ".join(x.strip("# ") for x in found[0].splitlines())
        lines = textwrap.wrap(said(text), WIDTH - len(found[1]))
        return found[0] if said(text) == text else "".join(f"{found[1]}# {x}\n" for x in lines)

    def beside(found: re.Match[str]) -> str:
        return f"  # {left}" if (left := said(found[1])) else ""

    text = re.sub(r'^( *)"""(.*?)"""\n', docstring, text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^( *)# .*\n(?:\1# .*\n)*", above, text, flags=re.MULTILINE)
    return re.sub(r"(?<=\S)  # (.*)$", beside, text, flags=re.MULTILINE)


def _said(names: re.Pattern[str], text: str) -> str:
    """What is left of a comment."""
    clauses = re.split(r"(?<=;)\s+|(?<=\.)\s+(?=[A-Z`])", text)
    left = [x for x in clauses if not names.search(x)]
    if len(left) == len(clauses):
        return text
    found = " ".join(left).removesuffix(";")
    if clauses[-1].endswith("."):
        found = re.sub(r";(?= [A-Z])|(?<=[^.])$", ".", found) if found else ""
        found = re.sub(r"(?<=\. )[a-z]", lambda x: x[0].upper(), found)
    return found[:1].upper() + found[1:] if text[:1].isupper() else found
