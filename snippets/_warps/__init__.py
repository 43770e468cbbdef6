"""Gluon kernels on a CPU: what the groups of warps of a program ask of each other and of a GPU.

gluon.py runs a kernel's own functions as Python and writes down the requests of role_traces.py.
simulation.py plays them in random orders, with numbers if wanted, and interleavings.py proves
things about all orders. launch.py does it behind a launcher.
"""
