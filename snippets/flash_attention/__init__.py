"""A running softmax over tiles, on tensor cores. docs/posts/flash_attention.md"""
