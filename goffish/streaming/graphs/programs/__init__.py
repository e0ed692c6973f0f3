"""Programs that follow a live graph on several worker processes."""
