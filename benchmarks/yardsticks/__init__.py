"""What Squall is measured beside: the same word count, over the same text, in other systems and in none.

Each file has `run(corpus, workers, repeat) -> Measured`, which raises Unavailable where its system cannot be had.
"""
