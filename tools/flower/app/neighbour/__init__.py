"""A neighbour of a federation of fedra."""
