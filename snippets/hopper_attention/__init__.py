"""Attention for Hopper: who loads, who computes, who waits. docs/posts/hopper_attention.md"""
