"""Random walks and embeddings: samples of neighborhoods, and vectors for learning."""
