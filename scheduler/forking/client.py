"""The supervisor's side of the forking parent.

Guarantees
    * No call waits for the forking parent, except `close`.
    * Each answer carries port and incarnation of its request, so the caller can tell late ones from expected ones.
    * When the forking parent dies, `events` reports it once; its workers are not affected.

Relies on: the caller being a subreaper (`process.become_subreaper`) if it wants the exit statuses of workers that
outlive their forking parent.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
from typing import NamedTuple

from squall.engine.errors import ClusterError, ProtocolError
from squall.ipc import text_seed
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.common.process_title import MODULES, Kind
from squall.scheduler.forking.interpreter import interpreter
from squall.scheduler.forking.module import ChildProcess, fork_module
from squall.scheduler.forking.wire import ChildExited, Forked, ForkingParentChannel, ForkRefused, ForkRequest, Received

_MODULE = MODULES[Kind.FORKING_PARENT]
WORKER_ENTRY = "squall.scheduler.worker.main:worker_main"
SEND_TIMEOUT_SECS = 5.0
CLOSE_TIMEOUT_SECS = 5.0


class ForkedChild(NamedTuple):
    """A worker that exists. Whoever takes this owns the pidfd."""

    pid: int
    pidfd: int
    port: int
    incarnation: int


class ForkingParentEnded(NamedTuple):
    """The forking parent has ended. Its last event."""

    reason: str


ForkingParentEvent = ForkedChild | ForkRefused | ChildExited | ForkingParentEnded


class ForkingParentClient:
    """A running forking parent. Thread: the supervisor's loop."""

    def __init__(self, child: ChildProcess, channel: ForkingParentChannel) -> None:
        self._child = child
        self._channel = channel
        self._ended = False
        self._poll = select.poll()
        self._poll.register(channel, select.POLLIN)

    @classmethod
    def start(cls, seed: int, node: str, *, forked: bool = False) -> ForkingParentClient:
        """Start a node's, which hashes text by the cluster's `seed`: as a new interpreter, or `forked` from this
        process, if that has this seed, while that has one thread and no ZeroMQ context. Returns at once; requests wait
        in the socket until the forking parent has imported everything."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.settimeout(SEND_TIMEOUT_SECS)
        try:
            if forked and text_seed.of_process() == seed:
                child = _fork(node, theirs.fileno())
            else:
                child = _execute(node, theirs.fileno(), seed)
        except (OSError, ClusterError) as error:
            ours.close()
            raise ClusterError(f"cannot start the forking parent: {error}") from error
        finally:
            theirs.close()
        return cls(child, ForkingParentChannel(ours))

    @property
    def pid(self) -> int:
        return self._child.pid

    def fileno(self) -> int:
        """Descriptor that is readable when `events` has something."""
        return self._channel.fileno()

    def request_fork(self, boot: WorkerBoot, entry: str = WORKER_ENTRY) -> None:
        """Ask for a worker; the answer is an event. ClusterError if the forking parent cannot be asked."""
        try:
            self._channel.send(ForkRequest(boot, entry))
        except (OSError, ProtocolError) as error:
            # Half a frame may have been sent, so the forking parent can decode nothing any more.
            self.kill()
            raise ClusterError(f"cannot ask the forking parent for a worker: {error}") from error

    def events(self) -> list[ForkingParentEvent]:
        """Events since the last call. Does not wait."""
        events: list[ForkingParentEvent] = []
        while more := self._read():
            events += more
        return events

    def kill(self) -> None:
        """Kill it; `events` will report that. Its workers live on."""
        self._child.kill()

    def close(self) -> None:
        """End it, by force if it takes too long, and reap it. Its workers live on."""
        self._channel.close()
        if self._ended:
            self._child.kill()
        try:
            self._child.wait(CLOSE_TIMEOUT_SECS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _read(self) -> list[ForkingParentEvent]:
        """Events of the next bytes, if any are there."""
        if self._ended or not self._poll.poll(0):
            return []
        try:
            return [_event(received) for received in self._channel.receive()]
        except (EOFError, ConnectionResetError) as error:
            reason = str(error)
        except ProtocolError as error:
            reason = str(error)
            self.kill()
        self._ended = True
        return [ForkingParentEnded(reason)]


def _fork(node: str, fd: int) -> ChildProcess:
    return fork_module(_MODULE, ("--node", node, "--fd", str(fd)), (fd,))


def _execute(node: str, fd: int, seed: int) -> ChildProcess:
    command = [*interpreter(_MODULE), "--node", node, "--fd", str(fd)]
    environment = {**os.environ, **text_seed.environment(seed)}
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=[fd], start_new_session=True, env=environment
    )


def _event(received: Received) -> ForkingParentEvent:
    frame = received.frame
    if isinstance(frame, Forked):
        return ForkedChild(frame.pid, received.descriptors[0], frame.port, frame.incarnation)
    if isinstance(frame, ForkRequest):
        raise ProtocolError("the forking parent asked for a worker")
    return frame
