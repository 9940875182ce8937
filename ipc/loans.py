"""Blocks of an arena that receivers read in place: who has which, and when they are given back.

A block that is *lent* is not used again before its receiver has given it back, whatever credit its frame has: credit
is for what was taken in, and frames that wait before a full queue are credited, too (`ipc.link`). Each loan has a slot
in a table of shared memory, and a serial number that no other loan of the arena has. The receiver gives the block back
by writing the serial in the slot. No frame is needed, so no lost frame matters, and nobody waits for a block: while all
are lent, values travel as they do without an arena.

Guarantees: a loan ends once: when it was given back, when its receiver is gone (`forget`), or when its frame will
never be taken in (`lost`). A late or wrong word in a slot ends no other loan.

Relies on: a receiver being dead when `forget` is called, and refusing frames for good that it reports as missing.

Layout of the table: words 0 and 1 are magic and the arena's nonce; from word 8 a word per slot.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from squall.engine.errors import ClusterError
from squall.ipc.arena import Arena, BlockRef

MEMFD_NAME = "squall-loans"
MAGIC = 0x4E414F4C_41515153
FIRST_WORD = 8
SLOTS = 4096 - FIRST_WORD
"""Most loans at a time: then blocks are sent to be copied. Two for each 32 KiB of an arena of default size."""
TABLE_BYTES = (FIRST_WORD + SLOTS) * 8
_LOOKED_AT = 16
"""Oldest loans that are looked at before each new one; all, if there is no room."""


class _Loan(NamedTuple):
    slot: int
    worker: int
    frame: int
    ref: BlockRef


class Loans:
    """Loans of one worker's arena. Thread: the worker's loop."""

    def __init__(self, arena: Arena) -> None:
        """Raises ClusterError if the machine has no room for the table."""
        self._arena = arena
        fd = -1
        try:
            fd = os.memfd_create(MEMFD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, TABLE_BYTES)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            os.posix_fallocate(fd, 0, TABLE_BYTES)
            self._memory = mmap.mmap(fd, TABLE_BYTES)
        except OSError as error:
            if fd >= 0:
                os.close(fd)
            raise ClusterError(f"cannot create a table of loans: {error.strerror}") from error
        self._fd = fd
        struct.pack_into("2Q", self._memory, 0, MAGIC, arena.nonce)
        self._words = memoryview(self._memory).cast("Q")
        self._unused = list(range(FIRST_WORD + SLOTS - 1, FIRST_WORD - 1, -1))
        self._open: dict[int, _Loan] = {}
        """By serial, the oldest first."""
        self._serial = 0
        arena.announce_loans(fd)

    def __len__(self) -> int:
        """Loans that have not ended."""
        return len(self._open)

    def lend(self, ref: BlockRef, worker: int, frame: int) -> tuple[int, int] | None:
        """Lend a block to the receiver of a frame: slot and serial. None if there are no more slots."""
        if not self._unused:
            return None
        slot = self._unused.pop()
        self._serial = serial = self._serial + 1
        self._open[serial] = _Loan(slot, worker, frame, ref)
        return slot, serial

    def settle(self, everything: bool = False) -> None:
        """End loans that were given back; looks at the oldest, or at all."""
        words, loans = self._words, self._open
        looked_at = loans.items() if everything else islice(loans.items(), _LOOKED_AT)
        for serial in [serial for serial, loan in looked_at if words[loan.slot] == serial]:
            self._end(serial)

    def lost(self, worker: int, first: int, last: int) -> None:
        """End the loans of frames that a receiver has not got, and never will."""
        self._end_where(lambda loan: loan.worker == worker and first <= loan.frame <= last)

    def forget(self, worker: int) -> None:
        """End all loans of a receiver that is gone."""
        self._end_where(lambda loan: loan.worker == worker)

    def _end_where(self, ends: Callable[[_Loan], bool]) -> None:
        for serial in [serial for serial, loan in self._open.items() if ends(loan)]:
            self._end(serial)

    def _end(self, serial: int) -> None:
        loan = self._open.pop(serial)
        self._unused.append(loan.slot)
        self._arena.free(loan.ref)

    def close(self) -> None:
        """Unmap the table. Receivers that have it mapped keep it. Closing again does nothing."""
        if self._fd >= 0:
            self._words.release()
            self._memory.close()
            os.close(self._fd)
            self._fd = -1
