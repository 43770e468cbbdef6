"""New tokens against a cache: splits, shared heads and pages. docs/posts/decode_attention.md"""
