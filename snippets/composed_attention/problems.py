"""The problems on which a reader's changed kernel is tried on the page."""

from snippets._lab.judge.problems import attention


def problems():
    # In float16 the weights lie in the memory of float32 scores; on the page memory has one type.
    yield from attention("composed_attention", without=["half"])
