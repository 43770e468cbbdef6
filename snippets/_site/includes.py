"""Includes of whole functions: `--8<-- "snippets/flash_attention/kernel.py:flash_attention"`.

pymdownx.snippets, and where a Python file has no marked section of that name, the function or class
called so, decorators included. Markers stand only where a part of a function is shown. A name that
is missing, or that two functions have, stops the build as a missing section does.
"""

import ast
import re
from typing import Any

from markdown import Markdown
from pymdownx.snippets import SnippetExtension, SnippetMissingError, SnippetPreprocessor


def whole(source: str, name: str) -> tuple[int, int] | None:
    """The first and the last line of the function or class of that name, if there is one.

    Raises SnippetMissingError where there are two.
    """
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except SyntaxError:  # no Python: it has marked sections only
        return None
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in nodes if isinstance(node, kinds) and node.name == name]
    if len(found) > 1:
        raise SnippetMissingError(f"{len(found)} functions are called '{name}'; mark one of them")
    for node in found:
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        return first, node.end_lineno or first
    return None


class Preprocessor(SnippetPreprocessor):
    """Shows a marked section, or else the whole function of that name."""

    RE_LETTER = re.compile("[a-z_]", re.IGNORECASE)  # with which a name begins: also a private one

    def extract_section(self, section: str, lines: list[str]) -> list[str]:
        markers = [match for line in lines if (match := self.match_section(line))]
        marked = any(match["name"] == section for match in markers)
        if not marked and (there := whole("\n".join(lines), section)):
            inside = lines[there[0] - 1 : there[1]]
            lines = [line for line in inside if not self.match_section(line)]
            return self.dedent(lines) if self.dedent_subsections else lines
        found: list[str] = super().extract_section(section, lines)
        return found


class Includes(SnippetExtension):
    """pymdownx.snippets with whole functions; it takes the same settings."""

    def extendMarkdown(self, md: Markdown) -> None:
        super().extendMarkdown(md)
        preprocessor = Preprocessor(self.getConfigs(), md)
        md.preprocessors.register(preprocessor, "snippet", 32)


def makeExtension(**settings: Any) -> Includes:
    """What Markdown calls to make the extension."""
    return Includes(**settings)
