"""Attention for Hopper: who loads, who computes, who waits.

In two posts: docs/posts/warp_specialization.md, docs/posts/hopper_attention.md
"""
