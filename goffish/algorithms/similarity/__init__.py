"""Similarity of vertices by their common neighbors: given pairs, or the most similar ones."""
