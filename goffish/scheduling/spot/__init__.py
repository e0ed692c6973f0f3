"""Jobs with a deadline on spot, on-demand and local machines: price models, the strategy table (RTBA), and H1 to H3."""
