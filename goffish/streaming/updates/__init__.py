"""Updates of running flows."""
