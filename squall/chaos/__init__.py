"""`squall chaos`: runs a user's topology under random faults, and proves that nothing was lost.

    taps       wrap spouts and sinks, and record emits, answers and receipts
    checker    reads these records, and tells the fate of every message; imports nothing of ours
    faults     draws a seeded mix of faults, brings them about and ends them
    trial      one seed: a real cluster, faults, the drain, the verdict
    campaign   many seeds, and the smallest set of faults that still fails
"""
