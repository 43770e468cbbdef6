"""Popular sentences about attention on GPUs, judged by what was measured. docs/lab/claims.md"""
