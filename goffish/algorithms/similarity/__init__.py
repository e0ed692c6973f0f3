"""Similarity of vertices by their common neighbors, and random walks: candidates for links, vectors for learning."""
