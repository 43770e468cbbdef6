"""What `make diagnose` says of sixty kernels. docs/lab/diagnose.md"""
