"""The code of the kernels, read from the files: its lines, and a line as HTML."""

import ast
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


def colored(line: str) -> str:
    """A line of code as HTML, in the colors that code has on every page."""
    parts = []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(line):
        css, text = STANDARD_TYPES[kind], html.escape(text)
        parts.append(f'<b class="{css}">{text}</b>' if css in COLORED else text)
    return "".join(parts)
