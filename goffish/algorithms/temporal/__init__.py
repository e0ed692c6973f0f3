"""Programs over time series of graphs."""
