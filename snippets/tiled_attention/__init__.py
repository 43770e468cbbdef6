"""A block of queries, keys tile by tile, a running softmax. docs/posts/tiled_attention.md"""
