"""How far a repeated measurement moved, and the versions behind each number. docs/lab/method.md"""
