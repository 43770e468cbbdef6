"""What the heads of a model look at: weights, and how much of them lies where one would expect."""

import torch

from .module import sdpa

OPENING, CLOSING = b"([{", b")]}"
NEWLINE, SPACE = ord("\n"), ord(" ")


@torch.no_grad()
def weights_of(model, tokens):
    """Attention weights of every layer and head for tokens [B, N]: [layers, B, H, N, N]."""
    found = []

    def attend(q, k, v):
        k_all = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).float()
        scores = q.float() @ k_all.mT * q.shape[-1] ** -0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        found.append(scores.masked_fill(hidden, float("-inf")).softmax(-1))
        return sdpa(q, k, v)

    model(tokens, attend)
    return torch.stack(found)


def previous(text):
    """For each byte after the first: the one before it. (position, keys that count)."""
    return [(at, [at - 1]) for at in range(1, len(text))]


def brackets(text):
    """For each closing bracket: the opening one that it matches."""
    pairs, opened = [], []
    for at, byte in enumerate(text):
        if byte in OPENING:
            opened.append((at, byte))
        elif byte in CLOSING:
            if opened and OPENING.index(opened[-1][1]) == CLOSING.index(byte):
                pairs.append((at, [opened.pop()[0]]))
            else:
                opened.clear()  # a bracket in a string, or a window that began inside one
    return pairs


def indentation(text):
    """For each line break, after which an indentation is due: the indentation of the same line."""
    found, start = [], 0
    for at, byte in enumerate(text):
        if byte != NEWLINE:
            continue
        end = start
        while end < at and text[end] == SPACE:
            end += 1
        if end > start and end < at:
            found.append((at, list(range(start, end))))
        start = at + 1
    return found


TARGETS = {"previous byte": previous, "matching bracket": brackets, "indentation": indentation}


def shares(weights, tokens):
    """Mean share of each head's weight on each kind of target, and what even weights would give.

    weights [layers, B, H, N, N] of tokens [B, N] → {kind: ([layers][H], even, count)}.
    """
    found = {}
    for kind, targets in TARGETS.items():
        rows, ats, keys, even, count = [], [], [], 0.0, 0
        for row, window in enumerate(tokens.tolist()):
            for at, wanted in targets(bytes(window)):
                rows += [row] * len(wanted)
                ats += [at] * len(wanted)
                keys += wanted
                even += len(wanted) / (at + 1)
                count += 1
        if count:
            total = weights[:, rows, :, ats, keys].sum(0)  # [layers, H]
            found[kind] = ((total / count).tolist(), even / count, count)
    return found
