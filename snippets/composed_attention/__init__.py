"""Attention out of three proven kernels, as a PyTorch op. docs/posts/composed_attention.md"""
