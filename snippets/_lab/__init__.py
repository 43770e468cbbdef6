"""The apparatus every room uses, a folder a subject: results, probe, judge, draw, measure."""
