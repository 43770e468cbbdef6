"""The contract of all launchers, and a file of tests for each post and lab page."""
