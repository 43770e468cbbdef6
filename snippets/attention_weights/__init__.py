"""What every token attends to: the softmax of QKᵀ/√D, stored. docs/posts/attention_weights.md"""
