"""Algorithms: one package per family, and what those of other packages are made of."""

from goffish.algorithms.algorithm import Algorithm, Label, Name

__all__ = ["Algorithm", "Label", "Name"]
