"""The failure log for the operator: the last failures of each component, and counts by reason.

A failure is filed under the component in which it happened, or, if that is unknown (a timeout, a worker that died
without a word), under the spout that was told. What a component gives to `report_error` is among them, with the reason
"reported", no message and no attempt.

Pure. Thread: the worker's loop; a component's own may note what it reports. Of two that note at once for one component,
the log may lack one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from squall.engine.api.failure import Failure
from squall.engine.foreign.text import repr_of
from squall.engine.report.document import Count
from squall.engine.report.repeats import cause_of_failure, together

LAST = 20
"""Failures listed per component: enough to see a pattern, few enough to read."""
_ID_CHARACTERS = 200


@dataclass(frozen=True)
class FailureRecord:
    """One failure, as shown to the operator."""

    at_secs: float
    """Seconds: of the monotonic clock in a `FailureLog`, after the start of the run in a report."""
    spout: str
    message_id: str
    """The `repr` of the id."""
    reason: str
    component: str
    task: Count
    worker: str
    error: str
    attempt: Count
    where: str = ""
    """Of an exception: the line of the user's code that raised it, "(FILE, line N, in FUNCTION)"."""


@dataclass(frozen=True)
class ComponentFailures:
    """The failures of one component."""

    counts: Mapping[str, Count] = field(default_factory=dict)
    """Number of failures by reason."""
    last: list[FailureRecord] = field(default_factory=list)
    """The last failures, oldest first; a rare cause among many others stays longer."""
    first_secs: float = 0.0
    """When the first one was; seconds as of `FailureRecord.at_secs`."""


Failures = dict[str, ComponentFailures]
"""Failures by component."""


def equal_failures(last: Iterable[FailureRecord]) -> list[list[FailureRecord]]:
    """Put together the failures with equal errors of a component's last ones, in the order of the last of each."""
    return together(
        (failure for failure in last if failure.error), lambda failure: cause_of_failure(failure.error, failure.where)
    )


class FailureLog:
    """The failures that the spouts of one worker were told."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._known: Failures = {}
        self.changed = False
        """True if a failure was noted since the caller last set this to False."""

    def note(self, spout: str, task: int, message_ids: Sequence[Any], failure: Failure) -> None:
        """Note that messages of `spout`'s task have failed together, or what a component reports."""
        filed_under, at_secs = failure.component or spout, self._now_ns() / 1e9
        known = self._known.get(filed_under, ComponentFailures(first_secs=at_secs))
        counts = {**known.counts, failure.reason: known.counts.get(failure.reason, 0) + len(message_ids)}
        last = _kept([*known.last, *(
            FailureRecord(
                at_secs, spout, repr_of(message_id, _ID_CHARACTERS), failure.reason, failure.component,
                failure.task, failure.worker, failure.error, failure.attempt, failure.place,
            )
            for message_id in message_ids[-LAST:]
        )])
        self._known[filed_under] = ComponentFailures(counts, last, known.first_secs)
        self.changed = True

    def load(self, failures: Mapping[str, ComponentFailures]) -> None:
        """Continue from the notes of an earlier incarnation."""
        self._known.update(failures)

    def failures(self) -> Failures:
        return dict(self._known)


def _kept(records: list[FailureRecord]) -> list[FailureRecord]:
    """Of records, the oldest first, at most LAST: those of the most frequent cause go first, so that a rare one among
    them is seen."""
    causes = [cause_of_failure(record.error, record.where) for record in records]
    counts = Counter(causes)
    while len(records) > LAST:
        at = causes.index(max(counts, key=counts.__getitem__))
        counts[causes[at]] -= 1
        records, causes = records[:at] + records[at + 1 :], causes[:at] + causes[at + 1 :]
    return records


def merge_failures(several: Iterable[Mapping[str, ComponentFailures]], since_secs: float = 0.0) -> Failures:
    """Merge several logs; times are then relative to `since_secs`."""
    counts: dict[str, Counter[str]] = {}
    last: dict[str, list[FailureRecord]] = {}
    first: dict[str, float] = {}
    for failures in several:
        for name, known in failures.items():
            counts.setdefault(name, Counter()).update(known.counts)
            last.setdefault(name, []).extend(known.last)
            first[name] = min(known.first_secs, first.get(name, known.first_secs))
    merged: Failures = {}
    for name in sorted(counts):
        newest = _kept(sorted(last[name], key=lambda record: record.at_secs))
        records = [replace(record, at_secs=round(record.at_secs - since_secs, 6)) for record in newest]
        merged[name] = ComponentFailures(
            dict(sorted(counts[name].items())), records, round(first[name] - since_secs, 6)
        )
    return merged
