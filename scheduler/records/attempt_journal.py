"""The attempts of one spout task, on disk, for the worker's next incarnation.

Guarantees
    * Records that `append` has written survive any death of the process (not a power loss), whole or not at all.
    * The file is bounded by its content: it is rewritten when it is four times as long as a snapshot.
    * A journal of another topology is ignored: a new submission starts without a record.

Relies on: one writer, the worker that runs the task; message ids that can be pickled, and are equal once unpickled.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from squall.engine.flow.ids import ALONE, Block
from squall.engine.foreign.text import text_of_error
from squall.engine.tracking.attempts import Changes, Remembered
from squall.ipc.private import gone_if_failed, make_levels

_REWRITE_MIN_BYTES = 256 * 1024
_REWRITE_FACTOR = 4
_END = "end"


class AttemptJournal:
    """A file of pickled records: the topology's id, `Changes` ..., and "end" if the incarnation ended in order."""

    def __init__(self, path: Path, topology_id: str, report: Callable[[str], None], explanation: str = "") -> None:
        """`explanation`: what is known of the end of the incarnation before (`Remembered`)."""
        self._path = path
        self._topology_id = topology_id
        self._report = report
        self._explanation = explanation
        self._reported = False
        self._fd = -1
        self._size = 0
        self._rewrite_at = 0

    def load(self) -> Remembered:
        """The record of the incarnation before; empty if there is none."""
        left, history = Remembered(explanation=self._explanation), list[Changes]()
        for number, record in enumerate(self._records()):
            if number == 0:
                if record != self._topology_id:
                    return Remembered()
                left.unclean = True
            elif record == _END:
                left.unclean = False
            else:
                history.append(Changes(*record))
        for changes in history:
            for message_id, tries in changes.tries.items():
                left.tries.pop(message_id, None)
                if tries is not None:
                    left.tries[message_id] = tries
            left.group = changes.group
        left.under_way = _under_way(history)
        return left

    def _records(self) -> Iterator[Any]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        while len(data) - at >= 4:
            size = int.from_bytes(data[at : at + 4], "little")
            body = data[at + 4 : at + 4 + size]
            if len(body) < size:
                return  # torn by a death
            at += 4 + size
            try:
                record = pickle.loads(body)
            except BaseException as error:
                # Message ids are user objects: their class may be gone, or raise.
                self._complain(f"what was known of failed messages is lost in part: {text_of_error(error)}")
                continue
            yield record

    def append(self, changes: Changes, snapshot: Callable[[], Changes]) -> None:
        """Write one turn's changes, or, if the file has grown, a snapshot. On a full disk it tells the operator and
        goes on."""
        try:
            if self._fd < 0 or self._size > self._rewrite_at:
                self._rewrite(snapshot())
            else:
                self._write(self._fd, self._packed(changes))
        except OSError as error:
            self._complain(f"what failed how often cannot be written to {self._path}: {error.strerror}")

    def _rewrite(self, everything: Changes) -> None:
        make_levels(self._path.parent, 2)
        temporary = self._path.with_name(self._path.name + ".new")
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0
        try:
            with gone_if_failed(temporary):
                self._write(fd, _frame(pickle.dumps(self._topology_id, 5)) + self._packed(everything))
                os.replace(temporary, self._path)
        except OSError:
            os.close(fd)
            raise
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._rewrite_at = max(_REWRITE_MIN_BYTES, _REWRITE_FACTOR * self._size)

    def _write(self, fd: int, data: bytes) -> None:
        self._size += len(data)
        while data:
            data = data[os.write(fd, data) :]

    def _packed(self, changes: Changes) -> bytes:
        try:
            return _frame(pickle.dumps(tuple(changes), 5))
        except BaseException as error:
            self._complain(f"attempts of some messages will not survive this worker: {text_of_error(error)}")
        # What holds a message that cannot be pickled is written down message by message.
        out = [
            (root, (key,)) for base, keys in changes.out
            for root, key in zip(_roots(base, range(len(keys))), keys, strict=True) if _can_be_pickled(key)
        ]
        tries = {message_id: tries for message_id, tries in changes.tries.items() if _can_be_pickled(message_id)}
        answered = [(root, ALONE) for block in changes.answered for root in _roots(*block)]
        return _frame(pickle.dumps((out, answered, tries, changes.group), 5))

    def _complain(self, text: str) -> None:
        if not self._reported:
            self._reported = True
            self._report(text)

    def end(self) -> None:
        """Mark that the incarnation ends in order: the message to blame, if any, is on record."""
        if self._fd < 0:
            return
        try:
            self._write(self._fd, _frame(pickle.dumps(_END, 5)))
        except OSError as error:
            self._complain(f"the end of this worker cannot be written to {self._path}: {error.strerror}")
        os.close(self._fd)
        self._fd = -1


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "little") + body


def _can_be_pickled(value: Any) -> bool:
    try:
        pickle.dumps(value, 5)
    except BaseException:  # the error was reported for the whole record
        return False
    return True


def _roots(base: int, members: Iterable[int]) -> Sequence[int]:
    return Block(base, 0).roots(members)


def _under_way(history: Iterable[Changes]) -> dict[int, Any]:
    """The messages that were emitted and not answered, by root. Most blocks are answered whole, so the messages of a
    block are spelled out only if some are left at the end."""
    blocks: dict[int, tuple[Sequence[Any], set[int]]] = {}
    answered: set[int] = set()
    for changes in history:
        for base, keys in changes.out:
            blocks[base] = keys, set(range(len(keys)))
        for base, members in changes.answered:
            keys, left = blocks.get(base, ((), set()))
            left.difference_update(members)
            if not left:
                blocks.pop(base, None)
            if max(members, default=-1) >= len(keys):  # written down one by one, or in another block
                answered.update(_roots(base, members))
    found: dict[int, Any] = {}
    for base, (keys, left) in blocks.items():
        members = sorted(left)
        found.update(zip(_roots(base, members), map(keys.__getitem__, members), strict=True))
    return {root: key for root, key in found.items() if root not in answered}
