"""Carries out injected faults: the common parts of all carriers.

`scheduler.faults` has the catalogue and the plans; here are the file of faults in force, the record of past faults, and
the signals. Workers break their own links and tasks (`scheduler.worker.own_faults`).
"""
