"""masks_and_packing inside the models of Hugging Face's transformers library, 5.17 or newer.

A call gives what eager attention gives, or is refused with a sentence that says why.
"""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import prepare_padding_mask, sdpa_mask

from .kernel import masks_and_packing

NAME = "attention_measured"  # AutoModel.from_pretrained(path, attn_implementation=NAME)
OTHERWISE = "model.set_attn_implementation('sdpa') or 'eager' takes the rest"
QUERIES = 1024  # whose masks are evaluated at once: all of them could fill the memory
# What else a model hands on: it does not change attention, or the mask has it already.
HARMLESS = {
    *("cache_position", "deterministic", "is_causal", "logits_to_keep", "max_length_k"),
    *("max_length_q", "mm_token_type_ids", "num_items_in_batch", "output_hidden_states"),
    *("output_router_logits", "position_ids", "return_dict", "sliding_window"),
    *("token_type_ids", "use_cache"),
}


# --8<-- [start:register]
@torch.compiler.disable  # generate() compiles the model where a cache is static
def attend(module, query, key, value, attention_mask, *, scaling=None, dropout=0.0, **options):
    """What a model calls: query [B, H, M, D] → ([B, M, H, D], None); the mask of visible_keys."""
    parts = _parts(module, query, key, attention_mask, options)
    sinks = options.pop("s_aux", getattr(module, "sinks", None))
    terms = {"scale": scaling, "softcap": options.pop("softcap", None)}
    terms["sinks"] = sinks if sinks is None else sinks.float().contiguous()
    _check_options(parts, dropout, options)
    out = torch.zeros_like(query)  # what a query that sees no key keeps: it is padding
    for b, kept, pieces in parts:
        k, v = key[b, :, kept], value[b, :, kept]
        for queries, keys, causal, left in pieces:
            x = query[b, :, queries], k[:, :, keys], v[:, :, keys]
            try:
                out[b, :, queries] = masks_and_packing(
                    *x, causal=causal, window=(left, None), **terms
                )
            except (TypeError, ValueError) as error:  # of shapes, dtypes, gradients
                raise type(error)(f"{error}; {OTHERWISE}") from None
    return out.transpose(1, 2).contiguous(), None


def visible_keys(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, **options):
    """A mask [B, 1, M, N] for attend, from the library's function of a query and a key."""
    kept = torch.ones(batch_size, kv_length, dtype=torch.bool, device=options["device"])  # [B, N]
    padding = prepare_padding_mask(options.get("attention_mask"), kv_length, kv_offset)
    if padding is not None:
        kept &= padding[:, kv_offset : kv_offset + kv_length]
    options |= {"allow_is_causal_skip": False, "allow_is_bidirectional_skip": False}
    runs = []  # where the keys that a query sees begin and end, counting the kept ones
    for m in range(0, q_length, QUERIES):
        size = batch_size, min(QUERIES, q_length - m), kv_length
        seen = sdpa_mask(*size, q_offset=q_offset + m, kv_offset=kv_offset, **options)[:, 0]
        runs.append(_runs(seen, kept, m))  # [B, a part of M, 2]
    mask = torch.empty(batch_size, 1, q_length, kv_length, device="meta").as_subclass(Visible)
    mask.parts = _sequences(torch.cat(runs, dim=1), kept)
    return mask


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, visible_keys)  # without it: a mask of None, always
# --8<-- [end:register]


class Visible(torch.Tensor):
    """A mask without numbers: what its queries see stands in its parts."""

    parts = None  # of what a compiled model computes from a mask

    def contiguous(self, *args, **options):
        """Itself: generate() and models on several devices call these two."""
        return self

    to = contiguous

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        """Tell its shape, dtype and the like; a model that computes with a mask needs numbers."""
        told = function.__name__ in ("__get__", "dim", "size", "_is_view")
        if not (told or torch.compiler.is_compiling()):
            raise ValueError(
                f"attention_mask has no numbers, and this model computes with them "
                f"({function.__name__}); {OTHERWISE}"
            )
        return super().__torch_function__(function, types, args, kwargs or {})


def _runs(seen, kept, start):
    """Where the keys of each query begin and end: [B, M, N], kept [B, N] → [B, M, 2]."""
    N = seen.shape[-1]
    count = seen.sum(-1, keepdim=True)
    first = seen.byte().argmax(-1, keepdim=True)
    last = N - 1 - seen.flip(-1).byte().argmax(-1, keepdim=True)
    keys = torch.arange(N, device=seen.device)
    run = (first <= keys) & (keys <= last) & (count > 0) & kept[:, None]
    if not torch.equal(seen, run):
        _, m, _ = (seen != run).nonzero()[0].tolist()
        raise ValueError(
            f"the model's own mask hides keys between others from query {start + m}; hidden keys "
            f"before and after those it sees, and padding, are allowed; {OTHERWISE}"
        )
    begin = (kept.cumsum(-1) - kept.int()).gather(1, first[..., 0])[..., None]
    return torch.cat([begin, begin + count], dim=-1)


def _cut(runs):
    """Yield (queries, keys, causal, left) of each launch: as many queries as it can compute."""
    start = 0
    while start < len(runs):
        first, end = runs[start]
        following = runs[start + 1 : start + 2]
        slides = following == [[first + 1, end + 1]]  # a window: each sees the next key for one
        causal = slides or following == [[first, end + 1]]  # each sees one key more
        stop = start + 1
        while stop < len(runs) and runs[stop] == [
            first + slides * (stop - start),
            end + causal * (stop - start),
        ]:
            stop += 1
        if first < end:
            keys = slice(first, end + causal * (stop - start - 1))
            yield slice(start, stop), keys, causal, (end - first - 1 if slides else None)
        start = stop


def _sequences(runs, kept):
    """(sequences, keys without padding, pieces of _cut): one for all, if they are alike."""
    alike = bool((runs == runs[:1]).all() and (kept == kept[:1]).all())
    parts = []
    for b, rows in enumerate(runs[:1].tolist() if alike else runs.tolist()):
        (keys,) = kept[b].nonzero(as_tuple=True)
        if len(keys) == 0:
            continue  # nothing but padding
        first, last = keys[0].item(), keys[-1].item()
        if last - first + 1 == len(keys):
            keys = slice(first, last + 1)  # a view; padding in between costs a copy
        parts.append((slice(None) if alike else slice(b, b + 1), keys, [*_cut(rows)]))
    return parts


def _parts(module, query, key, attention_mask, options):
    """What to launch; raise for a mask that is not of visible_keys, or is of other tensors."""
    (B, _, M, _), N = query.shape, key.shape[2]
    if attention_mask is None:
        causal = options.get("is_causal")
        if getattr(module, "is_causal", True) if causal is None else causal:
            raise ValueError(
                f"attention_mask is None and is_causal True; False is allowed; {OTHERWISE}"
            )
        return [(slice(None), slice(None), [(slice(0, M), slice(0, N), False, None)])]
    shape = tuple(attention_mask.shape)
    if getattr(attention_mask, "parts", None) is None:
        raise ValueError(
            f"attention_mask is one of your own or the model's, {shape}; one that hides padding, "
            f"[{B}, {N}], is allowed in the model's call; {OTHERWISE}"
        )
    if shape not in ((B, 1, M, N), (1, 1, M, N)):
        raise ValueError(
            f"attention_mask is for {shape[2]} queries and {shape[3]} keys of {shape[0]} "
            f"sequences; {M} and {N} of {B} came; {OTHERWISE}"
        )
    return attention_mask.parts


def _check_options(parts, dropout, options):
    """Raise for what a call asks of attention and masks_and_packing does not have."""
    if dropout:
        raise ValueError(f"dropout is {dropout}; masks_and_packing has none, call model.eval()")
    ends = [0, *(queries.stop for _, _, pieces in parts for queries, *_ in pieces)]
    for name, value in options.items():
        if name in HARMLESS or value is None or value is False:
            continue
        if name not in ("cu_seq_lens_q", "cu_seq_lens_k"):
            shown = f"a tensor {tuple(value.shape)}" if isinstance(value, torch.Tensor) else value
            raise ValueError(f"{name} is {shown}; only None is allowed; {OTHERWISE}")
        if value.tolist() != ends:
            raise ValueError(
                f"{name} is {value.tolist()} but by the mask texts end at {ends}; pass "
                f"position_ids that start again with each text, and use_cache=False"
            )
