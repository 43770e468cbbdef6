"""A small GPT, trained and sampled with the site's kernels. docs/posts/language_model.md"""

USES = ("flash_backward", "decode_attention")  # op.py trains with the one, samples with the other
