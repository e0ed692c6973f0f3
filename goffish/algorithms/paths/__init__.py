"""Breadth-first search and shortest paths."""
