"""Live graphs: the current state of a stream of changes."""
