"""The live page of a flow."""
