"""Faults that can be injected: their catalogue, their language, and what is in force.

Nimbus and supervisors carry them out by `in_force`, workers on themselves (`scheduler.worker.own_faults`).
"""
