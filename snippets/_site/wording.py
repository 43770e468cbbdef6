"""Comments and docstrings of a folded file, without the sentences that name what is gone."""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Sequence, Set
from typing import Any

import libcst as cst

WIDTH = 97
Kept = Callable[[str], str]


def without(tree: cst.Module, gone: Set[str], words: Sequence[str]) -> cst.Module:
    """The file, its comments without the clauses that name one of these names or words."""
    listed = [*words, *(x for x in gone if len(x) > 1 and (x.upper() == x or "_" in x))]
    if not listed:
        return tree
    names = "|".join(map(re.escape, sorted(listed)))
    kept = functools.partial(_kept, re.compile(rf"(?<![\w.])(?:{names})(?!\w)"))
    return tree.visit(_Words(gone, kept))


class _Words(cst.CSTTransformer):
    def __init__(self, gone: Set[str], kept: Kept) -> None:
        super().__init__()
        self.gone, self.kept = gone, kept

    def on_leave(self, original: Any, updated: Any) -> Any:
        for name in ("leading_lines", "lines_after_decorators", "header", "footer", "empty_lines"):
            part = getattr(updated, name, None)
            if isinstance(part, (list, tuple)) and part:
                updated = updated.with_changes(**{name: _lines(part, self.kept)})
        if isinstance(updated, cst.TrailingWhitespace) and updated.comment:
            text = self.kept(updated.comment.value.lstrip("# "))
            space = cst.SimpleWhitespace("  " if text else "")
            comment = cst.Comment(f"# {text}") if text else None
            return updated.with_changes(comment=comment, whitespace=space)
        match updated:
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString(value=text))]):
                left = _docstring(text, self.gone, self.kept)
                if not left:
                    return cst.RemoveFromParent()
                return updated.with_deep_changes(updated.body[0].value, value=left)
        return updated


def _kept(names: re.Pattern[str], text: str) -> str:
    clauses = re.split(r"(?<=;)\s+|(?<=\.)\s+(?=[A-Z`])", text)
    left = [x for x in clauses if not names.search(x)]
    if len(left) == len(clauses):
        return text
    found = " ".join(left).removesuffix(";")
    if clauses[-1].endswith("."):
        found = re.sub(r";(?= [A-Z])|(?<=[^.])$", ".", found) if found else ""
        found = re.sub(r"(?<=\. )[a-z]", lambda x: x[0].upper(), found)
    return found[:1].upper() + found[1:] if text[:1].isupper() else found


def _lines(lines: Sequence[Any], kept: Kept) -> list[Any]:
    """The comments above a statement, each a paragraph of lines."""
    out: list[Any] = []
    together: list[Any] = []
    for line in [*lines, None]:
        if line is not None and line.comment:
            together.append(line)
            continue
        text = " ".join(x.comment.value.lstrip("# ") for x in together)
        left = kept(text)
        rows = textwrap.wrap(left, WIDTH - 7) if left != text else []
        new = [together[0].with_changes(comment=cst.Comment(f"# {row}")) for row in rows]
        out += together if left == text else new
        together = []
        out += [line] if line is not None else []
    return out


def _docstring(text: str, gone: Set[str], kept: Kept) -> str:
    """A docstring, its paragraphs and its entries for arguments each by itself."""
    out: list[str] = []
    for part in re.split(r"(\n\n|(?<=:)\n|\n(?= {8}[\w, ]+: ))", text.strip('"').rstrip()):
        entry = re.match(r" {8}(\w+(?:, \w+)*): ", part)
        flat = re.sub(r"\s+", " ", part.strip())
        left = "" if entry and gone >= {*entry[1].split(", ")} else kept(flat)
        indent = part[: len(part) - len(part.lstrip())]
        if left == flat:
            out.append(part)
        elif left:
            after = indent + "    " * bool(entry) if out else "    "
            rows = textwrap.wrap(left, WIDTH, initial_indent=indent, subsequent_indent=after)
            out.append("\n".join(rows))
        elif out:
            out.pop()
    whole = re.sub(r"\n\n +\w+:(?=\n\n|$)", "", "".join(out))
    if "\n" not in whole and len(whole) > WIDTH - 7:
        whole = "\n    ".join(textwrap.wrap(whole, WIDTH - 7))
    end = "\n    " if "\n" in whole else ""
    return f'"""{whole}{end}"""' if whole.strip() else ""
