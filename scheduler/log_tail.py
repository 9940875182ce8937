"""Follows the workers' log files, so that what user code prints is seen by who started it."""

from __future__ import annotations

import os
from pathlib import Path

_READ_BYTES = 1 << 20


class LogTail:
    """Lines that workers have written since the last call. One reader, any process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._offsets: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}

    def poll(self) -> list[tuple[str, str]]:
        """(worker, line) of every complete line that is new, per worker in order."""
        lines: list[tuple[str, str]] = []
        try:
            names = sorted(os.listdir(self._directory))
        except FileNotFoundError:
            return lines
        for name in names:
            stem, extension = os.path.splitext(name)
            node, _, port = stem.rpartition("-")
            if extension == ".log" and port.isdigit() and not node.startswith("supervisor"):
                lines.extend((f"{node}:{port}", line) for line in self._read(name))
        return lines

    def _read(self, name: str) -> list[str]:
        try:
            with open(self._directory / name, "rb") as file:
                file.seek(self._offsets.get(name, 0))
                data = file.read(_READ_BYTES)
                self._offsets[name] = file.tell()
        except FileNotFoundError:
            return []
        *complete, rest = (self._rests.pop(name, b"") + data).split(b"\n")
        if rest:
            self._rests[name] = rest
        return [line.decode("utf-8", "replace") for line in complete]
