"""Every popular sentence has fresh data behind it, and its verdict follows the data."""

import copy
import re
from dataclasses import replace

import pytest

from snippets._lab import rooms
from snippets._lab.draw.draw_all import reference_first
from snippets._lab.draw.fragment import fragment
from snippets._lab.results import store
from snippets._lab.results.physics import percentiles
from snippets._lab.results.store import DataError
from snippets.claims import figures as page
from snippets.claims.sentences import CLAIMS, Case, cases_of, verdict
from tests.floors import some

EVERYTHING = reference_first(list(store.scan()))


def where(**wanted):
    return lambda row: all(row.get(k) == v for k, v in wanted.items())


def scaled(field, factor, **wanted):
    """A change to the rows with these values: the field times a factor."""

    def change(rows):
        for row in filter(where(**wanted), rows):
            if row.get(field) is not None:
                row[field] *= factor

    return change


def put(field, value, **wanted):
    """A change to the rows with these values: the field becomes the value."""

    def change(rows):
        for row in filter(where(**wanted), rows):
            row[field] = value

    return change


def times_of(name, other, factor):
    """A change: `name` takes `factor` times as long as `other` does in the same case."""

    def change(rows):
        key = ("dtype", "causal", "M", "N", "D", "heads")
        found = {
            tuple(map(r.get, key)): r["ms_p50"] for r in rows if where(implementation=other)(r)
            if "ms_p50" in r
        }  # fmt: skip
        for row in filter(where(implementation=name), rows):
            if tuple(map(row.get, key)) in found:
                row["ms_p50"] = factor * found[tuple(map(row.get, key))]

    return change


def float16_eight_times_faster(rows):
    slow = {r["N"]: r["ms_p50"] for r in filter(where(dtype="float32"), rows)}
    for row in filter(where(dtype="float16"), rows):
        row["ms_p50"] = slow[row["N"]] / 8


# What would have to be measured for another verdict in at least one regime.
ALTERED = {
    "attention_is_memory_bound": scaled("bytes_moved", 1e-3),
    "flash_attention_is_two_to_four_times_faster": scaled(
        "ms_p50", 99, implementation="flash_attention"
    ),
    "memory_is_linear_instead_of_quadratic": scaled("bytes_peak", 3, N=16384),
    "cudnn_is_up_to_three_quarters_faster": times_of("torch:cudnn", "torch:flash", 1.01),
    "softmax_without_scaling_has_small_gradients": scaled("gradient_norm_median", 100, scaled=True),
    "most_operations_are_memory_bound": scaled("ms_p50", 1000),
    "a_launch_takes_microseconds": put("ms_p50", 50),
    "tensor_cores_give_eight_times": float16_eight_times_faster,
    "multiples_of_sixteen_bytes_are_more_efficient": scaled("ms_p50", 9, D=72),
    "a_stride_of_two_halves_the_efficiency": scaled("ms_p50", 3, stride=2),
}


def result_of(name):
    return page._measured(name, EVERYTHING)[0]


def test_every_claim_has_an_alteration():
    assert 8 <= len(CLAIMS) <= 10
    assert set(ALTERED) == set(CLAIMS)


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_says_who_says_it_and_quotes_a_few_words(name):
    said = CLAIMS[name].said
    assert said.address.startswith("https://")
    assert said.who
    assert said.title
    assert 3 <= len(said.words.split()) <= 12, "a few words, not a paragraph"
    entry = page.claims(EVERYTHING).widget.split(f"{{ #{name} }}")[1].partition("\n### ")[0]
    assert f"[{said.title}]({said.address})" in entry
    assert f"“{said.words}”" in entry
    assert said.about in entry, "a claim speaks of less than what is made of it"


def time_again(rows, before):
    """Samples and percentiles of the rows whose median was altered: a result holds all three."""
    for row, old in zip(rows, before, strict=True):
        if row.get("ms_p50") != old.get("ms_p50"):
            samples = [x * row["ms_p50"] / old["ms_p50"] for x in old["ms_samples"]]
            row |= percentiles(samples) | {"ms_samples": samples}


@pytest.mark.parametrize("name", CLAIMS)
def test_another_measurement_gives_another_verdict(name, tmp_path):
    result = result_of(name)
    before = {c.regime: c.holds for c in cases_of(name, result)}
    store.write(result, tmp_path)
    path = store.path_of(result.folder, result.post, result.result, tmp_path)
    assert {c.regime: c.holds for c in cases_of(name, store.read(path, tmp_path))} == before
    rows = copy.deepcopy(result.rows)
    ALTERED[name](rows)
    time_again(rows, result.rows)
    store.write(replace(result, rows=rows), tmp_path)
    after = {c.regime: c.holds for c in cases_of(name, store.read(path, tmp_path))}
    assert after.keys() == before.keys()
    assert list(after.values()) != list(before.values())


@pytest.mark.parametrize("name", CLAIMS)
def test_every_claim_has_data_and_says_where_they_are_old(name):
    text = (rooms.FIGURES / "claims/claims.md").read_text("utf-8")
    for result in some(page._measured(name, EVERYTHING)):
        asked = f'data-result="{result.folder}/{result.post}/{result.result}"'
        assert asked in text, f"{name}: a build cannot mark {result.post}/{result.result} as old"
        regimes = [c.regime for c in cases_of(name, result)]
        assert len(set(regimes)) == len(regimes) > 0


@pytest.mark.parametrize("name", CLAIMS)
def test_missing_data_stops_the_page(name):
    claim = CLAIMS[name]
    left = [r for r in EVERYTHING if (r.post, r.result) != (claim.post, claim.result)]
    with pytest.raises(DataError, match="has no data"):
        page.claims(left)


@pytest.mark.parametrize("name", CLAIMS)
def test_rows_that_cannot_decide_are_named(name):
    result = replace(result_of(name), rows=[{"something": "else"}])
    with pytest.raises(DataError, match=CLAIMS[name].post):
        cases_of(name, result)


def test_a_verdict_is_one_of_three():
    yes, no = Case("a", True, 1, "1"), Case("b", False, 2, "2")
    assert [verdict(x) for x in ([yes], [no], [yes, no])] == ["true", "false", "depends"]


def anchors(widget):
    return re.findall(r"\{ #(\w+) \}$", widget, re.MULTILINE)


def test_the_page_has_an_anchor_and_a_link_for_each_claim():
    widget = page.claims(EVERYTHING).widget
    assert sorted(anchors(widget)) == sorted(CLAIMS)
    text = (rooms.ROOT / "docs/lab/claims.md").read_text("utf-8")
    assert sorted(re.findall(r"\]\(#(\w+)\)", text)) == sorted(CLAIMS)
    for name in CLAIMS:
        claim = CLAIMS[name]
        assert f"(/posts/{claim.post}.md#figure-{claim.post}-{claim.result})" in widget
        assert (rooms.ROOT / f"docs/figures/{claim.post}/{claim.result}_data.md").exists()


def test_every_source_is_linked_with_its_provenance():
    made = fragment("claims", "claims", page.claims, EVERYTHING)["claims_data.md"]
    for name in some(CLAIMS):
        for r in some(page._measured(name, EVERYTHING)):
            assert f"](/data/{r.folder}/{r.post}/{r.result}.json)" in made
            assert r.source_hash in made


def test_a_second_card_gets_its_own_verdict():
    name = "a_launch_takes_microseconds"
    (result,) = page._measured(name, EVERYTHING)
    rows = copy.deepcopy(result.rows)
    ALTERED[name](rows)
    other = replace(result, folder="other", device={**result.device, "name": "Other"}, rows=rows)
    widget = page.claims([*EVERYTHING, other]).widget
    assert "**False wherever it was measured on Other:**" in widget
