"""Finds a piece of code in a Python file, whatever the comments and the layout, and replaces it.

Wrong kernels, rungs and left-out parts are written as (old, new), two pieces of code. A kernel's
comments are for its readers, so nothing here may depend on their wording, nor on where a line was
broken: `old` is compared with the file token by token. What is replaced is the original text, so
that Triton can read the result and a reader can compare the two.

A piece need not be whole: `scale * LOG2_E.value,` is one, and so is `for n in range(N):\\n    k =`.
What a formatter may add or drop counts for nothing: line breaks inside brackets, the comma before a
closing bracket, brackets around all of an expression, and which quotes a string has. Where a piece
shows an indentation, it is that of the file; a piece that ends with a line break ends with a
statement. Docstrings are not searched.
"""

import ast
import functools
import keyword
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOKEN = re.compile(
    r"""
      (?P<space> [^\S\n]+ | \\\n )
    | (?P<comment> \#[^\n]* )
    | (?P<newline> \n )
    | (?P<string> (?P<prefix> (?i: rb | br | rf | fr | [rbuf] )? )
        (?: \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
          | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' ) )
    | (?P<number> \.?\d (?: [eE][+-]\d | [\w.] )* )
    | (?P<name> [^\W\d]\w* )
    | (?P<op> -> | := | \.\.\. | != | (?: \*\* | // | >> | << | [-+*/%&|^@=<>] )=?
        | [~()\[\]{},:;.] )
    """,
    re.VERBOSE | re.DOTALL,
)
NEWLINE = "\n"  # the token that ends a statement
CLOSING = {"(": ")", "[": "]", "{": "}"}
# An expression between two of these needs no brackets; nor does a tuple between two of the others.
ASSIGN = {"=", "+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=", ">>=", "<<="}
BEFORE_TUPLE = ASSIGN | {"return", "in", "with", "import", "del"}
AFTER_TUPLE = {NEWLINE, ":", "="}
BEFORE = BEFORE_TUPLE | set("([{,:") | {":=", "->", "if", "elif", "while", "assert", "raise"}
AFTER = AFTER_TUPLE | set(")]},")


class MutantError(RuntimeError):
    """A piece of code is not where it should be, or a mutant cannot be judged: which and why."""


class Token(NamedTuple):
    """What a piece of text means, and where it stands."""

    value: str  # the same for all ways to write it
    start: int
    end: int
    optional: bool = False  # a formatter may add or drop it
    indent: int | None = None  # in spaces, where a statement begins


class Match(NamedTuple):
    """Where a piece is in a file."""

    tokens: list[Token]  # of the file
    places: list[int | None]  # of the piece's tokens; None: the file lacks this comma or bracket

    @property
    def found(self) -> list[int]:
        """The places without the gaps."""
        return [i for i in self.places if i is not None]

    @property
    def start(self) -> int:
        """Where the text begins."""
        return self.tokens[self.found[0]].start

    @property
    def end(self) -> int:
        """Where the text ends; the end of a line is not part of it."""
        found = [self.tokens[i] for i in self.found]
        return max(token.end for token in found if token.value != NEWLINE)


def tokens(text: str, whole: bool = False) -> list[Token]:
    """The tokens of a piece, or of a whole file without its docstrings."""
    found: list[Token] = []
    depth = 0
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise MutantError(f"{text[at : at + 20]!r} is not Python")
        at = match.end()
        value = match[0]
        if match.lastgroup in ("space", "comment"):
            continue
        if match.lastgroup == "newline":
            last = found[-1].value if found else NEWLINE
            if depth == 0 and last != NEWLINE and (whole or _may_end_a_statement(last)):
                found.append(Token(NEWLINE, match.start(), at))
            continue
        if match["string"]:
            value = _with_one_kind_of_quotes(match)
        elif match["number"]:
            value = value.lower()
        elif value in CLOSING:
            depth += 1
        elif value in CLOSING.values():
            depth -= 1
            if depth < 0:  # the piece began inside a bracket, where no line ends a statement
                found = [token for token in found if token.value != NEWLINE]
                depth = 0
        found.append(Token(value, match.start(), at))
    found = list(_joined_strings(found))
    for i, token in enumerate(found):
        if i == 0 or found[i - 1].value == NEWLINE:
            indent = token.start - text.rfind("\n", 0, token.start) - 1
            if i or whole or indent >= 4:  # else the piece may begin anywhere in its line
                found[i] = token._replace(indent=indent)
    return _marked(list(_without_docstrings(found)) if whole else found)


def _may_end_a_statement(value: str) -> bool:
    """Whether a line of a piece ends a statement after this token, if it is not in brackets."""
    return value[-1] in "\"')]}:_." or value[-1].isalnum()


def _with_one_kind_of_quotes(match: re.Match[str]) -> str:
    body = match["string"][len(match["prefix"]) :]
    quotes = 3 if body.startswith(('"""', "'''")) else 1
    return f"{match['prefix'].lower()}'{body[quotes:-quotes]}'"


def _is_string(token: Token) -> bool:
    return token.value.endswith("'")


def _joined_strings(found: Sequence[Token]) -> Iterator[Token]:
    """Strings that stand next to each other are one, on one line or on two."""
    held: Token | None = None
    for token in found:
        if held and _is_string(held) and _is_string(token):
            (prefix, text), (other, more) = (x.value[:-1].split("'", 1) for x in (held, token))
            held = Token(f"{prefix or other}'{text}{more}'", held.start, token.end)
            continue
        if held:
            yield held
        held = token
    if held:
        yield held


def _without_docstrings(found: Sequence[Token]) -> Iterator[Token]:
    """All but the statements that are a string and nothing else."""
    left_out = False
    for token, following in zip(found, [*found[1:], None], strict=True):
        if token.indent is not None:
            ends = following is None or following.value == NEWLINE
            left_out = _is_string(token) and ends
        if not left_out:
            yield token


def _marked(found: list[Token]) -> list[Token]:
    """The same tokens; those that a formatter may add or drop are optional."""
    values = ["", *(token.value for token in found), ""]  # what is around a piece is not known
    optional = set()
    opened: list[int] = []
    commas: dict[int, int] = {}  # opening bracket → commas directly in it
    for i, value in enumerate(values):
        if value in CLOSING:
            opened.append(i)
            commas[i] = 0
        elif value == "," and opened:
            commas[opened[-1]] += 1
        elif value in CLOSING.values() and opened:
            first = opened.pop()
            before, after = values[first - 1], values[i + 1]
            groups = value == ")" and not _can_be_called(before)
            if values[i - 1] == "," and not (groups and commas[first] == 1):  # (x,) is a tuple
                optional.add(i - 1)
            if commas[first]:
                free = not opened and before in BEFORE_TUPLE and after in AFTER_TUPLE
            else:
                free = before in BEFORE and after in AFTER
            if groups and free and i > first + 1:
                optional |= {first, i}
    return [token._replace(optional=i in optional) for i, token in enumerate(found, 1)]


def _can_be_called(value: str) -> bool:
    """Whether a bracket after this token begins arguments."""
    named = value.isidentifier() and not keyword.iskeyword(value)
    return named or value in (")", "]", "}") or value.endswith("'")


@functools.lru_cache(8)
def _tokens_of_file(source: str) -> list[Token]:
    return tokens(source, whole=True)


def find(source: str, old: str) -> Match:
    """Where a piece of code is in a file. Raises MutantError unless it is there exactly once."""
    piece = tokens(old)
    if all(token.value == NEWLINE for token in piece):
        raise MutantError("its old text has no code")
    file = _tokens_of_file(source)
    starts = [i for i, token in enumerate(file) if _same(piece[0], token)]
    found = [places for i in starts if (places := _match(file, i, piece))]
    if len(found) != 1:
        raise MutantError(f"its old text occurs {len(found)} times, not once")
    return Match(file, found[0])


def _same(token: Token, other: Token) -> bool:
    """Whether a token of a file is that of a piece, and begins a statement where the piece does."""
    return token.value == other.value and token.indent in (None, other.indent)


def occurs(text: str, piece: str) -> bool:
    """Whether a piece of code is in a text, once or more often."""
    wanted, there = tokens(piece), tokens(text)
    return any(_match(there, i, wanted) for i in range(len(there)) if _same(wanted[0], there[i]))


def _match(file: list[Token], first: int, piece: list[Token]) -> list[int | None]:
    """The place of each token of a piece that begins at a token of the file; empty if none does."""
    others: list[tuple[int, list[int | None]]] = [(first, [])]  # ways to go on, the best last
    while others:
        i, places = others.pop()
        j = len(places)
        if j == len(piece):
            return places
        token = piece[j]
        ends = i == len(file)
        closes = not ends and file[i].value in CLOSING.values()
        if token.optional or (token.value == "," and j == len(piece) - 1 and closes):
            others.append((i, [*places, None]))
        if not ends and file[i].optional and places:
            others.append((i + 1, places))
        if not ends and _same(token, file[i]):
            others.append((i + 1, [*places, i]))
    return []


def replace(source: str, old: str, new: str) -> str:
    """The text of a file with the code `old`, which is found exactly once, replaced by `new`.

    Only what differs between the two is touched: comments elsewhere stay, and so does the layout.
    Raises MutantError with how often `old` was found, if `new` is the same code, or if the result
    is not Python.
    """
    match = find(source, old)
    before, after = tokens(old), tokens(new)
    head = _in_common(before, after)
    tail = _in_common(before[head:][::-1], after[head:][::-1])
    gone = [i for i in match.places[head : len(before) - tail] if i is not None]
    if gone:
        gone = _with_whole_brackets(match, gone)
        head = sum(i is None or i < gone[0] for i in match.places[:head])
        tail = sum(i is None or i > gone[-1] for i in match.places[len(before) - tail :])
    come = after[head : len(after) - tail]
    if not gone and not come:
        raise MutantError("its new text is the same code as its old text")
    if not come:
        result = _deleted(source, match.tokens, gone)
    elif gone:
        result = _replaced(source, match.tokens, gone, new, after, head, tail)
    else:
        result = _inserted(source, match, new, after, head, tail)
    try:
        ast.parse(result)
    except SyntaxError as error:
        raise MutantError(f"with its new text the file is not Python: {error}") from None
    return result


def _in_common(a: Sequence[Token], b: Sequence[Token]) -> int:
    """How many tokens at the beginning of two lists are the same."""
    n = 0
    while n < min(len(a), len(b)) and (a[n].value, a[n].indent) == (b[n].value, b[n].indent):
        n += 1
    return n


def _with_whole_brackets(match: Match, gone: list[int]) -> list[int]:
    """The tokens from the first to the last, and more where a formatter put brackets across.

    A comma that the formatter put behind them goes too.
    """
    first, last = gone[0], gone[-1]
    opened: list[int] = []
    for i, token in enumerate(match.tokens):
        if token.value in CLOSING:
            opened.append(i)
        elif token.value in CLOSING.values():
            partner = opened.pop()
            if token.optional and (first <= partner <= last) != (first <= i <= last):
                first, last = min(first, partner), max(last, i)
    if first < match.found[0] or last > match.found[-1]:
        raise MutantError("brackets that the layout needs begin or end outside of its old text")
    following = match.tokens[last + 1 : last + 2]
    if following and following[0].optional and following[0].value == ",":
        last += 1
    return list(range(first, last + 1))


def _replaced(
    source: str,
    file: list[Token],
    gone: list[int],
    new: str,
    after: list[Token],
    head: int,
    tail: int,
) -> str:
    """The text with what the new piece has between its first and its last tokens for some others.

    The spaces around it are those of the new piece, where there is nothing but spaces.
    """
    come = after[head : len(after) - tail]
    start, end = file[gone[0]].start, file[gone[-1]].end
    first, last = come[0].start, come[-1].end
    if file[gone[-1]].value == NEWLINE != come[-1].value:
        end = file[gone[-1]].start  # the statement still ends
    elif file[gone[-1]].value != NEWLINE == come[-1].value:
        last = come[-1].start  # it ends already
    elif tail and _spaces(source, end, file[gone[-1] + 1].start):
        end = file[gone[-1] + 1].start
        last = after[len(after) - tail].start
    if head and file[gone[0]].indent is None and _spaces(source, file[gone[0] - 1].end, start):
        start = file[gone[0] - 1].end
        first = after[head - 1].end
    return source[:start] + new[first:last] + source[end:]


def _inserted(source: str, match: Match, new: str, after: list[Token], head: int, tail: int) -> str:
    """The text with the code that the new piece has between its first and its last tokens.

    Whole statements get lines of their own, anything else stands behind or before its neighbor.
    """
    come = after[head : len(after) - tail]
    text = new[come[0].start : come[-1].end]
    kept = [match.tokens[i] for i in match.places[:head] if i is not None]
    following = [match.tokens[i] for i in match.places[head:] if i is not None]
    before = kept[-1].value if kept else NEWLINE
    if come[-1].value == NEWLINE and before == NEWLINE:
        at = kept[-1].end if kept else following[0].start - (following[0].indent or 0)
        indent = come[0].indent
        if indent is None:  # the piece begins in the middle of its line
            indent = following[0].indent or 0
        return source[:at] + " " * indent + text + source[at:]
    if kept and before != NEWLINE:
        space = new[after[head - 1].end : come[0].start]
        return source[: kept[-1].end] + space + text + source[kept[-1].end :]
    space = new[come[-1].end : after[len(after) - tail].start]
    return source[: following[0].start] + text + space + source[following[0].start :]


def _deleted(source: str, file: list[Token], gone: list[int]) -> str:
    """The text without some tokens; a statement goes with its line and the comment at its end."""
    first, last = file[gone[0]], file[gone[-1]]
    if last.value == NEWLINE and first.indent is not None:
        return source[: first.start - first.indent] + source[last.end :]
    before = file[gone[0] - 1] if gone[0] else first
    begins = _spaces(source, source.rfind("\n", 0, first.start) + 1, first.start)
    if last.value == NEWLINE or begins or before.value in CLOSING:
        return source[: first.start] + source[file[gone[-1] + 1].start :]
    return source[: before.end] + source[last.end :]


def _spaces(text: str, start: int, end: int) -> bool:
    """Whether there is nothing but spaces."""
    return not text[start:end].strip(" ")


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
