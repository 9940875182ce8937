"""A supervisor's line to Nimbus: registration, reports, heartbeat, and what Nimbus wants.

Guarantees
    * Whenever Nimbus appears, the node registers anew and reports the state of its slots; nothing waits for Nimbus.
    * Registration waits for an answer at most REGISTER_TIMEOUT_SECS, and only when Nimbus has just been reached or the
      supervisor has just started.

Thread: the supervisor's loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from squall.engine.errors import ClusterError
from squall.ipc.connection_watch import ConnectionWatch
from squall.ipc.control import ControlClient, Incoming
from squall.ipc.fault_point import pass_point
from squall.scheduler.common.messages import AssignNode, RegisterSupervisor, SlotChanged, SupervisorHeartbeat

REGISTER_TIMEOUT_SECS = 0.5
REGISTER_RETRY_SECS = 2.0
HEARTBEAT_SECS = 1.0
_DEATHS_KEPT = 200
"""Deaths to report to a Nimbus that may have missed them: far more than slots have while it is away."""

log = logging.getLogger(__name__)


class NimbusLink:
    """One supervisor's registration. Owns the client."""

    def __init__(self, client: ControlClient, registration: RegisterSupervisor) -> None:
        self._client = client
        self._registration = registration
        self._connection = ConnectionWatch(client.socket)
        self._registered = False
        self._deaths: deque[SlotChanged] = deque(maxlen=_DEATHS_KEPT)
        self._times_registered = 0
        self._register_at: float | None = 0.0
        self._heartbeat_at = 0.0

    @property
    def sources(self) -> tuple[zmq.Socket[bytes], zmq.Socket[bytes]]:
        """Sockets to poll."""
        return self._client.socket, self._connection.source

    def next_deadline(self) -> float:
        return self._heartbeat_at if self._register_at is None else min(self._heartbeat_at, self._register_at)

    def tick(
        self, now: float, holds: Callable[[], dict[int, str]], standing: Callable[[], list[SlotChanged]]
    ) -> AssignNode | None:
        """Do what is due. Returns the desired state if the node has just registered.

        `holds`: the topologies that the slots work for; `standing`: reports of the slots' state.
        """
        self._follow_connection(now)
        if self._registered and now >= self._heartbeat_at:
            self._client.send_event(SupervisorHeartbeat(self._registration.node, now))
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + HEARTBEAT_SECS
        if self._register_at is None or now < self._register_at:
            return None
        return self._register(now, holds(), standing)

    def report(self, changed: SlotChanged) -> None:
        """Report to Nimbus. While it is away it misses reports; when the node registers anew, it hears of every death
        again, of which it counts each once, and of every slot's state."""
        if changed.event == "died":
            self._deaths.append(changed)
        self._tell(changed)

    def _tell(self, changed: SlotChanged) -> None:
        if not self._client.send_event(changed):
            log.warning("Nimbus does not read: report of %s:%d dropped", changed.node, changed.port)

    def recv_event(self) -> Incoming | None:
        return self._client.recv_event()

    def close(self) -> None:
        """Disconnect, after unsent reports have left."""
        self._connection.close()
        self._client.close()

    def _register(
        self, now: float, holds: dict[int, str], standing: Callable[[], list[SlotChanged]]
    ) -> AssignNode | None:
        request = msgspec.structs.replace(self._registration, holds=holds)
        try:
            wanted = self._client.call("register_supervisor", request, AssignNode, timeout_secs=REGISTER_TIMEOUT_SECS)
        except ClusterError as error:
            log.warning("%s; trying again", error)
            self._register_at = now + REGISTER_RETRY_SECS
            return None
        self._register_at = None
        self._registered = True
        self._times_registered += 1
        log.info("registered with Nimbus (%d)", self._times_registered)
        pass_point("supervisor.registered")
        for changed in (*self._deaths, *standing()):
            self._tell(changed)
        return wanted

    def _follow_connection(self, now: float) -> None:
        for connected in self._connection.changes():
            if not connected:
                log.warning("Nimbus has gone; the workers run on")
                self._registered = False
                self._register_at = None
            elif not self._registered:
                self._register_at = now
