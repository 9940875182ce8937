"""Tells a spout of batches of answers, many in one call.

Guarantees: each answer is told once, acks in their order, failures in theirs, and before the caller that brought them
goes on (`tell`). An answer that waits here is in the account already; if the spout's method raises, the acks it did not
take are taken out of it again.

Thread: the worker's loop.
"""

from __future__ import annotations

from typing import Any

from squall.engine.api.component import BatchSpout, Spout
from squall.engine.api.failure import Failure


class BatchAnswers(Spout):
    """Stands before a spout of batches."""

    def __init__(self, spout: BatchSpout) -> None:
        self.spout = spout
        """The user's object, or a wrapper around it (see `engine.core.hook_calls`)."""
        self._acked: list[Any] = []
        self._failed: list[Any] = []
        self._failures: list[Failure] = []

    def ack(self, message_id: Any) -> None:
        self._acked.append(message_id)

    def add_acked(self, message_ids: list[Any]) -> None:
        """Collect many acks. The list is this object's from then on."""
        if self._acked:
            self._acked += message_ids
        else:
            self._acked = message_ids

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._failed.append(message_id)
        self._failures.append(failure)

    def add_failed(self, message_ids: list[Any], failure: Failure) -> None:
        """Collect the failures of messages that failed together."""
        self._failed += message_ids
        self._failures += [failure] * len(message_ids)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        self.spout.on_dead_letter(message_id, failure)

    def take_acked(self) -> list[Any]:
        """Take the acks that the spout has not been told."""
        acked, self._acked = self._acked, []
        return acked

    def take_failed(self) -> tuple[list[Any], list[Failure]]:
        """Take the failures that the spout has not been told."""
        failed = self._failed, self._failures
        self._failed, self._failures = [], []
        return failed
