"""Latency-aware placement: communicating operators close together on hosts between edge and cloud."""
