"""The arithmetic of page-speed, its table and its server, on made-up samples."""

import gzip
import urllib.request
from dataclasses import asdict, replace

import pytest

from snippets._lab.results import staleness, store
from snippets._site import speed_table
from snippets._site.checks import browser, page_speed
from tests import made_up
from tests.floors import some

STOCK = page_speed.Sample(1000, 1200, 0, 400, 90_000, 6, 70_000, None, 0)
OURS = page_speed.Sample(500, 600, 0.01, 200, 100_000, 7, 50_000, 4000, 500_000)
DEVICE = {
    "name": "a CPU",
    "browser": "Chromium 1",
    "cpu_slowed": 4,
    "latency_ms": 562.5,
    "download_bytes_per_s": 180_000.0,
    "width": 390,
    "runs": 3,
}


def report(ours=OURS, stock=STOCK, page="posts/x/"):
    samples = [(site, run) for site in ("ours", "stock") for run in range(3)]
    values = {"ours": asdict(ours), "stock": asdict(stock)}
    return store.Result(
        post="page_speed",
        result="pages",
        place="browser",
        folder="browser",
        device=DEVICE,
        versions=dict.fromkeys(store.VERSIONS, "absent"),
        commit="unknown",
        measured_at="2026-11-21T00:00:00Z",
        seed=0,
        source_hash="0" * 16,
        rows=[{"page": page, "site": site, "run": run, **values[site]} for site, run in samples],
    )


def changed(**values):
    return page_speed.Sample(**{**asdict(OURS), **values})


def test_a_page_within_its_limits_passes():
    assert speed_table.over(report()) == []
    assert speed_table.table(report()).startswith("Every page keeps every limit.")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"first_paint_ms": 601}, "first paint 601, allowed 600"),
        ({"largest_paint_ms": 781}, "largest paint 781, allowed 780"),
        ({"shift": 0.021}, "layout shift 0.021, allowed 0.02"),
        ({"blocking_ms": 321}, "blocking 321, allowed 320"),
        ({"bytes": 145_001}, "bytes before a figure 145001, allowed 145000"),
        ({"requests": 12}, "requests 12, allowed 11"),
        ({"index_bytes": 155_001}, "search index 155001, allowed 155000"),
        ({"figure_ms": 10_400}, "figure drawn after 10400 ms, allowed 10351 ms"),
    ],
)
def test_each_limit_can_be_missed(values, said):
    (sentence,) = speed_table.over(report(changed(**values)))
    assert said in sentence
    assert said in speed_table.table(report(changed(**values)))


def test_a_short_page_may_block_a_little_whatever_the_stock_page_does():
    stock = replace(STOCK, blocking_ms=40)
    assert speed_table.over(report(changed(blocking_ms=150), stock)) == []
    (sentence,) = speed_table.over(report(changed(blocking_ms=151), stock))
    assert "blocking 151, allowed 150" in sentence


@pytest.mark.parametrize("field", speed_table.ALWAYS)
@pytest.mark.parametrize("site", ["ours", "stock"])
def test_what_was_not_measured_is_below_no_limit(site, field):
    made = report()
    for row in made.rows:
        row[field] = 0 if row["site"] == site else row[field]
    with pytest.raises(store.DataError, match=rf"posts/x/ \({site}\) has no {field}"):
        speed_table.over(made)
    with pytest.raises(store.DataError, match="no page was measured"):
        speed_table.over(replace(made, rows=[]))


def test_some_pages_are_renewed_in_a_report_of_the_same_machine():
    newer = report(changed(shift=0.5), page="posts/a/")
    made = speed_table.by_page(speed_table.renewed(newer, report()))
    assert list(made) == ["posts/a/", "posts/x/"]
    assert made["posts/x/"] == speed_table.by_page(report())["posts/x/"]
    assert len(speed_table.renewed(report(), report()).rows) == 6, "its own pages are replaced"
    other = replace(newer, device={**DEVICE, "name": "another"})
    with pytest.raises(store.DataError, match="not stored: name changed"):
        speed_table.renewed(other, report())
    with pytest.raises(store.DataError, match="the recipe changed"):
        speed_table.renewed(replace(newer, source_hash="1" * 16), report())


def test_pages_can_be_chosen_and_an_unknown_one_is_named(tmp_path):
    for page in ("", "posts/x"):
        (tmp_path / page).mkdir(parents=True, exist_ok=True)
        (tmp_path / page / "index.html").write_text("")
    assert browser.addresses(tmp_path) == ["", "posts/x/"]
    assert browser.addresses(tmp_path, ["posts/x/"]) == ["posts/x/"]
    with pytest.raises(store.DataError, match="no page posts/z/; there are /, /posts/x/"):
        browser.addresses(tmp_path, ["posts/z/"])


def test_the_median_ignores_one_bad_run():
    made = report()
    made.rows[0]["first_paint_ms"] = 9000
    assert speed_table.over(made) == []


def test_a_page_shows_the_table_of_what_is_stored(tmp_path):
    store.write(report(), tmp_path)
    page = 'before\n\n<div class="am-speed" data-result="browser/page_speed/pages"></div>\n\nafter'
    shown = speed_table.shown(page, tmp_path)
    assert shown == f"before\n\n{speed_table.table(report())}\n\nafter"
    with pytest.raises(store.DataError, match=r"other/pages\.json is missing"):
        speed_table.shown(page.replace("page_speed", "other"), tmp_path)


def test_what_is_committed_was_measured_often_enough_and_can_become_stale():
    stored = store.read(store.path_of("browser", "page_speed", "pages"))
    pages = speed_table.by_page(stored)
    assert len(pages) >= 5
    assert all(len(rows) >= 5 for both in pages.values() for rows in some(both.values()))
    drawn = [page for page, both in pages.items() if speed_table.median(both["ours"], "figure_ms")]
    assert len(drawn) >= 5, "a figure was timed"
    now = replace(stored, **made_up.code_as_it_is("page_speed", "pages"))
    assert not staleness.is_stale(now)
    ((file, found),) = now.code.items()
    assert {"pages", "Sample"} <= found.keys()
    before = replace(now, code={file: found | {"Sample": "0" * 10}})
    assert staleness.changed(before) == ["_site/checks/page_speed.py: Sample"]


def test_the_server_compresses_below_its_prefix_and_keeps_a_list(tmp_path):
    (tmp_path / "index.html").write_text("<p>" + "x" * 1000, "utf-8")
    with browser.Server(tmp_path, "/deep/") as server:
        request = urllib.request.Request(server.address, headers={"Accept-Encoding": "gzip"})
        with urllib.request.urlopen(request) as answer:
            body = answer.read()
            assert answer.headers["Content-Encoding"] == "gzip"
            assert answer.headers["Content-Type"] == "text/html"
        assert gzip.decompress(body) == b"<p>" + b"x" * 1000
        assert server.sent == [("/deep/", len(body))]
        for wrong in ("x", "../index.html", "../../etc/passwd"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(server.address + wrong)
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(server.address.replace("/deep/", "/"))


def test_a_site_is_served_as_if_built_for_the_server_s_address(tmp_path):
    elsewhere = "http://127.0.0.1:9/deep/"
    page = tmp_path / "index.html"
    page.write_text(f"{elsewhere}posts/", "utf-8")
    with browser.Server(tmp_path, "/deep/", elsewhere) as server:
        for text in ("posts/", "lab/"):  # the folder may change while it is served
            page.write_text(f"{elsewhere}{text}", "utf-8")
            with urllib.request.urlopen(server.address) as answer:
                assert answer.read().decode() == server.address + text


def test_a_site_without_pages_is_refused(tmp_path):
    with pytest.raises(store.DataError, match="no page"):
        browser.addresses(tmp_path)
