"""A program's connection to Nimbus: one typed method per request.

Guarantees
    * UsageError and ClusterError arrive as Nimbus raised them. No call waits for an answer longer than `timeout_secs`.
    * If Nimbus holds its directory and does not answer, NoAnswer names its pid and the time waited. It may have another
      key.
    * Without a Nimbus, ClusterError says so: at once, or after `patience_secs` if other processes of the cluster run,
      because a keeper may be starting it again.
    * Requests that change something are not repeated: after a timeout they may have been carried out. If Nimbus dies
      before it answers one, NimbusGone says so at once.
    * Questions are repeated, so that they survive its death; with `patience_secs` also requests that may be carried out
      twice (activate, deactivate, reset, heal, shutdown).

    * Threads may share a client: one request at a time is under way, and its answer goes to the thread that asked.

Relies on: the run directory's key, which only the cluster's owner can read. Thread: any.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import TypeVar

import msgspec

from squall.engine.errors import ClusterError, UsageError
from squall.ipc.control import ControlClient, NoAnswer, ServerGone
from squall.ipc.rundir import UNKNOWN, RunDir
from squall.scheduler.breaking.faults_file import faults_now
from squall.scheduler.client.why_away import room_error, why_away
from squall.scheduler.common.mark import processes_of
from squall.scheduler.common.messages import (
    ClusterState,
    FaultsTold,
    ForgetUnknown,
    GetCluster,
    HealFaults,
    InjectFault,
    KillTopology,
    NamedTopology,
    RebalanceTopology,
    Shutdown,
    SubmitTopology,
    TopologyRecord,
    TopologyState,
    Wire,
)
from squall.scheduler.common.process import send_signal_proven
from squall.scheduler.faults.fault import Fault
from squall.scheduler.faults.in_force import NIMBUS, FaultInForce
from squall.scheduler.faults.sentence import text_of
from squall.scheduler.records.nimbus_words import words_of

TIMEOUT_SECS = 10.0
"""Longest wait for an answer: Nimbus takes milliseconds, more only on an overloaded machine."""
POLL_SECS = 0.01
AWAY_PATIENCE_SECS = 5.0
"""Longest wait of a command for a Nimbus that is being restarted: more than its keeper pauses between two tries."""
_LOOK_SECS = 0.25
"""Between two looks, while Nimbus is away, at the cluster's processes, each of which reads every process."""
_QUESTION_SECS = 1.0
"""Between two tries of a question: Nimbus may have died before it answered."""
_MOMENT_SECS = 0.2
"""More than Nimbus leaves between its answer to a request for its stop and the stop."""

W = TypeVar("W", bound=Wire)


class NimbusGone(NoAnswer):
    """Nimbus ended before it answered a request, which it may or may not have carried out."""


class Interrupted(ClusterError):
    """The caller ended the wait."""


class NoCluster(ClusterError):
    """No process of the cluster runs."""


class NimbusAway(ClusterError):
    """Processes of the cluster run, and Nimbus did not come back."""


class NotEnded(ClusterError):
    """Nimbus was told to end and has not ended in time."""


class NimbusClient:
    """A connection to the Nimbus of one run directory. A context manager."""

    def __init__(
        self,
        run_dir: RunDir,
        timeout_secs: float = TIMEOUT_SECS,
        patience_secs: float = 0.0,
        on_away: Callable[[], None] = lambda: None,
        is_own: bool = False,
    ) -> None:
        """`on_away` is called before a wait for a Nimbus that is away. `is_own`: the cluster is there for the caller's
        topology alone, and ends with the caller."""
        self.run_dir = run_dir
        self._timeout_secs = timeout_secs
        self._patience_secs = patience_secs
        self._on_away = on_away
        self._is_own = is_own
        self._maker = os.getpid()
        self._has_met = False
        """Whether there was a Nimbus: then its end has a reason."""
        self._require_nimbus()
        self._has_met = True
        self._turn = threading.RLock()
        """Held from a request to its answer: a ZeroMQ socket is for one thread at a time."""
        self._control = self._connected()

    def __enter__(self) -> NimbusClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. In a process forked from the one that has connected, nothing: its sockets are the other's."""
        if os.getpid() == self._maker:
            with self._turn:
                self._control.close(linger_secs=0.0)

    def _require_maker(self) -> None:
        """Raise UsageError in a forked process, in which ZeroMQ's sockets do not work: it would wait in vain."""
        if os.getpid() != self._maker:
            raise UsageError(
                f"this connection to the cluster in {self.run_dir.path} belongs to process {self._maker}, and this "
                "process was forked from it; allowed here: Cluster.connect(dir)"
            )

    # ---- topologies ----

    def submit_topology(self, request: SubmitTopology) -> TopologyRecord:
        """Start a topology whose code is in the code store."""
        return self._call("submit_topology", request, TopologyRecord)

    def await_begun(
        self, topology: TopologyRecord, timeout_secs: float, on_wait: Callable[[], bool | None] | None = None
    ) -> None:
        """Wait until an accepted topology has taken the place of the one that it replaces. Nimbus sees to that, whether
        or not anybody waits.

        ClusterError if it never will. `on_wait` as in `await_removed`.
        """
        deadline = time.monotonic() + timeout_secs
        while (former := self._still_before(topology)) is not None:
            if time.monotonic() >= deadline:
                with contextlib.suppress(UsageError):  # It was removed since the look.
                    living = self._still_living(former.name)
                    raise ClusterError(
                        f"topology {former.id} is still there after {timeout_secs:g} s{living}; {topology.id} takes "
                        "its place when it is gone"
                    )
            if on_wait is not None and on_wait():
                raise Interrupted(f"{former.id} still drains; {topology.id} takes its place, without this command")
            time.sleep(POLL_SECS)

    def _still_before(self, topology: TopologyRecord) -> TopologyRecord | None:
        """The topology whose place this one is to take; None if it has. ClusterError if it never will."""
        there = next((each for each in self.get_cluster().topologies if each.name == topology.name), None)
        if there is not None and there.id == topology.id:
            return None
        if there is None or (there.status == "KILLED" and there.successor is None):
            finished = "it has finished, or " if topology.remove_when_drained else ""
            raise ClusterError(f"topology {topology.id} is not there: {finished}{topology.name} was killed meanwhile")
        newest = there if there.successor is None else there.successor.topology
        if newest.id != topology.id:
            raise ClusterError(f"topology {topology.id} is not there: {newest.id} was submitted in its place meanwhile")
        return there

    def get_topology(self, name: str) -> TopologyState:
        """Record, assignment, workers and deaths of a topology."""
        return self._ask("get_topology", NamedTopology(name), TopologyState)

    def activate(self, name: str) -> TopologyRecord:
        """Let the spouts emit."""
        return self._call("activate", NamedTopology(name), TopologyRecord, repeats=True)

    def deactivate(self, name: str) -> TopologyRecord:
        """Stop the spouts; bolts go on."""
        return self._call("deactivate", NamedTopology(name), TopologyRecord, repeats=True)

    def kill_topology(self, name: str, wait_secs: float = 0.0) -> TopologyRecord:
        """Stop the spouts, and the workers once drained, or after `wait_secs`. Returns at once."""
        return self._call("kill_topology", KillTopology(name, wait_secs), TopologyRecord)

    def rebalance(self, name: str, workers: int | None, executors: dict[str, int], wait_secs: float) -> TopologyRecord:
        """Stop the spouts, and move once drained, or after `wait_secs`. Returns at once."""
        return self._call("rebalance", RebalanceTopology(name, workers, executors, wait_secs), TopologyRecord)

    def reset(self, name: str) -> TopologyRecord:
        """Have slots that were given up start anew."""
        return self._call("reset", NamedTopology(name), TopologyRecord, repeats=True)

    def await_removed(
        self, topology_id: str, timeout_secs: float, on_wait: Callable[[], bool | None] | None = None
    ) -> None:
        """Wait until a killed topology's workers have stopped and its name is free.

        `on_wait` is called between looks; when it returns True, Interrupted is raised.
        """
        deadline = time.monotonic() + timeout_secs
        while (there := [record for record in self.get_cluster().topologies if record.id == topology_id]):
            if time.monotonic() >= deadline:
                try:
                    living = self._still_living(there[0].name)
                except UsageError:
                    return  # It was removed since the look.
                raise ClusterError(f"topology {topology_id} is still there after {timeout_secs:g} s{living}")
            if on_wait is not None and on_wait():
                raise Interrupted(f"the wait for the end of {topology_id} was cut short")
            time.sleep(POLL_SECS)

    def _still_living(self, name: str) -> str:
        workers = self.get_topology(name).workers.items()
        found = ", ".join(f"{slot} ({state})" for slot, state in workers if state not in ("stopped", "failed"))
        return f": workers that have not ended are {found}" if found else ""

    def forget_unknown(self) -> list[str]:
        """Stop and remove topologies that Nimbus does not know; returns their ids."""
        return self._call("forget_unknown", ForgetUnknown(), ForgetUnknown).ids

    # ---- faults on purpose ----

    def inject(self, fault: Fault) -> list[FaultInForce]:
        """Begin a fault now; returns one FaultInForce per carrier."""
        told = self._call("inject", InjectFault(text_of(fault)), FaultsTold)
        return [msgspec.convert(begun, FaultInForce) for begun in told.faults]

    def heal(self, targets: Sequence[str] = ()) -> list[FaultInForce]:
        """End all faults in force; with `targets`, only those begun with exactly these. Returns them. A Nimbus that a
        fault has stopped is continued first, by pid and start time."""
        for fault in faults_now(self.run_dir, time.monotonic()):
            if not targets or list(targets) == fault.targets:
                for victim in fault.victims:
                    if victim.name == NIMBUS:
                        send_signal_proven(victim.pid, victim.started_ticks, signal.SIGCONT)
        told = self._call("heal", HealFaults(list(targets)), FaultsTold, repeats=True)
        return [msgspec.convert(ended, FaultInForce) for ended in told.faults]

    # ---- the cluster ----

    def get_cluster(self) -> ClusterState:
        """Supervisors, topologies and free slots."""
        return self._ask("get_cluster", GetCluster(), ClusterState)

    def shutdown(self, grace_secs: float, drain_secs: float = 0.0) -> None:
        """Stop spouts, then, once drained or after `drain_secs`, workers within `grace_secs`, then the daemons.

        Returns at once; see `await_end`. May be called again, with less patience.
        """
        self._call("shutdown", Shutdown(grace_secs, drain_secs), Shutdown, repeats=True)

    def await_end(self, timeout_secs: float, on_wait: Callable[[], bool | None] | None = None) -> None:
        """Wait until Nimbus has ended. `on_wait` as in `await_removed`."""
        deadline = time.monotonic() + timeout_secs
        while (holder := self.run_dir.lock_holder()) is not None:
            if time.monotonic() >= deadline:
                raise NotEnded(f"Nimbus (pid {holder}) has not ended within {timeout_secs:g} s")
            if on_wait is not None and on_wait():
                raise Interrupted("the wait for the end of the cluster was cut short")
            time.sleep(POLL_SECS)

    # ---- parts ----

    def _connected(self) -> ControlClient:
        return ControlClient(self.run_dir.nimbus_socket, self.run_dir.key(), f"client:{os.urandom(8).hex()}")

    def _require_nimbus(self) -> None:
        path = self.run_dir.path
        if self.run_dir.lock_holder() is not None:
            return
        if not self._patience_secs or not processes_of(self.run_dir):
            raise NoCluster(self._ended() if self._has_met else f"no cluster runs in {path}: {self._start_hint()}")
        self._on_away()
        deadline = time.monotonic() + self._patience_secs
        next_look = time.monotonic() + _LOOK_SECS
        while self.run_dir.lock_holder() is None:
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_SECS
                if not processes_of(self.run_dir):
                    raise NoCluster(f"the cluster in {path} has stopped: {self._start_hint()}")
            if now >= deadline:
                why = why_away(self.run_dir)
                raise NimbusAway(
                    f"Nimbus of the cluster in {path} is away, and did not come back within {self._patience_secs:g} s"
                    f"{f' ({why})' if why else ''}: workers run on, `squall nimbus --dir {path}` starts it again"
                )
            time.sleep(POLL_SECS)

    def _ended(self) -> str:
        """The end of a cluster that was met, why, and what helps."""
        room, path = room_error(self.run_dir), self.run_dir.path
        if room:
            elsewhere = " or choose another directory (`squall run --dir DIR`)" if self._is_own else ""
            return f"the cluster in {path} has ended ({room}): mend that{elsewhere}, then {self._start_hint()}"
        words = words_of(self.run_dir)
        return f"the cluster in {path} has ended{f' ({words})' if words else ''}: {self._start_hint()}"

    def _start_hint(self) -> str:
        return "run it again" if self._is_own else f"start one with `squall up --dir {self.run_dir.path}`"

    def _ask(self, method: str, body: Wire, reply_type: type[W]) -> W:
        """Ask a question, again and again until the timeout: it changes nothing."""
        self._require_maker()
        began = time.monotonic()
        while True:
            self._require_nimbus()
            try:
                with self._turn:
                    remaining_secs = began + self._timeout_secs - time.monotonic()
                    return self._control.call(method, body, reply_type, min(_QUESTION_SECS, max(0.0, remaining_secs)))
            except NoAnswer:
                if remaining_secs <= _QUESTION_SECS:
                    raise self._silent(time.monotonic() - began) from None

    def _call(self, method: str, body: Wire, reply_type: type[W], *, repeats: bool = False) -> W:
        """Have something changed. `repeats`: whether it may be carried out twice."""
        self._require_maker()
        began = time.monotonic()
        while True:
            self._require_nimbus()
            asked = self.run_dir.lock_holder()
            try:
                return self._exchange(method, body, reply_type, asked)
            except ServerGone:
                if not repeats or not self._patience_secs or time.monotonic() >= began + self._timeout_secs:
                    raise self._gone(asked, method) from None
            except NoAnswer:
                raise self._silent(time.monotonic() - began, f"; {method} may still be carried out") from None

    def _exchange(self, method: str, body: Wire, reply_type: type[W], asked: str | None) -> W:
        with self._turn:
            try:
                return self._control.call(method, body, reply_type, self._timeout_secs, partial(self._has_gone, asked))
            except ServerGone:
                # So that a request that has not left yet never reaches the next Nimbus.
                self.close()
                self._control = self._connected()
                raise

    def _gone(self, asked: str | None, method: str) -> NimbusGone:
        why = why_away(self.run_dir)
        return NimbusGone(
            f"Nimbus (pid {asked}) ended before it answered{f' ({why})' if why else ''}; {method} was carried out or "
            "not: squall status tells, and it may be asked again"
        )

    def _has_gone(self, asked: str | None) -> bool:
        """Whether the Nimbus of this pid no longer holds the directory, as far as is known."""
        holder = self.run_dir.lock_holder()
        return holder is None or (holder != asked and UNKNOWN not in (holder, asked))

    def _silent(self, waited_secs: float, besides: str = "") -> NoAnswer:
        """The error for a missing answer: Nimbus has gone, is stopped, hangs, or has another key."""
        holder, path = self.run_dir.lock_holder(), self.run_dir.path
        if holder is None:
            why = why_away(self.run_dir)
            reason = f" ({why})" if why else ""
            return NoAnswer(f"Nimbus has gone{reason} and did not answer within {waited_secs:.2g} s{besides}")
        if room := room_error(self.run_dir):
            # It ends, and is started again, in vain.
            return NoAnswer(f"Nimbus does not answer within {waited_secs:.2g} s{besides}: {room}")
        return NoAnswer(
            f"Nimbus (pid {holder}) does not answer within {waited_secs:.2g} s: it is stopped or hung, or "
            f"{self.run_dir.key_file} is not the key that it was started with{besides}; SIGCONT continues a stopped "
            f"one, `squall down --dir {path}` ends the cluster without it"
        )


def nimbus_is_stopped(run_dir: RunDir) -> bool:
    """Whether a fault has stopped Nimbus, or will in a moment: it answers nothing until the end of that fault."""
    now = time.monotonic()
    return any(
        fault.kind == "stop" and any(victim.name == NIMBUS for victim in fault.victims)
        for fault in faults_now(run_dir, now + _MOMENT_SECS)
        if now < fault.ends_secs
    )
