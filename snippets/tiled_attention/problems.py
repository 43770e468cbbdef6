"""The problems on which a reader's changed kernel is tried on the page."""

from snippets._lab.judge.problems import attention, logsumexp


def problems():
    yield from attention("tiled_attention")
    yield from attention("tiled_attention", "exercise", "tiled_attention_with_lse", also=logsumexp)
