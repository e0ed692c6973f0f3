"""The dashboard: pages of the scheduling service for a browser, drawn by the server."""
