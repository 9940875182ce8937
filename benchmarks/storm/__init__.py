"""Apache Storm itself, as a yardstick: its topology in Java, a bolt of it in Python, and the cluster that runs them."""
