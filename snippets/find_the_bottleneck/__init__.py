"""From a slow kernel to its cause: experiments of all posts. docs/lab/find_the_bottleneck.md"""
