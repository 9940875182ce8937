"""Files that are written beside their place and then put there.

Guarantees: a write that fails, on a full disk say, leaves nothing beside the file. What a process that dies in between
leaves is written over by the next.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def gone_if_failed(temporary: str | os.PathLike[str]) -> Iterator[None]:
    """Remove a temporary file if the block, which writes it and puts it in place, raises. Raises that."""
    try:
        yield
    except Exception:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
