"""Content-addressed files: user code by the SHA-256 of its bytes.

Guarantees
    * `get` returns exactly the bytes that were put under that name, or raises: a cut or altered file is refused.
    * `put` is all or nothing, even if the process or the machine dies in the middle, and may be repeated.
    * While a client holds the store (`held`), nothing is removed from it.
    * A name that is not 64 hex digits is refused, so that none leads out of the directory.

Relies on: rename within one directory being atomic. Process: any number may put and get at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from squall.engine.errors import ClusterError, UsageError
from squall.engine.foreign.files import sync
from squall.ipc.private import opener

_DIGEST = re.compile(r"[0-9a-f]{64}")


class CodeStore:
    """Blobs in one directory, which must exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, blob: bytes) -> str:
        """Store `blob`; returns its name."""
        digest = hashlib.sha256(blob).hexdigest()
        path = self._directory / digest
        if self._holds(path, digest):
            return digest
        temporary = self._directory / f".{digest}.{os.urandom(4).hex()}"
        try:
            with open(temporary, "xb", opener=opener) as file:
                file.write(blob)
            sync(temporary)
            temporary.rename(path)
            sync(self._directory)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ClusterError(f"cannot store code {path}: {error}") from None
        return digest

    def get(self, digest: str) -> bytes:
        """The blob called `digest`. ClusterError if it is missing or damaged."""
        path = self.path(digest)
        try:
            blob = path.read_bytes()
        except FileNotFoundError:
            raise ClusterError(f"code {digest} is not in the code store {self._directory}") from None
        found = hashlib.sha256(blob).hexdigest()
        if found != digest:
            raise ClusterError(f"code file {path} is damaged: its digest is {found}; submit the topology again")
        return blob

    @contextmanager
    def held(self) -> Iterator[None]:
        """Exclude sweeps: a client does, from its first `put` until Nimbus has answered.

        Clients share the lock of the directory; a sweep takes it alone.
        """
        with self._locked(fcntl.LOCK_SH):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude submissions and sweeps. ClusterError if a client holds the store."""
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                yield
        except BlockingIOError:
            raise ClusterError("a topology is being submitted just now; try again") from None

    def keep_only(self, digests: Collection[str]) -> bool:
        """Remove every other file, fragments included.

        False, and nothing is removed, if a client holds the store.
        """
        try:
            with self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                for path in self._directory.iterdir():
                    if path.name not in digests:
                        path.unlink(missing_ok=True)
        except BlockingIOError:
            return False
        return True

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        try:
            # Not through a link: a sweep would remove files of another directory.
            fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ClusterError(f"cannot lock code store {self._directory}: {error.strerror}") from None
        try:
            fcntl.flock(fd, operation)
            yield
        finally:
            os.close(fd)

    def owns(self, path: str) -> bool:
        """Whether a path is that of a blob in this store."""
        return Path(path).parent == self._directory and _DIGEST.fullmatch(Path(path).name) is not None

    def __contains__(self, digest: str) -> bool:
        """Whether there is a file of that name; `get` checks whether it is whole."""
        return self.path(digest).is_file()

    def path(self, digest: str) -> Path:
        """The file of a blob."""
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"code name {digest!r:.80} is not a SHA-256 digest of 64 hex digits")
        return self._directory / digest

    def _holds(self, path: Path, digest: str) -> bool:
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest() == digest
        except FileNotFoundError:
            return False
