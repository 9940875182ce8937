"""The commands that reach what is outside topologies."""
