"""The rooms' own oracles take what is right, and nothing that was spoiled."""

import pytest
import torch

from snippets._lab.judge.oracle import (
    NumericalMismatch,
    assert_weights,
    eager_attention,
    eager_weights,
    make_qkv,
)
from snippets.coalescing.checks import assert_copied, assert_sums
from snippets.composed_attention.bench import assert_matmul, assert_softmax, assert_transpose
from snippets.decode_attention.checks import assert_decoded, make_cache
from snippets.decode_attention.kernel import decode_attention
from snippets.flash_backward.checks import assert_gradients, eager_gradients
from snippets.latency_hiding.checks import assert_held, assert_walked, assert_worked
from snippets.latency_hiding.kernel import LINE, cycle, hold_and_wait, latency_hiding, work_on_tiles
from snippets.ring_attention.checks import assert_ring
from tests.posts.test_multi_head_attention import assert_layer, make, tokens

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPOILED = {
    "cut": lambda x: x[..., :-1],
    "moved": lambda x: x.flatten().roll(1).view_as(x),
    "NaN": lambda x: x * torch.nan,
    "zeros": torch.zeros_like,
    "a little larger": lambda x: x + 1e-3,
    "of 16 bits": lambda x: x.half(),
}


def oracles():
    """(name, right results, the check that takes them) of each."""
    x = torch.randn(8, 9, device=DEVICE)
    yield "copies", [x[:, ::3]], lambda out: assert_copied(out, x[:, ::3])
    yield "sums", [x.sum(1)], lambda out: assert_sums(out, x, dim=1)
    yield "transpose", [x.mT.contiguous()], lambda out: assert_transpose(out, x)
    yield "product", [x @ x.mT], lambda out: assert_matmul(out, x, x.mT)
    yield "softmax", [x.softmax(-1)], lambda out: assert_softmax(out, x)
    loop, given = make()["loop"], tokens()
    yield "layer", [loop(given)], lambda out: assert_layer(out, loop, given)

    q, k, v = make_qkv(1, 2, M=8, N=8, D=16, device=DEVICE)
    yield "weights", [eager_weights(q, k)], lambda out: assert_weights(out, q, k)
    problem = q, k, v, torch.randn_like(q)
    found = [*eager_gradients(*problem)]
    yield "gradients", found, lambda *found: assert_gradients(found, *problem)
    found = [eager_attention(q, k, v), *found]
    yield "ring", found, lambda *found: assert_ring(found, *problem, causal=False)

    links = cycle(65 * 4 * LINE, device=DEVICE)
    starts = (torch.arange(5, device=DEVICE) * 7 * LINE).int()
    walked = latency_hiding(links, starts, steps=9)
    yield "walks", [walked], lambda out: assert_walked(out, links, starts, 9)
    tiles = torch.randn(2, 64, device=DEVICE)
    worked = work_on_tiles(tiles, steps=3, num_warps=1)
    yield "work", [worked], lambda out: assert_worked(out, tiles, 3)
    held = links, starts, tiles.view(-1)
    found = hold_and_wait(*held, steps=9)
    yield "held", found, lambda *found: assert_held(*found, *held, 9, 0)

    cache = make_cache([40, 7], M=2, page=16, device=DEVICE)
    found = decode_attention(*cache[:3], **cache.options(), return_lse=True)
    yield "decoded", found, lambda out, lse: assert_decoded(out, cache, lse=lse)


ORACLES = {
    f"{name} {at}": (found, check, at)
    for name, found, check in oracles()
    for at in range(len(found))
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("name", ORACLES)
def test_what_was_spoiled_is_rejected(name, how):
    found, check, at = ORACLES[name]
    check(*found)
    wrong = SPOILED[how](found[at])
    if how == "of 16 bits" and name.startswith(("gradients", "ring")):
        pytest.skip("its bound is that of the dtype it gets")
    if wrong.shape == found[at].shape and torch.equal(wrong, found[at]):
        pytest.skip("all of its numbers are the same")
    with pytest.raises(NumericalMismatch):
        check(*found[:at], wrong, *found[at + 1 :])
