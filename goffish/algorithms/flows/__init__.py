"""Flows: maximum flows and minimum cuts between two vertices."""
