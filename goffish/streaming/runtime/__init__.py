"""Worker processes of a dataflow, and the connections between them."""
