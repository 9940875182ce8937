"""Follows the workers' log files, to show the output of user code in the terminal that started it.

Guarantees: every line comes once, whole and in order; one call reads to the end, so the last call loses nothing but a
line without an end.

Relies on: logs growing until they are turned over (`scheduler.common.log_output`), whose rest is read then; more than
LOG.3 is lost. A log that was cut is read again from its start.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from squall.engine.foreign.text import plain
from squall.scheduler.common.log_output import OLDER_LOGS, older_log

TAB = "\t"


class LogTail:
    """Lines that workers have written since this was made, or since the last call. Process: any; one thread."""

    def __init__(self, directory: Path, from_start: bool = False) -> None:
        """`directory` holds logs, or directories of logs; `from_start`: lines that are there already count as new."""
        self._directory = directory
        self._rests: dict[str, bytes] = {}
        self._places: dict[str, tuple[int, int]] = {}
        """Name of a log -> inode and offset up to which it is read."""
        if not from_start:
            for name, _ in self._logs():
                found = os.stat(directory / name)
                self._places[name] = found.st_ino, found.st_size

    def poll(self) -> list[tuple[str, str]]:
        """(worker, line) of every new complete line, per worker in order."""
        return [(worker, line) for name, worker in self._logs() for line in self._read(name)]

    @property
    def workers(self) -> list[str]:
        """The workers that have logs."""
        return [worker for _, worker in self._logs()]

    def _logs(self) -> list[tuple[str, str]]:
        """(file, worker) of every worker's log."""
        logs = []
        for name in self._files():
            stem, extension = os.path.splitext(os.path.basename(name))
            node, _, port = stem.rpartition("-")
            if extension == ".log" and port.isdigit() and not node.startswith("supervisor"):
                logs.append((name, f"{node}:{port}"))
        return logs

    def _files(self) -> list[str]:
        """Relative paths of the files here and one level down, sorted."""
        try:
            with os.scandir(self._directory) as entries:
                folders = {entry.name: entry.is_dir() for entry in entries}
        except FileNotFoundError:
            return []
        here = [name for name, is_dir in folders.items() if not is_dir]
        below = [os.path.join(name, file) for name in folders.keys() - here for file in _names(self._directory / name)]
        return sorted(here + below)

    def _read(self, name: str) -> list[str]:
        data = b""
        for file in self._unread(name):
            with file:
                data += self._rest_of(name, file)
        *complete, rest = (self._rests.pop(name, b"") + data).split(b"\n")
        if rest:
            self._rests[name] = rest
        return [line.decode("utf-8", "replace") for line in complete]

    def _unread(self, name: str) -> list[BinaryIO]:
        """The log, and before it those that were turned over since the last call, the oldest first."""
        inode, _ = self._places.get(name, (0, 0))
        files: dict[int, BinaryIO] = {}
        for number in range(OLDER_LOGS + 1):
            try:
                file = open(older_log(self._directory / name, number), "rb")  # noqa: SIM115
            except FileNotFoundError:
                break
            found = os.fstat(file.fileno()).st_ino
            if found in files:
                # It was turned over between two steps of this loop.
                file.close()
                continue
            files[found] = file
            if found == inode:
                break
        return list(reversed(files.values()))

    def _rest_of(self, name: str, file: BinaryIO) -> bytes:
        found = os.fstat(file.fileno())
        inode, start = self._places.get(name, (0, 0))
        if inode != found.st_ino:
            start = 0
        elif found.st_size < start:
            self._rests.pop(name, None)
            start = 0
        file.seek(start)
        data = file.read(found.st_size - start)
        self._places[name] = found.st_ino, file.tell()
        return data


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def log_line(worker: str, line: str) -> str:
    """A line of a worker's log for a terminal: one line without control characters, whatever the worker printed."""
    return f"[{worker}] {plain(line, keep=TAB)}"
