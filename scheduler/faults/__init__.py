"""Faults that can be injected: their catalogue, their language, and their schedule.

Pure: no process, socket or clock of its own.
"""
