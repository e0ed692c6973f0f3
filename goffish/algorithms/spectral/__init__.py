"""Eigenvector centrality, Katz centrality and HITS: largest eigenvectors and sums over walks, pass by pass."""
