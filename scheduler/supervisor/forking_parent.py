"""Keeps a forking parent running: replaces it when it dies.

Guarantees: a dead forking parent is replaced by the same policy as a worker; if it dies too often, ClusterError ends
the supervisor (its workers run on).

Relies on: being made before the process has a second thread or a ZeroMQ context, because the first forking parent is
forked from it (later ones are executed); `tick` being called at `next_deadline`. Thread: the supervisor's loop.
"""

from __future__ import annotations

import logging
import random

import zmq

from squall.engine.errors import ClusterError
from squall.scheduler.common.messages import WorkerBoot
from squall.scheduler.common.restart_policy import GiveUp, RestartPolicy, RestartPolicyOptions
from squall.scheduler.forking.client import ForkingParentClient, ForkingParentEnded, ForkingParentEvent
from squall.scheduler.forking.wire import ChildExited

log = logging.getLogger(__name__)


class ForkingParent:
    """The node's forking parent, present or not."""

    def __init__(
        self, poller: zmq.Poller, node: str, entry: str, rng: random.Random, now: float, text_seed: int
    ) -> None:
        self._poller = poller
        self._node = node
        self._text_seed = text_seed
        self._entry = entry
        self._policy = RestartPolicy(RestartPolicyOptions(), rng)
        self._client: ForkingParentClient | None = None
        self._started_at = 0.0
        self._start_at: float | None = None
        self._start(now, forked=True)

    @property
    def fd(self) -> int:
        """Descriptor that is readable when `events` has something; -1 while there is no forking parent."""
        return -1 if self._client is None else self._client.fileno()

    @property
    def pid(self) -> int:
        """Its pid; 0 while there is none."""
        return 0 if self._client is None else self._client.pid

    @property
    def next_deadline(self) -> float | None:
        return self._start_at

    def request_fork(self, boot: WorkerBoot) -> None:
        """Ask for a worker; ClusterError if there is no forking parent."""
        if self._client is None:
            raise ClusterError("the forking parent has died and is not back yet")
        self._client.request_fork(boot, self._entry)

    def events(self, now: float) -> list[ForkingParentEvent]:
        """New events, ends of workers last. After ForkingParentEnded a successor runs or is due."""
        if self._client is None:
            return []
        events = self._client.events()
        if events and isinstance(events[-1], ForkingParentEnded):
            self._replace(events[-1].reason, now)
        # Sort ends of workers last: they lead to fork requests, which must go to the successor.
        return sorted(events, key=lambda event: isinstance(event, ChildExited))

    def replace(self, reason: str) -> None:
        """Kill one that hangs; `events` will report its end."""
        if self._client is not None:
            log.warning("forking parent %d is killed: %s", self._client.pid, reason)
            self._client.kill()

    def tick(self, now: float) -> None:
        """Start the successor if it is due."""
        if self._start_at is not None and now >= self._start_at:
            self._start(now)

    def close(self) -> None:
        """End it. Its workers live on."""
        self._start_at = None
        if self._client is not None:
            self._poller.unregister(self._client.fileno())
            self._client.close()
            self._client = None

    def _start(self, now: float, *, forked: bool = False) -> None:
        self._start_at = None
        self._client = ForkingParentClient.start(self._text_seed, self._node, forked=forked)
        self._started_at = now
        self._poller.register(self._client.fileno(), zmq.POLLIN)
        log.info("forking parent %d started", self._client.pid)

    def _replace(self, reason: str, now: float) -> None:
        self.close()
        verdict = self._policy.died(now, lived_secs=now - self._started_at)
        if isinstance(verdict, GiveUp):
            raise ClusterError(f"the forking parent cannot be kept alive: {verdict}, last: {reason}")
        log.warning("forking parent has died (%s), another in %.1f s", reason, verdict.delay_secs)
        self._start_at = now + verdict.delay_secs
        self.tick(now)
