"""Readers and writers of graph files."""

from goffish.graph.io.reader import read
from goffish.graph.io.writer import write

__all__ = ["read", "write"]
