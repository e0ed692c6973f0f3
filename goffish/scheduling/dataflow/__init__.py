"""Dynamic dataflows: definitions, deployments, throughput estimates, and the bundled dataflows."""
