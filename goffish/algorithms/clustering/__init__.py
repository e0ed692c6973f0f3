"""Triangles, cores and other counts."""
