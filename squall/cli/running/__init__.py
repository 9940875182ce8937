"""The commands that start topologies, and the settings that these get."""
