"""What the drawings of the first posts work out agrees with PyTorch, the kernels and the data."""

import ast
import inspect
import itertools
import re
from types import SimpleNamespace

import pytest
import torch

from tests.floors import some

pytest.importorskip("plotly")

from snippets._lab.draw.draw_all import pictures
from snippets._lab.draw.figure import Figure
from snippets._lab.draw.pictures import Picture, picture_fragment
from snippets._lab.results import store
from snippets._lab.results.store import DataError
from snippets.attention_memory import drawings as memory
from snippets.attention_memory.module import attention_memory
from snippets.attention_weights import drawings as weights
from snippets.attention_weights.kernel import attention_weights
from snippets.coalescing import drawings as coalescing
from snippets.composed_attention import drawings as composed
from snippets.composed_attention import kernel as matmul

USED = {
    "attention_weights": ("attention_map",),
    "multi_head_attention": ("contiguity", "launches", "layer_time"),
    "attention_memory": ("tensors", "hierarchy"),
    "composed_attention": ("memory_traffic",),
}


@pytest.fixture(scope="module")
def results():
    return [r for r in store.scan() if r.result in USED.get(r.post, ())]


def test_the_four_steps_are_those_of_attention():
    q, k, v = (
        torch.tensor(x, dtype=torch.float64)
        for x in ([weights.QUERY], weights.KEYS, weights.VALUES)
    )
    scores, scaled, shares, mixed = weights.steps()
    assert scores == (q @ k.T)[0].tolist()
    torch.testing.assert_close(
        torch.tensor(scaled).double(), (q @ k.T)[0] / len(weights.QUERY) ** 0.5
    )
    torch.testing.assert_close(torch.tensor(shares).double(), torch.softmax(q @ k.T / 2, -1)[0])
    right = torch.nn.functional.scaled_dot_product_attention(q, k, v)[0]
    torch.testing.assert_close(torch.tensor(mixed).double(), right, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("align", ["bottom_right", "top_left"])
@pytest.mark.parametrize(("M", "N"), [(4, 7), (7, 4), (5, 5)])
def test_the_triangle_is_what_the_kernel_sees(M, N, align):
    torch.manual_seed(0)
    q, k = torch.randn(1, M, 8), torch.randn(1, N, 8)
    if torch.cuda.is_available():
        q, k = q.cuda(), k.cuda()
    seen = (attention_weights(q, k, causal=True, align=align)[0] > 0).tolist()
    first = weights.first_sees(M, N, align)
    assert seen == [[key < first + query for key in range(N)] for query in range(M)]


def test_groups_are_walked_as_the_kernel_does():
    """The kernel's own lines, run for each tile of the drawing."""
    source = inspect.getsource(matmul._matmul_kernel.fn)
    found = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        and ast.unparse(node.targets[0]) in ("first", "height", "tile_m", "tile_n")
    ]
    assert len(found) == 4
    code = "\n".join(ast.unparse(node) for node in sorted(found, key=lambda node: node.lineno))
    order = []
    for tile in range(composed.TILES**2):
        names = {"tl": SimpleNamespace(minimum=min), "tile": tile, "GROUP_M": composed.GROUP}
        names |= {"tiles_m": composed.TILES, "tiles_n": composed.TILES}
        exec(code, names)  # noqa: S102  a few lines of this repository
        order.append((names["tile_m"], names["tile_n"]))
    assert order == [composed._grouped(tile) for tile in range(composed.TILES**2)]
    everywhere = set(itertools.product(range(composed.TILES), repeat=2))
    assert set(order) == {composed._plain(tile) for tile in range(composed.TILES**2)} == everywhere


def test_lifetimes_sum_to_the_peak_of_the_formula(results):
    drawn = memory.lifetimes(results)
    peak = max(row["bytes"] for row in drawn.table)
    assert peak == attention_memory(32, 32, 4096, 64)["eager"]
    wrong = [
        store.Result(**{**vars(r), "rows": [{**row, "eager": 1} for row in r.rows]})
        for r in results
        if r.result == "tensors"
    ]
    with pytest.raises(DataError, match="the tensors drawn sum to"):
        memory.lifetimes(wrong)


def test_a_warp_shares_sectors_along_a_row_only():
    assert "touches 4 sectors" in coalescing.row_and_column().svg
    assert "touches 32 sectors" in coalescing.row_and_column().svg


def test_a_picture_that_cannot_be_drawn_is_named():
    def broken(results):
        return Picture("It", "is", str(results[0]))

    with pytest.raises(DataError, match="picture broken of coalescing cannot be drawn: IndexError"):
        picture_fragment("coalescing", "broken", broken, [])
    assert picture_fragment("coalescing", "later", lambda results: None, []) == {}
    with pytest.raises(DataError, match="markup in its text"):
        picture_fragment("coalescing", "unsafe", lambda: Picture("<b>", "", ""), [])


def test_pictures_say_what_to_see(results):
    for room in (*USED, "coalescing"):
        for name, function in some(pictures(room)).items():
            made = function(results) if inspect.signature(function).parameters else function()
            assert not isinstance(made, Figure)
            assert made.sees.endswith("."), f"{room}/{name}"
            assert re.search(r'aria-label="[^"]{40,}"', made.svg), f"{room}/{name}"
