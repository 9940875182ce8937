"""Tells how far a step is: a line when a step begins, and the rows written while Spark works."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from squall.engine.plural import plural
from squall.pipeline.staging import PROGRESS_NAME

#: Called with one line about the present step; by a thread of its own while rows are written.
Progress: TypeAlias = Callable[[str], None]

TELL_SECS = 3.0


@contextmanager
def told_rows(count: Callable[[], int], progress: Progress, every_secs: float = TELL_SECS) -> Iterator[None]:
    """Say now and then how many rows there are, until the block ends."""
    done = threading.Event()

    def tell() -> None:
        told = 0
        while not done.wait(every_secs):
            if (rows := count()) > told:
                told = rows
                progress(f"{plural(rows, 'row')} so far")

    thread = threading.Thread(target=tell, name="squall-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def rows_so_far(directory: Path) -> int:
    """The rows that the tasks have written to a directory until now, as they tell."""
    total = 0
    for path in (directory / PROGRESS_NAME).glob("*"):
        # A task may be writing it now.
        told = path.read_bytes()
        total += int(told) if told.isdigit() else 0
    return total
