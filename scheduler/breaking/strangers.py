"""Talks to listening sockets as no peer would: garbage, too much, too little, too slowly, without the key.

Guarantees
    * A stranger never waits: what a socket does not take at once is not sent.
    * At most KEPT connections to one socket are open at a time, and none after the end of the fault. If the carrier
      dies they end with it.
    * A forged message is signed with a key that is drawn for it, so it is a forgery for certain.

Relies on: `tick` being called at `next_deadline`. Thread: the loop of the daemon that carries the fault out.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from squall.engine.errors import SquallError
from squall.ipc.door import USER
from squall.ipc.envelope import Sealer
from squall.ipc.frame import DATA, Header, opening_of, seal
from squall.ipc.zmtp import COMMAND, announcement, greeting, hello, initiate, message
from squall.scheduler.common.messages import Shutdown
from squall.scheduler.faults.in_force import FaultInForce

HOSTILE_BYTES = "hostile-bytes"
KEPT = 8
"""Connections: enough to be in the way, far fewer than a process has descriptors."""
_OVERSIZED = 1 << 62
_KEY_BYTES = 32
_PLAIN = b"PLAIN"


class Address(NamedTuple):
    """A socket that listens."""

    path: Path
    password: bytes
    """The right one."""
    takes_tuples: bool
    """Whether it is a worker's, for frames of the data plane."""


class _Speech(NamedTuple):
    """What one connection says, a chunk at a time."""

    chunks: Sequence[bytes]
    stays: bool
    """Whether it stays open when all is said."""
    awaits: Sequence[bytes] = ()
    """What the other side must have said before the second chunk, the third, ..."""


def _garbage(rng: random.Random, address: Address) -> _Speech:
    return _Speech([rng.randbytes(rng.randrange(1, 4096))], False)


def _truncated(rng: random.Random, address: Address) -> _Speech:
    whole = greeting(_PLAIN) + hello(USER, address.password)
    return _Speech([whole[: rng.randrange(1, len(whole))]], False)


def _oversized(rng: random.Random, address: Address) -> _Speech:
    return _Speech([greeting(_PLAIN) + announcement(_OVERSIZED, COMMAND) + rng.randbytes(4096)], True)


def _half_open(rng: random.Random, address: Address) -> _Speech:
    return _Speech([], True)


def _slow(rng: random.Random, address: Address) -> _Speech:
    return _Speech([bytes([byte]) for byte in greeting(_PLAIN) + hello(USER, address.password)], True)


def _wrong_key(rng: random.Random, address: Address) -> _Speech:
    return _Speech([greeting(_PLAIN) + hello(USER, rng.randbytes(_KEY_BYTES).hex().encode())], True)


def _forged(rng: random.Random, address: Address) -> _Speech:
    # The connection is right, and what comes over it is not.
    key = os.urandom(_KEY_BYTES)
    if address.takes_tuples:
        body = rng.randbytes(100)
        parts = [seal(opening_of(key, "stranger", 1), Header(DATA, 0, 0, 1, 1, 1), [body]) + body]
    else:
        parts = Sealer(key, "nimbus").seal("event", 0, "Shutdown", Shutdown(0.0))
    kind = b"PUSH" if address.takes_tuples else b"DEALER"
    chunks = [greeting(_PLAIN) + hello(USER, address.password), initiate(kind), message(parts)]
    return _Speech(chunks, True, (b"WELCOME", b"READY"))


_WAYS: dict[str, Callable[[random.Random, Address], _Speech]] = {
    "garbage": _garbage, "truncated": _truncated, "oversized": _oversized, "half-open": _half_open, "slow": _slow,
    "wrong-key": _wrong_key, "forged": _forged,
}  # fmt: skip


class _Stranger:
    """One connection."""

    def __init__(self, address: Address, speech: _Speech) -> None:
        """OSError if nobody takes it."""
        self._chunks = deque(speech.chunks)
        self._awaits = deque(speech.awaits)
        self._heard = b""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.connect(str(address.path))
        except OSError:
            self._socket.close()
            raise
        self._say()

    def go_on(self) -> None:
        """Say the next chunk, if it is its time."""
        if self._chunks and (not self._awaits or self._has_heard()):
            self._say()

    def _has_heard(self) -> bool:
        with contextlib.suppress(OSError):  # nothing yet, or it has hung up
            self._heard += self._socket.recv(4096)
        if self._awaits[0] not in self._heard:
            return False
        self._awaits.popleft()
        return True

    def _say(self) -> None:
        if self._chunks:
            # The other side may have hung up, or have no room: then this chunk is not said.
            with contextlib.suppress(OSError):
                self._socket.send(self._chunks.popleft())

    def hang_up(self) -> None:
        self._socket.close()


class _Attack:
    """One fault's connections to one socket."""

    def __init__(self, fault: FaultInForce, name: str) -> None:
        self._name = name
        sends = str(fault.params["sends"])
        self._ways = deque(_WAYS.values() if sends == "all" else [_WAYS[sends]])
        self._pause_secs = 1 / float(fault.params["per_sec"])
        self._rng = random.Random(f"{fault.seed} {name}")
        self._open: deque[_Stranger] = deque()
        self.due_secs = fault.began_secs

    def tick(self, now: float, address_of: Callable[[str], Address | None]) -> None:
        if now < self.due_secs:
            return
        self.due_secs = now + self._pause_secs
        for stranger in self._open:
            stranger.go_on()
        # A victim that is dead, or whose queue of connections is full, is tried again next time. So is a run directory
        # that has lost its key.
        with contextlib.suppress(OSError, SquallError):
            address = address_of(self._name)
            if address is not None:
                self._connect(address)

    def _connect(self, address: Address) -> None:
        speech = self._ways[0](self._rng, address)
        stranger = _Stranger(address, speech)
        self._ways.rotate(-1)
        if not speech.stays:
            stranger.hang_up()
            return
        self._open.append(stranger)
        if len(self._open) > KEPT:
            self._open.popleft().hang_up()

    def end(self) -> None:
        while self._open:
            self._open.pop().hang_up()


class Strangers:
    """The hostile bytes that one daemon sends."""

    def __init__(self, carrier: str, address_of: Callable[[str], Address | None]) -> None:
        """`address_of`: the socket of the process that faults call so; None if it does not listen now."""
        self._carrier = carrier
        self._address_of = address_of
        self._attacks: dict[int, tuple[FaultInForce, list[_Attack]]] = {}

    def take(self, faults: Iterable[FaultInForce], now: float) -> None:
        """Take over the faults that are in the file now."""
        mine = {fault.id: fault for fault in faults if fault.carrier == self._carrier and fault.kind == HOSTILE_BYTES}
        for fault_id, fault in mine.items():
            if fault_id in self._attacks:
                # It may have been healed.
                self._attacks[fault_id] = fault, self._attacks[fault_id][1]
            else:
                self._attacks[fault_id] = fault, [_Attack(fault, victim.name) for victim in fault.victims]
        for fault_id in self._attacks.keys() - mine.keys():
            self._end(fault_id)
        self.tick(now)

    def tick(self, now: float) -> None:
        """Say what is due."""
        for fault_id, (fault, attacks) in list(self._attacks.items()):
            if now >= fault.ends_secs:
                self._end(fault_id)
            elif fault.is_in_force(now):
                for attack in attacks:
                    attack.tick(now, self._address_of)

    def next_deadline(self) -> float | None:
        """When `tick` is due next."""
        ends = [fault.ends_secs for fault, _ in self._attacks.values()]
        return min([*ends, *(each.due_secs for _, attacks in self._attacks.values() for each in attacks)], default=None)

    def end(self) -> None:
        """Hang up everywhere: the carrier is about to end."""
        for fault_id in list(self._attacks):
            self._end(fault_id)

    def _end(self, fault_id: int) -> None:
        for attack in self._attacks.pop(fault_id)[1]:
            attack.end()
