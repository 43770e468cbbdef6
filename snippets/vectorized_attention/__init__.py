"""One program, one query, and every key in one load. docs/posts/vectorized_attention.md"""
