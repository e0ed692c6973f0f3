"""The loop of observing, deciding, enacting and recording that simulated and real runs share."""
