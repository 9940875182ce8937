"""Topologies whose disk loses its power again and again, run as `python -m tests.chaos.power_lives DIRECTORY
KIND:SEED:COUNT[:MUTANT]...` with what notes their syncs loaded (`tests.chaos.power_loss`).

Each life is a process, which is killed at one of its syncs. What spouts have heard of acks is known outside, and
survives: in some lives, what was acked never comes again, in others all does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from squall import (
    BasicCollector,
    FeedSpout,
    FileSink,
    ParquetSink,
    Spout,
    SpoutCollector,
    SqlSink,
    StatefulBolt,
    TailSpout,
    Topology,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    spout,
)
from squall.connect import Source
from squall.engine.api.config import Config
from squall.engine.state import sinks as sinks_module
from squall.engine.state import task_store
from squall.engine.state.reading import read_component
from squall.engine.state.records import absorbed, record_store
from squall.engine.state.records.record_store import RecordStore
from squall.engine.state.task_store import TaskStore
from squall.pipeline import log_reader, parquet_sink
from squall.testing import SimulatedCluster
from tests.chaos.power_loss import FOREVER, Disk
from tests.process import state_parts as parts
from tests.process import window_parts as windowed

RECORDS, LOSSES, MOST_SYNCS = 60, 8, 250
"""Of each task; of a run; between two losses."""
MOST_SECS, IDLE_STEPS = 20.0, 50
"""Of a life; at its end, if sources do not end."""


class Outside(Spout):
    """Each task emits all records. What is acked is noted where no power is lost."""

    def __init__(self, outputs: Sequence[str], values: Callable[[int], tuple[Any, ...]], outside: Path) -> None:
        self.outputs, self.values, self.outside = tuple(outputs), values, outside

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector, self.acks = collector, (self.outside / f"acked-{context.task_index}").open("a+")
        self.acks.seek(0)
        comes_again = (self.outside / "all").exists()
        acked = set() if comes_again else {int(line) for line in self.acks}
        self.due = [number for number in reversed(range(RECORDS)) if number not in acked]

    def next_tuple(self) -> None:
        if self.due:
            number = self.due.pop()
            self.collector.emit(self.values(number), message_id=number)

    def ack(self, message_id: int) -> None:
        print(message_id, file=self.acks, flush=True)

    def fail(self, message_id: int) -> None:
        self.due.append(message_id)

    def close(self) -> None:
        self.acks.close()

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return not self.due


def full(component: Any) -> Any:
    component.durability = "full"
    return component


# ---- the kinds: how a topology is made, and its results ----


def words(root: Path, outside: Path) -> Topology:
    texts = Outside(("text",), lambda number: (parts.text_of(number),), outside)
    return parts.topology(texts, parts.Split(), full(parts.Count()), full(parts.Total()))


def counted_words(root: Path) -> list[Any]:
    return [Counter(read_component(root / "state", "count")), read_component(root / "state", "total")["totals"]]


def windows(root: Path, outside: Path) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Outside(windowed.Events.outputs, windowed.event, outside), parallelism=2)
    sums = full(windowed.Folded()).with_sliding_window(secs=2, slide_secs=0.5).with_key("user")
    sums.with_timestamp_field("at").with_lag(secs=0.1)
    builder.set_bolt("sums", sums, parallelism=2).fields_grouping("events", "user")
    builder.set_bolt("keep", full(windowed.Keep())).global_grouping("sums")
    return builder.build()


def counted_windows(root: Path) -> Any:
    return [read_component(root / "state", "keep")]


def connect(path: Path) -> sqlite3.Connection:
    connection = windowed.connect(str(path))
    connection.execute("PRAGMA synchronous = EXTRA")  # FULL may lose the last commit
    return connection


def sinks(root: Path, outside: Path) -> Topology:
    builder = TopologyBuilder()
    builder.set_spout("events", Outside(windowed.Events.outputs, windowed.event, outside), parallelism=2)
    sql = SqlSink(partial(connect, root / "db"), "INSERT INTO events VALUES (?, ?, ?)")
    parquet = ParquetSink(root / "tables" / "parquet", commit_secs=0.1)
    for name, sink in {"file": FileSink(root / "files" / "out"), "parquet": parquet, "sql": sql}.items():
        builder.set_bolt(name, full(sink), parallelism=2).fields_grouping("events", "number")
    return builder.build()


def counted_rows(root: Path) -> list[Any]:
    with contextlib.closing(connect(root / "db")) as db:
        rows = Counter(db.execute("SELECT * FROM events"))
    return [windowed.in_files(root / "files"), windowed.in_parquet(root / "tables"), rows]


@spout("text")
def generated(start: int) -> Iterator[str]:
    for number in range(start, RECORDS):
        yield f"generated {number}"


class Read(Source):
    outputs = ("text",)

    def read_from(self, position: Any) -> Iterator[Any]:
        for number in range(position or 0, RECORDS):
            yield number + 1, (f"read {number}",)


class OneEach(StatefulBolt):
    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        self.state[tup["text"]] = self.state.get(tup["text"], 0) + 1


def positions(root: Path, outside: Path) -> Topology:
    """Sources that keep their positions themselves."""
    feed, log = outside / "feed", outside / "log"
    feed.write_text("".join(f"fed {number}\n" for number in range(RECORDS)))
    for name, begin in ((outside / "log.1", 0), (log, RECORDS // 2)):
        name.write_text("".join(f"logged {number}\n" for number in range(begin, begin + RECORDS // 2)))
    builder = TopologyBuilder()
    sources = {"generated": generated, "read": Read(), "fed": FeedSpout([feed], range_rows=7), "logged": TailSpout(log)}
    count = builder.set_bolt("count", full(OneEach()), parallelism=2)
    for name, source in sources.items():
        builder.set_spout(name, source, parallelism=1 + (name == "fed"))
        count.fields_grouping(name, "text")
    return builder.build()


def one_each(root: Path) -> list[Any]:
    return [read_component(root / "state", "count")]


EVENTS = Counter(windowed.event(number) for number in range(RECORDS)) + Counter(
    windowed.event(number) for number in range(RECORDS)
)
KINDS: dict[str, tuple[Callable[[Path, Path], Topology], Callable[[Path], Any], Any]] = {
    "words": (words, counted_words, [parts.expected(RECORDS)] * 2),
    "windows": (windows, counted_windows, [windowed.sliding_results(RECORDS)]),
    "sinks": (sinks, counted_rows, [EVENTS] * 3),
    "positions": (positions, one_each, [Counter(
        f"{how} {number}" for how in ("generated", "read", "fed", "logged") for number in range(RECORDS)
    )]),
}


# ---- for a cluster ----

NUMBERS = 20_000


@spout("text")
def numbers(start: int) -> Iterator[str]:
    for number in range(start, NUMBERS):
        yield f"{number}"


def topology(arguments: list[str]) -> Topology:
    """`arguments`: the directory of a FileSink."""
    builder = TopologyBuilder()
    builder.set_spout("numbers", numbers)
    for name, bolt in {"count": OneEach(), "file": FileSink(arguments[0])}.items():
        builder.set_bolt(name, full(bolt), parallelism=2).fields_grouping("numbers", "text")
    return builder.build()


# ---- lives ----


def live(kind: str, root: Path, outside: Path, seed: int) -> None:
    """Run a topology to its end."""
    make, counted, expected = KINDS[kind]
    rng = random.Random(seed)
    config = Config(workers=2, seed=seed, message_timeout_secs=2.0)
    with SimulatedCluster(make(root, outside), config, state_root=root / "state", record=False) as cluster:
        # A log never ends, and a thread reads, in no simulated time.
        end, idle = time.monotonic() + MOST_SECS, 0
        while not cluster.drained and not (idle > IDLE_STEPS and [*map(set, counted(root))] == [*map(set, expected)]):
            assert time.monotonic() < end, "there was no end"
            idle = 0 if cluster.step() else idle + 1
            if idle or rng.random() < 0.2:
                cluster.clock.advance_ns(60_000_000)


def in_process(call: Callable[[], object]) -> bool:
    """Call it in a process of its own; return False if that was killed."""
    if not (pid := os.fork()):
        code = 1
        try:
            call()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL), f"a life ended with {code}"
    return not code


def run(kind: str, seed: int, directory: Path) -> None:
    """Run a topology through power losses to its end. AssertionError if its results are wrong."""
    rng = random.Random(seed)
    _, counted, expected = KINDS[kind]
    root, outside = directory / "root", directory / "outside"
    root.mkdir(parents=True)
    outside.mkdir()
    disk = Disk(root, directory / "disk", Path(os.environ["LD_PRELOAD"]))
    os.environ.update(disk.environment)
    for life in range(LOSSES + 1):
        disk.power_on(round(MOST_SYNCS ** rng.random()) if life < LOSSES else FOREVER)
        again = outside / "all"
        again.touch() if rng.random() < 0.5 else again.unlink(missing_ok=True)
        if in_process(lambda life=life: live(kind, root, outside, seed + life)):
            break
        disk.lose(rng if rng.random() < 0.5 else None)
    wrong = [
        {key: (its.get(key, 0), right.get(key, 0)) for key in {*its, *right} if its.get(key, 0) != right.get(key, 0)}
        for its, right in zip(counted(root), expected, strict=True)
    ]
    assert not any(wrong), f"seed {seed}: (counted, expected): {wrong}"


# ---- mutants: the promise without a part of it ----


def _unsynced(store: TaskStore, directory: Any, who: str, full: bool = False, init: Any = TaskStore.__init__) -> None:
    init(store, directory, who)


def _unsynced_records(store: RecordStore, *arguments: Any, init: Any = RecordStore.__init__) -> None:
    init(store, *arguments[:4])


def _nothing(of: Any) -> None: ...


_SYNC = "sync_directories"
MUTANTS: dict[str, tuple[Any, ...]] = {
    "stores": ("words", 1, (TaskStore, "__init__", _unsynced)),
    "records": ("words", 51, (RecordStore, "__init__", _unsynced_records)),
    "directories of stores": ("words", 11, (task_store, _SYNC, _nothing), (record_store, _SYNC, _nothing)),
    "files": ("sinks", 1, (os, "fdatasync", _nothing)),
    "directories of files": ("sinks", 1, (sinks_module, _SYNC, _nothing)),
    "directories of Parquet files": ("sinks", 5, (parquet_sink, _SYNC, _nothing)),
    "the list of a log's files": ("positions", 12, (log_reader, _SYNC, _nothing)),
}
"""What is not synced -> the kind that must notice, and a seed by which it does; owner, name and what stands there
instead."""


def main(directory: Path, runs: Iterable[str]) -> None:
    """Of each KIND:SEED:COUNT[:MUTANT], run the seeds from SEED on; print KIND:SEED, or the mutant, if a result is
    wrong."""
    absorbed.GENERATION = 2  # or nothing would be forgotten
    for run_ in runs:
        kind, first, count, *mutant = run_.split(":")
        for owner, name, other in MUTANTS[mutant[0]][2:] if mutant else ():
            setattr(owner, name, other)
        for seed in range(int(first), int(first) + int(count)):
            try:
                run(kind, seed, directory / f"{kind}-{seed}{''.join(mutant)}")
            except Exception:
                traceback.print_exc()
                print(*mutant or [f"{kind}:{seed}"])
                break


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
