"""Windows, sinks, packed sequences, soft cap, bias. docs/posts/masks_and_packing.md"""
