"""Which messages were emitted and not answered yet, read from the taps' files while they are written.

Guarantees: what was appended before a call of `read` has been taken in when it returns.

Relies on: a line being one write. The format is told in `squall.chaos.checker`, which decides about messages; this says
only when there is nothing left to wait for.
"""

from __future__ import annotations

from pathlib import Path


class OpenMessages:
    """Of one run."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._read_bytes: dict[Path, int] = {}
        self.keys: set[bytes] = set()
        """Those that are open."""

    def read(self) -> set[bytes]:
        """Take in what was appended; the open ones."""
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
