"""Opens a file of text as bytes: decompressed, from where it was read last, with a checksum of what is on disk.

Guarantees that no more is read than was there when the file was found, and that the checksum is of all of that, of the
part that was read before too. A file that is shorter by now, was changed before its new part, or is damaged as a
compressed file raises an OSError. Memory is bounded whatever is in a compressed file. Imports pyarrow for Zstandard.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from squall.engine.foreign.text import text_of_error

if TYPE_CHECKING:
    from squall.pipeline.read.files import InputFile

#: Bytes that are read at a time where they are only counted in.
_PIECE_BYTES = 1 << 20
COMPRESSED = (".gz", ".bz2", ".zst")
#: What decompressors raise beside OSError.
_DAMAGED = (EOFError, zlib.error, ValueError)


def is_compressed(location: str) -> bool:
    return location.lower().endswith(COMPRESSED)


class Digested(io.RawIOBase):
    """The bytes of a file as it was found, and their checksum as far as they are read."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self._left = size_bytes
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._noted(self._stream.read(self._left if size < 0 else min(size, self._left)))

    def readline(self, size: int | None = -1) -> bytes:
        return self._noted(self._stream.readline(self._left if size is None or size < 0 else min(size, self._left)))

    def _noted(self, data: bytes) -> bytes:
        self._left -= len(data)
        self._digest.update(data)
        return data

    def skip(self, size_bytes: int, sha256: str) -> None:
        """Pass over what was read before. OSError if it is not there any more."""
        while size_bytes and (data := self.read(min(size_bytes, _PIECE_BYTES))):
            size_bytes -= len(data)
        if size_bytes or self.sha256 != sha256:
            raise OSError(errno.ESTALE, "changed before its new lines")

    def check_end(self) -> None:
        """OSError if the file ended before it should."""
        if self._left:
            raise OSError(errno.ESTALE, f"{self._left} bytes fewer than when it was found")


@contextmanager
def opened(file: InputFile) -> Iterator[tuple[BinaryIO, Digested]]:
    """Open the part of a file that is to be read; with it, what knows the checksum of the file."""
    with open(file.location, "rb") as stream:
        digested = Digested(stream, file.size_bytes)
        if file.start_bytes:
            digested.skip(file.start_bytes, file.start_sha256)
        if not is_compressed(file.location):
            yield cast("BinaryIO", digested), digested
            return
        try:
            with _expanded(digested, file.location) as expanded:
                yield cast("BinaryIO", expanded), digested
        except _DAMAGED as error:
            raise OSError(errno.EIO, f"damaged as a compressed file: {text_of_error(error)}") from error


def first_bytes(file: InputFile, size: int) -> bytes:
    """What a file begins with, as text. OSError if it cannot be read."""
    with opened(file) as (stream, _):
        return stream.read(size)


def _expanded(stream: Digested, location: str) -> Any:
    if location.lower().endswith(".gz"):
        return gzip.GzipFile(fileobj=cast("BinaryIO", stream))
    if location.lower().endswith(".bz2"):
        return bz2.BZ2File(cast("BinaryIO", stream))
    import pyarrow

    return io.BufferedReader(pyarrow.CompressedInputStream(pyarrow.PythonFile(stream, mode="r"), "zstd"))
