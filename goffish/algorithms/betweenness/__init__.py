"""Betweenness of vertices and edges: exact, on reduced graphs, many sources at a time."""
