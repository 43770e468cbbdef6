"""What new measurements changed, and the versions behind each number. docs/lab/what_changed.md"""
