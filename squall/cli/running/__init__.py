"""The commands that start topologies."""
