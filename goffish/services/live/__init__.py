"""Dataflows carried out for real: instances as processes on a provider's machines, messages between them."""
