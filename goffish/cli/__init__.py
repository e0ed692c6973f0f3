"""The command line: thin, and quick to answer ``--help``."""

from goffish.cli.main import main

__all__ = ["main"]
