"""Carrying out what is broken on purpose: what all who do it have in common.

`scheduler.faults` knows what can be broken; here are the file that says what is, the record of what was, and the
signals. Workers break their own links and tasks (`scheduler.worker.faults`).
"""
