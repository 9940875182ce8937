"""A process that waits until it is told to end, or is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def waiting_child() -> Iterator[subprocess.Popen[bytes]]:
    """One for the time of the block. It ends by itself when its input does."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as made:
        try:
            yield made
        finally:
            made.kill()
