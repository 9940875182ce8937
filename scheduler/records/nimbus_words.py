"""The last words of a Nimbus that refused to serve or failed, for the commands that wait for one.

Its stderr may be anywhere, for example with a service manager only.

Guarantees: one line, whatever the error, of the last Nimbus only: it is removed when another one serves. A Nimbus that
serves reserves room for its words, so that a disk that fills up later, which may be what ends it, does not silence it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Iterator

from squall.engine.errors import SquallError
from squall.engine.foreign.plain_text import plain
from squall.ipc.rundir import RunDir

log = logging.getLogger(__name__)

_ROOM_BYTES = 4096
"""Bytes reserved for the words, one page of a file system. Longer words are cut."""


@contextlib.contextmanager
def leaving_words(run_dir: RunDir) -> Iterator[None]:
    """Write down the error that ends a Nimbus. Call it with the directory's lock held: a Nimbus that is refused because
    another serves leaves no words."""
    try:
        yield
    except Exception as error:
        try:
            _write(run_dir, f"{_line(error)}\n".encode()[:_ROOM_BYTES])
        except OSError as full:
            # Commands notice a full disk, or a missing directory, by themselves.
            log.warning("cannot write %s: %s", run_dir.nimbus_words, full.strerror)
        raise


def forget_words(run_dir: RunDir) -> None:
    """Remove the words of the Nimbus before, and reserve room for new ones if the disk has any."""
    try:
        _write(run_dir, b"")
    except OSError as full:
        log.warning("cannot keep room for last words in %s: %s", run_dir.nimbus_words, full.strerror)


def words_of(run_dir: RunDir) -> str:
    """ "" if there are none."""
    try:
        return run_dir.nimbus_words.read_bytes().strip(b"\0").decode(errors="replace").strip()
    except FileNotFoundError:
        return ""


def _line(error: Exception) -> str:
    """The error as one line. Foreign errors are named by their type too: many say nothing without it."""
    return plain(error if isinstance(error, SquallError) else "".join(traceback.format_exception_only(error)).strip())


def _write(run_dir: RunDir, words: bytes) -> None:
    """Overwrite in place: the file keeps its blocks, where a truncated one would need new ones.

    Reserve room by writing: on some file systems fallocate sets the length only.
    """
    fd = os.open(run_dir.nimbus_words, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, words.ljust(_ROOM_BYTES, b"\0"), 0)
    finally:
        os.close(fd)
