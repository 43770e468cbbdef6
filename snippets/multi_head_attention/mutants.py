"""Wrong variants of module.py. Each is a mistake that people make, and each must be rejected."""

from snippets._lab.judge.mutants import Mutant

MUTANTS = [
    Mutant(
        "mask upside down",
        "hidden = mask == 0",
        "hidden = mask != 0",
        "0 should hide a key, and here it is the only thing that shows one.",
    ),
    Mutant(
        "mask applied after softmax only",
        "scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)",
        "scores = scores * 1.0",
        "Hidden keys take part in the softmax: the visible weights do not add up to one.",
    ),
    Mutant(
        "nothing for a blind query",
        "return scores.softmax(-1).masked_fill(hidden, 0.0)",
        "return scores.softmax(-1)",
        "A query that sees no key gets equal weights: the mean of what it must not see.",
    ),
    Mutant(
        "minus infinity",
        "torch.finfo(scores.dtype).min)\n    return scores.softmax(-1).masked_fill(hidden, 0.0)",
        'float("-inf"))\n    return scores.softmax(-1)',
        "A query that sees no key gets NaN: softmax of nothing but -inf is 0 divided by 0.",
    ),
    Mutant(
        "softmax over the queries",
        "if mask is None:\n        return scores.softmax(-1)",
        "if mask is None:\n        return scores.softmax(-2)",
        "The weights of a key add up to one, where those of a query should.",
    ),
    Mutant(
        "no scale in a head",
        "self.scale = head_dim**-0.5",
        "self.scale = 1.0",
        "One head does not divide by √D: its softmax is too sharp.",
    ),
    Mutant(
        "scale of the whole width",
        "self.scale = self.head_dim**-0.5",
        "self.scale = width**-0.5",
        "The scores are divided by √(H·D): a head has only D columns.",
    ),
    Mutant(
        "heads not split",
        "x = x.view(B, N, self.num_heads, self.head_dim)\n        return x.transpose(1, 2)",
        "return x.view(B, self.num_heads, N, self.head_dim)",
        "The view cuts the tokens into heads and not each token's columns: the shape is right, the "
        "numbers are of other tokens.",
    ),
    Mutant(
        "heads interleaved",
        "x = x.view(B, N, self.num_heads, self.head_dim)",
        "x = x.view(B, N, self.head_dim, self.num_heads).mT",
        "The columns are dealt to the heads like cards: a head gets every H-th column.",
    ),
    Mutant(
        "heads merged without a transpose",
        "x = x.transpose(1, 2)\n        return x.contiguous()",
        "return x.contiguous()",
        "[B, H, N, D] is read as if it were [B, N, H·D]: the shape is right, the tokens are mixed.",
    ),
    Mutant(
        "one mask for each head",
        "mask = mask[:, None]",
        "mask = mask[:1, None]",
        "Every sentence of the batch gets the mask of the first.",
    ),
    Mutant(
        "heads in reverse order",
        "torch.cat(outs, dim=-1)",
        "torch.cat(outs[::-1], dim=-1)",
        "The heads' results reach the columns of W_o that belong to other heads.",
    ),
    Mutant(
        "first head for all",
        "outs = [head(x, mask) for head in self.heads]",
        "outs = [self.heads[0](x, mask) for head in self.heads]",
        "Every head is the first one: H times the same pattern.",
    ),
    Mutant(
        "keys for queries",
        "q = self.split(self.W_q(x))",
        "q = self.split(self.W_k(x))",
        "The queries are made with the projection of the keys: every score is symmetric.",
    ),
    Mutant(
        "heads ignore the mask",
        "[head(x, mask) for head in self.heads]",
        "[head(x) for head in self.heads]",
        "The loop does not hand the mask on: every token sees every other.",
    ),
    Mutant(
        "last projection without its bias",
        "return self.W_o(self.merge(out))",
        "return self.W_o(self.merge(out)) - self.W_o.bias",
        "W_o has a bias, and the result lacks it.",
    ),
]
