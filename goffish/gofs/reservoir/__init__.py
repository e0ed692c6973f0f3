"""The event reservoir: durable pools of events with an index, replicas and relations."""

from goffish.gofs.reservoir.reservoir import Pool, Relation, Reservoir

__all__ = ["Pool", "Relation", "Reservoir"]
