"""Spouts for tests: FeederSpout, which a test feeds by hand and which shows the test every ack and failure (AckTracker
counts them); FixedSpout, which emits a list. With them goes `wait_for`, which never waits for a fixed time.

Guarantees of FeederSpout: tuples are emitted in the order fed, each once (a failed one is not emitted again: feed it
again); acks and failures are seen in the order in which the spout received them. With several tasks, the first to ask
takes the next. Readers see whole records only, even if a process is killed at any point. The test and the tasks, in
this process or in workers, share files, so values and message ids must be picklable. A tuple that a killed worker had
taken but not emitted is lost; `unanswered` has it.

Guarantees of FixedSpout: every tuple is emitted, in the order of the list, with its position as message id, and again
after each failure until it is acked. Several tasks take the list's items in turn. After its worker's death a task
begins anew.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pickle
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from squall.engine.api.component import Spout
from squall.engine.api.failure import Failure
from squall.engine.api.replaying import ReplayingSpout
from squall.engine.api.stream import DEFAULT_STREAM, Emit, Outputs

if TYPE_CHECKING:
    from squall.engine.api.collectors import SpoutCollector
    from squall.engine.api.context import TopologyContext


T = TypeVar("T")
_POLL_SECS = 0.002


def wait_for(what: str, condition: Callable[[], T], timeout_secs: float = 20.0) -> T:
    """Return the first true value of `condition()`; AssertionError naming `what` if `timeout_secs` pass first."""
    deadline = time.monotonic() + timeout_secs
    before = time.thread_time()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {timeout_secs:g} s for {what}"
        # A condition that takes 10 ms, as one that looks at every process, would take a core from what it waits for.
        time.sleep(max(_POLL_SECS, 4 * (time.thread_time() - before)))
        before = time.thread_time()
    return value


_NEXT: Any = object()


@functools.cache
def own_directory() -> str:
    """Return a directory that goes with this process."""
    path = tempfile.mkdtemp(prefix="squall-testing-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class FeederSpout(Spout):
    """A spout that emits what a test feeds, and shows every ack and failure. `outputs` are those of any spout: field
    names, or a dict from stream names to field names. Its files are in `directory`, by default one that goes with this
    process."""

    def __init__(self, outputs: Outputs = ("value",), directory: str | Path | None = None) -> None:
        self.outputs = outputs
        self._path = Path(tempfile.mkdtemp(dir=directory or own_directory()))
        self._fed: list[Any] = []
        self._next = 0
        """Number of tuples that this copy knows to be taken."""
        self.fed = 0
        """Number of tuples fed so far."""

    # ---- the test's side ----

    def feed(
        self, values: Any, message_id: Any = _NEXT, stream: str = DEFAULT_STREAM, task: int | None = None
    ) -> Any:
        """Feed a tuple. Returns its message id, by default its number, from 1; None means untracked.

        `task` is the receiving task, for streams declared direct.
        """
        if message_id is _NEXT:
            message_id = self.fed + 1
        if message_id is not None:
            self._fed.append(message_id)
        fresh = self._path / "fresh"
        fresh.write_bytes(pickle.dumps((values, message_id, stream, task), 5))
        fresh.rename(self._path / f"fed-{self.fed}")
        self.fed += 1
        return message_id

    def finish(self) -> None:
        """End the feed: the spout is exhausted once it has emitted all tuples, and the topology can drain."""
        (self._path / "finished").touch()

    @property
    def acked(self) -> list[Any]:
        """Message ids, in the order of their acks."""
        return [answer[0] for answer in self._answers("ack")]

    @property
    def failures(self) -> list[tuple[Any, Failure]]:
        """(message id, failure), in the order in which they failed."""
        return self._answers("failure")

    @property
    def failed(self) -> list[tuple[Any, str]]:
        """(message id, reason), in the order in which they failed."""
        return [(message_id, failure.reason) for message_id, failure in self.failures]

    @property
    def unanswered(self) -> list[Any]:
        """Message ids that were fed and are neither acked nor failed."""
        answered = [answer[0] for answer in self._answers("ack", "failure")]
        return [message_id for message_id in self._fed if message_id not in answered]

    @property
    def waiting(self) -> int:
        """Number of tuples that were fed and not yet taken by a task."""
        return len(list(self._path.glob("fed-*")))

    @property
    def calls(self) -> list[str]:
        """Calls of "open", "activate", "deactivate" and "close", in order, over all tasks."""
        return [answer[0] for answer in self._answers("call")]

    def _answers(self, *kinds: str) -> list[Any]:
        """Return the answers of some kinds so far."""
        found = []
        with open(self._path / "answers", "a+b") as file:
            file.seek(0)
            # Until the end, or a record that is being written.
            with contextlib.suppress(EOFError, pickle.UnpicklingError):
                while True:
                    kind, *answer = pickle.load(file)
                    if kind in kinds:
                        found.append(tuple(answer))
        return found

    # ---- the spout's side ----

    def open(self, conf: Mapping[str, Any], context: TopologyContext, collector: SpoutCollector) -> None:
        self._collector = collector
        self._answer("call", "open")

    def next_tuple(self) -> None:
        record = self._take()
        if record is None:
            return
        values, message_id, stream, task = record
        if task is None:
            self._collector.emit(values, message_id=message_id, stream=stream)
        else:
            self._collector.emit_direct(task, values, message_id=message_id, stream=stream)

    def _take(self) -> Any | None:
        """Take the next tuple; None if there is none."""
        while True:
            taken = self._path / f"taken-{self._next}"
            try:
                os.rename(self._path / f"fed-{self._next}", taken)
            except FileNotFoundError:
                if not taken.exists():
                    return None
                self._next += 1
            else:
                self._next += 1
                return pickle.loads(taken.read_bytes())

    @property
    def exhausted(self) -> bool:  # type: ignore[override]
        return (self._path / "finished").exists() and not self.waiting

    def ack(self, message_id: Any) -> None:
        self._answer("ack", message_id)

    def on_failure(self, message_id: Any, failure: Failure) -> None:
        self._answer("failure", message_id, failure)

    def activate(self) -> None:
        self._answer("call", "activate")

    def deactivate(self) -> None:
        self._answer("call", "deactivate")

    def close(self) -> None:
        self._answer("call", "close")

    def _answer(self, *record: Any) -> None:
        with open(self._path / "answers", "ab", buffering=0) as file:
            file.write(pickle.dumps(record, 5))


class AckTracker:
    """Counts the answers to the messages of one `FeederSpout`, wherever its tasks run."""

    def __init__(self, feeder: FeederSpout) -> None:
        self._feeder = feeder
        self._acks_seen = self._fails_seen = 0

    @property
    def acks(self) -> int:
        """Acks since the last `reset` or `take`."""
        return len(self._feeder.acked) - self._acks_seen

    @property
    def fails(self) -> int:
        """Failures since the last `reset` or `take`."""
        return len(self._feeder.failures) - self._fails_seen

    def take(self) -> tuple[int, int]:
        """Return (acks, failures) since the last `reset` or `take`, and count from zero again."""
        acks, fails = self.acks, self.fails
        self._acks_seen += acks
        self._fails_seen += fails
        return acks, fails

    def reset(self) -> None:
        """Count from zero again."""
        self.take()

    def acks_of(self, message_id: Any) -> int:
        """Total acks of this message: 0 or 1, unless it was fed again."""
        return self._feeder.acked.count(message_id)


class FixedSpout(ReplayingSpout):
    """Emits `tuples`: a list for the default stream, or stream name -> list, one after the other."""

    first_delay_secs = 0.0

    def __init__(self, outputs: Outputs, tuples: Iterable[Any] | Mapping[str, Iterable[Any]]) -> None:
        self.outputs = outputs
        streams = tuples if isinstance(tuples, Mapping) else {DEFAULT_STREAM: tuples}
        self._items = [(stream, item) for stream, items in streams.items() for item in items]

    def start(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._mine = range(context.task_index, len(self._items), len(context.component_tasks(context.component_id)))

    def read(self) -> Iterator[Any]:
        for position in self._mine:
            stream, item = self._items[position]
            yield position, Emit(item, stream)
