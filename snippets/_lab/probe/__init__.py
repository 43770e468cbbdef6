"""What a kernel loads, computes and compiles to."""
