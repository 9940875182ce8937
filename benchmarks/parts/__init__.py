"""The parts of the results: each file has `measure(effort) -> Part`, which takes the whole machine for a while."""
