"""The least time of a step of decoding, by the bytes that it has to read."""

from typing import NamedTuple


class Model(NamedTuple):
    """What a step depends on, as model cards and configurations give it."""

    name: str
    layers: int
    heads: int  # of keys
    D: int  # columns of a head
    parameters: float


# From the configurations and cards that come with the weights.
MODELS = (
    Model("Phi-3 mini", 32, 32, 96, 3.82e9),
    Model("Qwen2.5 7B", 28, 4, 128, 7.62e9),
    Model("Llama 3.1 8B", 32, 8, 128, 8.03e9),
    Model("Llama 3.1 70B", 80, 8, 128, 70.6e9),
)


def cache_bytes(*, layers, heads, D, keys, size):
    """Bytes of the keys and values of one sequence, in all layers; `size` is that of a number."""
    return 2 * layers * heads * D * keys * size


def least_seconds(*, weight_bytes, of_a_sequence, batch, per_second):
    """Of a step in which each of `batch` sequences gets a token: all is read, and read once.

    The weights serve all sequences; every sequence has a cache of its own.
    """
    return (weight_bytes + batch * of_a_sequence) / per_second
