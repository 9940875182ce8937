"""Finds the messages emitted and not answered yet, from the taps' files while they are written.

Guarantees: `read` takes in every record that was appended before its call.

Relies on: a line being one write. The format is described in `squall.chaos.checker`, which judges messages; this module
only tells when there is none left to await.
"""

from __future__ import annotations

from pathlib import Path


class OpenMessages:
    """The open messages of one run."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._read_bytes: dict[Path, int] = {}
        self.keys: set[bytes] = set()
        """Keys of the open messages."""

    def read(self) -> set[bytes]:
        """Take in new records. Returns the keys of the open messages."""
        answered: list[bytes] = []
        for path in self._directory.glob("source-*"):
            begin = self._read_bytes.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                data = file.read()
            data = data[: data.rfind(b"\n") + 1]
            self._read_bytes[path] = begin + len(data)
            for line in data.splitlines():
                words = line.split(b'"', 4)
                if words[1] == b"emit":
                    self.keys.add(words[3])
                elif words[1] in (b"ack", b"dead"):
                    answered.append(words[3])
        self.keys.difference_update(answered)
        return self.keys
