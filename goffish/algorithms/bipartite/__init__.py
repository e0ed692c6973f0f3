"""Bipartite graphs: their two sides, and projections on one of them."""
