"""The dead-letter ledger of one topology: messages that were given up, with their values and their last failure.

Guarantees
    * A letter is one line, which is whole or absent, whatever dies.
    * A damaged line hides no other, and is named.
    * A letter is given back by one request at most, and the request stays until the message is acked or in the ledger
      again: the death of the worker that took it loses nothing.
    * A request that no task of the running topology can take is refused: its letter is listed again, and the log says
      why.
    * A letter that cannot be given back does not stop others.

Relies on: nothing else writing in `RUN/state/<topology>/`. Values are unpickled by the worker that emits them, never
here: the ledger can be read without the topology's code.

Layout::

    RUN/state/<topology>/dead-letters.jsonl                        the ledger, append-only
    RUN/state/<topology>/dead-letters/<id>.pickle                  message id and values
    RUN/state/<topology>/dead-letters.given-back                   ids of letters that were asked back, one a line;
                                                                   -id: refused
    RUN/state/<topology>/.given-back/<spout>-<task index>/<id>     requests
"""

from __future__ import annotations

import datetime
import json
import os
import pickle
import re
from collections.abc import Callable, Collection, Container, Iterator, Set
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from squall.engine.api.failure import FAILED, Failure
from squall.engine.errors import ClusterError, UsageError
from squall.engine.flow.spout_collector import Routed
from squall.engine.foreign.files import locked
from squall.engine.foreign.text import repr_of, text_of_error
from squall.engine.tracking.fate import Letter
from squall.ipc.private import append_line, gone_if_failed, make_directory, naming, opener, read_lines_and_tail
from squall.ipc.rundir import LETTER_REQUESTS

LEDGER = "dead-letters.jsonl"
_GIVEN_BACK = "dead-letters.given-back"
_PAYLOADS = "dead-letters"
KEPT_BYTES = 256 << 20
"""Bytes. Longer pickles are not kept, and the letter says so: a disk must hold many letters."""
SHOWN_CHARACTERS = 500
_ID = re.compile(r"[0-9a-f]{12}")
_MARK = re.compile(rb"-?[0-9a-f]{12}")


class DeadLetter(msgspec.Struct, frozen=True):
    """One line of the ledger."""

    id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{12}$")]
    at: str
    """UTC, ISO 8601."""
    spout: str
    task_index: int
    message_id: str
    """As text for people, cut if it is long, as are the values."""
    values: str
    reason: str
    component: str
    """Component in which it failed; empty if unknown."""
    task: int
    worker: str
    error: str
    attempt: int
    why_no_payload: str = ""
    """Why it cannot be given back; empty if it can. The payload of one that its spout gave up is kept nevertheless."""


class Contents(NamedTuple):
    """The content of a ledger."""

    letters: list[DeadLetter]
    damage: list[str]
    """For each line that cannot be read: file, number of the line, and why."""


class DeadLetters:
    """The ledger in `directory`, a topology's state directory. Process: any of the owner's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    # ---- workers ----

    def add(self, spout: str, task_index: int, message_id: Any, values: Any, failure: Failure, row: str = "") -> None:
        """Write a letter. `row`: the values as people read them."""
        make_directory(self.directory)
        name = os.urandom(6).hex()
        data, why_not = _pickled(message_id, values)
        if failure.reason == FAILED and failure.component == spout:
            # A text that is none is bytes here, so it would come back as another type than its field has.
            why_not = f"its spout gave it up, as no bolt could take it: {failure.error}"
        if data:
            self._write_payload(name, data)
        letter = DeadLetter(
            name, datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"), spout,
            task_index, repr_of(message_id, SHOWN_CHARACTERS), row or repr_of(values, SHOWN_CHARACTERS), failure.reason,
            failure.component, failure.task, failure.worker, failure.error, failure.attempt, why_not,
        )
        append_line(self.directory / LEDGER, json.dumps(msgspec.structs.asdict(letter)))

    def _write_payload(self, letter_id: str, data: bytes) -> None:
        """Write the payload file. Call it before writing the line: after a death in between, the file is unused."""
        path = self._payload_path(letter_id)
        make_directory(path.parent)
        with gone_if_failed(path), naming(path), open(path, "wb", opener=opener) as file:
            file.write(data)

    def asked(self) -> Set[str]:
        """The tasks for which there are or were requests, as `taker` names them: one look for any number of tasks."""
        try:
            return frozenset(os.listdir(self.directory / LETTER_REQUESTS))
        except FileNotFoundError:
            return frozenset()

    def take(
        self, spout: str, task_index: int, known: Collection[str], refuse: Callable[[str], None]
    ) -> Iterator[tuple[str, Letter]]:
        """(id, letter) of each request for this task that is not among the `known`, oldest first. Letters that this
        topology cannot read stay in the ledger; `refuse` is told why."""
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
                    self._refuse(entry)
                    refuse(str(error))
                    continue
                yield entry.name, Letter(message_id, values, partial(os.unlink, entry.path))

    def refuse_strangers(self, takers: Container[str], refuse: Callable[[str], None]) -> None:
        """Refuse requests for tasks that this topology does not have; `takers` are those that it has, as `taker` names
        them. Called by one worker of the topology."""
        try:
            directories = list(os.scandir(self.directory / LETTER_REQUESTS))
        except FileNotFoundError:
            return
        for directory in directories:
            if directory.name in takers:
                continue
            for entry in list(os.scandir(directory.path)):
                if _ID.fullmatch(entry.name):
                    self._refuse(entry)
                    refuse(f"dead letter {entry.name} is for task {directory.name}, which this topology does not have")

    def _refuse(self, entry: os.DirEntry[str]) -> None:
        append_line(self.directory / _GIVEN_BACK, f"-{entry.name}")
        os.unlink(entry.path)

    # ---- commands ----

    def read(self) -> list[DeadLetter]:
        """Every readable letter that was not given back, oldest first."""
        return self.look().letters

    def look(self) -> Contents:
        """As `read`, with the damaged lines."""
        damage: list[str] = []
        given_back = self._given_back(damage)
        return Contents([letter for letter in self._all(damage) if letter.id not in given_back], damage)

    def _all(self, damage: list[str]) -> Iterator[DeadLetter]:
        for number, line in self._lines(LEDGER, "is no dead letter", damage):
            try:
                # Not by msgspec: it refuses half surrogates, which errors of users may have.
                yield msgspec.convert(json.loads(line), DeadLetter)
            except (ValueError, RecursionError) as error:
                text = text_of_error(error)
                damage.append(f"{self.directory / LEDGER}, line {number} is no dead letter: {text}")

    def _given_back(self, damage: list[str]) -> set[str]:
        ids: set[str] = set()
        for number, line in self._lines(_GIVEN_BACK, "names no dead letter", damage):
            if not _MARK.fullmatch(line):
                where = f"{self.directory / _GIVEN_BACK}, line {number}"
                damage.append(f"{where} names no dead letter: the one it was for is listed again")
            elif line.startswith(b"-"):
                ids.discard(line[1:].decode())
            else:
                ids.add(line.decode())
        return ids

    def _lines(self, name: str, what: str, damage: list[str]) -> Iterator[tuple[int, bytes]]:
        """(number, line) of each whole line of a file."""
        lines, rest = read_lines_and_tail(self.directory / name)
        yield from enumerate(lines, start=1)
        if rest:
            damage.append(f"{self.directory / name}, line {len(lines) + 1} {what}: its end is missing")

    def give_back(self, ids: Collection[str] = ()) -> list[DeadLetter]:
        """Ask for letters to be emitted again: those in `ids`, or all that can be. Returns them. UsageError if one in
        `ids` does not exist or cannot be given back; then none is."""
        with locked(self.directory):
            wanted = self.chosen(self.read(), ids)
            for letter in wanted if ids else ():
                if why_not := self.why_not(letter):
                    raise UsageError(f"dead letter {letter.id} cannot be given back: {why_not}")
            given = [letter for letter in wanted if not self.why_not(letter)]
            for letter in given:
                self._request(letter)
            return given

    def chosen(self, letters: list[DeadLetter], ids: Collection[str]) -> list[DeadLetter]:
        """The letters in `ids`, or all. UsageError if one does not exist."""
        there = {letter.id for letter in letters}
        for wanted in ids:
            if wanted not in there:
                raise UsageError(f"there is no dead letter {wanted!r} in {self.directory / LEDGER}")
        return [letter for letter in letters if not ids or letter.id in ids]

    def why_not(self, letter: DeadLetter) -> str:
        """Why a letter cannot be given back; empty if it can."""
        path = self._payload_path(letter.id)
        return letter.why_no_payload or ("" if path.is_file() else f"{path} is missing")

    def _payload_path(self, letter_id: str) -> Path:
        return self.directory / _PAYLOADS / f"{letter_id}.pickle"

    def _request(self, letter: DeadLetter) -> None:
        """Write the request, then the mark: after a death in between, the next `give_back` finds the request."""
        directory = self._requests(letter.spout, letter.task_index)
        make_directory(directory)
        temporary = directory / f"{letter.id}.new"
        temporary.unlink(missing_ok=True)
        # Link the file: the ledger's name stays, so that a refused letter can be asked for again.
        os.link(self._payload_path(letter.id), temporary)
        os.replace(temporary, directory / letter.id)
        # If that was the same file already, from a command that died here, both names are still there.
        temporary.unlink(missing_ok=True)
        append_line(self.directory / _GIVEN_BACK, letter.id)

    def _requests(self, spout: str, task_index: int) -> Path:
        return self.directory / LETTER_REQUESTS / taker(spout, task_index)


def taker(spout: str, task_index: int) -> str:
    """The name of a spout task that may take letters back."""
    return f"{spout}-{task_index}"


def _pickled(message_id: Any, values: Any) -> tuple[bytes, str]:
    """(pickle to give back, "") or (nothing, why there is none)."""
    try:
        data = pickle.dumps((message_id, values), 5)
    except BaseException as error:  # users' code
        return b"", text_of_error(error)
    if len(data) > KEPT_BYTES:
        return b"", f"its message id and values take {len(data):,} bytes; allowed: at most {KEPT_BYTES:,}"
    return data, ""


def _unpack(path: Path) -> tuple[Any, Any]:
    try:
        message_id, values = pickle.loads(path.read_bytes())
    except BaseException as error:
        raise ClusterError(f"dead letter {path} cannot be read by this topology: {text_of_error(error)}") from error
    return message_id, values if isinstance(values, Routed) else tuple(values)
