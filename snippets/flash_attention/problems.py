"""The problems on which a reader's changed kernel is tried on the page."""

from snippets._lab.judge.problems import attention, logsumexp


def problems():
    yield from attention("flash_attention")
    yield from attention(
        "flash_attention",
        also=logsumexp,
        options={"return_lse": True},
        only=["causal_more"],
        ending="_lse",
    )
