"""The commands that show a cluster, its topologies, its machine and settings."""
