"""Wrong formulas: each is the page's module with one mistake, and a test that rejects it."""

from snippets._lab.judge.mutants import Mutant

MUTANTS = [
    Mutant(
        "the softmax costs nothing",
        "eager = square + max(square, rows) + mask",
        "eager = square + rows + mask",
        "The weights are a second N × N: the scores are still there while the softmax writes them.",
    ),
    Mutant(
        "one head's scores",
        "square = B * H * N * N * size",
        "square = B * N * N * size",
        "Every head has scores of its own. By this formula 32 heads cost as much as one.",
    ),
    Mutant(
        "linear in N",
        "square = B * H * N * N * size",
        "square = B * H * N * D * size",
        "A row of scores has one number for each key, not one for each column of a key.",
    ),
    Mutant(
        "half precision forgotten",
        "torch.float16: 2, torch.bfloat16: 2",
        "torch.float16: 4, torch.bfloat16: 4",
        "float16 and bfloat16 take 2 bytes. This table is right in float32 only.",
    ),
    Mutant(
        "a mask for each head",
        "mask = N * N if causal else 0",
        "mask = H * N * N if causal else 0",
        "One mask serves all heads: it is broadcast, not copied.",
    ),
    Mutant(
        "a mask of numbers",
        "mask = N * N if causal else 0",
        "mask = N * N * size if causal else 0",
        "A bool takes one byte, whatever the dtype of the scores.",
    ),
    Mutant(
        "backward counted as two",
        "max(4 * square + 4 * rows + mask",
        "max(2 * square + 4 * rows + mask",
        "The softmax's backward reads the weights and their gradient, and writes a third N × N.",
    ),
    Mutant(
        "the inside of an operation forgotten",
        "max(4 * square + 4 * rows + mask",
        "max(3 * square + 4 * rows + mask",
        "On a GPU the softmax's backward also stores weights times gradient, unseen from outside.",
    ),
    Mutant(
        "gradients forgotten",
        "square + 6 * rows)",
        "square + 3 * rows)",
        "With few tokens the rows decide, and a training step has twice as many of them.",
    ),
    Mutant(
        "logsumexp in half precision",
        "logsumexp = B * H * N * 4",
        "logsumexp = B * H * N * size",
        "The fused kernel's logsumexp stays float32, because the backward takes its exponential.",
    ),
    Mutant(
        "scores kept beside the weights",
        "del scores",
        "keep = scores",
        "A name still in scope keeps its tensor, and the peak comes when the result is written.",
    ),
    Mutant(
        "the largest N is one too many",
        "return largest",
        "return largest + 1",
        "The end of the interval that does not fit was taken for the one that does.",
    ),
]
