"""Simulated clouds for dataflows: input rates, forecasts, failures, and two engines that run a policy."""
