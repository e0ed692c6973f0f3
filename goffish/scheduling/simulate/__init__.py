"""Dataflows on simulated clouds: input rates, forecasts, failures, and two engines that run a policy against them."""
