"""Tests of what every post uses: results, probes, judges, drawings, clocks."""
