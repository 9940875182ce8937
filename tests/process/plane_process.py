"""A data plane in a process of its own: told by a pipe what to do, it sends known parcels and checks what comes."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import zmq

from squall.engine.flow.parcel import Parcel
from squall.ipc.arena import MEMFD_NAME
from tests.parcels import batch_of, parcel_of
from tests.process.planes import Endpoint, settled, size_on_link

DEADLINE_SECS = 100.0


def payload(sender: int, receiver: int, number: int) -> Any:
    """What parcel `number` between two workers carries; the receiver knows it too. One in eight is big."""
    dice = random.Random(f"{sender} {receiver} {number}")
    size = dice.randrange(64 << 10, 200 << 10) if dice.random() < 0.125 else dice.randrange(2000)
    pattern = dice.randbytes(1 + size // 64)
    data = (pattern * 64)[:size]
    return dice.choice((data, bytearray(data), [data, str(number)], data.hex()))


class PlaneProcess:
    """One worker's data plane in a process of its own, told what to do through a pipe."""

    def __init__(self, directory: Path, worker: int, incarnation: int = 1, **options: Any) -> None:
        self.worker, self.incarnation = worker, incarnation
        self.path = directory / f"{worker}-{incarnation}"
        self.pipe, theirs = multiprocessing.Pipe()
        self.process: BaseProcess = multiprocessing.get_context("fork").Process(
            target=_serve, args=(theirs, directory, worker, incarnation, options)
        )
        self.process.start()
        theirs.close()
        assert self.answer() == "bound"

    def answer(self) -> Any:
        assert self.pipe.poll(DEADLINE_SECS), f"process of worker {self.worker} does not answer"
        return self.pipe.recv()

    def ask(self, *command: Any) -> Any:
        self.pipe.send(command)
        return self.answer()

    def connect(self, *others: PlaneProcess) -> None:
        for other in others:
            self.ask("connect", other.worker, other.incarnation, str(other.path))

    def state(self) -> dict[str, Any]:
        state = self.ask("state")
        assert isinstance(state, dict)
        return state

    def kill(self) -> None:
        self.process.kill()
        self.process.join(DEADLINE_SECS)
        self.pipe.close()

    def close(self) -> None:
        if not self.pipe.closed:
            self.ask("end")
            self.process.join(DEADLINE_SECS)
            self.pipe.close()
            assert self.process.exitcode == 0
        self.process.close()


class Server:
    """The process's side: turns the plane, sends what it was asked to as credit allows, checks what comes."""

    def __init__(self, endpoint: Endpoint, pipe: Connection) -> None:
        self.endpoint, self.plane, self.pipe = endpoint, endpoint.plane, pipe
        self.to_send: dict[int, Iterator[int]] = {}
        self.received: Counter[tuple[int, int]] = Counter()
        self.wrong: list[str] = []
        self.dies_at: int | None = None
        """The last parcel that this process takes in."""
        self.blocked = 0
        self.sent_bytes: Counter[int] = Counter()
        """By peer, all its incarnations."""

    def run(self) -> None:
        poller = self.endpoint.poller()
        poller.register(self.pipe.fileno(), zmq.POLLIN)
        busy = False
        while True:
            if self.pipe.fileno() in dict(poller.poll(0 if busy else 10)):
                command, *arguments = self.pipe.recv()
                if command == "end":
                    return
                self.pipe.send(getattr(self, command)(*arguments))
            self.plane.polled()
            came = self.plane.receive(self.take_in, 64)
            sent = sum(self.send_one(worker) for worker in list(self.to_send))
            self.plane.send_credit(at_least=1)
            self.plane.confirm()
            busy = bool(came or sent)

    def take_in(self, came: Parcel, done: Callable[[], None]) -> None:
        for batch in came.batches:
            for sender, number, value in batch.rows:
                self.received[sender, number] += 1
                expected = payload(sender, self.endpoint.worker, number)
                if value != expected or type(value) is not type(expected):
                    self.wrong.append(f"{number} of {sender}")
                if number == self.dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
        if self.endpoint.works:
            done()
        else:
            self.endpoint.at_work.append(done)

    def send_one(self, worker: int) -> bool:
        if not self.plane.is_connected(worker):
            return False
        if not self.plane.has_credit(worker):
            self.blocked += 1
            return False
        number = next(self.to_send[worker], None)
        if number is None:
            del self.to_send[worker]
            return False
        me = self.endpoint.worker
        sent = parcel_of(batch_of([(me, number, payload(me, worker, number))]))
        self.sent_bytes[worker] += size_on_link(sent)
        self.plane.send(worker, sent)
        return True

    # ---- commands ----

    def connect(self, worker: int, incarnation: int, path: str) -> None:
        self.plane.connect(worker, incarnation, path)

    def declare_dead(self, worker: int, incarnation: int) -> None:
        self.plane.disconnect(worker)
        self.plane.fence(worker, incarnation + 1)

    def send(self, worker: int, first: int, last: int) -> None:
        self.to_send[worker] = iter(range(first, last))

    def die_at(self, number: int) -> None:
        self.dies_at = number

    def work(self, works: bool) -> None:
        self.endpoint.works = works
        if works:
            self.endpoint.finish_work()

    def probe(self) -> None:
        self.endpoint.probe()

    def raw(self, path: str, message: list[bytes]) -> None:
        """Say something to a path that this plane has no link to any more."""
        socket = self.endpoint.context.socket(zmq.PUSH)
        socket.connect(f"ipc://{path}")
        socket.send_multipart(message)
        socket.close()

    def state(self) -> dict[str, Any]:
        peers = [peer for peer, *_ in self.plane.positions()]
        numbers: dict[int, list[int]] = {}
        for sender, number in self.received:
            numbers.setdefault(sender, []).append(number)
        return {
            "counts": dict(self.plane.counts), "lost": self.plane.lost, "refusals": self.plane.refusals,
            "refused": self.plane.refused,
            "numbers": numbers, "twice": [key for key, count in self.received.items() if count > 1],
            "wrong": self.wrong, "blocked": self.blocked, "at work": len(self.endpoint.at_work),
            "peers": peers, "sent bytes": dict(self.sent_bytes),
            "settled": settled(self.endpoint),
            "credit": {worker: self.plane.has_credit(worker) for worker in peers}, "sending": sorted(self.to_send),
            "arena": self.endpoint.frames_in_arena,
            "faults": dict(self.endpoint.shim.counts if self.endpoint.shim else {}),
            "mapped": Path("/proc/self/maps").read_text().count(MEMFD_NAME),
        }  # fmt: skip


def _serve(pipe: Connection, directory: Path, worker: int, incarnation: int, options: dict[str, Any]) -> None:
    signal.alarm(140)  # a test that fails leaves nobody behind
    endpoint = Endpoint(directory, worker, incarnation, **options)
    pipe.send("bound")
    Server(endpoint, pipe).run()
    endpoint.plane.close()
    endpoint.context.term()
    pipe.send("ended")


def is_done(sender: PlaneProcess) -> bool:
    state = sender.state()
    return not state["sending"] and state["settled"]


def connect_all(*processes: PlaneProcess) -> None:
    for process in processes:
        process.connect(*(other for other in processes if other is not process))
