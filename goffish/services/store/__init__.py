"""Jobs of the scheduling service: what one is, what may become of it, and where that is kept."""
