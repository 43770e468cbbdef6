"""Clocks, ceilings and competitors: everything that needs the machine."""
