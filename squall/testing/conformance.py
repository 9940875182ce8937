"""Checks that a `Source` or a `Sink` keeps its promise, on real workers that are killed: `check_source`, `check_sink`.

Guarantees: a check ends with an AssertionError that names what was lost, doubled or out of order; nothing in it depends
on the speed of the machine. A kill comes after so many records, and a wait ends when nothing moves for `STILL_SECS`.

Relies on a cluster of real processes, such as the fixture `squall_cluster`.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall.connect.read_ahead import partition_of
from squall.connect.sink import Sink
from squall.connect.source import Source
from squall.engine.api.component import BasicBolt
from squall.engine.api.config import Config
from squall.engine.build.builder import TopologyBuilder
from squall.engine.errors import FailedTuple
from squall.engine.foreign.text import plural

if TYPE_CHECKING:
    from squall.engine.api.collectors import BasicCollector
    from squall.engine.api.context import TopologyContext
    from squall.engine.api.replaying import Record
    from squall.engine.api.tuple import Tuple
    from squall.engine.state.sinks import ExactSink
    from squall.scheduler.client.job import Job
    from squall.scheduler.cluster.local_cluster import LocalCluster

STILL_SECS = 90.0
KILLS = 3
_PACE_SECS = 0.001
_FAILED_EVERY = 10
_SHOWN = 5


@dataclass(frozen=True)
class Conformance:
    """What a check saw while workers were killed."""

    records: int
    twice: int
    """Records that came more than once."""


def check_source(
    cluster: LocalCluster, make: Callable[[int], Source], number: Callable[[Sequence[Any]], int], *,
    records: int = 1000, ordered: bool = True, tasks: int = 1,
) -> Conformance:
    """Check a source. `make(records)` puts records numbered from 0 where nothing was before, and returns a source that
    reads these; `number(values)` tells the number of an emitted one. `ordered`: one task emits them in their order.

    First the topology is drained in the middle and submitted again: each record comes once. Then its worker is killed
    three times, and every tenth record fails at first: each record comes, again if need be; `tasks` read there. Unless
    its ids name records of a task only (`Spout.record_identity`), a record has the same message id whenever it comes,
    and no other has that; `partitions` names its partition. AssertionError for what is not so."""
    with tempfile.TemporaryDirectory(prefix="squall-check-") as place:
        seen = _Numbers(Path(place) / "drained")
        source = _watched(make(records), seen.ids, number)
        topology = _reading(source, _Record(seen.path, number, fails=False))
        job = cluster.submit("check-source", topology, Config(workers=1))
        seen.wait(records // 2, job)
        job.kill(wait_secs=STILL_SECS)
        job = cluster.submit("check-source", topology, Config(workers=1), fresh=False)
        seen.wait(records, job)
        job.kill(wait_secs=STILL_SECS)
        _say_lost(seen.read(), records)
        twice = [one for one, count in Counter(seen.read()).items() if count > 1]
        assert not twice, f"{plural(len(twice), 'record')} came twice though nothing failed: {_first(twice)}"
        assert not ordered or seen.read() == sorted(seen.read()), "records came out of order though nothing failed"
        _say_misnamed(seen)

        seen = _Numbers(Path(place) / "killed")
        source = _watched(make(records), seen.ids, number)
        topology = _reading(source, _Record(seen.path, number, fails=True), tasks)
        job = cluster.submit("check-source-deaths", topology, Config(workers=1))
        _kill_often(cluster, job, records, lambda: len(set(seen.read())))
        seen.wait(records, job)
        job.kill(wait_secs=STILL_SECS)
        _say_misnamed(seen)
        return _judged(seen.read(), records)


def check_sink(
    cluster: LocalCluster, sink: Sink | ExactSink, read: Callable[[], Sequence[int]], *,
    outputs: Sequence[str] = ("number",), row: Callable[[int], tuple[Any, ...]] = lambda number: (number,),
    records: int = 1000, ordered: bool = True,
) -> Conformance:
    """Check a sink. It is given the rows `row(number)` with the fields `outputs`, for numbers from 0. `read()` returns
    the numbers of all that was written, in the order of writing.

    First nothing fails: each record is written once, in order if `ordered`. Then a topology with other numbers, from
    `records` on, has its worker killed three times: each record is written. AssertionError for what is not so."""
    job = cluster.submit("check-sink", _writing(sink, outputs, row, 0, records), Config(workers=1))
    job.wait_until_drained(timeout=STILL_SECS)
    job.kill()
    found = list(read())
    _say_lost(found, records)
    assert len(found) == records, f"{plural(len(found) - records, 'record')} more than were sent though nothing failed"
    assert not ordered or found == sorted(found), "records were written out of order though nothing failed"

    job = cluster.submit("check-sink-deaths", _writing(sink, outputs, row, records, 2 * records), Config(workers=1))
    _kill_often(cluster, job, records, lambda: job.stats().acked)
    job.wait_until_drained(timeout=STILL_SECS)
    job.kill()
    return _judged([number - records for number in read() if number >= records], records)


def _kill_often(cluster: LocalCluster, job: Job, records: int, count: Callable[[], int]) -> None:
    """Kill the worker whenever another share of the records is done, and it is back from the time before."""

    def times_back() -> int:
        return sum(one.ready_after_secs is not None for one in job.stats().restarts)

    def may_be_killed(kill: int) -> bool:
        is_far = count() >= (kill + 1) * records // (KILLS + 1) or job.stats().drained
        return is_far and times_back() >= kill

    for kill in range(KILLS):
        _until(partial(may_be_killed, kill), lambda: (count(), times_back()), job)
        cluster.inject("kill", *job.stats().workers)


def _reading(source: Source, record: _Record, tasks: int = 1) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("source", source, parallelism=tasks)
    builder.set_bolt("record", record).shuffle_grouping("source")
    return builder.build()


def _writing(sink: Any, outputs: Sequence[str], row: Callable[[int], tuple[Any, ...]], first: int, end: int) -> Any:
    builder = TopologyBuilder()
    builder.set_spout("numbers", _Paced(outputs, row, first, end))
    builder.set_bolt("sink", sink).shuffle_grouping("numbers")
    return builder.build()


class _Paced(Source):
    """Emits rows slowly, so that a kill meets it at work."""

    def __init__(self, outputs: Sequence[str], row: Callable[[int], tuple[Any, ...]], first: int, end: int) -> None:
        self.outputs, self._row, self._first, self._end = tuple(outputs), row, first, end

    def read_from(self, position: int | None) -> Iterator[Record | None]:
        for number in range(self._first if position is None else position, self._end):
            yield number + 1, self._row(number)
            if number % 10 == 0:
                time.sleep(10 * _PACE_SECS)
                yield None


class _Record(BasicBolt):
    """Appends the number of each record to a file."""

    def __init__(self, path: Path, number: Callable[[Sequence[Any]], int], fails: bool) -> None:
        self._path, self._number, self._fails = path, number, fails

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._failed = set[int]()

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        number = self._number(tup.values)
        if self._fails and number % _FAILED_EVERY == 0 and number not in self._failed:
            self._failed.add(number)
            raise FailedTuple(f"record {number} fails at first")
        os.write(self._fd, b"%d\n" % number)
        time.sleep(_PACE_SECS)  # so that a kill meets it at work

    def cleanup(self) -> None:
        os.close(self._fd)


def _watched(source: Source, ids: Path, number: Callable[[Sequence[Any]], int]) -> Source:
    """Have the source note the number and message id of each record, if its ids name records whoever reads them."""
    if source.record_identity not in ("task", None):
        source.noted, source.feeds_state = (ids, number), True  # type: ignore[attr-defined]
        source.__class__ = type(type(source).__name__, (_Watched, type(source)), {})
    return source


class _Watched:
    """A source, whose collector notes what it emits."""

    noted: tuple[Path, Callable[[Sequence[Any]], int]]

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: Any) -> None:
        super().open(conf, context, _Noting(collector, self))  # type: ignore[misc]
        self.named = set[Any]()

    def next_batch(self, rows: int) -> None:
        self.names(())
        super().next_batch(rows)  # type: ignore[misc]

    def names(self, partition: tuple[Any, ...]) -> bool:
        """Return whether `partitions` has named a partition in this life, or knows none."""
        found = self.partitions()  # type: ignore[attr-defined]
        self.named.update(found or ())
        return found is None or partition in self.named


class _Noting:
    """The collector of a source that is watched."""

    def __init__(self, collector: Any, source: _Watched) -> None:
        self._collector, self._source = collector, source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._collector, name)

    def emit(self, values: Sequence[Any], message_id: Any = None, **rest: Any) -> Any:
        self._note(values, message_id)
        return self._collector.emit(values, message_id=message_id, **rest)

    def emit_batch(self, columns: Sequence[Sequence[Any]], message_ids: Sequence[Any], **rest: Any) -> Any:
        for values, message_id in zip(zip(*columns, strict=True), message_ids, strict=True):
            self._note(values, message_id)
        return self._collector.emit_batch(columns, message_ids=message_ids, **rest)

    def _note(self, values: Sequence[Any], message_id: Any) -> None:
        ids, number = self._source.noted
        partition = partition_of(message_id)
        unnamed = "" if partition is None or self._source.names(partition) else repr(partition)
        with ids.open("a") as file:
            file.write(f"{number(values)}\t{message_id!r}\t{unnamed}\n")


class _Numbers:
    """The file of numbers that `_Record` writes, and that of the ids."""

    def __init__(self, path: Path) -> None:
        self.path, self.ids = path, path.with_suffix(".ids")

    def read(self) -> list[int]:
        return [int(line) for line in self.path.read_text("utf-8").splitlines()] if self.path.exists() else []

    def wait(self, different: int, job: Job) -> None:
        """Wait until so many have come, or the topology is drained, or nothing moves."""
        _until(
            lambda: len(set(self.read())) >= different or job.stats().drained,
            lambda: (len(set(self.read())), job.stats().failures),
            job,
        )
        assert self.read(), f"no record came within {STILL_SECS:g} s"


def _until(condition: Callable[[], bool], progress: Callable[[], Any], job: Job) -> None:
    """Wait until a condition is true, or nothing has moved for a while. AssertionError if the topology has stopped by
    an error."""
    seen, since = progress(), time.monotonic()
    while not condition() and time.monotonic() - since < STILL_SECS:
        time.sleep(0.01)
        assert not (why := job.why_stopped()), why
        if (now := progress()) != seen:
            seen, since = now, time.monotonic()


def _say_lost(found: Sequence[int], records: int) -> None:
    lost = sorted(set(range(records)).difference(found))
    assert not lost, f"{plural(len(lost), 'record')} of {records} did not come: {_first(lost)}"
    strange = sorted(set(found).difference(range(records)))
    assert not strange, f"{plural(len(strange), 'record')} came that nobody made: {_first(strange)}"


def _say_misnamed(seen: _Numbers) -> None:
    ids, numbers = dict[str, str](), dict[str, str]()
    for line in seen.ids.read_text("utf-8").splitlines() if seen.ids.exists() else ():
        number, message_id, partition = line.split("\t")
        assert ids.setdefault(number, message_id) == message_id, (
            f"record {number} came with the message ids {ids[number]} and {message_id}")
        assert numbers.setdefault(message_id, number) == number, (
            f"records {numbers[message_id]} and {number} came with the message id {message_id}")
        assert not partition, f"partitions() did not name {partition}, the partition of message id {message_id}"


def _judged(found: Sequence[int], records: int) -> Conformance:
    _say_lost(found, records)
    return Conformance(records, sum(count > 1 for count in Counter(found).values()))


def _first(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (" ..." if len(numbers) > _SHOWN else "")
