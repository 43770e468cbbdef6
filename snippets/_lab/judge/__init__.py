"""Whether a kernel is right, and what is wrong with one that is not."""
