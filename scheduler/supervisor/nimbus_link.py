"""A supervisor's line to Nimbus: registration, reports, heartbeat, and what Nimbus wants.

Guarantees
    * Whenever Nimbus appears, the node registers anew and reports the state of its slots; nothing waits for Nimbus.
    * Registration waits for an answer at most REGISTER_TIMEOUT_SECS, and only when Nimbus has just been reached or the
      supervisor has just started.
    * Of assignments, only those get through that the Nimbus which answered the last registration has sent since. Others
      are dropped: the answer holds all that Nimbus wants, and an older one may have wanted something else. Shutdown and
      news of faults always get through: an operator wanted the one, whichever Nimbus passed it on, and the other only
      says that a file is to be read.
    * A supervisor that leaves (`Departure`) waits until Nimbus has moved the work of its node away, drained, and the
      slots are empty; but at most NIMBUS_PATIENCE_SECS for a Nimbus that does not answer, and as long on top of its
      limit for the workers that Nimbus stops at that limit.

Thread: the supervisor's loop.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

import msgspec
import zmq

from squall.engine.errors import ClusterError
from squall.ipc.control import ConnectionWatch, ControlClient, Incoming
from squall.ipc.envelope import NO_NONCE
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
        self._answer = NO_NONCE
        """The frame that answered the last registration; NO_NONCE from the moment when another one is due."""
        self._departure: Departure | None = None
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

    def ask_to_leave(self, departure: Departure, now: float) -> None:
        """Tell Nimbus, now and whenever the node registers, that the node is leaving. `departure` hears its answer."""
        self._departure = departure
        if self._registered:
            self._register_at = now

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
        """The next event that counts."""
        while (event := self._client.recv_event()) is not None:
            if event.method != AssignNode.__name__ or event.nonce.follows(self._answer):
                return event
            log.info("an assignment from before the registration with this Nimbus is not carried out")
        return None

    def close(self) -> None:
        """Disconnect, after unsent reports have left."""
        self._connection.close()
        self._client.close()

    def _register(
        self, now: float, holds: dict[int, str], standing: Callable[[], list[SlotChanged]]
    ) -> AssignNode | None:
        left_secs = None if self._departure is None else max(0.0, round(self._departure.leave_by - now, 1))
        request = msgspec.structs.replace(self._registration, holds=holds, leaves_within_secs=left_secs)
        # Also if it gets no answer: Nimbus may count on what this request says that the node holds.
        self._answer = NO_NONCE
        try:
            wanted = self._client.call("register_supervisor", request, AssignNode, timeout_secs=REGISTER_TIMEOUT_SECS)
        except ClusterError as error:
            log.warning("%s; trying again", error)
            self._register_at = now + REGISTER_RETRY_SECS
            return None
        self._register_at = None
        self._registered = True
        self._answer = self._client.answered_by
        self._times_registered += 1
        log.info("registered with Nimbus (%d)", self._times_registered)
        if self._departure is not None:
            self._departure.answered()
        for changed in (*self._deaths, *standing()):
            self._tell(changed)
        return wanted

    def _follow_connection(self, now: float) -> None:
        for connected in self._connection.changes():
            if not connected:
                log.warning("Nimbus has gone; the workers run on")
                self._registered = False
                self._answer = NO_NONCE
                self._register_at = None
            elif not self._registered:
                self._register_at = now


NIMBUS_PATIENCE_SECS = 3.0
"""Time for a Nimbus that died to be back, or for a second request to one that is slow. Not more: `squall down` kills
what has not ended after ten seconds, workers' grace included."""


class Departure:
    """The wait of one supervisor, begun at `now`."""

    def __init__(self, now: float, within_secs: float) -> None:
        self.leave_by = now + within_secs
        """When Nimbus shall have moved all work at the latest."""
        self._answer_by = now + NIMBUS_PATIENCE_SECS
        self._answered = False

    def answered(self) -> None:
        """Nimbus knows that the node is leaving, and what it wants of the slots is known."""
        self._answered = True

    def is_over(self, now: float, idle: bool) -> bool:
        """Whether to end now. `idle`: the slots are empty and Nimbus wants nothing in them."""
        return (idle and self._answered) or now >= self.next_deadline

    @property
    def next_deadline(self) -> float:
        """When it is over at the latest."""
        return self.leave_by + NIMBUS_PATIENCE_SECS if self._answered else self._answer_by
