"""Communities: Louvain, Leiden and what can be said about a division of a graph."""
