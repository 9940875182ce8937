"""Measurements. `python -m benchmarks` runs them all and writes RESULTS.md; tests never assert times."""
