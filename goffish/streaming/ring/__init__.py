"""Keyed state on a ring of peers: consistent hashing, peer backup, takeover and repair, without input or output."""
