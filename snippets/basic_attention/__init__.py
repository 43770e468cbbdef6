"""One program, one query: attention as a loop over the keys. docs/posts/basic_attention.md"""
