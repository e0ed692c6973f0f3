"""Scheduling service: gRPC API, runners, job store and dashboard."""
