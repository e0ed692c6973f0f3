"""Data that keeps arriving: ingest, dataflows and live graph analytics."""
