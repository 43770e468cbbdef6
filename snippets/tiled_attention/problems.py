"""The problems on which a reader's changed kernel is tried on the page."""

from snippets._lab.judge.problems import attention


def problems():
    yield from attention("tiled_attention")
