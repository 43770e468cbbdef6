"""What a GPU does while it waits, and what hides the waiting. docs/posts/latency_hiding.md"""
