"""Keyed state on a ring of nodes: consistent hashing, copies, takeover and repair, without input or output."""
