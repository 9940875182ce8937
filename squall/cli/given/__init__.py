"""What the user has given to a command: options and settings, a topology file, signals."""
