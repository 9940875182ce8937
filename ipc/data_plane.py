"""The data plane of one worker: a PULL socket for all peers, and a PUSH socket to each living one.

::

    outgoing.take ─► encode ─► LinkSender ─► frame ─► shim ─► PUSH
                                      ▲                            ║ ipc
          credit, on DATA frames back ┘ when processed             ▼
    core.receive ◄───── decode ◄── LinkReceiver ◄─────── check ◄── PULL

    core.tracking ─► tell_acks ─► ring in shared memory ─► take_acks ─► core.tracking    (see `ipc.ack_rings`)

Guarantees: see `ipc.link`; a send never blocks (the credit window bounds what ZeroMQ queues); a bad frame is counted
and dropped, it never raises. What a lost frame held comes back to its sender (`take_lost`), once. A frame of another
topology, or of another version of its assignment, changes nothing but that count. The path of a socket holds topology,
version, node, port and incarnation, so a frame can only reach the incarnation that it was meant for.

Thread: the worker's loop, in a process that was forked before any ZeroMQ context existed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import zmq

from squall.engine.core.transport import Absorb, Deliver
from squall.engine.errors import ClusterError, ComponentError, ProtocolError
from squall.engine.flow.anchoring import Acks
from squall.engine.flow.parcel import Parcel
from squall.engine.foreign.text import text_of_error
from squall.ipc import codec
from squall.ipc.ack_rings import AckRings
from squall.ipc.frame import CREDIT, DATA, HEADER_BYTES, HELLO, KINDS, KNOWN, LOST, Header, seal, unseal
from squall.ipc.link import LinkReceiver, LinkSender, Missed
from squall.ipc.payloads import Payloads
from squall.ipc.shim import Frame, LinkRule, LinkShim

_LINGER_MS = 500
"""Longest that a worker that ends waits for unsent frames; only a peer that is dead too makes it wait."""

_POLLIN, _EVENTS, _RCVMORE, _NOBLOCK = int(zmq.POLLIN), int(zmq.EVENTS), int(zmq.RCVMORE), int(zmq.NOBLOCK)
"""As integers: combining two members of pyzmq's enumerations costs a microsecond."""

Body = list[bytes | memoryview]


class PlaneAddress(NamedTuple):
    """One life of a worker, as its peers know it."""

    opening: bytes
    """See `ipc.frame.opening_of`."""
    worker: int
    incarnation: int
    path: Path | str
    """Of the socket on which it receives."""


class PlaneLimits(NamedTuple):
    """Sizes in bytes: under way on a link, of the arena, of a frame."""

    window: int
    arena: int
    frame: int = 1 << 30


class PlaneParts(NamedTuple):
    """What a plane is made of. Tests replace some."""

    payloads: Callable[[int, Counter[str]], Payloads] = Payloads
    sender: Callable[[int], LinkSender] = LinkSender
    receiver: Callable[[int, int], LinkReceiver] = LinkReceiver


_PARTS = PlaneParts()


class DataPlane:
    """Links of one worker; an `engine.core.transport.Transport`."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], address: PlaneAddress, limits: PlaneLimits, rings: AckRings,
        shim: LinkShim | None = None, parts: PlaneParts = _PARTS,
    ) -> None:
        self._opening, self.me, self.incarnation, path = address
        self._path = str(path)
        self._window_bytes, arena_bytes, self._max_frame_bytes = limits
        # What is subtracted exceeds header and descriptors (some 40 bytes for each buffer of 64 KiB and more).
        self._surely_fits_bytes = limits.frame - limits.frame // 512 - 4096
        self._parts = parts
        self._shim = shim
        self._rings = rings
        self._tells = True
        """False while acks are to travel in frames."""
        self.counts: Counter[str] = Counter()
        """Frames sent, received, repeated, refused; buffers by way."""
        self._payloads = parts.payloads(arena_bytes, self.counts)
        self._context = context
        self.inbound: zmq.Socket[bytes] = self._socket(zmq.PULL)
        try:
            self.inbound.bind(f"ipc://{self._path}")
        except zmq.ZMQError as error:
            self.inbound.close()
            raise ClusterError(f"cannot listen on {self._path}: {error}") from error
        self._news = select.poll()
        self._news.register(self.inbound.fileno(), select.POLLIN)
        self._drained = False
        self._outbound: dict[int, tuple[zmq.Socket[bytes], LinkSender, int]] = {}
        self._receivers: dict[int, LinkReceiver] = {}
        self._fence: dict[int, int] = {}
        self._heard: set[int] = set()
        self._lost: list[tuple[int, Parcel, bool]] = []
        self._to_confirm: dict[int, int] = {}
        """Peer -> last number of those that it has missed, and that it is not yet told are known."""

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        # No high-water mark: it counts messages, inexactly, and blocks; credit counts bytes and does not.
        socket.set_hwm(0)
        socket.setsockopt(zmq.LINGER, _LINGER_MS)
        return socket

    # ---- peers ----

    def connect(self, worker: int, incarnation: int, path: Path | str) -> None:
        """Open the link to a peer that is ready. Call it once per incarnation: frames are numbered from 1 again."""
        self.disconnect(worker)
        socket = self._socket(zmq.PUSH)
        socket.connect(f"ipc://{path}")
        self._outbound[worker] = (socket, self._parts.sender(self._window_bytes), incarnation)
        self._put(worker, HELLO, 0, [])

    def fence(self, worker: int, incarnation: int) -> None:
        """Refuse a peer's incarnations older than this from now on, and forget what they sent."""
        self._fence[worker] = max(incarnation, self._fence.get(worker, 0))
        receiver = self._receivers.get(worker)
        # The new incarnation may have sent before this worker looked at the board: its frames stay counted.
        if receiver is not None and receiver.incarnation < incarnation:
            del self._receivers[worker]
            self._payloads.forget(worker)

    def disconnect(self, worker: int) -> None:
        """Close the link to an incarnation that is dead, and forget what was under way to it."""
        link = self._outbound.pop(worker, None)
        if link is not None:
            socket, sender, _ = link
            sender.close()
            socket.close(linger=0)
            self._to_confirm.pop(worker, None)

    def is_connected(self, worker: int) -> bool:
        return worker in self._outbound

    def has_credit(self, worker: int) -> bool:
        """Return True if data may be sent to a peer now."""
        link = self._outbound.get(worker)
        return link is not None and link[1].has_credit

    @property
    def caught_up(self) -> set[int]:
        """Connected peers that have processed everything they were sent."""
        return {worker for worker, (_, sender, _) in self._outbound.items() if not sender.under_way_bytes}

    @property
    def is_under_way(self) -> bool:
        """True if a peer has still to process a frame, or a frame of its is missing: `tend` may have to ask."""
        return any(sender.under_way_bytes for _, sender, _ in self._outbound.values()) or any(
            receiver.has_gaps for receiver in self._receivers.values()
        )

    def take_heard(self) -> set[int]:
        """Peers that have sent data since the last call."""
        heard, self._heard = self._heard, set()
        return heard

    # ---- sending ----

    def send(self, worker: int, parcel: Parcel, most_bytes: int | None = None) -> int:
        """Send a parcel to a connected peer; 0, or the size of one that was not sent because it has more than
        `most_bytes` and could be cut; one that was sent is the link's from then on. Raises ComponentError if it holds a
        value that cannot be encoded or is too big, MemoryError if there is no memory for it; nothing of it has left
        then."""
        _, sender, _ = self._outbound[worker]
        data, buffers = codec.encode(parcel)
        size = len(data) + sum(buffer.raw().nbytes for buffer in buffers)
        if most_bytes is not None and size > most_bytes and parcel.rows > 1:
            return size
        body: list[Any] = [data]
        release = None
        if buffers:
            parts, release = self._payloads.attach(buffers)
            body += parts
        in_frame = HEADER_BYTES + sum(map(len, body)) if size > self._surely_fits_bytes else 0
        if in_frame > self._max_frame_bytes:
            if release is not None:
                release()
            raise ComponentError(f"frame of {in_frame} bytes; max_frame_bytes allows {self._max_frame_bytes}")
        number = sender.send(size, release, parcel)
        try:
            self._put(worker, DATA, number, body)
        except BaseException as error:
            sender.not_sent()
            if isinstance(error, zmq.ZMQError) and error.errno == errno.ENOMEM:
                raise MemoryError(f"ZeroMQ has none for a frame of {size} bytes") from error
            raise
        parcel.let_go()
        return 0

    def _put(self, worker: int, kind: int, sequence: int, body: Sequence[Any]) -> None:
        socket, _, incarnation = self._outbound[worker]
        receiver = self._owed(worker, incarnation)
        # Every frame tells what has been processed of the other direction.
        processed = receiver.credit() if receiver is not None else 0
        header = Header(kind, self.me, worker, self.incarnation, incarnation, sequence, processed)
        if self._shim is not None:
            body = self._shim.garbled(worker, kind, body)
        head = seal(self._opening, header, body)
        # Header and first part travel as one message part: ZeroMQ's cost is per part, copying 48 bytes is nothing.
        first = head + body[0] if body else head
        self.counts["frames sent"] += 1
        if self._shim is not None:
            for other in self._shim.apply(worker, kind, [bytes(part) for part in (first, *body[1:])]):
                socket.send_multipart(other, _NOBLOCK)
        elif len(body) < 2:
            socket.send(first, _NOBLOCK)
        else:
            socket.send_multipart([first, *body[1:]], _NOBLOCK, copy=True)

    def break_links(self, rules: list[LinkRule], seed: int) -> None:
        """Break what is sent from now on by these rules; none: send as ever. What was held back leaves now."""
        shim = self._shim or LinkShim([], seed)
        self._put_late(shim.replace(rules, seed))
        self._shim = shim if rules else None
        # What is told in shared memory would find its way over any link.
        self._tells = not rules

    def send_due(self) -> None:
        """Send what slow links have held back for long enough."""
        if self._shim is not None:
            self._put_late(self._shim.take_due())

    def _put_late(self, frames: list[tuple[int, Frame]]) -> None:
        for worker, frame in frames:
            link = self._outbound.get(worker)
            if link is not None:
                link[0].send_multipart(frame, _NOBLOCK)

    def _owed(self, worker: int, incarnation: int) -> LinkReceiver | None:
        """The receiving end that owes credit to this incarnation of a peer; None if that one has sent nothing. It may
        have sent before the board told of it."""
        receiver = self._receivers.get(worker)
        return receiver if receiver is not None and receiver.incarnation == incarnation else None

    def send_credit(self, at_least: int) -> None:
        """Send a CREDIT frame to each peer that is owed credit for `at_least` so many frames, or for a good part of its
        window. DATA frames to a peer bring it credit too. Called at the end of each turn."""
        self._payloads.forget_sent()
        for worker, receiver in self._receivers.items():
            if receiver.owes(at_least):
                self._send_credit_to(worker, receiver)

    def _send_credit_to(self, worker: int, receiver: LinkReceiver) -> None:
        link = self._outbound.get(worker)
        if link is not None and link[2] == receiver.incarnation:
            self._put(worker, CREDIT, 0, [])

    def park(self) -> None:
        """Give credit for every frame that was taken in, processed or not: see `ipc.link`."""
        for receiver in self._receivers.values():
            receiver.park()

    def tend(self, now_ns: int) -> None:
        """Ask again where peers are silent. Called every now and then.

        Without this, frames with no frame behind them that would show their loss were lost for ever, and so were
        credit, and word of what was lost.
        """
        for worker, (_, sender, _) in self._outbound.items():
            if sender.asks(now_ns):
                # How many it should have got: it answers with credit, and tells what it has missed.
                self._put(worker, HELLO, sender.sequence, [])
        for worker, receiver in self._receivers.items():
            if receiver.asks(now_ns):
                self._tell_missed(worker, receiver)

    def pass_over(self) -> None:
        """Give up acks that peers have begun to tell and have not told since the last call, a message timeout ago."""
        for worker in self._rings.pass_over():
            self.refuse(ProtocolError(f"acks of worker {worker} that did not become whole in a message timeout"))

    # ---- what was lost ----

    def _tell_missed(self, worker: int, receiver: LinkReceiver) -> None:
        """Tell a peer which frames of its never came, if there is a way to it."""
        link = self._outbound.get(worker)
        if link is None or link[2] != receiver.incarnation:
            return
        missed = receiver.tell_missed()
        if missed:
            words = array("Q", [word for each in missed for word in each])
            self._put(worker, LOST, missed[-1].last, [words.tobytes()])

    def _take_missed(self, header: Header, body: Body) -> None:
        """A peer has missed frames of this worker: what they held is the caller's again."""
        words = array("Q")
        if len(body) != 1 or not len(body[0]) or len(body[0]) % (3 * words.itemsize):
            size = sum(map(len, body))
            raise ProtocolError(f"lost frame with a body of {size} bytes; allowed: triples of 8 bytes")
        words.frombytes(body[0])
        missed = list(map(Missed, words[::3], words[1::3], words[2::3]))
        link = self._outbound.get(header.sender)
        if link is None or link[2] != header.sender_incarnation:
            return
        self._lost += ((header.sender, parcel, damaged) for parcel, damaged in link[1].lost(missed))
        self._to_confirm[header.sender] = max(missed[-1].last, self._to_confirm.get(header.sender, 0))

    def take_lost(self) -> list[tuple[int, Parcel, bool]]:
        """Parcels that peers did not get and never will, without their tuples, since the last call: peer, parcel, and
        whether it came and could not be read."""
        lost, self._lost = self._lost, []
        return lost

    def _tell_known(self) -> None:
        """What was lost is known and dealt with: peers may give credit for it."""
        to_confirm, self._to_confirm = self._to_confirm, {}
        for worker, number in to_confirm.items():
            self._put(worker, KNOWN, number, [])

    def positions(self) -> Iterator[tuple[int, int, int, int]]:
        """(peer, its incarnation, frames sent to it, frames of it processed), for the board."""
        for worker, (_, sender, incarnation) in self._outbound.items():
            receiver = self._receivers.get(worker)
            processed = receiver.processed if receiver is not None and receiver.incarnation == incarnation else 0
            yield worker, incarnation, sender.sequence, processed

    @property
    def refused(self) -> int:
        """Frames and acks that were refused."""
        return self.counts["frames refused"]

    @property
    def lost(self) -> int:
        """Frames that peers have sent and that never arrived."""
        return sum(receiver.lost for receiver in self._receivers.values())

    # ---- receiving ----

    @property
    def has_input(self) -> bool:
        """True if a frame can be received."""
        # Asking first costs one to two microseconds, the exception of a receive that finds nothing eight. Once a
        # socket has said that it is empty, its descriptor becomes readable before the next message (see ZMQ_FD), and
        # polling that costs a third.
        if self._drained and not self._news.poll(0):
            return False
        has_input = bool(self.inbound.getsockopt(_EVENTS) & _POLLIN)  # type: ignore[operator]
        self._drained = not has_input
        return has_input

    def polled(self) -> None:
        """A poller has looked at `inbound` and used up what its descriptor told: ask the socket itself next time."""
        self._drained = False

    def receive(self, deliver: Deliver, most: int) -> int:
        """Take in at most `most` frames; returns how many there were."""
        came = 0
        while came < most and self.has_input:
            came += 1
            try:
                self._take(self._receive_frame(), deliver)
            except ProtocolError as error:
                self.refuse(error)
        return came

    def _receive_frame(self) -> list[bytes]:
        """The next frame. ProtocolError if there is no memory for it."""
        socket = self.inbound
        try:
            parts = [socket.recv(_NOBLOCK)]
            while socket.getsockopt(_RCVMORE):
                parts.append(socket.recv(_NOBLOCK))
        except MemoryError as error:
            while socket.getsockopt(_RCVMORE):
                socket.recv(_NOBLOCK, copy=False)
            raise ProtocolError("no memory for a frame: it is lost") from error
        return parts

    def _take(self, parts: list[bytes], deliver: Deliver) -> None:
        first = memoryview(parts[0])
        body: Body = [first[HEADER_BYTES:], *parts[1:]]
        header = unseal(self._opening, first[:HEADER_BYTES], body)
        kind, sender, receiver, sender_incarnation, receiver_incarnation, sequence, processed = header
        if receiver != self.me or receiver_incarnation != self.incarnation:
            raise ProtocolError(f"frame for worker {receiver} incarnation {receiver_incarnation}")
        if sender_incarnation < self._fence.get(sender, 0):
            raise ProtocolError(f"frame of worker {sender}'s dead incarnation {sender_incarnation}")
        link = self._receivers.get(sender)
        if link is None or link.incarnation != sender_incarnation:
            link = self._meet(header)
        if kind != DATA and kind != LOST and (len(body) != 1 or len(body[0])):
            raise ProtocolError(f"{KINDS[kind]} frame with a body")
        if processed:
            self._take_credit(sender, sender_incarnation, processed)
        try:
            if kind == DATA:
                self._take_data(header, body, link, deliver)
            elif kind == HELLO and sequence:
                link.skip_to(sequence)
                self._send_credit_to(sender, link)
            elif kind == LOST:
                self._take_missed(header, body)
            elif kind == KNOWN:
                link.known(sequence)
        finally:
            # Of a frame that could not be read, too.
            if link.untold:
                self._tell_missed(sender, link)

    def _meet(self, header: Header) -> LinkReceiver:
        """Begin to receive from an incarnation. All before it are dead, so there is one at a time."""
        self.fence(header.sender, header.sender_incarnation)
        receiver = self._parts.receiver(header.sender_incarnation, self._window_bytes)
        self._receivers[header.sender] = receiver
        return receiver

    def _take_credit(self, sender: int, incarnation: int, processed: int) -> None:
        link = self._outbound.get(sender)
        if link is not None and link[2] == incarnation:
            link[1].credit(processed)

    def _take_data(self, header: Header, body: Body, link: LinkReceiver, deliver: Deliver) -> None:
        sequence = header.sequence
        # Big buffers occupy the sender's arena, so credit them at once.
        if not link.accept(sequence, len(body[0]) if len(body) == 1 else self._window_bytes):
            self.counts["frames repeated"] += 1
            return
        try:
            buffers = () if len(body) == 1 else self._payloads.collect(header.sender, body[1:])
            parcel = codec.decode(body[0], buffers)
        except BaseException as error:
            # User code rebuilds values, and an arena ends with its process: the frame is lost, the link lives on.
            link.spoil(sequence)
            raise ProtocolError(
                f"frame {sequence} of worker {header.sender} cannot be decoded: {text_of_error(error)}"
            ) from error
        self.counts["frames received"] += 1
        self._heard.add(header.sender)
        deliver(parcel, lambda: link.done(sequence))

    # ---- acks that need no frame ----

    def tell_acks(self, worker: int, acks: Acks) -> bool:
        """Tell a peer's ackers these acks in its ring; False if a frame must carry them."""
        link = self._outbound.get(worker)
        if link is None or not self._tells:
            return False
        incarnation = link[2]
        receiver = self._owed(worker, incarnation)
        processed = receiver.processed if receiver is not None else 0
        if not self._rings.tell(worker, incarnation, processed, acks):
            return False
        if receiver is not None:
            receiver.credit()
        if not self._rings.is_awake(worker):
            self._put(worker, CREDIT, 0, [])  # it fell asleep meanwhile: any frame wakes it
        self.counts["acks told"] += 1
        return True

    def take_acks(self, absorb: Absorb) -> int:
        """Take in what peers have told in their rings; returns the number of chunks."""
        if not self._rings.waiting:
            return 0
        came = self._rings.take()
        for sender, incarnation, processed, acks in came:
            if self._may_take_acks(sender, incarnation, processed):
                absorb(acks)
        return len(came)

    def _may_take_acks(self, sender: int, incarnation: int, processed: int) -> bool:
        """Take the credit that came with acks; False if these are refused."""
        try:
            if incarnation < self._fence.get(sender, 0):
                raise ProtocolError(f"acks of worker {sender}'s dead incarnation {incarnation}")
            self._take_credit(sender, incarnation, processed)
        except ProtocolError as error:
            self.refuse(error)
            return False
        link = self._outbound.get(sender)
        if link is not None and not link[1].under_way_bytes:
            self._heard.add(sender)
        return True

    @property
    def has_acks(self) -> bool:
        """True if a ring holds acks that were not taken in yet."""
        return self._rings.waiting

    def confirm(self) -> None:
        """Free the room of acks that were taken in, and tell peers that what they missed is known. Call it after
        publishing that this worker is at work on both."""
        self._rings.confirm()
        if self._to_confirm:
            self._tell_known()

    def set_awake(self, awake: bool) -> None:
        """Publish whether this worker reads its rings. After False, ask `has_acks` before sleeping."""
        self._rings.set_awake(awake)

    def refuse(self, error: ProtocolError) -> None:
        """Count a frame, or acks, that are refused. `error` says why, for an override to read."""
        self.counts["frames refused"] += 1

    def close(self) -> None:
        """Close every socket (waiting briefly for what was sent) and remove the path."""
        for socket, sender, _ in self._outbound.values():
            socket.close()
            sender.close()
        self._outbound.clear()
        self._rings.close()
        self.inbound.close(linger=0)
        self._payloads.close()
        with contextlib.suppress(FileNotFoundError):  # ZeroMQ removes it too, in its own time
            os.unlink(self._path)
