"""Right attention in a style that no post has. The cases plant mistakes in copies."""
