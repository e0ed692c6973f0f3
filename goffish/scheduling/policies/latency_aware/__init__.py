"""Operators on hosts between edge and cloud, so that those that talk sit together (latency-aware placement)."""
