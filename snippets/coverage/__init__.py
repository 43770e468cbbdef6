"""What every launcher was tried with, and how it went. docs/lab/method.md"""
