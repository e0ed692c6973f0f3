"""The control loop shared by simulated and real runs: observe, decide, enact and record."""
