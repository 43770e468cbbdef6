"""Replaces a piece of code in a Python file, which must be there exactly once.

Wrong kernels, rungs and left-out parts are written as (old, new), two pieces of code. A kernel's
comments are for its readers, so nothing here depends on their wording, nor on where a line was
broken: spaces, line breaks and comments between words and signs do not count. Where a piece begins
with an indentation, it is that of the file; a piece that ends with a line break ends a statement.
"""

import ast
import re

TOKEN = re.compile(r"#[^\n]*|\w+|[^\w\s]")
BETWEEN = r"(?:\s|\\\n|#[^\n]*\n)*"
END_OF_LINE = r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)"


class MutantError(RuntimeError):
    """A piece of code is not where it should be, or a mutant cannot be judged: which and why."""


def tokens(piece: str) -> list[str]:
    """Words and signs, without comments."""
    return [token for token in TOKEN.findall(piece) if not token.startswith("#")]


def found(text: str, piece: str) -> list[re.Match[str]]:
    """All places of a piece of code in a text. Raises MutantError for a piece without code."""
    words = tokens(piece)
    if not words:
        raise MutantError("its old text has no code")
    pattern = BETWEEN.join(map(re.escape, words))
    if words[0][0].isidentifier():
        pattern = r"(?<!\w)" + pattern
    if re.match(r"\w", words[-1]):
        pattern += r"(?!\w)"
    if indent := re.match(" {4,}", piece):
        pattern = f"(?<=^{indent[0]})" + pattern
    if piece.endswith("\n"):
        pattern += f"(?={END_OF_LINE})"
    return [*re.finditer(pattern, text, re.MULTILINE)]


def occurs(text: str, piece: str) -> bool:
    """Whether a piece of code is in a text, once or more often."""
    return bool(found(text, piece))


def replace(source: str, old: str, new: str) -> str:
    """The text of a file with the code `old` replaced by `new`.

    Raises MutantError unless `old` is there exactly once, if `new` is the same code, or if the
    result is not Python.
    """
    places = found(source, old)
    if len(places) != 1:
        raise MutantError(f"its old text occurs {len(places)} times, not once")
    if tokens(old) == tokens(new):
        raise MutantError("its new text is the same code as its old text")
    start, end = places[0].span()
    before, after = source[:start], source[end:]
    line = before.rpartition("\n")[2]
    if not new.strip() and not line.strip() and (rest := re.match(END_OF_LINE, after)):
        before, after = before.removesuffix(line), after[rest.end() :]  # nothing is left of it
    result = before + new.strip() + after
    try:
        ast.parse(result)
    except SyntaxError as error:
        raise MutantError(f"with its new text the file is not Python: {error}") from None
    return result


def changed_lines(source: str, changed: str) -> tuple[str, str]:
    """The lines in which two texts differ: those of the first, and those of the second."""
    a, b = source.splitlines(), changed.splitlines()
    shorter = min(len(a), len(b))
    head = 0
    while head < shorter and a[head] == b[head]:
        head += 1
    tail = 0
    while tail < shorter - head and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    return "\n".join(a[head : len(a) - tail]), "\n".join(b[head : len(b) - tail])
