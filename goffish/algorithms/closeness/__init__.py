"""Closeness and harmonic centrality: sums of distances, hundreds of searches at a time."""
