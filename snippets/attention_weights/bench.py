"""What the page of attention_weights measures: one function for each result."""

import math
from typing import NamedTuple

import torch

from snippets._lab.judge.oracle import assert_weights, causal_mask, eager_weights, make_qkv
from snippets._lab.rooms import measured_on

from .capture import read
from .kernel import attention_weights

# The sentences of the map, the first by default, and in each the pairs of places (query, key) whose
# heads are pointed out.
ON_THE_MAP = {
    "pronoun": [(8, 2), (3, 2)],  # it → cat, sat → cat
    "agreement": [(6, 2)],  # are → keys
    "repetition": [(11, 2)],  # red → red
    "code": [(12, 6), (7, 3)],  # b → b, ) → (
}
WIDTHS = [4, 8, 16, 32, 64, 128, 256, 512, 1024]
LENGTHS = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096]


class Claim(NamedTuple):
    """What is said about a sentence, by places: a query attends to some keys and ignores others."""

    name: str
    sentence: str
    query: int
    attended: list[int]
    ignored: list[int]


CLAIMS = [
    Claim("sat", "pronoun", 3, [2, 6], [1, 5]),  # sat: cat and mat, not the
    Claim("it", "pronoun", 8, [2], [6]),  # it: cat, not mat …
    Claim("it_is_the_mat", "control", 8, [6], [2]),  # … and mat, not cat, when it is soft
    Claim("it_is_still_the_cat", "control", 8, [2], [6]),
    Claim("are", "agreement", 6, [2], [5]),  # are: keys, not cabinet
    Claim("red", "repetition", 11, [2], [12]),  # red: the red before, not bird
    Claim("b", "code", 12, [6], [4]),  # b: the b before, not a
    Claim("bracket", "code", 7, [3], [4, 6]),  # ): the bracket it closes
]


def check(device):
    """Raise unless the kernel is right on this device; no result is stored before it passed."""
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        for M, N, D in ((1, 1, 64), (3, 65, 40), (2, 129, 128), (4, 3, 16)):
            q, k, _ = make_qkv(2, M=M, N=N, D=D, dtype=dtype, device=device)
            assert_weights(attention_weights(q, k), q, k)
            for align in ("bottom_right", "top_left"):
                mask = causal_mask(M, N, align=align, device=device)
                assert_weights(attention_weights(q, k, causal=True, align=align), q, k, mask=mask)


@measured_on("gpu", "interpreter")
def attention_map(lab):
    """The weights of all 72 heads of a real model, and their distance from the model's own."""
    device = "cuda" if lab.place == "gpu" else "cpu"
    for case in lab.each(sentence=list(ON_THE_MAP)):
        taken = read(case["sentence"])
        q, k = taken.q.float().to(device), taken.k.float().to(device)  # [6, 12, N, 32]
        weights = attention_weights(q, k)  # [6, 12, N, N]: layers instead of a batch
        found = assert_weights(weights, q, k)
        difference = (weights.cpu().double() - taken.weights.double()).abs()
        share = difference / (taken.rounding() + found.allowed)
        if not share.max() <= 1:
            raise AssertionError(f"{case['sentence']}: differs by more than rounding")
        for layer in range(len(weights)):
            yield {
                **case,
                "layer": layer,
                "text": taken.text,
                "tokens": taken.tokens,
                "pairs": ON_THE_MAP[case["sentence"]],
                "capture": taken.digest(),
                "difference_largest": difference[layer].max().item(),
                "difference_of_allowed": share[layer].max().item(),
                "weights": _rounded(weights[layer]),
            }


def _rounded(weights):
    """[heads, M, N] as nested lists with four decimals: what a map shows and a page can carry."""
    return [[[round(x, 4) for x in row] for row in head] for head in weights.tolist()]


@measured_on("interpreter")
def claims(lab):
    """Sentences about attention, looked up in every head of the model's own weights.

    A head agrees if each key that should be attended to gets more than an equal share, 1/N, and
    each that should be ignored gets less.
    """
    for case in lab.each(claim=list(range(len(CLAIMS)))):
        claim = CLAIMS[case["claim"]]
        taken = read(claim.sentence)
        rows = taken.weights[:, :, claim.query].float()  # [6, 12, N]
        equal = 1 / rows.shape[-1]
        attended, ignored = rows[..., claim.attended], rows[..., claim.ignored]  # [6, 12, keys]
        agree = (attended > equal).all(-1) & (ignored < equal).all(-1)
        winners = (rows.argmax(-1)[..., None] == torch.tensor(claim.attended)).any(-1)
        strongest = attended.sum(-1)
        yield {
            **case,
            **claim._asdict(),
            "text": taken.text,
            "tokens": taken.tokens,
            "heads": agree.numel(),
            "agree": agree.nonzero().tolist(),  # [layer, head], from zero
            "strongest_key": winners.nonzero().tolist(),
            "head_of_most": list(divmod(strongest.argmax().item(), rows.shape[1])),
            "most": strongest.max().item(),
            "mean_attended": attended.sum(-1).mean().item(),
            "mean_ignored": ignored.sum(-1).mean().item(),
            "mean_first": rows[..., 0].mean().item(),
        }


@measured_on("interpreter")
def heads_of_the_model(lab):
    """What each head does on average over all queries of the map's sentences, by itself."""
    sentences = [read(name) for name in ON_THE_MAP]
    for case in lab.each(layer=list(range(6)), head=list(range(12))):
        found = [_behaviour(s.weights[case["layer"], case["head"]].double()) for s in sentences]
        yield {**case, **{key: sum(f[key] for f in found) / len(found) for key in found[0]}}


def _behaviour(weights):
    """Averages over the queries of one head, weights [N, N]."""
    N = len(weights)
    places = torch.arange(N)
    distance = (places[:, None] - places).abs()
    entropy = torch.special.entr(weights).sum(-1).mean().item()
    return {
        "entropy_nats": entropy,
        "entropy_relative": entropy / math.log(N),
        "distance_tokens": (weights * distance).sum(-1).mean().item(),
        "to_first": weights[:, 0].mean().item(),
        "to_last": weights[:, -1].mean().item(),
        "to_self": weights.diagonal().mean().item(),
        "to_previous": weights.diagonal(-1).mean().item(),
        "to_next": weights.diagonal(1).mean().item(),
    }


@measured_on("interpreter")
def scaling(lab):
    """Scores, softmax and its gradient over d, with and without 1/√d; q, k from N(0, 1)."""
    for case in lab.each(d=WIDTHS, scaled=[False, True], seed=list(range(10))):
        generator = torch.Generator().manual_seed(case["seed"])
        q, k = torch.randn(2, 256, case["d"], generator=generator, dtype=torch.float64)
        logits = q @ k.mT * (case["d"] ** -0.5 if case["scaled"] else 1.0)  # [256, 256]
        p = logits.softmax(-1)
        # ∂p_i/∂s_j = p_i·(1 if i = j else 0) - p_i·p_j; the norm over all i and j of a row:
        squares = (p**2).sum(-1)
        gradient = (squares - 2 * (p**3).sum(-1) + squares**2).clamp(min=0).sqrt()
        entropy = torch.special.entr(p).sum(-1).mean().item()
        yield {
            **case,
            "keys": 256,
            "logits_deviation": logits.std().item(),
            "entropy_nats": entropy,
            "entropy_relative": entropy / math.log(256),
            "largest_weight": p.amax(-1).mean().item(),
            "gradient_norm": gradient.mean().item(),
            "gradient_norm_median": gradient.median().item(),
        }


@measured_on("gpu")
def forward(lab):
    """Time of the weights of 16 heads, full and causal, against eager PyTorch."""
    variants = {
        "attention_weights": lambda q, k, v: attention_weights(q, k),
        "attention_weights, causal": lambda q, k, v: attention_weights(q, k, causal=True),
        "torch:eager": lambda q, k, v: eager_weights(q, k),
    }
    for case in lab.each(dtype=["float32", "float16"], D=[64], heads=[16], N=LENGTHS):
        for row in lab.time_attention(case, [], variants):
            yield row if "error" in row else row | _work(row)


def _work(row):
    """FLOPs and bytes that this row cannot avoid: q, k and the weights, each once."""
    N, D, heads = row["N"], row["D"], row["heads"]
    causal = "causal" in row["implementation"]
    scores = N * (N + 1) // 2 if causal else N * N
    size = getattr(torch, row["dtype"]).itemsize
    count = heads * (2 * N * D + N * N) * size
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return {
        "flops": 2 * heads * scores * D,
        "bytes_compulsory": count,
        "bytes_of_weights": heads * N * N * size,
        "fits_l2": count < l2,
    }
