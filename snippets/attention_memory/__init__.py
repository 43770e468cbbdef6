"""Where N × N goes: bytes by formula, counted and measured. docs/posts/attention_memory.md"""
