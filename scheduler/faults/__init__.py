"""What can be broken on purpose, how it is written down, and when it begins and ends.

Pure: no process, socket or clock of its own.
"""
