"""Every error Squall raises on purpose, classified by who must act.

::

    SquallError
    ├── UsageError            the caller gave something wrong: fix the input (exit code 2)
    │   ├── TopologyError     the topology is wrong; lists every mistake found
    │   ├── ConfigError       a setting is unknown or out of range
    │   └── ComponentError    user code broke the rules of the API inside a component
    │       └── UnstorableError   a key or value of its state cannot be stored: its tuple fails
    ├── ClusterError          a process, a file or a deadline failed us: look at the cluster (exit code 1)
    ├── ProtocolError         a frame broke the wire rules: refused, counted, never decoded
    └── FailedTuple           raised *by users* inside execute: fail this tuple, carry on
        └── Unavailable       the same, and it is not the tuple's fault
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SquallError(Exception):
    """The base of every error that Squall raises on purpose."""


class UsageError(SquallError):
    """The caller's input is wrong; the message names the thing, its value and a remedy."""


class TopologyError(UsageError):
    """A topology cannot run. `mistakes` holds every mistake that was found, one line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        """Every mistake that was found, one line each."""
        count = len(self.mistakes)
        head = "1 mistake in the topology" if count == 1 else f"{count} mistakes in the topology"
        super().__init__(f"{head}: " + "; ".join(self.mistakes))

    def __reduce__(self) -> tuple[type[TopologyError], tuple[tuple[str, ...]]]:
        return type(self), (self.mistakes,)


class ConfigError(UsageError):
    """A setting does not exist, or its value is out of range."""


class ComponentError(UsageError):
    """A component used a collector or a tuple in a way that would break tracking, such as acking a tuple twice."""


class UnstorableError(ComponentError):
    """A key or value of a component's state cannot be stored. The tuple that set it fails."""


class ClusterError(SquallError):
    """The cluster could not do what was asked, because a daemon is dead, a slot is missing or a deadline passed."""

    report: Any = None
    """The RunReport of the run that has ended by it, if there is one."""


class ProtocolError(SquallError):
    """A frame breaks the rules of the wire (signature, checksum, version, size, sequence)."""


class FailedTuple(SquallError):
    """Raise this inside `execute` to fail the tuple at hand: its spout emits it again, and the worker lives on."""


class Unavailable(FailedTuple):
    """Raise this inside `execute` if what every tuple needs is away, such as a server: as `FailedTuple`, but no attempt
    of the tuple is counted for `max_attempts`."""
