"""How far apart the vertices of a graph are: eccentricity, diameter, neighborhood function."""
