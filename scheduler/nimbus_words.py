"""The last words of a Nimbus that refused to serve or failed, for the commands that wait for one.

What it says on its stderr may be anywhere: nobody but a service manager may have it.

Guarantees: one line; what is there is of the last Nimbus, and goes when another one serves.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from squall.engine.errors import SquallError
from squall.engine.plain_text import plain
from squall.ipc.private import opener
from squall.ipc.rundir import RunDir

log = logging.getLogger(__name__)


@contextlib.contextmanager
def leaving_words(run_dir: RunDir) -> Iterator[None]:
    """Write down the error that ends a Nimbus. It must hold the directory's lock: one that is refused because another
    serves has nothing to say."""
    try:
        yield
    except SquallError as error:
        try:
            with open(run_dir.nimbus_words, "w", opener=opener) as file:
                file.write(f"{plain(error)}\n")
        except OSError as full:
            # Commands find out about a full disk, or no directory, by themselves.
            log.warning("cannot write %s: %s", run_dir.nimbus_words, full.strerror)
        raise


def forget_words(run_dir: RunDir) -> None:
    """Called by a Nimbus that serves."""
    run_dir.nimbus_words.unlink(missing_ok=True)


def words_of(run_dir: RunDir) -> str:
    """ "" if there are none."""
    try:
        return run_dir.nimbus_words.read_text(errors="replace").strip()
    except FileNotFoundError:
        return ""
