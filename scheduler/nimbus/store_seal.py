"""The seal of a store: a small file beside it with the generation of its last change and a digest of its rows.

Guarantees
    * A seal is on disk completely or not at all, and an altered one is refused.
    * `Seal.fits` tells a store that is whole and up to date from one that is older, other, or altered. A store may be
      one change ahead of its seal: its writer died in between.

Why: SQLite silently drops a write-ahead log or a journal that was cut or altered, and opens the older state of the
file, or an empty one.

Relies on: one writing process. Thread: Nimbus's loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import NamedTuple

from squall.ipc.private import sync_directory

_WORD = "squall-seal-1"


class SealDamaged(Exception):
    """The seal is not as it was written."""


class Seal(NamedTuple):
    """Names one state of a store."""

    generation: int
    digest: str
    """Hex digest over the store's rows."""

    def fits(self, generation: int, digest: str, before: str) -> bool:
        """Whether a store of this generation, with these digests now and one change before, is the sealed one."""
        if generation == self.generation:
            return digest == self.digest
        return generation == self.generation + 1 and before == self.digest

    def encode(self) -> bytes:
        text = f"{_WORD} {self.generation} {self.digest}"
        return f"{text} {_check(text)}\n".encode()


def read_seal(path: str) -> Seal | None:
    """Read a seal; None if there is no file. SealDamaged if it is not as it was written."""
    try:
        with open(path, "rb") as file:
            data = file.read(1000)
    except FileNotFoundError:
        return None
    try:
        word, generation, digest, _ = data.decode("ascii").split()
        seal = Seal(int(generation), digest)
    except ValueError:
        raise SealDamaged(f"{path} is damaged") from None
    if word != _WORD or data != seal.encode():
        raise SealDamaged(f"{path} is damaged")
    return seal


class SealFile:
    """Writes seals, in two steps around the store's own commit. OSError as the system raises it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._temporary = f"{path}.new"
        self._directory = os.path.dirname(path) or "."

    def prepare(self, seal: Seal) -> None:
        """Write the new seal beside the old, before the commit, so that a full disk is noticed in time."""
        fd = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            data = seal.encode()
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        if not os.path.exists(self._path):
            # Without an old seal, this one alone tells a store whose writer died from one whose seal was removed.
            sync_directory(self._directory)

    def put(self) -> None:
        """Put the prepared seal in place, after the commit."""
        os.rename(self._temporary, self._path)
        sync_directory(self._directory)

    def settle(self, present: Seal) -> None:
        """After the death of a writer between its steps: have the seal of the store's present state in place.

        Without this, a second death at the same step would leave the store two changes ahead of its seal.
        """
        if not self.is_prepared(present):
            self.prepare(present)
        self.put()

    def is_prepared(self, seal: Seal) -> bool:
        """Whether this seal is on disk beside the old one."""
        try:
            return read_seal(self._temporary) == seal
        except SealDamaged:
            return False

    def withdraw(self) -> None:
        """Drop the prepared seal, if there is one: the commit failed, or its writer died before it."""
        with contextlib.suppress(OSError):
            os.unlink(self._temporary)


def _check(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
