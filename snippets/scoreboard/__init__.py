"""All kernels on the same work, and what each changes in the last. docs/lab/scoreboard.md"""

USES = ("flash_backward", "hopper_backward")  # op.py trains with them
