"""Structure: spanning forests, biconnected components, independent sets, matchings, colorings and label propagation."""
