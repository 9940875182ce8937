"""The commands that start, change, break and end clusters and their topologies, and serve them to other programs."""
