"""Dashboard: server-rendered pages of the scheduling service."""
