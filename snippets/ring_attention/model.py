"""How long a ring takes, from two rates: what the page's simulator computes."""

from typing import NamedTuple

HEADS, D, BYTES = 16, 128, 2  # of q, k and v: as many heads of keys, 16 bits a number


class Ring(NamedTuple):
    """A ring, and how fast its GPUs and links are."""

    ranks: int
    N: int  # of the whole sequence
    causal: bool
    link: float  # bytes/s that a GPU sends while it receives as many
    rate: float  # FLOP/s of a step


def predicted(ring):
    """Seconds of a step, of a message and of a forward pass, and the share of an ideal speed-up.

    A message travels during a step, so a step takes as long as the longer of the two; the last one
    sends nothing. With a causal mask, in zigzag, all steps have half the work.
    """
    rows = ring.N / ring.ranks
    step = 4 * HEADS * rows * rows * D / ring.rate / (2 if ring.causal else 1)
    message = 2 * HEADS * rows * D * BYTES / ring.link  # k and v
    total = (ring.ranks - 1) * max(step, message) + step
    return {"step": step, "message": message, "total": total, "share": ring.ranks * step / total}


def hidden_from(ring):
    """Rows of a rank from which a message takes no longer than a step, whatever N is."""
    return ring.rate * BYTES * (2 if ring.causal else 1) / (2 * ring.link)


def memory(ring):
    """Bytes that a rank holds in the forward: q, k, v, the output, the sums, and two buffers."""
    rows = ring.N / ring.ranks
    return HEADS * rows * D * (4 * BYTES + 4 + 4 * BYTES)
