"""The dead-letter ledger of one topology: messages that were given up, with their values and their last failure.

Guarantees
    * A letter is one line: it is there whole or not at all, whatever dies.
    * A letter is given back by one request at most, and the request stays until the message has been acked or is in the
      ledger again: the death of the worker that took it loses nothing.

Relies on: nothing else writing in `RUN/state/<topology>/`. Values are unpickled by the worker that emits them, never
here: the ledger can be read without the topology's code.

Layout::

    RUN/state/<topology>/dead-letters.jsonl                        the ledger, append-only
    RUN/state/<topology>/dead-letters.given-back                   ids of letters that were asked back, one a line;
                                                                   -id: refused
    RUN/state/<topology>/.given-back/<spout>-<task index>/<id>     requests
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import json
import os
import pickle
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from engine.errors import ClusterError, UsageError
from engine.executor import describe
from engine.failure import Failure
from engine.lane import Letter, Routed
from ipc.line_file import append_line, read_lines
from ipc.rundir import LETTER_REQUESTS

LEDGER = "dead-letters.jsonl"
_GIVEN_BACK = "dead-letters.given-back"


@dataclass(frozen=True)
class DeadLetter:
    """One line of the ledger."""

    id: str
    at: str
    """UTC, ISO 8601."""
    spout: str
    task_index: int
    message_id: str
    """Its `repr`, as are the values: for people."""
    values: str
    reason: str
    component: str
    """Where it failed; empty where nobody can know."""
    task: int
    worker: str
    error: str
    attempt: int
    payload: str
    """Message id and values for the worker, pickled, in base64; empty if they cannot be pickled."""
    why_no_payload: str = ""

    def public(self) -> dict[str, Any]:
        """What `--json` shows."""
        shown = dict(self.__dict__)
        shown.pop("payload")
        return shown


class DeadLetters:
    """The ledger in `directory`, a topology's state directory. Any process of the owner."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # ---- workers ----

    def add(self, spout: str, task_index: int, message_id: Any, values: Any, failure: Failure) -> None:
        """Write a letter."""
        why_not = payload = ""
        try:
            payload = base64.b64encode(pickle.dumps((message_id, values), 5)).decode()
        except Exception as error:
            why_not = describe(error)
        letter = DeadLetter(
            os.urandom(6).hex(), datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"), spout,
            task_index, repr(message_id), repr(values), failure.reason, failure.component, failure.task,
            failure.worker, failure.error, failure.attempt, payload, why_not,
        )
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        append_line(self.directory / LEDGER, json.dumps(letter.__dict__))

    def take(
        self, spout: str, task_index: int, known: Collection[str], refuse: Callable[[str], None]
    ) -> Iterator[tuple[str, Letter]]:
        """(id, letter) of each request for this task that is not among the `known`, oldest first. What this topology
        cannot read is left in the ledger; `refuse` is told why."""
        directory = self._requests(spout, task_index)
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.stat().st_mtime_ns)
        except FileNotFoundError:
            return
        for entry in entries:
            if entry.name not in known and not entry.name.endswith(".new"):
                try:
                    message_id, values = _unpack(Path(entry.path))
                except ClusterError as error:
                    append_line(self.directory / _GIVEN_BACK, f"-{entry.name}")
                    os.unlink(entry.path)
                    refuse(str(error))
                    continue
                yield entry.name, Letter(message_id, values, partial(os.unlink, entry.path))

    # ---- whoever asks ----

    def read(self) -> list[DeadLetter]:
        """Every letter that has not been given back, oldest first."""
        given_back = self._given_back()
        return [letter for letter in self._all() if letter.id not in given_back]

    def _all(self) -> Iterator[DeadLetter]:
        path = self.directory / LEDGER
        for number, line in enumerate(read_lines(path), start=1):
            try:
                yield DeadLetter(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ClusterError(f"{path}, line {number} is no dead letter: {error}") from error

    def _given_back(self) -> set[str]:
        ids: set[str] = set()
        for line in read_lines(self.directory / _GIVEN_BACK):
            word = line.decode("ascii")
            if word.startswith("-"):
                ids.discard(word[1:])
            else:
                ids.add(word)
        return ids

    def give_back(self, ids: Collection[str] = ()) -> list[DeadLetter]:
        """Ask for letters to be emitted again: those named, or all. Returns them. UsageError if one is not there, or
        cannot be pickled; then none is given back."""
        with self._locked():
            letters = {letter.id: letter for letter in self.read()}
            unknown = [wanted for wanted in ids if wanted not in letters]
            if unknown:
                raise UsageError(f"there is no dead letter {unknown[0]!r} in {self.directory / LEDGER}")
            wanted = [letter for letter in letters.values() if not ids or letter.id in ids]
            for letter in wanted:
                if letter.payload:
                    self._request(letter)
                elif ids:
                    raise UsageError(f"dead letter {letter.id} cannot be given back: {letter.why_no_payload}")
            return [letter for letter in wanted if letter.payload]

    def _request(self, letter: DeadLetter) -> None:
        """The request first, then the mark: after a death in between, the next `give_back` finds the request there."""
        directory = self._requests(letter.spout, letter.task_index)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = directory / f"{letter.id}.new"
        temporary.write_text(letter.payload)
        os.replace(temporary, directory / letter.id)
        append_line(self.directory / _GIVEN_BACK, letter.id)

    def _requests(self, spout: str, task_index: int) -> Path:
        return self.directory / LETTER_REQUESTS / f"{spout}-{task_index}"

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            # See `append_line`.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)


def _unpack(path: Path) -> tuple[Any, Any]:
    try:
        message_id, values = pickle.loads(base64.b64decode(path.read_text()))
    except Exception as error:
        raise ClusterError(f"dead letter {path} cannot be read by this topology: {describe(error)}") from error
    return message_id, values if isinstance(values, Routed) else tuple(values)
