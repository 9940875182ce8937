"""The last words of a Nimbus that refused to serve or failed, for the commands that wait for one.

What it says on its stderr may be anywhere: nobody but a service manager may have it.

Guarantees: one line, whatever the error; what is there is of the last Nimbus, and goes when another one serves. One
that serves keeps room for its words: a disk that fills up later, which may be what ends it, does not silence it.
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
"""Kept for the words: a page. What is longer ends there."""


@contextlib.contextmanager
def leaving_words(run_dir: RunDir) -> Iterator[None]:
    """Write down the error that ends a Nimbus. It must hold the directory's lock: one that is refused because another
    serves has nothing to say."""
    try:
        yield
    except Exception as error:
        try:
            _write(run_dir, f"{_line(error)}\n".encode()[:_ROOM_BYTES])
        except OSError as full:
            # Commands find out about a full disk, or no directory, by themselves.
            log.warning("cannot write %s: %s", run_dir.nimbus_words, full.strerror)
        raise


def forget_words(run_dir: RunDir) -> None:
    """Called by a Nimbus that serves. Keeps room for its own, if the disk has any."""
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
    """Of an error that is none of ours, the kind as well: many say nothing without."""
    return plain(error if isinstance(error, SquallError) else "".join(traceback.format_exception_only(error)).strip())


def _write(run_dir: RunDir, words: bytes) -> None:
    """Over what was there, on blocks that the file has already: a file cut to nothing would have to find new ones.

    Room is kept by writing: some file systems take a wish for room (fallocate) for no more than a length.
    """
    fd = os.open(run_dir.nimbus_words, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, words.ljust(_ROOM_BYTES, b"\0"), 0)
    finally:
        os.close(fd)
