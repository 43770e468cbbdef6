"""What readers view, copy and download: files without our markers, commands without answers."""

import zipfile
from io import BytesIO

import pytest

from snippets._lab.rooms import ROOT
from snippets._site import html_fixes, listings, published
from tests.floors import some

MARK = "--8" + "<--"  # in one piece it would be a marker of this file
SOURCE = f"""import x


# {MARK} [start:one]
def f():
    # {MARK} [start:two]
    return 1
    # {MARK} [end:two]


# {MARK} [end:one]
"""


def test_a_file_is_published_without_the_names_of_its_parts():
    assert listings.without_markers(SOURCE) == "import x\n\n\ndef f():\n    return 1\n\n\n"
    texts = {p: p.read_text("utf-8") for p in sorted(ROOT.glob("snippets/[!_]*/kernel.py"))}
    assert any("--8<--" in text for text in texts.values())
    for path, text in some(texts.items()):
        clean = listings.without_markers(text)
        assert "--8<--" not in clean
        compile(clean, str(path), "exec")
    with zipfile.ZipFile(BytesIO(published.archive(ROOT))) as archive:
        for name in some(archive.namelist()):
            assert b"--8<--" not in archive.read(name), name


@pytest.mark.parametrize(
    ("session", "commands"),
    [
        ("$ make test\n12 passed\n$ make bench", "make test\nmake bench"),
        ("$ python -m x \\\n    --all\ndone", "python -m x \\\n    --all"),
        (
            ">>> a = 1\n>>> def f():\n...     return a\n>>> f()\n1",
            "a = 1\ndef f():\n    return a\nf()",
        ),
        ("only output", ""),
    ],
)
def test_what_was_typed_is_copied_and_nothing_else(session, commands):
    assert html_fixes.typed(session) == commands


def test_a_long_line_says_how_far_in_it_begins():
    long = "y" * (html_fixes.LONG + 1)
    code = f'short\n    <i>{long}</i>\n<span class="sd">"{long}\n{long}"</span>\n<b>{long}\n</b>'
    further, here = (f'<span class="am-long" style="--am-in:{at}ch">' for at in (4, 0))
    assert html_fixes.fixed(f"<pre><code>{code}</code></pre>") == (
        f"<pre><code>short\n{further}    <i>{long}</i>\n</span>"
        f'{here}<span class="sd">"{long}</span>\n</span>'
        f'{here}<span class="sd">{long}"</span>\n</span>'
        f"<b>{long}\n</b></code></pre>"
    ), "a line whose tag goes on in the next stays as it is"
