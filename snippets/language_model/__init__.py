"""A small GPT, trained and sampled with the site's kernels. docs/posts/language_model.md"""

USES = (
    "flash_backward",
    "hopper_backward",
    "decode_attention",
)  # op.py trains and samples with them
