"""Components that tests run on workers. What they see, they append to files of a directory, one line a record."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from squall import (
    BasicBolt,
    BasicCollector,
    Failure,
    ReplayingSpout,
    Spout,
    SpoutCollector,
    TopologyContext,
    Tuple,
)


def note(directory: str, name: str, record: Any) -> None:
    """One write of one line: whole, whoever else writes."""
    fd = os.open(Path(directory) / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, json.dumps(record).encode() + b"\n")
    os.close(fd)


def notes(directory: str | Path, name: str) -> list[Any]:
    """What has been noted so far; a line that is being written is not there yet."""
    path = Path(directory) / name
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


class Numbers(ReplayingSpout):
    """0 .. count-1, each its own message id; notes acks and failures."""

    outputs = ("n",)

    def __init__(self, directory: str, count: int) -> None:
        self.directory = directory
        self.count = count

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.share = range(context.task_index, self.count, len(context.component_tasks(context.component_id)))

    def read(self) -> Iterator[tuple[Any, Any]]:
        for n in self.share:
            yield n, (n,)

    def ack(self, message_id: Any) -> None:
        super().ack(message_id)
        note(self.directory, "acked", message_id)

    def on_dead_letter(self, message_id: Any, failure: Failure) -> None:
        note(self.directory, "dead", [message_id, failure.reason, failure.error, failure.attempt])
        ReplayingSpout.ack(self, message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        note(
            self.directory, "failed",
            [message_id, failure.reason, failure.component, failure.worker, failure.error, failure.attempt],
        )
        super().on_failure(message_id, failure)


class Unending(Numbers):
    """0, 1, 2 ... until a file "enough" is there: whoever kills a worker meanwhile is never too late."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory, 0)

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        """It has one task."""

    def read(self) -> Iterator[tuple[Any, Any]]:
        enough = Path(self.directory, "enough")
        for n in itertools.count():
            if enough.exists():
                return
            time.sleep(0.001)  # else whatever waits for a kill, a restart or a spare has a core less
            yield n, (n,)


class OneShot(Spout):
    """Emits 0 .. count-1 once, tracked or not, and never again; notes acks and failures."""

    outputs = ("n",)

    def __init__(self, directory: str, count: int, tracked: bool = True) -> None:
        self.directory = directory
        self.count = count
        self.tracked = tracked

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self.collector = collector
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < self.count:
            self.next += 1
            self.collector.emit((self.next - 1,), message_id=self.next - 1 if self.tracked else None)
        self.exhausted = self.next == self.count

    def ack(self, message_id: Any) -> None:
        note(self.directory, "acked", message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        note(self.directory, "failed", [message_id, failure.reason])


class Pass(BasicBolt):
    """Emits what it gets."""

    outputs = ("n",)

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        collector.emit((tup["n"],))


class Seen(BasicBolt):
    """Notes (task index, value)."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.index = context.task_index

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        note(self.directory, "seen", [self.index, *tup.values])


class Hangs(BasicBolt):
    """On a thread of its own: takes `secs` over each tuple, and does not come back from `victim`, the first `times` it
    comes."""

    outputs = ("n",)
    blocking = True

    def __init__(self, directory: str, secs: float = 0.0, victim: int = -1, times: int = 1) -> None:
        self.directory = directory
        self.secs = secs
        self.victim = victim
        self.times = times

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] == self.victim and len(notes(self.directory, "hung")) < self.times:
            note(self.directory, "hung", os.getpid())
            threading.Event().wait()
        time.sleep(self.secs)
        collector.emit((tup["n"],))


class HangsLoop(Hangs):
    """The same in its worker's loop."""

    blocking = False


class Refuse(BasicBolt):
    """Raises on the first attempt at `victim`."""

    outputs = ("n",)

    def __init__(self, directory: str, victim: int) -> None:
        self.mark = Path(directory) / "refused"
        self.victim = victim

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] == self.victim and not self.mark.exists():
            self.mark.touch()
            raise ValueError("broken")
        collector.emit((tup["n"],))


class Poisoned(BasicBolt):
    """Ends its worker, in one of several ways, each time it meets one of `victims`, unless a file "cured" is there.
    It waits with that, in `execute`, while there is a file "held-N": "held-0" before the first time, and so on."""

    outputs = ("n",)

    def __init__(self, directory: str, victims: tuple[int, ...], how: str) -> None:
        self.directory = directory
        self.victims = victims
        self.how = how

    def execute(self, tup: Tuple, collector: BasicCollector) -> None:
        if tup["n"] in self.victims and not (Path(self.directory) / "cured").exists():
            held = Path(self.directory, f"held-{len(notes(self.directory, 'poisonings'))}")
            if held.exists():
                note(self.directory, "waits", tup["n"])
            while held.exists():
                time.sleep(0.005)
            note(self.directory, "poisonings", tup["n"])
            if self.how == "exception":
                raise ValueError(f"cannot digest {tup['n']}")
            if self.how == "exit":
                os._exit(7)
            os.kill(os.getpid(), signal.SIGSEGV)
        collector.emit((tup["n"],))
