"""Names the mistake in a reader's attention kernel; README.md says how."""
