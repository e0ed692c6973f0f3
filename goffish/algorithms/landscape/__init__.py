"""Communities of all levels together with their most central members."""
