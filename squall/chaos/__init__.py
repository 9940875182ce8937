"""`squall chaos`: a user's own topology under random faults, and the proof that nothing was lost.

    taps       stand around spouts and sinks, and write down what was emitted, answered and received
    checker    reads what they wrote, and says what became of every message; imports nothing of ours
    faults     draws a seeded mix of faults, brings them about and ends them
    trial      one seed: a real cluster, faults, the drain, the verdict
    campaign   many seeds, and the smallest set of faults that still fails
"""
