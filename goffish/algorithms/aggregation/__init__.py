"""Messages along all edges, combined at the vertices that receive them."""
