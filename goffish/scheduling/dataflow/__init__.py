"""Dynamic dataflows: their definition, how much of their input a deployment keeps up with, and ready-made ones."""
