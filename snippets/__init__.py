"""The tested code that the pages of *Attention, Measured* show."""
