"""From data to figure: the same bytes each time, bad data named, and no markup from data.

A room of a few lines stands in for the real ones; at the end the real ones are drawn.
"""

import html
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import markdown
import pytest

from snippets._lab import cli
from snippets._lab.draw.draw_all import draw_all
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.fragment import fragment
from snippets._lab.draw.rows import only, pick
from snippets._lab.draw.tables import MANY, Prose, cell, stored
from snippets._lab.results import staleness, store
from snippets._lab.results.result import folder_name
from snippets._lab.results.store import DataError
from tests import made_up
from tests.apart import python

KERNEL = "def fake_attention(q):\n    return q\n\ndef main():\n    print('OK')\n"
BENCH = """
from snippets._lab.rooms import measured_on

@measured_on("gpu")
def forward(lab):
    yield {"N": 16}
"""
FIGURES = """
from snippets._lab.draw import charts
from snippets._lab.draw.charts import Series
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.rows import TIME, only

def forward(results):
    row = only(results[0].rows, N=16)
    return Figure(
        finding=f"It takes {TIME.text(row)}.",
        caption="One call.",
        plot=charts.lines(results, [Series("torch:sdpa", where={"N": 16})], "N", TIME),
        numbers={"time": TIME.text(row)},
        claims={"docs/posts/fake_attention.md: in under a second": TIME(row) < 1000},
    )

def _helper(results):
    raise AssertionError("not a figure")
"""


@pytest.fixture
def room(tmp_path, monkeypatch):
    """The stand-in room; its folder."""
    (tmp_path / "mkdocs.yml").write_text("")  # lists no post that waits
    files = {"kernel": KERNEL, "bench": BENCH, "figures": FIGURES}
    with made_up.room(tmp_path, monkeypatch, **files) as folder:
        yield folder


@pytest.fixture
def out(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def data(room, tmp_path):
    """A folder with what the room needs from one device."""
    folder = tmp_path / "data"
    store.write(measured("forward"), folder)
    store.write(measured("report", rows=[{"line": "OK"}]), folder)
    return folder


def measured(result, *, name="NVIDIA H200", ms=0.5, **fields):
    """A result of the stand-in room, with the hash of its code as it is now."""
    rows = [made_up.timed(ms, implementation="fake_attention", N=16)]
    about = {"device": {"name": name}, **made_up.code_as_it_is("fake_attention", result)}
    fields = {"post": "fake_attention", "rows": rows} | about | fields
    return made_up.result(fields.pop("post"), result, fields.pop("rows"), **fields)


def drawn(out):
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def forward_md(out):
    return (out / "fake_attention" / "forward.md").read_text("utf-8")


def data_md(out):
    return (out / "fake_attention" / "forward_data.md").read_text("utf-8")


def test_drawing_twice_gives_the_same_bytes(data, out, tmp_path):
    assert draw_all(data, out)
    first = drawn(out)
    assert set(first) == {
        f"fake_attention/{name}"
        for name in (
            "forward.md",
            "forward.json",
            "forward_data.md",
            "numbers.json",
            "report.md",
            "report_data.md",
            "report_nvidia_h200.md",
        )
    }
    assert draw_all(data, out) == []
    assert drawn(out) == first
    draw_all(data, tmp_path / "elsewhere")
    assert drawn(tmp_path / "elsewhere") == first


def test_check_writes_nothing_and_names_what_differs(data, out, capsys):
    command = ["figures", "--check", "--data", str(data), "--out", str(out)]
    assert cli.main(command) == 1
    assert drawn(out) == {}
    draw_all(data, out)
    assert cli.main(command) == 0
    path = out / "fake_attention" / "forward.json"
    path.write_bytes(path.read_bytes() + b"\xff")
    before = drawn(out)
    capsys.readouterr()
    assert cli.main(command) == 1
    assert f"differs {path}" in capsys.readouterr().out.replace("\n", "")
    assert drawn(out) == before


def test_figures_whose_result_is_gone_are_reported_and_removed(data, out):
    draw_all(data, out)
    wanted = drawn(out)
    orphans = [out / "old_attention" / "forward.md", out / "fake_attention" / "old.json"]
    for path in orphans:
        path.parent.mkdir(exist_ok=True)
        path.write_text("left behind")
    assert draw_all(data, out, write=False) == sorted(orphans)
    assert all(path.exists() for path in orphans)
    assert draw_all(data, out) == sorted(orphans)
    assert drawn(out) == wanted


def test_a_folder_with_other_files_is_not_cleared(data, tmp_path):
    (tmp_path / "photo.png").write_text("precious")
    with pytest.raises(DataError, match=r"photo\.png is no figure"):
        draw_all(data, tmp_path)
    assert (tmp_path / "photo.png").exists()
    assert not (tmp_path / "fake_attention").exists()


def refusal(data, out, capsys):
    """What the command says about data that cannot be drawn; nothing may have been written."""
    assert cli.main(["figures", "--data", str(data), "--out", str(out)]) == 2
    assert drawn(out) == {}
    return capsys.readouterr().out.replace("\n", "")


def test_check_names_a_fault_of_the_data_and_then_all_of_the_figures(data, out, capsys):
    def said():
        assert cli.main(["figures", "--check", "--data", str(data), "--out", str(out)]) == 2
        return capsys.readouterr().out.replace("\n", "")

    file = data / "nvidia_h200" / "fake_attention" / "report.json"
    made_up.edit(file, '"seed": 0', '"seed": 1')
    assert "was changed after it was measured" in said()
    file.unlink()
    store.write(measured("forward", post="gone_attention"), data)
    faults = said()
    assert "report.json; run `make bench-cpu POST=fake_attention" in faults
    assert "no figures.py draws these results: gone_attention/forward" in faults


def test_a_gpu_that_was_slowed_while_measuring_is_marked(data, out):
    draw_all(data, out)
    assert "slowed" not in forward_md(out)
    slowdowns = {"heat": 0.25, "the power supply": 0.04}
    device = {"name": "NVIDIA H200", "slowdowns": slowdowns}
    store.write(measured("forward", device=device), data)
    draw_all(data, out)
    assert "NVIDIA H200 was slowed by heat and the power supply." in forward_md(out)
    shown = "| slowed by | heat (25 % of the readings) and the power supply (4 % of the readings) |"
    assert shown in data_md(out)


def test_what_waits_for_a_gpu_is_not_drawn(data, out):
    """The page says so in its place; what needs no GPU has to be measured."""
    (data / "nvidia_h200" / "fake_attention" / "forward.json").unlink()
    draw_all(data, out)
    assert {path.rpartition("/")[2].partition(".")[0] for path in drawn(out)} == {
        "report",
        "report_data",
        "report_nvidia_h200",
    }


def sealed(change):
    """A change to the one row of a result, as a bench with that fault would have written it."""

    def damage(text):
        value = json.loads(text)
        change(value["rows"][0])
        return store.dumps(value | {"seal": store.seal(value)})

    return damage


def renamed(old, new):
    def change(row):
        row[new] = row.pop(old)

    return sealed(change)


def put(field, value):
    return sealed(lambda row: row.update({field: value}))


DAMAGES = {
    "edited": (
        lambda text: text.replace('"N": 16', '"N": 17'),
        "was changed after it was measured",
    ),
    "a field renamed": (renamed("ms_p50", "ms"), "KeyError: 'ms_p50'"),
    "a row renamed": (put("N", 17), "0 rows have {'N': 16}"),
    "text for a number": (put("ms_p50", "fast"), ""),
    "markup for a number": (put("N", "<img src=x onerror=alert(1)>"), "0 rows have"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_result_is_named_with_its_fault(case, data, out, capsys):
    damage, fault = DAMAGES[case]
    path = data / "nvidia_h200" / "fake_attention" / "forward.json"
    text = path.read_text()
    assert damage(text) != text
    path.write_text(damage(text))
    message = refusal(data, out, capsys)
    assert "nvidia_h200/fake_attention/forward.json" in message
    assert fault in message


def test_no_data_at_all_is_an_error(room, tmp_path, out, capsys):
    assert "no device has" in refusal(tmp_path / "nothing", out, capsys)


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "](javascript:alert(1)) [x",
    "x { onclick=alert(1) }",
    "a | b `c` **d** ~~e~~ $f$ g_h_i",
    "[link](https://example.org)",
]


class Elements(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.links, self.text = set(), set(), set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links |= {value for name, value in attrs if name in ("href", "src")}

    def handle_data(self, data):
        self.text += data


def rendered(fragment):
    """What the site makes of a fragment, as far as its Markdown extensions go."""
    extensions = [
        "attr_list",
        "md_in_html",
        "tables",
        "pymdownx.superfences",
        "pymdownx.arithmatex",
    ]
    return Elements(markdown.markdown(fragment, extensions=extensions))


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("where", ["device", "implementation", "driver", "commit"])
def test_markup_in_the_data_is_text_on_the_page(where, hostile, data, out):
    second = store.write(measured("forward", name="GPU B"), data)
    draw_all(data, out)
    harmless = rendered(forward_md(out) + data_md(out))
    forward = measured("forward", commit=hostile if where == "commit" else "abc")
    if where == "implementation":
        forward.rows[0]["implementation"] = hostile
    elif where != "commit":
        forward.device["name" if where == "device" else "driver"] = hostile
    if where == "device":
        forward = replace(forward, folder=folder_name(hostile))
        (data / "nvidia_h200" / "fake_attention" / "forward.json").unlink()
    second.unlink()
    store.write(forward, data)
    store.write(measured("forward", name=f"{hostile} b"), data)
    draw_all(data, out)
    found = rendered(forward_md(out) + data_md(out))
    assert found.tags <= harmless.tags
    assert found.attributes <= harmless.attributes
    folders = {folder_name(name) for name in (forward.label, f"{hostile} b")}
    figures = {link for link in harmless.links if link.startswith("/figures/")}
    raw = {f"/data/{folder}/fake_attention/forward.json" for folder in folders}
    assert figures
    assert found.links == figures | raw
    shown = hostile[:12] if where == "commit" else hostile
    assert shown in found.text


@pytest.mark.parametrize("hostile", HOSTILE[:2])
def test_markup_in_a_legend_is_escaped(hostile, data, out):
    store.write(measured("forward", name=hostile), data)
    draw_all(data, out)
    spec = json.loads((out / "fake_attention" / "forward.json").read_text("utf-8"))
    names = [trace["name"] for trace in spec["data"]]
    assert names == ["PyTorch SDPA, NVIDIA H200", f"PyTorch SDPA, {html.escape(hostile)}"]


@pytest.mark.parametrize(
    "text",
    ["<img src=x onerror=alert(1)>", "[x](javascript:alert(1))", "<!-- x", '--8<-- "LICENSE"'],
)
@pytest.mark.parametrize("where", ["finding", "caption", "pieces"])
def test_a_sentence_with_markup_from_data_is_refused(where, text, room):
    parts = {"finding": "Fine.", "caption": "Fine.", "table": [{"a": 1}]}
    parts[where] = {"one": text} if where == "pieces" else text
    with pytest.raises(DataError, match="figure forward of fake_attention has markup"):
        fragment("fake_attention", "forward", lambda _: Figure(**parts), [measured("forward")])


def test_code_in_a_sentence_is_no_markup(room):
    figure = Figure("`a < b`, and 1 < 2.", "`<tile>`", [{"a": 1}], pieces={"x": "a < b"})
    assert fragment("fake_attention", "forward", lambda _: figure, [measured("forward")])


@pytest.mark.parametrize("line", ["```", "``` <img src=x onerror=alert(1)>", '--8<-- "LICENSE"'])
def test_a_printed_line_cannot_leave_its_code_block(line, data, out):
    store.write(measured("report", rows=[{"line": line}, {"line": "<b>x</b>"}]), data)
    with pytest.raises(DataError, match="figure report of fake_attention has markup"):
        draw_all(data, out)


def test_a_figure_depends_on_data_and_drawing_only(data, out, room):
    """The mark beside a raw result is empty: the site fills it where the code has changed."""
    draw_all(data, out)
    assert not staleness.is_stale(measured("forward"))
    before = measured("forward")
    made_up.edit(room / "bench.py", '{"N": 16}', '{"N": 32}')
    assert staleness.is_stale(before)
    assert draw_all(data, out) == []
    mark = '<span class="am-stale" data-result="nvidia_h200/fake_attention/forward"></span>'
    assert forward_md(out).count(mark) == 1


def test_a_cell_is_read_as_a_number_or_as_text():
    assert [cell(x) for x in (None, 1.23456, 9999, 12345, True, -0.5)] == [
        "–",
        "1.235",
        "9999",
        "12,345",
        "True",
        "−0.5",
    ]


def test_in_our_own_sentences_what_stands_in_backticks_is_code():
    assert cell(Prose("line 3, `a[0] * b`, makes it")) == (
        "line 3, <code>a&#91;0&#93; &#42; b</code>, makes it"
    )
    assert cell(Prose("one ` alone")) == "one &#96; alone"
    assert cell(Prose("`<b>|`")) == "<code>&lt;b&gt;&#124;</code>"
    assert cell("a device called `x`") == "a device called &#96;x&#96;"


def test_one_row_is_one_row():
    rows = [{"N": 1, "x": 2}, {"N": 1, "x": 3}, {"N": 2, "x": 4, "error": "out of memory"}]
    assert only(rows, N=1, x=3) == rows[1]
    assert pick(rows, N=2) == []
    with pytest.raises(DataError, match="2 rows have"):
        only(rows, N=1)


# The real rooms and their data.

NO_TORCH = """
import sys
from importlib.abc import MetaPathFinder

class Block(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "triton", "numpy"):
            raise ImportError(f"{name} is not for figures")

sys.meta_path.insert(0, Block())
"""


def run_without_torch(code):
    done = python("-c", NO_TORCH + code)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_figures_need_no_torch_and_are_what_the_data_says():
    """`make figures` gives the committed bytes, on a laptop without torch and triton too."""
    done = run_without_torch(
        "from snippets._lab.cli import main; sys.exit(main(['figures', '--check']))"
    )
    assert done.returncode == 0, done.stdout


def test_listing_stale_results_needs_no_torch():
    done = run_without_torch("from snippets._lab.cli import main; sys.exit(main(['stale']))")
    assert done.returncode == 0, done.stdout
    assert re.search(r"\d+ stale results of \d+", done.stdout)


@pytest.mark.parametrize("made", ["wide", "in_turn"])
def test_files_made_of_the_pieces_of_another_need_no_torch(made):
    """A site is built without it; `make serve` does that."""
    code = f"from snippets.hopper_attention.{made} import source; print(source())"
    assert "def hopper_attention(" in run_without_torch(code).stdout


def test_where_a_figure_draws_nothing_its_rows_stand_as_stored():
    rows = [{"name": name, "D": 64, "ok": name == "a", "ms_samples": [0.1, 0.2]} for name in "ab"]
    result = made_up.result("flash_attention", "kernels", rows)
    same, shown = stored([result])
    assert same == "D 64"
    assert shown == [{"name": "a", "ok": "yes"}, {"name": "b", "ok": "no"}]
    assert stored([replace(result, rows=rows * MANY)]) == ("", [])
