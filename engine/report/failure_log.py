"""Failures for the operator: the last ones of each component, counts by reason, and what equal ones have in common.

A failure is filed under the component in which it happened, or, if that is unknown (a timeout, a worker that died
without a word), under the spout that was told. What a component gives to `report_error` is among them, with the reason
"reported", no message and no attempt.

Equal news are told at the first, tenth, hundredth ... time, with a count: a wrong line fails each of a million tuples.

Pure. Thread: the worker's loop; a component's own may note what it reports. Of two that note at once for one component,
the log may lack one. `Repeats`: any, with the lock of the interpreter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from squall.engine.api.failure import Failure
from squall.engine.foreign.text import repr_of
from squall.engine.report.document import Count

LAST = 20
"""Failures listed per component: enough to see a pattern, few enough to read."""
_ID_CHARACTERS = 200
_KNOWN, _COUNTED_NS = 1000, 600_000_000_000
"""Different news that are counted, and the time for which errors are; then counting begins anew."""
T = TypeVar("T")
_PLACE = re.compile(r".* (\(.+, line \d+, in \S+\))", re.DOTALL)
_RAISED = re.compile(r"(?P<component>.+?)\[\d+\] raised (?P<kind>[^:]+?)(?:: .*)? in (?P<where>\w+(?: \(.*\))?)")


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
    return _together(
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


class Cause(NamedTuple):
    """What the errors of one wrong line have in common, whatever the task and the tuple that their texts name."""

    component: str
    kind: str
    """Type of the exception; "" if no user's code raised."""
    where: str


def cause_of_error(error: str) -> Cause:
    """Return the cause that the first line of a worker's last words tells."""
    line = error.partition("\n")[0]
    found = _RAISED.fullmatch(line)
    return Cause(line, "", "") if found is None else Cause(*found.groups())


def is_told(count: int) -> bool:
    """Return True for 1, 10, 100 ..."""
    return str(count).strip("0") == "1"


class Repeats:
    """What one process has told."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, int] = {}
        self._since_ns = 0

    def error_line(self, component: str, task: int, text: str, now_ns: int) -> str | None:
        """Return the line that tells of an error; None if it need not be told. Equal are the errors of one type and
        line in a component within ten minutes: a text names the tuple, and differs each time."""
        if now_ns - self._since_ns >= _COUNTED_NS:
            self._counts.clear()
            self._since_ns = now_ns
        place = _PLACE.fullmatch(text)
        key = component, cause_of_failure(text, "" if place is None else place[1])
        return self.line(f"error reported by {component}[{task}]: {text}", key)

    def line(self, text: str, key: Hashable = None) -> str | None:
        """Return the text, with how often it, or what has its key, has come; None if it need not be told again yet."""
        key = text if key is None else key
        if len(self._counts) > _KNOWN:
            self._counts.clear()
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if not is_told(count):
            return None
        return f"{text}{f' ({count:,} times)' if count > 1 else ''}"


def cause_of_failure(error: str, where: str) -> tuple[str, str]:
    """Return what failures by equal errors have in common: type of the error, and line of the user's code."""
    return error.partition(":")[0], where


def _together(items: Iterable[T], key_of: Callable[[T], Hashable]) -> list[list[T]]:
    """Put together the items with equal keys, in the order of the last of each."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        key = key_of(item)
        groups[key] = same = groups.pop(key, [])
        same.append(item)
    return list(groups.values())


class _Death(Protocol):
    """The end of a worker."""

    @property
    def slot(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def error(self) -> str:
        """Its first line tells it from others."""


D = TypeVar("D", bound=_Death)


def death_key(death: _Death) -> Hashable:
    """Return what equal deaths have in common: their error's cause, or else the worker."""
    return death.reason, cause_of_error(death.error) if death.error else death.slot


def equal_deaths(deaths: Iterable[D]) -> list[list[D]]:
    """Put together equal deaths of all workers, in the order of the last of each."""
    return _together(deaths, death_key)
