"""The commands for data outside a run: feeds, queues, state, dead letters, results."""
