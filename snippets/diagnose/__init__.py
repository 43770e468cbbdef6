"""What `make diagnose` says of kernels. docs/lab/diagnose.md"""
