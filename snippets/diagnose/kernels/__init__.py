"""Right attention in two styles that no post has. The cases plant mistakes in copies."""
