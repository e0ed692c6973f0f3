"""Scheduler policies: pure functions from observations to a deployment."""
