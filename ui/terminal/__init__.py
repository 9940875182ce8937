"""A topology, live in a terminal."""
