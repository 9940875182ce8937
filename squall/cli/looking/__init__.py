"""The commands that show a cluster, its topologies and its machine."""
