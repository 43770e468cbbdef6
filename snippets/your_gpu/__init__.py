"""What every kernel needs on every card, from compiling alone. docs/lab/your_gpu.md"""
