"""What a command shows: lines, tables, progress, JSON."""
