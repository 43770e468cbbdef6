"""The reference of launchers is the same whatever is installed: no formatter is asked."""

import ast
import html
import re

import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from snippets._lab.rooms import ROOT

MODULE = '''"""Signatures of every kind."""

LONG = "a_value_of_some_length"


def plain(q, k, *, scale=None, align="top"):
    """One line."""


def kinds(a, /, b=(1, 2), *rest, c, **others):
    """All kinds."""


def quite_wide(queries, keys, values, *, scale=None, causal=False, align="bottom_right"):
    """Its arguments fit one line."""


def wider(queries, keys, values, scale=LONG, causal=LONG, align=LONG, lse=LONG, more=LONG, last=1):
    """Not even those."""
'''


def plugins():
    """The project's own settings of mkdocstrings."""

    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, tag, node: tag)
    found = yaml.load((ROOT / "mkdocs.yml").read_text("utf-8"), Loader)["plugins"]
    (settings,) = [p["mkdocstrings"] for p in found if isinstance(p, dict) and "mkdocstrings" in p]
    return settings


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """The signatures of the module above, built with the project's settings and no formatter."""
    folder = tmp_path_factory.mktemp("reference")
    (folder / "docs").mkdir()
    (folder / "made_up.py").write_text(MODULE, "utf-8")
    names = [node.name for node in ast.parse(MODULE).body if isinstance(node, ast.FunctionDef)]
    page = "\n\n".join(f"::: made_up.{name}" for name in names)
    (folder / "docs/index.md").write_text(page, "utf-8")
    settings = plugins()
    settings["custom_templates"] = str(ROOT / settings["custom_templates"])
    settings["handlers"]["python"]["paths"] = [str(folder)]
    config = {
        "site_name": "x",
        "theme": {"name": "material", "font": False},
        "plugins": [{"mkdocstrings": settings}],
        "markdown_extensions": ["attr_list", "pymdownx.highlight", "pymdownx.superfences"],
    }
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config), "utf-8")

    def asked():
        raise AssertionError("a formatter was asked")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mkdocstrings_handlers.python._internal.rendering._get_formatter", asked)
        build(load_config(str(folder / "mkdocs.yml"), strict=True))
    content = (folder / "site/index.html").read_text("utf-8")
    blocks = re.findall(r"doc-signature.*?<code>(.*?)</code>", content, re.DOTALL)
    texts = [html.unescape(re.sub(r"<[^>]+>", "", block)).strip() for block in blocks]
    return dict(zip(names, texts, strict=True))


def test_a_signature_is_laid_out_without_a_formatter(signatures):
    assert signatures == {
        "plain": 'plain(q, k, *, scale=None, align="top")',
        "kinds": "kinds(a, /, b=(1, 2), *rest, c, **others)",
        "quite_wide": (
            "quite_wide(\n    queries, keys, values, *, scale=None, causal=False, "
            'align="bottom_right"\n)'
        ),
        "wider": (
            "wider(\n    queries,\n    keys,\n    values,\n    scale=LONG,\n    causal=LONG,\n"
            "    align=LONG,\n    lse=LONG,\n    more=LONG,\n    last=1,\n)"
        ),
    }
