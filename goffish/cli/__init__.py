"""Command-line interface. Commands import their dependencies on first use, which keeps ``--help`` fast."""

from goffish.cli.main import main

__all__ = ["main"]
