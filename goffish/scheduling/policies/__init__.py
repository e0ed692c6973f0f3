"""Heuristics that decide which alternates run on which machines: pure functions from what is known to a deployment."""
