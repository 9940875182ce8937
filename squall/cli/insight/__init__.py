"""The commands that look into a machine, a topology or a worker."""
