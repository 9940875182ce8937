"""`squall chaos`: runs a user's topology under random faults, and proves that nothing was lost.

    taps       wrap spouts and sinks, and record emits, answers and receipts
    checker    reads these records, and tells the fate of every message; imports nothing of ours
    mix        draws a seeded mix of faults; injector brings them about and ends them
    trial      one run: a real cluster, faults, the drain
    proof      learns what the topology does without faults, and judges seeds by that
"""
