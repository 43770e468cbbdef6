"""The drawing of the GPU, which other posts include: with latencies, without, and not yet drawn."""

import re
from dataclasses import replace

import pytest

from snippets._lab.draw.fragment import fragment
from snippets._lab.results import store
from snippets._lab.results.store import DataError
from snippets._site import unmeasured
from snippets.latency_hiding import figures
from snippets.latency_hiding.bench import SETS


def measured(post, name):
    return store.read(store.path_of("nvidia_h200", post, name))


def test_a_card_whose_levels_were_not_measured_is_refused():
    whole = measured("latency_hiding", "latency")
    figures.latency([whole])
    short = [row for row in whole.rows if row["set_bytes"] in SETS[:4]]
    with pytest.raises(DataError, match="no working set between"):
        figures.latency([replace(whole, rows=short)])


def test_the_gpu_is_drawn_with_latencies_and_without():
    """Other posts include it; on a card whose latencies nobody measured it says the rest."""
    sizes, latency = (
        measured("attention_memory", "hierarchy"),
        measured("latency_hiding", "latency"),
    )
    with_, without = (
        fragment("latency_hiding", "gpu", figures.gpu, [sizes, *more])["gpu.md"]
        for more in ([latency], [])
    )
    for text in ("132 streaming multiprocessors", "256 KiB", "60 MiB", "16 per cycle"):
        assert text in with_
        assert text in without
    assert " ns" in with_
    assert " ns" not in without
    assert re.search(r'aria-label="The NVIDIA H200: 132 streaming', with_), "a text alternative"


def test_a_page_says_that_a_drawing_waits(tmp_path):
    include = '--8<-- "docs/figures/latency_hiding/gpu.md"'
    shown = unmeasured.shown(include, tmp_path)
    assert unmeasured.BADGE in shown
    assert "`make bench POST=latency_hiding`" in shown
    for drawn in ("gpu.md:part", "no_such_drawing.md"):
        wrong = include.replace("gpu.md", drawn)
        assert unmeasured.shown(wrong, tmp_path) == wrong, "the build says that it is not there"
    path = tmp_path / "docs/figures/latency_hiding/gpu.md"
    path.parent.mkdir(parents=True)
    path.write_text("drawn")
    assert unmeasured.shown(include, tmp_path) == include
