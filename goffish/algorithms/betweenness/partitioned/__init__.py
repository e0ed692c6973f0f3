"""Betweenness on the engine: many sources at a time, with leaf compression (MS-BC and MSL-BC)."""
