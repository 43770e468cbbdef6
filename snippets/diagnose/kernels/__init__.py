"""Right attention in five styles, as people write it. The cases plant mistakes in copies."""
