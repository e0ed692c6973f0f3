"""Where and on what to run: the cloud model, provisioning heuristics and the scheduling service."""
