"""Tests of the pages and of their build."""
