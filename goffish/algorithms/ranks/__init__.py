"""PageRank and its variants."""
