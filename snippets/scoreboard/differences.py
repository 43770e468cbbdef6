"""The code of the kernels, and what changes from each to the next: read from the files, as HTML."""

import ast
import difflib
import html
import re
from pathlib import Path

from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

JIT = ("triton.jit", "gluon.jit")
MARKER = re.compile(r"(\s*)# --8<-- \[(start|end):(\w+)\]")
COLORED = ("c1", "k", "kc", "ow", "mf", "mi", "nf", "s1", "s2")  # classes of Pygments


def _kernels(path: Path) -> list[ast.FunctionDef]:
    """The functions of a file that Triton compiles."""
    found = [
        node
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.FunctionDef) and any(map(_compiles, node.decorator_list))
    ]
    if not found:
        raise ValueError(f"{path} has no kernel")
    return found


def _compiles(decorator: ast.expr) -> bool:
    """Whether it is triton.jit or gluon.jit, with options or without."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(function) in JIT


def _body(function: ast.FunctionDef) -> range:
    """The lines of a function below its docstring, from 1."""
    first = function.body[ast.get_docstring(function) is not None]
    before = function.body[0] if first is not function.body[0] else None
    start = before.end_lineno + 1 if before else first.lineno
    return range(start, function.end_lineno + 1)


def kernel_lines(path: Path) -> list[str]:
    """The bodies of a file's kernels, without indentation; each section begins with its name."""
    text = path.read_text("utf-8").splitlines()
    lines: list[str] = []
    for function in _kernels(path):
        lines.append(f"def {function.name}(…):")
        for number in _body(function):
            line = text[number - 1]
            if match := MARKER.match(line):
                if match[2] == "start":
                    lines.append(f"{match[1]}# {match[3].replace('_', ' ')}")
            elif line.strip():
                lines.append(line)
    return lines


def lines_of_code(path: Path) -> int:
    """Lines of a file's kernels that hold code: no comment, no docstring, no empty line."""
    return sum(not line.lstrip().startswith(("#", "def _")) for line in kernel_lines(path))


def difference(before: list[str], after: list[str]) -> list[tuple[str, str]]:
    """(sign, line) of a diff: "-" only before, "+" only after, " " in both, comment apart."""

    def bare(line: str) -> str:
        return line.strip() if line.lstrip().startswith("#") else line.split("  #")[0].strip()

    matcher = difflib.SequenceMatcher(
        None, [*map(bare, before)], [*map(bare, after)], autojunk=False
    )
    found: list[tuple[str, str]] = []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            found += [(" ", line) for line in after[c:d]]
        else:
            found += [("-", line) for line in before[a:b]] + [("+", line) for line in after[c:d]]
    return found


def colored(line: str) -> str:
    """A line of code as HTML, in the colors that code has on every page."""
    parts = []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(line):
        css, text = STANDARD_TYPES[kind], html.escape(text)
        parts.append(f'<b class="{css}">{text}</b>' if css in COLORED else text)
    return "".join(parts)


SIGNS = {"-": "removed", "+": "added", " ": "same"}


def steps_html(paths: dict[str, Path], facts: dict[str, str]) -> str:
    """All steps, one section each, in one line: Markdown leaves a line of HTML as it is."""
    names = list(paths)
    code = {name: kernel_lines(path) for name, path in paths.items()}
    sections = []
    for i, name in enumerate(names):
        old = names[i - 1] if i else ""
        rows = difference(code[old], code[name]) if i else [(" ", x) for x in code[name]]
        kept = sum(sign == " " for sign, _ in rows)
        title = f"{old} → {name}" if i else name
        words = (
            f"{sum(s == '-' for s, _ in rows)} lines removed, {sum(s == '+' for s, _ in rows)} "
            f"added, {kept} unchanged. "
            if i
            else "The first kernel. "
        )
        body = "".join(
            f'<span class="am-ladder-{SIGNS[sign]}"><i>{sign}</i> {colored(line) or " "}</span>'
            for sign, line in rows
        )
        sections.append(
            f'<section data-kernel="{name}"><h3>{title}</h3>'
            f"<p>{words}{html.escape(facts[name])}</p>"
            f'<pre class="highlight" tabindex="0" aria-label="Code of {title}">'
            f"<code>{body}</code></pre></section>"
        )
    return f'<div class="am-ladder" data-widget="scoreboard">{"".join(sections)}</div>'
