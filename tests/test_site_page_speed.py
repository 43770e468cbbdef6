"""The audit's arithmetic, its report and its server, on made-up samples."""

import gzip
import json
import urllib.request
from dataclasses import asdict

import pytest

from snippets._lab.results import store
from snippets._site.checks import page_speed

STOCK = page_speed.Sample(1000, 1200, 0, 400, 90_000, 6, 70_000, None, 0)
OURS = page_speed.Sample(500, 600, 0.01, 200, 100_000, 7, 50_000, 4000, 500_000)


def report(ours=OURS, stock=STOCK, runs=3):
    both = {"ours": [asdict(ours)] * runs, "stock": [asdict(stock)] * runs}
    return {
        "schema": 1,
        "measured_at": "2026-01-01T00:00:00Z",
        "cpu": "a CPU",
        "browser": "Chromium 1",
        "profile": {"cpu_slowed": 4, "latency_ms": 562.5, "download_bytes_per_s": 180_000.0,
                    "viewport": page_speed.PHONE, "runs": runs},
        "pages": {"posts/x/": both},
    }  # fmt: skip


def changed(**values):
    return page_speed.Sample(**{**asdict(OURS), **values})


def test_a_page_within_its_limits_passes():
    assert page_speed.over(report()) == []
    assert page_speed.table(report()).startswith("Every page keeps every limit.")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"first_paint_ms": 601}, "first paint 601, allowed 600"),
        ({"largest_paint_ms": 781}, "largest paint 781, allowed 780"),
        ({"shift": 0.021}, "layout shift 0.021, allowed 0.02"),
        ({"blocking_ms": 321}, "blocking 321, allowed 320"),
        ({"bytes": 130_001}, "bytes before a figure 130001, allowed 130000"),
        ({"requests": 9}, "requests 9, allowed 8"),
        ({"index_bytes": 150_001}, "search index 150001, allowed 150000"),
        ({"figure_ms": 10_400}, "figure drawn after 10400 ms, allowed 10351 ms"),
    ],
)
def test_each_limit_can_be_missed(values, said):
    (sentence,) = page_speed.over(report(changed(**values)))
    assert said in sentence
    assert said in page_speed.table(report(changed(**values)))


def test_a_short_page_may_block_a_little_whatever_the_stock_page_does():
    made = report(changed(blocking_ms=150))
    for sample in made["pages"]["posts/x/"]["stock"]:
        sample["blocking_ms"] = 40
    assert page_speed.over(made) == []
    for sample in made["pages"]["posts/x/"]["ours"]:
        sample["blocking_ms"] = 151
    assert "blocking 151, allowed 150" in page_speed.over(made)[0]


def test_some_pages_are_renewed_in_a_report_of_the_same_machine(tmp_path):
    page_speed.write(report(), tmp_path)
    newer = report(changed(shift=0.5))
    newer["pages"]["posts/a/"] = newer["pages"].pop("posts/x/")
    made = page_speed.renewed(newer, tmp_path)
    assert list(made["pages"]) == ["posts/a/", "posts/x/"]
    assert made["pages"]["posts/x/"] == report()["pages"]["posts/x/"]
    with pytest.raises(store.DataError, match="not stored: cpu changed"):
        page_speed.renewed({**newer, "cpu": "another"}, tmp_path)


def test_pages_can_be_chosen_and_an_unknown_one_is_named(tmp_path):
    for page in ("", "posts/x"):
        (tmp_path / page).mkdir(parents=True, exist_ok=True)
        (tmp_path / page / "index.html").write_text("")
    assert page_speed.pages(tmp_path) == ["", "posts/x/"]
    assert page_speed.pages(tmp_path, ["posts/x/"]) == ["posts/x/"]
    with pytest.raises(store.DataError, match="no page posts/z/; there are /, /posts/x/"):
        page_speed.pages(tmp_path, ["posts/z/"])


def test_the_median_ignores_one_bad_run():
    made = report()
    made["pages"]["posts/x/"]["ours"][0] = asdict(changed(first_paint_ms=9000))
    assert page_speed.over(made) == []


def test_the_report_is_stored_whole_and_the_table_is_drawn_from_it(tmp_path):
    page_speed.write(report(), tmp_path)
    stored = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    assert stored == report()
    assert (tmp_path / "table.md").read_text("utf-8") == page_speed.table(stored)


def test_the_committed_table_is_drawn_from_the_committed_report():
    stored = json.loads((page_speed.REPORT / "audit.json").read_text("utf-8"))
    assert (page_speed.REPORT / "table.md").read_text("utf-8") == page_speed.table(stored)
    assert len(stored["pages"]) >= 5
    assert all(len(rows) >= 5 for both in stored["pages"].values() for rows in both.values())


def test_the_server_compresses_below_its_prefix_and_keeps_a_list(tmp_path):
    (tmp_path / "index.html").write_text("<p>" + "x" * 1000, "utf-8")
    with page_speed.Server(tmp_path, "/deep/") as server:
        with urllib.request.urlopen(server.address) as answer:
            body = answer.read()
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.headers["Content-Type"] == "text/html"
        assert gzip.decompress(body) == b"<p>" + b"x" * 1000
        assert server.sent == [("/deep/", len(body))]
        for wrong in ("x", "../index.html"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(server.address + wrong)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.address.replace("/deep/", "/"))


def test_a_site_without_pages_is_refused(tmp_path):
    with pytest.raises(store.DataError, match="no page"):
        page_speed.pages(tmp_path)
