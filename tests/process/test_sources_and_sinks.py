"""Sources and sinks on real workers, by the kit that users have for theirs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import TailSpout
from squall.connect import Queue, QueueSink, QueueSource, Sink, Source
from squall.testing import check_sink, check_source
from tests.process.conftest import SharedCluster


class Lines(Source):
    """As users write one."""

    outputs = ("line",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def read_from(self, position: int | None) -> Iterator[Any]:
        with open(self.path, "rb") as file:
            file.seek(position or 0)
            while line := file.readline():
                yield file.tell(), (line.decode().rstrip(),)


class OutFile(Sink):
    """As users write one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def connect(self, context: Any) -> None:
        self.file = self.path.open("a")

    def write(self, batch: Any) -> None:
        self.file.writelines(f"{number}\n" for number in batch["number"])
        self.file.flush()

    def disconnect(self) -> None:
        self.file.close()


def number_of(values: Any) -> int:
    return int(values[0])


def lines_in(path: Path, records: int) -> Path:
    path.write_text("".join(f"{number}\n" for number in range(records)))
    return path


class Forgets(Lines):
    """Has no position after a death."""

    def commit(self, position: int) -> None:
        pass


class Hurries(Forgets):
    """Commits what is read, not what is acked."""

    def read_from(self, position: int | None) -> Iterator[Any]:
        for record in super().read_from(position):
            Source.commit(self, record[0])
            yield record


class Loses(OutFile):
    """Acks before it writes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.waiting: list[int] = []

    def write(self, batch: Any) -> None:
        self.waiting += batch["number"]
        if len(self.waiting) > 100:
            self.file.writelines(f"{number}\n" for number in self.waiting)
            self.file.flush()
            self.waiting = []


class Renames(Lines):
    """Its positions are other ones in each life."""

    def read_from(self, position: Any) -> Iterator[Any]:
        life = os.getpid()
        for at, values in super().read_from(position and position[1]):
            yield (life, at), values


@pytest.mark.parametrize(("kind", "why"), [
    (Forgets, "came twice though nothing failed"), (Hurries, "did not come"),
    (Renames, "came with the message ids"),
])
def test_a_source_that_breaks_its_promise_is_found_out(
    shared_cluster: SharedCluster, tmp_path: Path, kind: type[Lines], why: str
) -> None:
    paths = iter(map(str, range(9)))
    with pytest.raises(AssertionError, match=why):
        check_source(shared_cluster, lambda records: kind(lines_in(tmp_path / next(paths), records)), number_of)


def test_a_sink_that_breaks_its_promise_is_found_out(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    path = tmp_path / "out"
    with pytest.raises(AssertionError, match="did not come"):
        check_sink(shared_cluster, Loses(path), lambda: [int(line) for line in path.read_text().split()])


def test_a_log(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    paths = iter(map(str, range(9)))
    check_source(shared_cluster, lambda records: TailSpout(lines_in(tmp_path / next(paths), records)), number_of)


def filled(path: Path, records: int) -> QueueSource:
    queue = Queue(path)
    queue.put([(number, "x" * 100) for number in range(records)])
    queue.close()
    return QueueSource(path, ("number", "text"))


def test_a_queue(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    paths = iter(map(str, range(9)))
    check_source(shared_cluster, lambda records: filled(tmp_path / next(paths), records), number_of)
    for path in tmp_path.glob("?"):
        assert Queue(path).counts()[:3] == (0, 0, 0)


def test_a_queue_that_is_written(shared_cluster: SharedCluster, tmp_path: Path) -> None:
    path = tmp_path / "queue"

    def numbers() -> list[Any]:
        return [row[0] for _, row in Queue(path).peek(1_000_000) if row is not None]

    check_sink(shared_cluster, QueueSink(path), numbers)
