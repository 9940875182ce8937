"""The supervisor's side of its forking parent, which it keeps running.

Guarantees
    * No call waits for the forking parent's work. Each answer carries port and incarnation of its request, so the
      caller can tell late ones from expected ones.
    * A forking parent that dies or hangs is reported by one ForkingParentEnded and replaced by the same policy as a
      worker; its workers are not affected. If it dies too often, ClusterError ends the supervisor (its workers run on).

Relies on: being made before the process has a second thread or a ZeroMQ context, because the first forking parent is
forked from it (later ones are executed); the process being a subreaper, which learns how workers ended that outlived
their forking parent; `tick` being called at `next_deadline`. Thread: the supervisor's loop.
"""

from __future__ import annotations

import logging
import os
import random
import select
import socket
import subprocess
from typing import NamedTuple

import zmq

from squall.engine.errors import ClusterError
from squall.ipc import hash_seed
from squall.scheduler.common.messages import TopologyRecord, WorkerBoot
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions
from squall.scheduler.common.role import MODULES, RoleKind, interpreter
from squall.scheduler.forking.child import ForkedModule, fork_module
from squall.scheduler.forking.parent import LIMITED_WAIT, Answer, ChildExited, ForkRequest, KeepSpares, receive, send

WORKER_ENTRY = "squall.scheduler.worker.main:worker_main"
WORKER_LOADER = "squall.scheduler.common.blob:load_code"
_MODULE = MODULES[RoleKind.FORKING_PARENT]

log = logging.getLogger(__name__)


class ForkingParentEnded(NamedTuple):
    """The forking parent has ended, or hung and was killed. Its last event."""

    reason: str


ForkingParentEvent = Answer | ForkingParentEnded


class ForkingParent:
    """The node's forking parent, present or not."""

    def __init__(
        self, poller: zmq.Poller, node: str, entry: str, rng: random.Random, now: float, seed: int
    ) -> None:
        """It hashes text by the cluster's `seed`."""
        self._poller = poller
        self._node = node
        self._seed = seed
        self.entry = entry
        """"module:function" of what its children run."""
        self.loader = WORKER_LOADER
        """The same, of what its spares do first."""
        self._policy = RestartPolicy(RestartPolicyOptions(), rng)
        self._child: ForkedModule | subprocess.Popen[bytes]
        self._socket: socket.socket | None = None
        """None while there is no forking parent."""
        self._started_at = 0.0
        self._start_at: float | None = None
        # A fork hashes text as this process does.
        self._start(now, forked=hash_seed.of_process() == seed)

    @property
    def fd(self) -> int:
        """Descriptor that is readable when `events` has something; -1 while there is no forking parent."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def pid(self) -> int:
        """Its pid; 0 while there is none."""
        return 0 if self._socket is None else self._child.pid

    @property
    def next_deadline(self) -> float | None:
        return self._start_at

    def request_fork(self, boot: WorkerBoot) -> None:
        """Ask for a worker; ClusterError if the forking parent cannot be asked."""
        if self._socket is None:
            raise ClusterError("the forking parent has died and is not back yet")
        self._ask(self._socket, ForkRequest(boot, self.entry))

    def keep_spares(self, run_dir: str, topologies: list[TopologyRecord]) -> None:
        """Ask for a spare of each of these topologies, and no other. ClusterError if it cannot be asked."""
        if self._socket is not None:
            self._ask(self._socket, KeepSpares(run_dir, self._node, topologies, self.loader))

    def _ask(self, sock: socket.socket, order: ForkRequest | KeepSpares) -> None:
        try:
            send(sock, order)
        except OSError as error:
            # Half a frame may have been sent, so the forking parent can decode nothing any more.
            self._child.kill()
            raise ClusterError(f"cannot ask the forking parent: {error}") from error

    def events(self, now: float) -> list[ForkingParentEvent]:
        """New events, ends of workers last. After ForkingParentEnded a successor runs or is due."""
        events: list[ForkingParentEvent] = []
        while self._socket is not None and self._poll.poll(0):
            try:
                frame = receive(self._socket)
                assert not isinstance(frame, ForkRequest | KeepSpares)
                events.append(frame)
            except (EOFError, OSError, ValueError) as error:
                events.append(ForkingParentEnded(str(error)))
                self._replace(str(error), now)
                break
        # Sort ends of workers last: they lead to fork requests, which must go to the successor.
        return sorted(events, key=lambda event: isinstance(event, ChildExited))

    def replace(self, reason: str) -> None:
        """Kill one that hangs; `events` will report its end."""
        if self._socket is not None:
            log.warning("forking parent %d is killed: %s", self._child.pid, reason)
            self._child.kill()

    def tick(self, now: float) -> None:
        """Start the successor if it is due."""
        if self._start_at is not None and now >= self._start_at:
            self._start(now)

    def close(self) -> None:
        """End it, and reap it. Its workers live on."""
        self._start_at = None
        if self._socket is not None:
            self._poller.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._child.kill()
            self._child.wait()

    def _start(self, now: float, *, forked: bool = False) -> None:
        """Start one: forked from this process, or as a new interpreter. Requests wait in the socket until it has
        imported everything."""
        self._start_at = None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        for limit in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, limit, LIMITED_WAIT)
        arguments = ("--node", self._node, "--fd", str(theirs.fileno()))
        try:
            if forked:
                self._child = fork_module(_MODULE, arguments, (theirs.fileno(),))
            else:
                self._child = subprocess.Popen(
                    [*interpreter(_MODULE), *arguments], stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
                    start_new_session=True, env={**os.environ, **hash_seed.environment(self._seed)},
                )
        except (OSError, ClusterError) as error:
            ours.close()
            raise ClusterError(f"cannot start the forking parent: {error}") from error
        finally:
            theirs.close()
        self._socket = ours
        self._poll = select.poll()
        self._poll.register(ours, select.POLLIN)
        self._started_at = now
        self._poller.register(ours.fileno(), zmq.POLLIN)
        log.info("forking parent %d started", self._child.pid)

    def _replace(self, reason: str, now: float) -> None:
        self.close()
        verdict = self._policy.died(now, lived_secs=now - self._started_at)
        if isinstance(verdict, GiveUp):
            raise ClusterError(f"the forking parent cannot be kept alive: {verdict}, last: {reason}")
        log.warning("forking parent has died (%s), another in %.1f s", reason, verdict.delay_secs)
        self._start_at = now + verdict.delay_secs
        self.tick(now)
