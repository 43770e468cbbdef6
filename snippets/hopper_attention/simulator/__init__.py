"""kernel.py's own GPU functions, run as Python: Triton's interpreter has no Gluon.

gluon.py stands in for Gluon. Of its two back ends parts.py writes down who waits for what, which
protocol.py plays in random orders and diagram.py draws, and on_cpu.py computes with numbers.
"""
