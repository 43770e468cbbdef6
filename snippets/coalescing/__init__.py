"""Neighbors read neighbors: what memory charges when they do not. docs/posts/coalescing.md"""
