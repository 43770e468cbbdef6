"""What MkDocs needs to make the site: one hook, reading aids, notebooks, packing."""
