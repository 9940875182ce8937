"""A disk that loses its power: the processes of a run are killed, and of what they wrote only that is left which they
had synced, each file as of its last sync and each directory, too. Or a mix: of what was not synced, any part may be on
disk, in blocks, and a name without what it names.

`power_loss.c` sees the syncs. What is below the directory when the power comes on counts as synced.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

from tests.needs import require

SOURCE = Path(__file__).with_suffix(".c")
BLOCK = 4096
FOREVER = 1 << 60
_AT_FDCWD = -100


def library(directory: Path) -> Path:
    """Compile what is loaded before libc."""
    require("gcc")
    made = directory / "power_loss.so"
    subprocess.run(["gcc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", made, SOURCE], check=True)
    return made


class Disk:
    """A directory, and what is on disk of it."""

    def __init__(self, root: Path, kept: Path, library: Path) -> None:
        """`kept`: a directory for what is on disk."""
        self.root, self._kept, self._library = root, kept, library
        self._calls = ctypes.CDLL(str(library))

    @property
    def environment(self) -> dict[str, str]:
        """Of the processes."""
        return {
            "LD_PRELOAD": str(self._library), "POWER_LOSS_ROOT": str(self.root), "POWER_LOSS_DISK": str(self._kept),
        }

    def power_on(self, syncs: int = FOREVER) -> None:
        """Begin with what is there. With the next sync after so many, the power goes: its process is killed."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        (self._kept / "left").write_text(str(syncs))
        for path in (self.root, *self.root.rglob("*")):
            fd = os.open(path, os.O_RDONLY)
            self._calls.power_loss_keep(fd, os.fsencode(self._kept))
            os.close(fd)

    def power_off(self) -> None:
        """Have nothing reach the disk from now on. The processes are to be killed."""
        with (self._kept / "left").open("r+") as left:
            fcntl.flock(left, fcntl.LOCK_EX)
            left.write(f"{0:<20}")

    def lose(self, rng: random.Random | None = None) -> None:
        """Put in place what is on disk, after the processes are dead; with `rng`, of what was not synced any part."""
        made = self.root.with_name(f"{self.root.name}.new")
        _Loss(self, rng).directory(self.identity(self.root), self.root, made)
        shutil.rmtree(self.root)
        made.rename(self.root)

    def identity(self, path: Path) -> str:
        """What is kept of it has this name."""
        identity = ctypes.create_string_buffer(64)
        self._calls.power_loss_identity(_AT_FDCWD, os.fsencode(path), identity)
        return identity.value.decode()

    def synced(self, identity: str) -> bytes | None:
        """The content of a file, or the entries of a directory; None if it was never synced."""
        kept = self._kept / identity
        return kept.read_bytes() if kept.exists() else None


class _Loss:
    def __init__(self, disk: Disk, rng: random.Random | None) -> None:
        self._disk, self._rng = disk, rng
        self._there = {disk.identity(path): path for path in disk.root.rglob("*")}

    def _is_lost(self) -> bool:
        return self._rng is None or self._rng.random() < 0.5

    def directory(self, identity: str, there: Path | None, made: Path) -> None:
        made.mkdir(0o700)
        entries = (self._disk.synced(identity) or b"").decode().splitlines()
        synced = {name: own for own, _, name in (entry.partition(" ") for entry in entries)}
        present = {path.name: self._disk.identity(path) for path in there.iterdir()} if there else {}
        for name in sorted({*synced, *present}):
            own = (synced if self._is_lost() else present).get(name)
            if own is not None:
                self._entry(own, made / name)

    def _entry(self, identity: str, made: Path) -> None:
        there = self._there.get(identity)
        if there is not None and stat.S_ISDIR(there.stat().st_mode):
            self.directory(identity, there, made)
        else:
            made.touch(0o600)
            made.write_bytes(self._content(identity, there))

    def _content(self, identity: str, there: Path | None) -> bytes:
        synced = self._disk.synced(identity) or b""
        present = there.read_bytes() if there else synced
        size = len(synced if self._is_lost() else present)
        blocks = [
            (synced if self._is_lost() else present)[at : at + BLOCK].ljust(BLOCK, b"\0")
            for at in range(0, size, BLOCK)
        ]
        return b"".join(blocks)[:size]
