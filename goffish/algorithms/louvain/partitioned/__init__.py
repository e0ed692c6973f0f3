"""The partitioned Louvain on the engine: a first level per partition, rounds over the boundary, one master."""
