"""Another card works: its folder is all it takes to be in every chart, and it must be measured.

Real data is copied under other devices' names into a temporary folder; none is ever committed.
"""

import html
import json
import re
import shutil
from collections import defaultdict
from dataclasses import replace

import pytest

from snippets._lab.draw.draw_all import draw_all
from snippets._lab.draw.fragment import provenance_table
from snippets._lab.draw.identity import FAINTEST, strength
from snippets._lab.results import store
from snippets._lab.results.result import folder_name
from snippets._lab.rooms import DATA, FIGURES
from tests.floors import some

NAMES = [
    "NVIDIA GeForce RTX 4090",
    "AMD Instinct MI300X",
    "Tesla T4",
    "GPU B",
    "GPU C",
    "GPU <b>D</b>",
]


def measured(data=DATA):
    found = [r for r in store.scan(data) if r.place == "gpu"]
    assert found, "no GPU has measured anything"
    return found


def copied(folder, names):
    """The real data, and what its GPU measured once more under each of these names."""
    shutil.copytree(DATA, folder / "data")
    for result in measured():
        for name in names:
            other = {**result.device, "name": name}
            store.write(replace(result, folder=folder_name(name), device=other), folder / "data")
    draw_all(folder / "data", folder / "figures")
    return folder / "figures"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("devices"), NAMES)


def charts(folder):
    """(room/result, specification) of every chart that was drawn from a GPU's results."""
    for key in {(r.post, r.result) for r in measured()}:
        path = folder / key[0] / f"{key[1]}.json"
        if path.exists():
            yield "/".join(key), json.loads(path.read_text("utf-8"))


def shown_text(spec):
    """All that a reader can see of a chart: legend, hover, labels and titles."""
    return html.unescape(json.dumps(spec, ensure_ascii=False))


def test_each_device_is_in_every_chart(drawn):
    seen = 0
    for where, spec in some(charts(drawn)):
        legend = {t.get("name", "") for t in spec["data"] if t.get("showlegend", True)}
        for name in NAMES:
            in_legend = any(name in html.unescape(entry) for entry in legend)
            assert "<i>GPU" not in json.dumps(spec), f"{where}: a device's name as markup"
            assert in_legend or name in shown_text(spec), f"{where} does not name {name}"
        seen += 1
    assert seen >= 10


def test_a_reader_can_choose_a_device_in_the_legend(drawn):
    """A legend entry of its own for each: a click hides it, a double click leaves it alone.

    Bars have the devices side by side, each named at its place on the axis.
    """
    without = []
    for where, spec in charts(drawn):
        entries = [html.unescape(t.get("name", "")) for t in spec["data"]]
        named = all(any(name in entry for entry in entries) for name in NAMES)
        bars = all(t["type"] == "bar" for t in spec["data"])
        if not bars and not (named and spec["layout"].get("showlegend", True)):
            without.append(where)
    assert not without


def test_each_device_is_in_every_figure_with_its_data_and_provenance(drawn):
    for result in measured():
        text = (drawn / result.post / f"{result.result}_data.md").read_text("utf-8")
        for name in NAMES:
            path = f"/data/{folder_name(name)}/{result.post}/{result.result}.json"
            assert path in text, f"{result.post}/{result.result}: {name}"
            assert f"| {html.escape(name)} |" in text, "no provenance"


def test_no_figure_of_several_devices_shows_what_is_no_value(drawn):
    for result in some([r for r in measured() if r.result != "samples"]):  # which a model wrote
        for path in (drawn / result.post).glob(f"{result.result}*.md"):
            assert not re.search(r"\b(nan|None|inf)\b", path.read_text("utf-8")), path


def test_the_reference_device_keeps_the_title(drawn):
    def title(folder, result):
        return (folder / result.post / f"{result.result}_data.md").read_text("utf-8").split("\n")[2]

    for result in some(measured()):
        assert title(drawn, result) == title(FIGURES, result), f"{result.post}/{result.result}"


def test_these_are_more_devices_than_there_are_strengths_of_marks():
    assert strength(len(NAMES)) == FAINTEST, "or a chart of many was never drawn"


def test_no_device_has_another_ones_times():
    """What a second card measures differs in some digit: a copy is no measurement."""
    rows = defaultdict(dict)
    for result in measured():
        timed = [r["ms_samples"] for r in result.rows if "ms_samples" in r]
        if timed:
            rows[result.post, result.result][result.folder] = timed
    assert rows
    for key, by_device in rows.items():
        samples = list(map(str, by_device.values()))
        assert len(set(samples)) == len(samples), f"{key}: two devices have the same times"


def test_machines_that_differ_in_kind_share_a_table_of_provenance():
    one, other = measured()[:2]
    two = replace(one, device={**one.device, "gpus": 2, "slowdowns": {}})
    slow = replace(other, device={**other.device, "gpus": 1, "slowdowns": {"thermal": 0.5}})
    head, _, *lines = provenance_table([two, slow])
    heads = [cell.strip() for cell in head.strip("|").split("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    at = [dict(zip(heads, line, strict=True)) for line in cells]
    assert [row["GPUs in the machine"] for row in at] == ["2", "–"]
    assert ["thermal" in row["slowed by"] for row in at] == [False, True]
