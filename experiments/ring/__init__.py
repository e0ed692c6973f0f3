"""The evaluation of the ring of keyed state: virtual time with the nodes of the package, real processes, baselines."""
