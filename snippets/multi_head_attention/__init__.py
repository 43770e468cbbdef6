"""Multi-head attention in PyTorch, looped and vectorized. docs/posts/multi_head_attention.md"""
