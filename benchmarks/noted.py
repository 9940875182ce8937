"""What components of a measured topology write down for its measurement."""

from __future__ import annotations

import json
import os
from typing import Any


def note(directory: str, name: str, record: Any) -> None:
    """Append a record to a file at once, as a line."""
    fd = os.open(os.path.join(directory, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, json.dumps(record).encode() + b"\n")
    os.close(fd)
