"""Graphs whose topology is fixed and whose values change: template, instances, and programs over time."""
